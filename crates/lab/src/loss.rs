//! Loss: a classifier that drops received packets at random.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcHeader, TcOption,
};

use crate::error::LabError;
use crate::kernel::{BPF, CLASSIFIER, CLSACT};
use crate::netlink::{Netlink, traffic_control};
use crate::sys;

const NAME: &str = "lose";

/// A loaded classifier.
pub(crate) struct Loss(OwnedFd);

impl Loss {
    /// Loads it. `None` where nothing is ever lost.
    pub(crate) fn load(probability: f64) -> Result<Option<Loss>, LabError> {
        let threshold = threshold(probability);
        if threshold == 0 {
            return Ok(None);
        }
        let mut name = [0; 16];
        name[..NAME.len()].copy_from_slice(NAME.as_bytes());
        sys::load_classifier(&program(threshold), name)
            .map(|program| Some(Loss(program)))
            .map_err(|error| BPF.refused(error))
    }

    /// Loses packets that arrive through a link for the namespace itself.
    pub(crate) fn apply(&self, netlink: &mut Netlink, index: u32) -> Result<(), LabError> {
        add_clsact(netlink, index).map_err(|error| CLSACT.refused(error))?;
        self.add_filter(netlink, index).map_err(|error| CLASSIFIER.refused(error))
    }

    fn add_filter(&self, netlink: &mut Netlink, index: u32) -> io::Result<()> {
        const PRIORITY: u32 = 1;
        let header = TcHeader {
            parent: TcHandle { major: u16::MAX, minor: TcHandle::MIN_INGRESS },
            // IPv4 only: an address resolution that is lost costs a second, which says nothing
            // about the protocol under test.
            info: PRIORITY << 16 | u32::from((libc::ETH_P_IP as u16).to_be()),
            ..TcHeader::default()
        };
        let options = [
            TcFilterBpfOption::ProgFd(self.0.as_raw_fd() as u32),
            TcFilterBpfOption::ProgName(NAME.to_owned()),
            TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
        ];
        let mut message = traffic_control(header, index, "bpf");
        message.attributes.push(TcAttribute::Options(options.map(TcOption::Bpf).to_vec()));
        netlink.create(RouteNetlinkMessage::NewTrafficFilter(message))
    }
}

/// The hook that filters hang on.
fn add_clsact(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let handle = TcHandle { major: u16::MAX, minor: 0 };
    let header = TcHeader { handle, parent: TcHandle::CLSACT, ..TcHeader::default() };
    let message = traffic_control(header, index, "clsact");
    netlink.create(RouteNetlinkMessage::NewQueueDiscipline(message))
}

/// How many of the 2^32 random numbers mean a loss.
fn threshold(probability: f64) -> u32 {
    // The conversion saturates.
    (probability * 4_294_967_296.0).round_ties_even() as u32
}

/// Draws a number and drops the packet if it is below the threshold. Only register 0 is used.
fn program(threshold: u32) -> [[u8; 8]; 6] {
    // Operation codes of the eBPF machine.
    const CALL: u8 = 0x85;
    const JUMP_IF_BELOW_32: u8 = 0xa6;
    const MOVE: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    const RANDOM_U32: u32 = 7;
    const PASS: u32 = 0;
    const DROP: u32 = 2;
    [
        instruction(CALL, 0, RANDOM_U32),
        instruction(JUMP_IF_BELOW_32, 2, threshold),
        instruction(MOVE, 0, PASS),
        instruction(EXIT, 0, 0),
        instruction(MOVE, 0, DROP),
        instruction(EXIT, 0, 0),
    ]
}

fn instruction(code: u8, offset: i16, immediate: u32) -> [u8; 8] {
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = immediate.to_ne_bytes();
    [code, 0, a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_the_share_of_all_numbers() {
        assert_eq!(threshold(0.0), 0);
        assert_eq!(threshold(0.1), 429_496_730);
        assert_eq!(threshold(0.5), 1 << 31);
        assert_eq!(threshold(1.0 - f64::EPSILON), u32::MAX);
    }
}
