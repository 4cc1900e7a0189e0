//! Keyed tags: who may speak for a job.
//!
//! Every header carries 64 bits of SipHash-2-4 over its other bytes. No machine has its tags cover bodies as
//! well, for which [`seal_with_body`] and [`verify_with_body`] are there. The key belongs to one set-up of
//! one job and is derived from the cluster's secret, so that a switch needs no set-up for a job and a
//! restarted one verifies at once. Switch, server and worker drop what does not verify. A switch that
//! rewrites a header seals it again.
//!
//! **Against whom.** Tenants who can send anything from their own hosts, but neither read nor change
//! packets of others on the way. Without the key a forged header passes once in 2⁶⁴ tries. A tag does
//! not hide anything, does not stop a tenant from replaying packets of its own job (identities that
//! are never reused do that), and does not protect a body that it does not cover from someone who
//! can change packets in flight.
//!
//! **Who holds what.** Switches and servers hold the [`Secret`] and derive keys. Workers are given
//! the [`Key`] of their job when they join and never see the secret.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128;
use thalweg_core::{Header, JobId};
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{IntoBytes, transmute_mut, transmute_ref};

use crate::prefix::AnyView;

/// What a cluster's switches and servers share and no tenant knows. Used for nothing but deriving
/// keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

/// The key of one set-up of one job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// The key of a job's epoch. Knowing one key tells nothing about another, or about the secret.
    pub fn derive(secret: &Secret, job: JobId, epoch: u32) -> Key {
        let mut input = [0; 12];
        input[..8].copy_from_slice(&job.0.to_le_bytes());
        input[8..].copy_from_slice(&epoch.to_le_bytes());
        Key(sip128::SipHasher24::new_with_key(&secret.0).hash(&input).as_bytes())
    }
}

/// Writes the tag over the header. Any change afterwards, by an encoder or in place, needs a new one.
#[inline]
pub fn seal(header: &mut Header, key: &Key) {
    let tag = header_tag(header, key);
    let any: &mut AnyView = transmute_mut!(header);
    any.prefix.tag = U64::new(tag);
}

/// Whether the header is as its sender sealed it.
#[inline]
pub fn verify(header: &Header, key: &Key) -> bool {
    matches(header, header_tag(header, key))
}

/// Writes the tag over header and body. Sealer and verifier have to agree that bodies count.
pub fn seal_with_body(header: &mut Header, body: &[u8], key: &Key) {
    let tag = full_tag(header, body, key);
    let any: &mut AnyView = transmute_mut!(header);
    any.prefix.tag = U64::new(tag);
}

/// Whether header and body are as their sender sealed them.
pub fn verify_with_body(header: &Header, body: &[u8], key: &Key) -> bool {
    matches(header, full_tag(header, body, key))
}

/// Writes the tag over the header and the length of its body, for headers that do not name that length.
#[inline]
pub fn seal_sized(header: &mut Header, body_bytes: usize, key: &Key) {
    let tag = sized_tag(header, body_bytes, key);
    let any: &mut AnyView = transmute_mut!(header);
    any.prefix.tag = U64::new(tag);
}

/// Returns whether header and length of the body are as their sender sealed them.
#[inline]
pub fn verify_sized(header: &Header, body_bytes: usize, key: &Key) -> bool {
    matches(header, sized_tag(header, body_bytes, key))
}

#[inline]
fn header_tag(header: &Header, key: &Key) -> u64 {
    sized_tag(header, 0, key)
}

/// The hash with the length in place of the tag: as fast as without it.
#[inline]
fn sized_tag(header: &Header, body_bytes: usize, key: &Key) -> u64 {
    let mut any = untagged(header);
    any.prefix.tag = U64::new(body_bytes as u64);
    SipHasher24::new_with_key(&key.0).hash(any.as_bytes())
}

fn full_tag(header: &Header, body: &[u8], key: &Key) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(untagged(header).as_bytes());
    hasher.write(body);
    hasher.finish()
}

/// The header with the tag taken as zero.
#[inline]
fn untagged(header: &Header) -> AnyView {
    let mut any: AnyView = *transmute_ref!(header);
    any.prefix.tag = U64::ZERO;
    any
}

#[inline]
fn matches(header: &Header, tag: u64) -> bool {
    let any: &AnyView = transmute_ref!(header);
    // One comparison of whole words: the time taken does not tell how many bytes were right.
    any.prefix.tag.get() ^ tag == 0
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::HEADER_BYTES;

    use super::*;

    const KEY: Key = Key([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    fn counting() -> Header {
        std::array::from_fn(|at| at as u8)
    }

    fn tag_of(header: &Header) -> u64 {
        let any: &AnyView = transmute_ref!(header);
        any.prefix.tag.get()
    }

    // The expected values come from a separate implementation of SipHash that gives the published
    // test vectors.
    #[test]
    fn tags_are_siphash_2_4_with_the_tag_taken_as_zero() {
        let mut header = counting();
        seal(&mut header, &KEY);
        assert_eq!(tag_of(&header), 0x3a26_9120_7dbd_91db);
        seal_with_body(&mut header, b"gradients", &KEY);
        assert_eq!(tag_of(&header), 0x91d3_991d_2217_5fc4);
    }

    #[test]
    fn keys_are_siphash_of_job_and_epoch_under_the_secret() {
        let key = Key::derive(&Secret(KEY.0), JobId(0x1122_3344_5566_7788), 7);
        let expected = [
            0xb7, 0x88, 0xd3, 0x16, 0xff, 0x3a, 0xfb, 0x09, 0x3d, 0x7f, 0x22, 0x3e, 0x9c, 0x87,
            0xa8, 0x88,
        ];
        assert_eq!(key.0, expected);
    }

    #[test]
    fn sealing_touches_only_the_tag() {
        let mut header = counting();
        seal(&mut header, &KEY);
        let (mut before, mut after) = (counting(), header);
        before[16..24].fill(0);
        after[16..24].fill(0);
        assert_eq!(before, after);
        assert!(verify(&header, &KEY));
        let sealed = header;
        seal(&mut header, &KEY);
        assert_eq!(header, sealed, "sealing again changes nothing");
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut sealed = counting();
        seal(&mut sealed, &KEY);
        let mut with_body = counting();
        let mut body = *b"gradients";
        seal_with_body(&mut with_body, &body, &KEY);
        for at in 0..HEADER_BYTES {
            for bit in 0..8 {
                sealed[at] ^= 1 << bit;
                assert!(!verify(&sealed, &KEY), "bit {bit} of byte {at}");
                sealed[at] ^= 1 << bit;
                with_body[at] ^= 1 << bit;
                assert!(!verify_with_body(&with_body, &body, &KEY), "bit {bit} of byte {at}");
                with_body[at] ^= 1 << bit;
            }
        }
        for at in 0..body.len() {
            body[at] ^= 1;
            assert!(!verify_with_body(&with_body, &body, &KEY), "byte {at} of the body");
            body[at] ^= 1;
        }
        assert!(verify(&sealed, &KEY) && verify_with_body(&with_body, &body, &KEY));
        assert!(!verify_with_body(&with_body, &body[1..], &KEY));
    }

    #[test]
    fn another_length_of_the_body_is_noticed() {
        let mut header = counting();
        seal_sized(&mut header, 1_408, &KEY);
        assert!(verify_sized(&header, 1_408, &KEY));
        for other in [0, 1_404, 1_412, 1_408 << 32] {
            assert!(!verify_sized(&header, other, &KEY), "{other} bytes");
        }
        seal_sized(&mut header, 0, &KEY);
        assert!(verify(&header, &KEY), "without body it is the plain tag");
        header[60] ^= 1;
        assert!(!verify_sized(&header, 0, &KEY));
    }

    #[test]
    fn keys_do_not_show_in_logs() {
        assert_eq!(format!("{KEY:?} {:?}", Secret(KEY.0)), "Key(…) Secret(…)");
    }

    proptest! {
        #[test]
        fn every_job_and_epoch_has_its_own_key(
            bytes in any::<[u8; 32]>(),
            secret in any::<[u8; 16]>(),
            (job, epoch) in any::<(u64, u32)>(),
        ) {
            let secret = Secret(secret);
            let mut header = [0; HEADER_BYTES];
            header[32..].copy_from_slice(&bytes);
            let key = Key::derive(&secret, JobId(job), epoch);
            seal(&mut header, &key);
            prop_assert!(verify(&header, &key));
            for other in [
                Key::derive(&secret, JobId(job), epoch.wrapping_add(1)),
                Key::derive(&secret, JobId(job ^ 1), epoch),
                Key::derive(&Secret([secret.0[0] ^ 1; 16]), JobId(job), epoch),
            ] {
                prop_assert!(!verify(&header, &other));
            }
        }
    }
}
