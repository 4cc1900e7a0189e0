//! Switches and servers as processes: how they begin, what they tell, how they end.

mod lives;
mod process;
mod refusals;
mod watching;
