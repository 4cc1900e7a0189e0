//! The parts of Linux that labs and agents set up: links and queues through netlink, and small programs in the kernel.
//!
//! [`Netlink`] asks for changes in one network namespace. [`htb`] has the messages of hierarchical token buckets.
//! [`Code`] puts a program together from instructions, so that no compiler and no file is needed; [`Program`] is what
//! the kernel has accepted, and [`Memory`] what it shares with programs.
//!
//! Nothing here knows what the parts are used for.

mod code;
mod disciplines;
pub mod htb;
mod netlink;
mod sys;
mod traffic;

pub use code::{Alu, Code, Helper, Jump, Label, Operand, Register, Size};
pub use disciplines::Discipline;
pub use netlink::Netlink;
pub use netlink_packet_route::tc::TcHandle as Handle;
pub use sys::{Attached, Hook, Memory, Program};
pub use traffic::{add_clsact, add_filter, option, traffic_control};
