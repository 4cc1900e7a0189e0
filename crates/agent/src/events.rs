//! Events of agents and of paced programs, as events of [`tracing`].
//!
//! All have the target `thalweg::agent` and the field `event`, a word for programs. Anything that needs attention is a
//! warning.
//!
//! | `event` | level | fields | meaning |
//! |---|---|---|---|
//! | `joined` | info | `address`, `job` | a process of a job joined the agent |
//! | `refused` | warning | `address` | a process sent an invalid message or does not read, and was disconnected |
//! | `tables_found` | info | `address`, `switch` | the load tables of a switch answer |
//! | `tables_lost` | warning | `address`, `switch` | they no longer answer: the agent goes by the table of its own link |
//! | `tables_refused` | warning | `address`, `switch` | the switch refuses the agent: a token or a setting differs |
//! | `no_control_group` | warning | `job` | the processes of a program are found by their parents |
//! | `unlimited` | warning | `job` | a connection of a program cannot be limited |
//! | `unpaced` | warning | `job` | the agent ended or is silent, and the program continues without limits |
//! | `paced` | info | `job` | the agent answers again, and the program is limited again |
//! | `unguarded` | warning | `job` | the guardian of a program may not lift its limits: they stay if the process hangs |
//! | `guardian_lost` | warning | `job` | the guardian of a program ended; another one is started, or nothing is limited |
//! | `unrecorded` | warning | `job` | limits of a program's own cannot be written down; where that was possible before, nothing is limited from now on |
//! | `unrestored` | warning | | limits of programs, or queues of an interface, whose processes were killed cannot be restored |
//! | `no_classes` | warning | `address` | the interface of the host gets or keeps no classes: programs keep to rates |
//! | `unmarked` | warning | `job` | packets of a program cannot be marked, and have no class |
//! | `clock_set` | warning | `address`, `by_s` | the clock of the host was set: slots have other numbers from now on |
//! | `long_segments` | warning | | a setting of the kernel cannot be changed, and low rates are kept badly |

/// Target of the events of agents.
pub const TARGET: &str = "thalweg::agent";
