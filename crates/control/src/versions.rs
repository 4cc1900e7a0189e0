//! Versions of the control channel and of packets, compared when a rank registers its job.
// spec: E-05

use std::fmt;

use thalweg_wire::prefix;
use thiserror::Error;

use crate::v1;

/// Version of the messages of the control channel. 2: credentials are tokens, ranks have tickets, versions are sent. 3: a job
/// has a tree for each sending thread of its ranks.
pub const CONTROL_VERSION: u32 = 3;

/// Oldest version of the control channel that is still understood.
pub const CONTROL_OLDEST: u32 = 3;

/// Versions that a program understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// Messages of the control channel.
    pub control: VersionRange,
    /// Packets.
    pub wire: VersionRange,
}

/// All versions from one to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionRange {
    /// The first.
    pub oldest: u32,
    /// The last.
    pub newest: u32,
}

/// A rank and a server that do not understand each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "the rank speaks version {rank} of {what}, the server version {server}: run the same release of Thalweg at \
     ranks, servers and switches"
)]
pub struct VersionError {
    what: &'static str,
    rank: VersionRange,
    server: VersionRange,
}

impl Versions {
    /// The versions of this program.
    pub const OWN: Versions = Versions {
        control: VersionRange { oldest: CONTROL_OLDEST, newest: CONTROL_VERSION },
        wire: VersionRange {
            oldest: prefix::OLDEST_VERSION as u32,
            newest: prefix::VERSION as u32,
        },
    };

    /// The versions of a program that does not send any: it is older than they are. Nothing is known of its packets.
    const UNSENT: Versions =
        Versions { control: VersionRange { oldest: 1, newest: 1 }, wire: Versions::OWN.wire };

    /// Checks that a rank and a server understand each other.
    pub(crate) fn check(rank: Versions, server: Versions) -> Result<(), VersionError> {
        let is_control = rank.control.meets(server.control);
        // A packet is read by programs of the versions from its oldest to its own.
        let is_wire = rank.wire.has(server.wire.newest) && server.wire.has(rank.wire.newest);
        match (is_control, is_wire) {
            (true, true) => Ok(()),
            (false, _) => Err(VersionError {
                what: "the control channel",
                rank: rank.control,
                server: server.control,
            }),
            (true, false) => {
                Err(VersionError { what: "packets", rank: rank.wire, server: server.wire })
            }
        }
    }

    pub(crate) fn from_message(versions: Option<v1::Versions>) -> Versions {
        versions.map_or(Versions::UNSENT, |versions| Versions {
            control: VersionRange {
                oldest: versions.control_oldest,
                newest: versions.control_newest,
            },
            wire: VersionRange { oldest: versions.wire_oldest, newest: versions.wire_newest },
        })
    }

    pub(crate) fn to_message(self) -> v1::Versions {
        v1::Versions {
            control_oldest: self.control.oldest,
            control_newest: self.control.newest,
            wire_oldest: self.wire.oldest,
            wire_newest: self.wire.newest,
        }
    }
}

impl VersionRange {
    fn meets(self, other: VersionRange) -> bool {
        self.oldest.max(other.oldest) <= self.newest.min(other.newest)
    }

    fn has(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VersionRange { oldest, newest } = self;
        if oldest == newest { write!(f, "{newest}") } else { write!(f, "{oldest} to {newest}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(oldest: u32, newest: u32) -> VersionRange {
        VersionRange { oldest, newest }
    }

    // spec: E-05 machine
    #[test]
    fn programs_that_share_a_version_understand_each_other() {
        let own = Versions { control: range(2, 4), wire: range(2, 2) };
        let check = |control, wire| Versions::check(Versions { control, wire }, own);
        assert_eq!(check(range(4, 9), range(1, 2)), Ok(()));
        assert_eq!(check(range(1, 2), range(2, 2)), Ok(()));
        assert!(check(range(2, 2), range(2, 3)).is_err(), "it does not read packets of version 2");
        let text = check(range(5, 5), range(2, 2)).unwrap_err().to_string();
        assert_eq!(
            text,
            "the rank speaks version 5 of the control channel, the server version 2 to 4: run the same release \
             of Thalweg at ranks, servers and switches"
        );
        let text = check(range(2, 2), range(3, 4)).unwrap_err().to_string();
        assert!(text.contains("version 3 to 4 of packets, the server version 2:"), "{text}");
        assert!(check(range(4, 2), range(2, 2)).is_err(), "an empty range meets nothing");
    }

    // spec: E-05 machine
    #[test]
    fn a_program_that_sends_no_version_is_older() {
        let unsent = Versions::from_message(None);
        let text = Versions::check(unsent, Versions::OWN).unwrap_err().to_string();
        assert!(text.starts_with("the rank speaks version 1 of the control channel"), "{text}");
        let text = Versions::check(Versions::OWN, unsent).unwrap_err().to_string();
        assert!(text.contains("the server version 1:"), "{text}");
        let sent = Versions::from_message(Some(Versions::OWN.to_message()));
        assert_eq!(Versions::check(sent, Versions::OWN), Ok(()));
    }
}
