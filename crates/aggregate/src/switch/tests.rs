//! Packets in, packets out.

mod asks;
mod harness;
mod model;
mod rules;
mod trees;
