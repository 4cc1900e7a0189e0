//! Headers as bytes and as meaning.
//!
//! Every packet begins with a header area of fixed size, [`Header`](thalweg_core::Header),
//! little-endian; numbers of one, two, four and eight bytes are aligned to their size. The first 24 bytes are the same in all of them
//! ([`prefix`]); the other 40 depend on the [`Kind`]. One file holds one header, and in it stand two
//! types for each kind of packet:
//!
//! - a *view*, the bytes with names, read and rewritten where they lie;
//! - its *meaning*, a plain struct, which `decode` makes from bytes that keep every rule of the
//!   header and `encode` turns back into the same bytes.
//!
//! Messages between ranks are no packets: what stands behind their bytes is the [`frame`] of a sum, or the [`trailer`]
//! of any other message.
//!
//! Nothing here panics on any input or does I/O, and headers allocate nothing. The layouts are drawn in
//! `docs/wire.md`.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

pub mod aggregate;
pub mod coverage;
pub mod deliver;
pub mod fingerprint;
pub mod flow;
pub mod frame;
pub mod int24;
pub mod pace;
pub mod path;
pub mod prefix;
pub mod tag;
#[cfg(test)]
mod testing;
pub mod trailer;

/// The last of the eight classes of packets.
pub const CLASS_MAX: u8 = 7;

/// `flag` if `set`, else no flag.
const fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

pub use prefix::{Kind, Prefix, PrefixError, peek};
