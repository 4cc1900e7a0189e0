//! Outcomes as text: a table for the terminal, JSON, CSV, and a page with pictures.

pub mod csv;
pub mod json;
mod links;
pub mod page;
pub mod text;

pub use links::{LinkGroup, link_groups};
