//! Switches, servers and agents as processes: how they begin, what they tell, how they end.

mod enforcement;
mod hang_ups;
mod lives;
mod logs;
mod pacing;
mod process;
mod refusals;
mod tokens;
mod watching;
