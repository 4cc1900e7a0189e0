//! Packets in, packets out.

mod asks;
mod halves;
mod harness;
mod kept;
mod keys;
mod model;
mod rules;
mod shares;
mod tenant;
mod trees;
