//! States of a control that travel with packets.

use std::collections::VecDeque;

use super::PacketInfo;

/// States of the packets that left after the last acknowledged one, by transmission number.
#[derive(Clone, Debug, Default)]
pub struct PacketInfos {
    /// `None` before the first state.
    #[expect(
        clippy::box_collection,
        reason = "every flow has this field, and most controls give packets no state"
    )]
    infos: Option<Box<VecDeque<(u64, PacketInfo)>>>,
}

impl PacketInfos {
    /// Keeps the state of a transmission. Transmissions come in their order.
    #[inline]
    pub fn push(&mut self, transmission: u64, info: PacketInfo) {
        let infos = self.infos.get_or_insert_default();
        let is_next = infos.back().is_none_or(|(last, _)| *last < transmission);
        assert!(is_next, "transmissions come in their order");
        infos.push_back((transmission, info));
    }

    /// Removes and returns the state of a transmission that was acknowledged, and drops those of earlier ones.
    #[inline]
    pub fn take(&mut self, transmission: u64) -> Option<PacketInfo> {
        let infos = self.infos.as_mut()?;
        let place = infos.binary_search_by_key(&transmission, |(number, _)| *number).ok()?;
        let (_, info) = infos.drain(..=place).next_back()?;
        Some(info)
    }

    /// Drops all states: transmissions are numbered from 0 again.
    pub fn clear(&mut self) {
        if let Some(infos) = &mut self.infos {
            infos.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Bytes, Span, Time};

    use super::super::SentPacket;
    use super::*;

    fn info(us: u64) -> PacketInfo {
        let now = Time::ZERO + Span::from_us(us);
        PacketInfo::of(&SentPacket {
            now,
            bytes: Bytes::new(1),
            in_flight: Bytes::ZERO,
            priority: 3,
        })
    }

    #[test]
    fn a_state_comes_back_once_and_only_in_order() {
        let mut infos = PacketInfos::default();
        (0..4).for_each(|number| infos.push(number, info(number)));
        assert_eq!(infos.take(1), Some(info(1)));
        assert_eq!(infos.take(0), None, "a later one was acknowledged before");
        assert_eq!(infos.take(1), None);
        assert_eq!(infos.take(9), None, "it never left");
        assert_eq!(infos.take(3), Some(info(3)));
        infos.push(7, info(9));
        assert_eq!(
            (infos.take(5), infos.take(7)),
            (None, Some(info(9))),
            "numbers may be left out"
        );
        infos.clear();
        infos.push(0, info(5));
        assert_eq!(infos.take(0), Some(info(5)));
    }
}
