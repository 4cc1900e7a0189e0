//! Where the planes meet, still without I/O: the stack of a host and the program of a switch.
