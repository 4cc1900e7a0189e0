//! Packets in, packets out.

mod asks;
mod harness;
mod keys;
mod model;
mod rules;
mod shares;
mod tenant;
mod trees;
