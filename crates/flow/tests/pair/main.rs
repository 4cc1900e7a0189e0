//! Endpoints on a small network of the test's own: no fabric, no sockets.

mod basics;
mod batches;
mod bbr;
mod by_delay;
mod faults;
mod hostile;
mod network;
mod priorities;
mod probes;
mod ring;
