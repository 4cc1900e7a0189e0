//! Switches, servers and agents as processes: how they begin, what they tell, how they end.

mod lives;
mod pacing;
mod process;
mod refusals;
mod watching;
