//! State of a job that a switch needs, as soft state.

use thalweg_core::{Header, JobId, NodeId};
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref,
};

use super::{AggregateError, FAN_IN_MAX, LEVELS};
use crate::prefix::{Kind, Prefix, PrefixView, header_view, whole_headers};

/// Most stations of one tree in one switch.
pub const STATIONS_MAX: usize = 4;

/// Most children of all stations of one tree in one switch.
pub const CHILDREN_MAX: usize = STATIONS_MAX * FAN_IN_MAX as usize;

/// Tells a switch where it stands in the tree of a job: who is above it and who is below.
///
/// The switch is one *station* of the tree, or several where it has more children than a bitmap has
/// bits. They stand in the body, one [`StationBytes`] each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Job of the tree.
    pub job: JobId,
    /// Number of the job's set-up.
    pub epoch: u32,
    /// The root of the tree.
    pub server: NodeId,
    /// Next hop of sums: the next switch, or the server.
    pub parent: NodeId,
    /// The level of the switch in this tree.
    pub level: u8,
    /// Number of stations in the body.
    pub stations: u8,
    /// The children that are switches, by station: bit *i* of a station is its child *i*. What goes to switches is
    /// sealed for them (E-13).
    pub switches: [u32; STATIONS_MAX],
}

/// One station in the body of an [`Announcement`].
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct StationBytes {
    /// Place of the station at every level above its own; zero at and below.
    pub places: [u8; LEVELS],
    /// Number of children.
    pub count: U32,
    /// The nodes to send to, in the order of their places; zero beyond the count.
    pub children: [U32; FAN_IN_MAX as usize],
}

/// A switch tells the server that it does not know a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Job of the tree.
    pub job: JobId,
    /// Number of the job's set-up.
    pub epoch: u32,
    /// The switch that wants to know.
    pub switch: NodeId,
}

header_view! {
    /// The bytes of [`Announcement`] and [`Notice`]. A notice has its switch in the place of the parent, and zeros
    /// behind it and before.
    GroupView(group: Announcement), AggregateError,
    (Kind::AggregateAnnouncement, group.job, group.epoch),
    {
        switches: [U32; STATIONS_MAX] = group.switches.map(U32::new),
        server: U32 = group.server.0,
        other: U32 = group.parent.0,
        level: u8 = group.level,
        stations: u8 = group.stations,
        reserved_end: [u8; 14] = [0; 14],
    }
}

impl GroupView {
    fn check(&self) -> Result<(), AggregateError> {
        if self.reserved_end == [0; 14] { Ok(()) } else { Err(AggregateError::Reserved) }
    }
}

whole_headers!(AggregateError: Notice);

impl Announcement {
    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Announcement, AggregateError> {
        prefix.expect(Kind::AggregateAnnouncement)?;
        let view: &GroupView = transmute_ref!(header);
        view.check()?;
        if usize::from(view.level) >= LEVELS {
            return Err(AggregateError::Level(view.level));
        }
        if !(1..=STATIONS_MAX).contains(&usize::from(view.stations)) {
            return Err(AggregateError::Announcement);
        }
        let switches = view.switches.map(U32::get);
        if switches[usize::from(view.stations)..].iter().any(|&bits| bits != 0) {
            return Err(AggregateError::Reserved);
        }
        Ok(Announcement {
            job: prefix.job,
            epoch: prefix.epoch(),
            server: NodeId(view.server.get()),
            parent: NodeId(view.other.get()),
            level: view.level,
            stations: view.stations,
            switches,
        })
    }

    /// Length of a body with this number of stations.
    pub const fn body_bytes(stations: usize) -> usize {
        stations * size_of::<StationBytes>()
    }

    /// The stations in a body, if it keeps the rules: one meaning has one form.
    pub fn stations<'a>(&self, body: &'a [u8]) -> Result<&'a [StationBytes], AggregateError> {
        let stations = <[StationBytes]>::ref_from_bytes(body);
        let stations = stations.map_err(|_| AggregateError::Announcement)?;
        let right = stations.len() == usize::from(self.stations)
            && stations.iter().all(|station| station.fits(self.level))
            && stations.iter().zip(self.switches).all(|(station, bits)| station.names(bits));
        if right { Ok(stations) } else { Err(AggregateError::Announcement) }
    }
}

impl StationBytes {
    /// A station with these children, of which there are at most [`FAN_IN_MAX`].
    pub fn new(places: [u8; LEVELS], children: &[NodeId]) -> StationBytes {
        let child = |at: usize| U32::new(children.get(at).map_or(0, |child| child.0));
        StationBytes {
            places,
            count: U32::new(children.len() as u32),
            children: std::array::from_fn(child),
        }
    }

    /// True if the station keeps the rules, in a switch of this level.
    fn fits(&self, level: u8) -> bool {
        let count = self.count.get();
        let (below, above) = self.places.split_at((usize::from(level) + 1).min(LEVELS));
        (1..=u32::from(FAN_IN_MAX)).contains(&count)
            && below.iter().all(|&place| place == 0)
            && above.iter().all(|&place| place < FAN_IN_MAX)
            && self.children.iter().skip(count as usize).all(|&child| child == U32::ZERO)
    }

    /// Returns whether the bits name children of the station only.
    fn names(&self, bits: u32) -> bool {
        u64::from(bits) >> self.count.get().min(u32::from(FAN_IN_MAX)) == 0
    }

    /// The nodes to send to, in the order of their places.
    pub fn children(&self) -> impl Iterator<Item = NodeId> + '_ {
        let count = self.count.get() as usize;
        self.children.iter().take(count).map(|child| NodeId(child.get()))
    }
}

impl Notice {
    /// Writes the whole header, tag zero.
    pub fn encode(&self, header: &mut Header) {
        *header = transmute!(GroupView {
            prefix: PrefixView::new(Kind::AggregateNotice, self.job, self.epoch),
            other: U32::new(self.switch.0),
            ..GroupView::new_zeroed()
        });
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Notice, AggregateError> {
        prefix.expect(Kind::AggregateNotice)?;
        let view: &GroupView = transmute_ref!(header);
        view.check()?;
        let is_clean = view.switches == [U32::ZERO; STATIONS_MAX] && view.server == U32::ZERO;
        if !is_clean || view.level != 0 || view.stations != 0 {
            return Err(AggregateError::Reserved);
        }
        Ok(Notice { job: prefix.job, epoch: prefix.epoch(), switch: NodeId(view.other.get()) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::prefix::EPOCH_MAX;
    use crate::testing::{assert_literal, assert_refused, whole};

    const JOB: JobId = JobId(0x0102_0304_0506_0708);

    /// A switch of the second level, below node 4.
    const ANNOUNCEMENT: Announcement = Announcement {
        job: JOB,
        epoch: 5,
        server: NodeId(0x0a0b_0c0d),
        parent: NodeId(4),
        level: 1,
        stations: 2,
        switches: [0b110, 1, 0, 0],
    };

    const ANNOUNCEMENT_BYTES: Header = [
        0x54, 0x57, 0x22, 21, 5, 0, 0, 0, // magic, versions, kind, epoch, lane
        8, 7, 6, 5, 4, 3, 2, 1, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        6, 0, 0, 0, 1, 0, 0, 0, // switches
        0, 0, 0, 0, 0, 0, 0, 0, // switches
        0x0d, 0x0c, 0x0b, 0x0a, 4, 0, 0, 0, // server, other
        1, 2, 0, 0, 0, 0, 0, 0, // level, stations, reserved_end
        0, 0, 0, 0, 0, 0, 0, 0, // reserved_end
    ];

    const NOTICE: Notice = Notice { job: JOB, epoch: 5, switch: NodeId(0x4d) };

    const NOTICE_BYTES: Header = [
        0x54, 0x57, 0x22, 20, 5, 0, 0, 0, // magic, versions, kind, epoch, lane
        8, 7, 6, 5, 4, 3, 2, 1, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0, 0, 0, 0, 0, 0, 0, 0, // switches
        0, 0, 0, 0, 0, 0, 0, 0, // switches
        0, 0, 0, 0, 0x4d, 0, 0, 0, // server, other
        0, 0, 0, 0, 0, 0, 0, 0, // level, stations, reserved_end
        0, 0, 0, 0, 0, 0, 0, 0, // reserved_end
    ];

    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        let announcement = (&ANNOUNCEMENT_BYTES, ANNOUNCEMENT);
        assert_literal(announcement, Announcement::decode, Announcement::to_header);
        assert_literal((&NOTICE_BYTES, NOTICE), Notice::decode, Notice::to_header);
    }

    #[test]
    fn literal_bodies_have_their_meaning_and_back() {
        let mut body = [0; 272];
        body[..20].copy_from_slice(&[
            0, 0, 2, 31, 3, 0, 0, 0, // places, count
            10, 0, 0, 0, 11, 0, 0, 0, 12, 1, 0, 0, // children
        ]);
        body[136..148].copy_from_slice(&[0, 0, 3, 31, 1, 0, 0, 0, 13, 0, 0, 0]);
        let children = [NodeId(10), NodeId(11), NodeId(0x10c)];
        let stations = [
            StationBytes::new([0, 0, 2, 31], &children),
            StationBytes::new([0, 0, 3, 31], &[NodeId(13)]),
        ];
        assert_eq!(stations.as_bytes(), body);
        assert_eq!(Announcement::body_bytes(2), body.len());
        let read = ANNOUNCEMENT.stations(&body).unwrap();
        assert_eq!(read, stations);
        assert_eq!(read[0].children().collect::<Vec<_>>(), children);
        assert_eq!(read[1].children().collect::<Vec<_>>(), [NodeId(13)]);
    }

    #[test]
    fn reserved_bits_are_refused() {
        let (bits, error) = (whole((32..40).chain(50..64)), AggregateError::Reserved);
        assert_refused(&ANNOUNCEMENT_BYTES, bits, Announcement::decode, error);
        let bits = whole((24..44).chain(48..64));
        assert_refused(&NOTICE_BYTES, bits, Notice::decode, error);
    }

    #[test]
    fn headers_that_contradict_are_refused() {
        let decode = |announcement: Announcement| Announcement::decode(&announcement.to_header());
        let high = Announcement { level: 4, ..ANNOUNCEMENT };
        assert_eq!(decode(high), Err(AggregateError::Level(4)));
        for stations in [0, 5, 255] {
            let wrong = Announcement { stations, ..ANNOUNCEMENT };
            assert_eq!(decode(wrong), Err(AggregateError::Announcement), "{stations}");
        }
    }

    #[test]
    fn bodies_that_contradict_are_refused() {
        let one = StationBytes::new([0, 0, 1, 0], &[NodeId(1)]);
        let announcement = Announcement { stations: 1, switches: [1, 0, 0, 0], ..ANNOUNCEMENT };
        let refused =
            |body: &[u8]| announcement.stations(body) == Err(AggregateError::Announcement);
        assert!(!refused(one.as_bytes()));
        assert!(refused(&one.as_bytes()[1..]) && refused(&[]));
        assert!(refused([one, one].as_bytes()), "one is announced");
        assert!(refused(StationBytes { count: U32::ZERO, ..one }.as_bytes()));
        assert!(refused(StationBytes::new([0; LEVELS], &[NodeId(1); 33]).as_bytes()));
        assert!(refused(StationBytes { places: [0, 0, 32, 0], ..one }.as_bytes()));
        assert!(refused(StationBytes { places: [0, 1, 0, 0], ..one }.as_bytes()), "its own level");
        let mut beyond = one;
        beyond.children[1] = U32::new(2);
        assert!(refused(beyond.as_bytes()), "a child beyond the count");
        let wrong = Announcement { switches: [0b10, 0, 0, 0], ..announcement };
        let error = Err(AggregateError::Announcement);
        assert_eq!(wrong.stations(one.as_bytes()), error, "a switch that is no child");
    }

    proptest! {
        #[test]
        fn announcements_come_back(
            (job, server, parent) in any::<(u64, u32, u32)>(),
            epoch in 0..=EPOCH_MAX,
            (level, stations) in (0..4_u8, 1..=4_u8),
            places in prop::array::uniform4(0..FAN_IN_MAX),
            children in prop::collection::vec(any::<u32>().prop_map(NodeId), 1..=32),
            switches in any::<[u32; STATIONS_MAX]>(),
        ) {
            let named = ((1_u64 << children.len()) - 1) as u32;
            let of_station = |at: usize| if at < stations.into() { switches[at] & named } else { 0 };
            let announcement = Announcement {
                job: JobId(job),
                epoch,
                server: NodeId(server),
                parent: NodeId(parent),
                level,
                stations,
                switches: std::array::from_fn(of_station),
            };
            prop_assert_eq!(Announcement::decode(&announcement.to_header()), Ok(announcement));
            let above = std::array::from_fn(|at| if at > level.into() { places[at] } else { 0 });
            let station = StationBytes::new(above, &children);
            let body = vec![station; stations.into()];
            let read = announcement.stations(body.as_bytes());
            prop_assert_eq!(read, Ok(&body[..]));
            prop_assert_eq!(station.children().collect::<Vec<_>>(), children);
        }
    }
}
