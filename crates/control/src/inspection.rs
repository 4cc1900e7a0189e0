//! Messages of the control channel as their receivers read them, for fuzz targets.

use prost::Message;
use thalweg_core::JobId;

use crate::convert::{self, StreamMessage};
use crate::message::{FromRank, Join, ToRank};
use crate::registry::Registration;
use crate::v1;
use crate::versions::Versions;

/// A message that was read.
#[derive(Clone, PartialEq, Debug)]
pub enum Read {
    /// A registration by a rank whose versions the server understands.
    Registration(Registration),
    /// The answer to a registration, by a server whose versions the rank understands.
    Registered(JobId),
    /// The first message of a stream.
    Join(Join),
    /// Every later message of a rank, and the tree of the job that it is about.
    FromRank(u32, FromRank),
    /// A message to a rank, likewise.
    ToRank(u32, ToRank),
}

/// Reads a registration as a server does.
pub fn registration(bytes: &[u8]) -> Option<Read> {
    let request = v1::RegisterRequest::decode(bytes).ok()?;
    Versions::check(Versions::from_message(request.versions), Versions::OWN).ok()?;
    convert::registration(request).ok().map(Read::Registration)
}

/// Reads the answer to a registration as a rank does.
pub fn registered(bytes: &[u8]) -> Option<Read> {
    let answer = v1::RegisterResponse::decode(bytes).ok()?;
    convert::registered(answer).ok().map(Read::Registered)
}

/// Reads a message of a stream as a server does.
pub fn from_rank(bytes: &[u8]) -> Option<Read> {
    match convert::read_from_rank(v1::FromRank::decode(bytes).ok()?).ok()? {
        StreamMessage::Join(join) => Some(Read::Join(join)),
        StreamMessage::Later(tree, message) => Some(Read::FromRank(tree, message)),
    }
}

/// Reads a message of a stream as a rank does.
pub fn to_rank(bytes: &[u8]) -> Option<Read> {
    let (tree, message) = convert::read_to_rank(v1::ToRank::decode(bytes).ok()?).ok()?;
    Some(Read::ToRank(tree, message))
}

impl Read {
    /// Writes the message as its sender does.
    pub fn write(&self) -> Vec<u8> {
        match self {
            Read::Registration(wanted) => convert::to_registration(wanted).encode_to_vec(),
            Read::Registered(job) => convert::to_registered(*job).encode_to_vec(),
            Read::Join(join) => convert::to_join(join).encode_to_vec(),
            Read::FromRank(tree, message) => {
                convert::write_from_rank(*tree, message).encode_to_vec()
            }
            Read::ToRank(tree, message) => convert::write_to_rank(*tree, message).encode_to_vec(),
        }
    }
}
