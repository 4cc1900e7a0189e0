//! Keyed tags: authority to speak for a job.
//!
//! Every header carries 64 bits of SipHash-2-4 over its other bytes, and over the body where a job asks for that
//! ([`seal_with_body`]), which a bit of the prefix shows. The key belongs to one set-up of
//! one job and is derived from the cluster's secret, so that a switch needs no set-up for a job and a
//! restarted one verifies at once. Switch, server and worker drop what does not verify. A switch that
//! rewrites a header seals it again.
//!
//! **Against whom.** Tenants who can send anything from their own hosts, but neither read nor change
//! packets of others in flight. Without the key a forged header passes once in 2⁶⁴ tries. A tag does
//! not hide anything, does not stop a tenant from replaying packets of its own job (identities that
//! are never reused do that), and does not protect a body that it does not cover from someone who
//! can change packets in flight.
//!
//! **Who holds what.** Switches and servers hold the [`Secrets`] and derive keys. Workers are given
//! the [`Key`] of their job when they join and never see a secret. What a switch acts on and no worker may send
//! (announcements, results and requests on their path down) is sealed with the
//! [key of the stations](Key::stations), which workers never get.
//!
//! **Two secrets at once.** While a secret is replaced, switches and servers hold both. The last bit of a secret is its
//! [`Generation`]; keys that are derived from it have the same last bit, and sealing writes it into the prefix. So a
//! receiver knows which of two secrets a key follows from before it verifies, and verifies once.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128;
use thalweg_core::{Body, Header, JobId};
use thiserror::Error;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{IntoBytes, transmute_mut, transmute_ref};

use crate::prefix::{AnyView, COVERS_BODY, GENERATION};

/// Secret that a cluster's switches and servers share and no tenant knows. Used for nothing but deriving
/// keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

/// The key of one set-up of one job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

/// The generation of a secret and of all keys that follow from it: their last bit, and so that of their last
/// hexadecimal digit. A secret that replaces another one is of the other generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Generation {
    /// The last digit is even.
    #[default]
    Even,
    /// The last digit is odd.
    Odd,
}

/// The secrets of a cluster: the current one, and beside it another one while one of them replaces the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secrets {
    current: Secret,
    other: Option<Secret>,
}

/// Two secrets that packets could not tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "both secrets have an {} last digit: one has to be even and the other odd",
    if *.0 == Generation::Odd { "odd" } else { "even" }
)]
pub struct SameGeneration(pub Generation);

impl Generation {
    const fn of_last(bytes: &[u8; 16]) -> Generation {
        Generation::from_bit(bytes[15] & 1 == 1)
    }

    /// The generation with this bit.
    #[inline]
    pub const fn from_bit(bit: bool) -> Generation {
        if bit { Generation::Odd } else { Generation::Even }
    }

    /// The generation that follows this one.
    pub const fn next(self) -> Generation {
        match self {
            Generation::Even => Generation::Odd,
            Generation::Odd => Generation::Even,
        }
    }
}

impl Secret {
    /// Generation of the secret.
    pub const fn generation(&self) -> Generation {
        Generation::of_last(&self.0)
    }

    /// The secret with these bytes, all but the last bit, which becomes that of a generation.
    pub const fn of_generation(mut bytes: [u8; 16], generation: Generation) -> Secret {
        bytes[15] = bytes[15] & !1 | generation as u8;
        Secret(bytes)
    }
}

impl Secrets {
    /// The current secret, and another one of the other generation.
    pub fn both(current: Secret, other: Secret) -> Result<Secrets, SameGeneration> {
        let generation = current.generation();
        if generation == other.generation() {
            return Err(SameGeneration(generation));
        }
        Ok(Secrets { current, other: Some(other) })
    }

    /// The secret of new jobs and of probes.
    pub const fn current(&self) -> &Secret {
        &self.current
    }

    /// All secrets, the current one first.
    pub fn all(self) -> impl Iterator<Item = Secret> {
        std::iter::once(self.current).chain(self.other)
    }

    /// The secret of a generation, if there is one.
    pub fn of(&self, generation: Generation) -> Option<&Secret> {
        let all = [Some(&self.current), self.other.as_ref()];
        all.into_iter().flatten().find(|secret| secret.generation() == generation)
    }

    /// The secret of a job that was set up with one of this generation; the current one where that is not known, or not
    /// there.
    pub fn of_job(&self, generation: Option<Generation>) -> &Secret {
        generation.and_then(|generation| self.of(generation)).unwrap_or(&self.current)
    }
}

impl From<Secret> for Secrets {
    fn from(current: Secret) -> Secrets {
        Secrets { current, other: None }
    }
}

impl Key {
    /// The key of a job's epoch. Knowing one key tells nothing about another, or about the secret.
    pub fn derive(secret: &Secret, job: JobId, epoch: u32) -> Key {
        let mut input = [0; 12];
        input[..8].copy_from_slice(&job.0.to_le_bytes());
        input[8..].copy_from_slice(&epoch.to_le_bytes());
        Key::of_input(secret, &input)
    }

    /// The key of a job's epoch that servers and switches have and workers do not.
    // spec: E-13
    pub fn stations(secret: &Secret, job: JobId, epoch: u32) -> Key {
        // Longer than the input of `derive`, so that no job and epoch give the same.
        let mut input = *b"............stations";
        input[..8].copy_from_slice(&job.0.to_le_bytes());
        input[8..12].copy_from_slice(&epoch.to_le_bytes());
        Key::of_input(secret, &input)
    }

    /// Generation of the secret that the key follows from.
    #[inline]
    pub const fn generation(&self) -> Generation {
        Generation::of_last(&self.0)
    }

    fn of_input(secret: &Secret, input: &[u8]) -> Key {
        let hash = sip128::SipHasher24::new_with_key(&secret.0).hash(input);
        Key(Secret::of_generation(hash.as_bytes(), secret.generation()).0)
    }
}

/// Writes the tag over the header, and what is sealed into the prefix. Any change afterwards, by an encoder or in
/// place, needs a new one.
#[inline]
pub fn seal(header: &mut Header, key: &Key) {
    seal_sized(header, 0, key);
}

/// True if the header is as its sender sealed it.
#[inline]
pub fn verify(header: &Header, key: &Key) -> bool {
    verify_sized(header, 0, key)
}

/// Writes the tag over header and body, which the prefix then [shows](crate::Prefix::covers_body).
pub fn seal_with_body(header: &mut Header, body: &[u8], key: &Key) {
    mark(header, key, COVERS_BODY);
    let tag = full_tag(header, body, key);
    let any: &mut AnyView = transmute_mut!(header);
    any.prefix.tag = U64::new(tag);
}

/// Returns whether header and body are as their sender sealed them.
pub fn verify_with_body(header: &Header, body: &[u8], key: &Key) -> bool {
    matches(header, full_tag(header, body, key))
}

/// Writes the tag over the header and the length of its body, for headers that do not name that length.
#[inline]
pub fn seal_sized(header: &mut Header, body_bytes: usize, key: &Key) {
    mark(header, key, 0);
    let tag = sized_tag(header, body_bytes, key);
    let any: &mut AnyView = transmute_mut!(header);
    any.prefix.tag = U64::new(tag);
}

/// Returns whether header and length of the body are as their sender sealed them.
#[inline]
pub fn verify_sized(header: &Header, body_bytes: usize, key: &Key) -> bool {
    matches(header, sized_tag(header, body_bytes, key))
}

/// Seals a packet whose header does not name the length of the body: the tag covers the body if that is asked for and there
/// are bytes, else its length.
// spec: T-06
#[inline]
pub fn seal_packet(header: &mut Header, body: &Body<'_>, covers_body: bool, key: &Key) {
    match body {
        Body::Bytes(bytes) if covers_body => seal_with_body(header, bytes, key),
        _ => seal_sized(header, body.len(), key),
    }
}

/// Returns whether a packet is as [`seal_packet`] left it. The prefix says what its tag covers.
#[inline]
pub fn verify_packet(header: &Header, body: &Body<'_>, covers_body: bool, key: &Key) -> bool {
    match body {
        Body::Bytes(bytes) if covers_body => verify_with_body(header, bytes, key),
        _ => verify_sized(header, body.len(), key),
    }
}

/// Returns whether a packet has a body that its tag does not cover, where the prefix says this.
// spec: T-06
#[inline]
pub fn leaves_body_open(body: &Body<'_>, covers_body: bool) -> bool {
    !covers_body && matches!(body, Body::Bytes(bytes) if !bytes.is_empty())
}

/// Writes into the prefix how the header is sealed: the generation of the key, and what the tag covers.
#[inline]
fn mark(header: &mut Header, key: &Key, covers: u8) {
    let any: &mut AnyView = transmute_mut!(header);
    let generation = if key.generation() == Generation::Odd { GENERATION } else { 0 };
    any.prefix.lane = any.prefix.lane & !(GENERATION | COVERS_BODY) | generation | covers;
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
    use thalweg_core::{HEADER_BYTES, NodeId};

    use super::*;
    use crate::aggregate::Notice;

    const KEY: Key = Key([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    const TAG_PLAIN: u64 = 0x1722_3053_934e_80c2;
    const TAG_WITH_BODY: u64 = 0x0398_9076_680f_0138;
    const STATIONS_KEY: [u8; 16] = [
        0xa4, 0x98, 0x6f, 0x1c, 0xb1, 0x55, 0xc7, 0x57, 0x7b, 0x6d, 0xf1, 0xe9, 0xb6, 0x3f, 0x53,
        0x87,
    ];

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
        assert_eq!((tag_of(&header), header[7]), (TAG_PLAIN, 0x27), "an odd key");
        seal_with_body(&mut header, b"gradients", &KEY);
        assert_eq!((tag_of(&header), header[7]), (TAG_WITH_BODY, 0x67));
    }

    #[test]
    fn keys_are_siphash_of_job_and_epoch_under_the_secret() {
        let key = Key::derive(&Secret(KEY.0), JobId(0x1122_3344_5566_7788), 7);
        let expected = [
            0xb7, 0x88, 0xd3, 0x16, 0xff, 0x3a, 0xfb, 0x09, 0x3d, 0x7f, 0x22, 0x3e, 0x9c, 0x87,
            0xa8, 0x89,
        ];
        assert_eq!(key.0, expected, "but for the last bit, the generation");
    }

    // spec: E-13 machine
    #[test]
    fn the_key_of_stations_is_none_that_workers_get() {
        let (secret, job) = (Secret(KEY.0), JobId(0x1122_3344_5566_7788));
        let stations = Key::stations(&secret, job, 7);
        assert_eq!(stations.0, STATIONS_KEY);
        // What looks like the input of the one is never that of the other.
        let others =
            (0..64).flat_map(|epoch| [JobId(0), job, JobId(u64::MAX)].map(|job| (job, epoch)));
        assert!(
            others.into_iter().all(|(job, epoch)| Key::derive(&secret, job, epoch) != stations)
        );
    }

    #[test]
    fn keys_and_packets_are_of_the_generation_of_their_secret() {
        let bytes = [0xaa; 16];
        for generation in [Generation::Even, Generation::Odd] {
            let secret = Secret::of_generation(bytes, generation);
            assert_eq!(
                (secret.generation(), secret.0[..15].to_vec()),
                (generation, vec![0xaa; 15])
            );
            for epoch in 0..20 {
                let key = Key::derive(&secret, JobId(1), epoch);
                let stations = Key::stations(&secret, JobId(1), epoch);
                assert_eq!((key.generation(), stations.generation()), (generation, generation));
            }
            let notice = Notice { job: JobId(1), epoch: 1, switch: NodeId(2) };
            let mut header = notice.to_header();
            seal(&mut header, &Key::derive(&secret, JobId(1), 1));
            let prefix = crate::peek(&header).unwrap();
            assert_eq!((prefix.generation(), prefix.covers_body()), (generation, false));
            seal_with_body(&mut header, b"values", &Key::derive(&secret, JobId(1), 1));
            let prefix = crate::peek(&header).unwrap();
            assert_eq!((prefix.generation(), prefix.covers_body()), (generation, true));
        }
    }

    #[test]
    fn two_secrets_are_kept_apart_by_their_generation() {
        let (even, odd) = (Secret([2; 16]), Secret([3; 16]));
        let secrets = Secrets::both(odd, even).unwrap();
        assert_eq!(secrets.current(), &odd);
        assert_eq!(secrets.of(Generation::Even), Some(&even));
        assert_eq!(secrets.of(Generation::Odd), Some(&odd));
        assert_eq!(secrets.of_job(None), &odd);
        assert_eq!(secrets.of_job(Some(Generation::Even)), &even);
        let alone = Secrets::from(odd);
        assert_eq!(alone.of(Generation::Even), None);
        assert_eq!(alone.of_job(Some(Generation::Even)), &odd);
        assert_eq!(Secrets::both(odd, Secret([5; 16])), Err(SameGeneration(Generation::Odd)));
        assert!(SameGeneration(Generation::Even).to_string().contains("an even last digit"));
    }

    #[test]
    fn sealing_touches_only_the_tag_and_what_is_sealed() {
        let mut header = counting();
        seal(&mut header, &KEY);
        let (mut before, mut after) = (counting(), header);
        before[16..24].fill(0);
        before[7] |= 0x20;
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
