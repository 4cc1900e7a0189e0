//! Published figures, run again: plan, run, compare, draw.
