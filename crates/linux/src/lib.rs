//! The parts of Linux that labs and agents set up: links and queues through netlink, and small programs in the kernel.
//!
//! [`Netlink`] asks for changes in one network namespace. [`htb`] has the messages of hierarchical token buckets.
//! [`Connections`] lists what TCP connections there are, and what they have sent.
//! [`Code`] puts a program together from instructions, so that no compiler and no file is needed; [`Program`] is what
//! the kernel has accepted; [`Memory`] and [`Map`] are what it shares with programs.
//!
//! Nothing here knows what the parts are used for.

mod code;
mod disciplines;
pub mod htb;
mod netlink;
mod sockets;
mod sys;
mod traffic;

pub use code::{Alu, Code, Helper, Jump, Label, Operand, Register, Size};
pub use disciplines::Discipline;
pub use netlink::Netlink;
pub use netlink_packet_route::tc::TcHandle as Handle;
pub use sockets::{Connection, Connections};
pub use sys::{Attached, Hook, Map, Memory, Program, WhenFull, interface_index, measure_programs};
pub use traffic::{add_clsact, add_filter, option, traffic_control};
