//! Proofs that only the cluster's secret makes: of a membership, and of a rank.

use std::fmt;

use ring::hmac;
use thalweg_aggregate::join::Process;
use thalweg_core::JobId;
use thalweg_wire::tag::{Generation, Secret};

use crate::message::{RankTicket, Ticket};

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// An HMAC-SHA256 by a key that is derived from the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Proof(pub [u8; PROOF_BYTES]);

/// Makes and verifies tickets, with keys for nothing else. It takes those of all secrets.
#[derive(Clone)]
pub(crate) struct Prover {
    keys: Vec<(Generation, hmac::Key)>,
}

/// First byte of what is signed: tickets of one kind are none of another.
const OF_A_JOB: u8 = 1;
const OF_A_RANK: u8 = 2;

impl Prover {
    /// A prover with the secrets of a cluster, of which there is at least one.
    pub(crate) fn new(secrets: &[Secret]) -> Prover {
        assert!(!secrets.is_empty(), "tickets are made with a secret");
        let key = |secret: &Secret| (secret.generation(), derive(secret, b"thalweg ticket 1"));
        Prover { keys: secrets.iter().map(key).collect() }
    }

    /// The ticket of every member of a job that began with the secret of this generation; of the first secret where that
    /// is not known, or not there.
    pub(crate) fn ticket(&self, job: JobId, generation: Option<Generation>) -> Ticket {
        let own = self.keys.iter().find(|(of, _)| Some(*of) == generation);
        let (_, key) = own.unwrap_or(&self.keys[0]);
        Ticket { job, proof: sign(key, &job_bytes(job)) }
    }

    /// The ticket of a process that has a rank.
    pub(crate) fn rank_ticket(&self, job: JobId, rank: u32, process: Process) -> RankTicket {
        let proof = sign(&self.keys[0].1, &rank_bytes(job, rank, process));
        RankTicket { job, rank, process, proof }
    }

    /// Returns the generation of the secret that a ticket of a job is made with, if it is right.
    pub(crate) fn verify(&self, ticket: &Ticket) -> Option<Generation> {
        self.signed_by(&job_bytes(ticket.job), &ticket.proof)
    }

    /// Returns whether a ticket of a rank is right.
    pub(crate) fn verify_rank(&self, ticket: &RankTicket) -> bool {
        let RankTicket { job, rank, process, proof } = ticket;
        self.signed_by(&rank_bytes(*job, *rank, *process), proof).is_some()
    }

    /// Compares in a time that does not depend on where the first difference is.
    fn signed_by(&self, bytes: &[u8], proof: &Proof) -> Option<Generation> {
        let is_by =
            |(_, key): &&(Generation, hmac::Key)| hmac::verify(key, bytes, &proof.0).is_ok();
        self.keys.iter().find(is_by).map(|(generation, _)| *generation)
    }
}

fn sign(key: &hmac::Key, bytes: &[u8]) -> Proof {
    let mut proof = [0; PROOF_BYTES];
    proof.copy_from_slice(hmac::sign(key, bytes).as_ref());
    Proof(proof)
}

/// A key for one purpose. Knowing it tells nothing about the secret or about keys for other purposes.
pub(crate) fn derive(secret: &Secret, purpose: &[u8]) -> hmac::Key {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, purpose).as_ref())
}

fn job_bytes(job: JobId) -> Vec<u8> {
    [&[OF_A_JOB][..], &job.0.to_le_bytes()].concat()
}

fn rank_bytes(job: JobId, rank: u32, process: Process) -> Vec<u8> {
    let Process { node, life } = process;
    let numbers = (job.0.to_le_bytes(), rank.to_le_bytes(), node.0.to_le_bytes());
    [&[OF_A_RANK][..], &numbers.0, &numbers.1, &numbers.2, &life.to_le_bytes()].concat()
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(…)")
    }
}

impl fmt::Debug for Prover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prover({} secrets)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::NodeId;

    use super::*;

    const SECRET: Secret = Secret([7; 16]);
    const OTHER: Secret = Secret([8; 16]);

    // spec: E-04 machine
    #[test]
    fn a_ticket_is_of_one_job_and_one_process() {
        let prover = Prover::new(&[SECRET]);
        let process = Process { node: NodeId(8), life: 3 };
        let (job, rank) =
            (prover.ticket(JobId(16), None), prover.rank_ticket(JobId(16), 2, process));
        assert_eq!(prover.verify(&job), Some(SECRET.generation()));
        assert!(prover.verify_rank(&rank));
        assert_eq!(prover.verify(&Ticket { job: JobId(24), ..job }), None);
        let others = [
            RankTicket { job: JobId(24), ..rank },
            RankTicket { rank: 3, ..rank },
            RankTicket { process: Process { life: 4, ..process }, ..rank },
            RankTicket { process: Process { node: NodeId(16), ..process }, ..rank },
            RankTicket { proof: job.proof, ..rank },
            RankTicket { proof: Proof([0; PROOF_BYTES]), ..rank },
        ];
        for other in others {
            assert!(!prover.verify_rank(&other), "{other:?}");
        }
    }

    #[test]
    fn tickets_of_the_secret_before_stay_valid() {
        let (old, both) = (Prover::new(&[SECRET]), Prover::new(&[OTHER, SECRET]));
        let (job, before) = (JobId(8), Some(SECRET.generation()));
        assert_eq!(both.verify(&old.ticket(job, None)), before);
        assert_eq!(old.verify(&both.ticket(job, None)), None, "new ones are of the first");
        let kept = both.ticket(job, before);
        assert_eq!(old.verify(&kept), before, "a job that lives on keeps its secret");
    }

    #[test]
    fn purposes_have_keys_of_their_own() {
        let sign = |purpose: &[u8]| hmac::sign(&derive(&SECRET, purpose), b"x").as_ref().to_vec();
        assert_ne!(sign(b"one"), sign(b"other"));
    }
}
