//! The places at which a requirement can hold.

use serde::Deserialize;

/// A kind of surroundings that tests run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// State machines by themselves: a test calls them, or passes packets between them by hand.
    Machine,
    /// The simulated network.
    Simulator,
    /// Real sockets and processes on one host.
    Sockets,
    /// Network namespaces with links of their own. Needs root.
    Lab,
}

impl Place {
    /// All places, in the order in which they are written.
    pub const ALL: [Place; 4] = [Place::Machine, Place::Simulator, Place::Sockets, Place::Lab];

    /// The word in comments, in `specs/` and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Machine => "machine",
            Place::Simulator => "simulator",
            Place::Sockets => "sockets",
            Place::Lab => "lab",
        }
    }

    pub fn from_name(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|place| place.name() == name)
    }
}

/// The names of all places, for messages.
pub fn names() -> String {
    Place::ALL.map(Place::name).join(", ")
}

#[test]
fn every_place_is_found_by_its_name() {
    for place in Place::ALL {
        assert_eq!(Place::from_name(place.name()), Some(place));
    }
    assert_eq!(Place::from_name("socket"), None);
    assert_eq!(names(), "machine, simulator, sockets, lab");
}
