//! Headers as bytes and as meaning.
//!
//! Every packet begins with a header area of fixed size, [`Header`](thalweg_core::Header),
//! little-endian, each field aligned to its own size. The first 24 bytes are the same in all of them
//! ([`prefix`]); the other 40 depend on the [`Kind`]. One file holds one header, and in it stand two
//! types for each kind of packet:
//!
//! - a *view*, the bytes with names, read and rewritten where they lie;
//! - its *meaning*, a plain struct, which `decode` makes from bytes that keep every rule of the
//!   header and `encode` turns back into the same bytes.
//!
//! Nothing here panics on any input, allocates, or does I/O. The layouts are drawn in
//! `docs/wire.md`.

pub mod aggregate;
pub mod deliver;
pub mod fingerprint;
pub mod flow;
pub mod pace;
pub mod prefix;
pub mod tag;

pub use prefix::{Kind, Prefix, PrefixError, peek};
