//! Loss: a classifier that drops received packets at random.

use netlink_packet_route::tc::TcHandle;
use thalweg_linux::{
    Alu, Code, Helper, Hook, Jump, Netlink, Program, Register, add_clsact, add_filter,
};

use crate::error::LabError;
use crate::kernel::{BPF, CLASSIFIER, CLSACT};

const NAME: &str = "lose";
/// The programs of queues run before it: a packet has left its queue when it is lost.
const FILTER_PRIORITY: u16 = 2;

/// A loaded classifier.
pub(crate) struct Loss(Program);

impl Loss {
    /// Loads it. `None` where nothing is ever lost.
    pub(crate) fn load(probability: f64) -> Result<Option<Loss>, LabError> {
        Loss::load_of(probability, Code::new())
    }

    /// Loads it for UDP packets: others arrive, so that control channels over TCP are as fast as without loss.
    pub(crate) fn load_of_udp(probability: f64) -> Result<Option<Loss>, LabError> {
        Loss::load_of(probability, only_udp())
    }

    /// Loads it behind instructions that let some packets pass.
    fn load_of(probability: f64, before: Code) -> Result<Option<Loss>, LabError> {
        let threshold = threshold(probability);
        if threshold == 0 {
            return Ok(None);
        }
        Program::load(&code(before, threshold), Hook::Device, NAME)
            .map(|program| Some(Loss(program)))
            .map_err(|error| BPF.refused(error))
    }

    /// Loses packets that arrive through a link for the namespace itself.
    pub(crate) fn apply(&self, netlink: &mut Netlink, index: u32) -> Result<(), LabError> {
        add_clsact(netlink, index).map_err(|error| CLSACT.refused(error))?;
        // IPv4 only: an address resolution that is lost costs a second, which says nothing about the protocol under
        // test.
        let order = (FILTER_PRIORITY, libc::ETH_P_IP as u16);
        add_filter(netlink, index, TcHandle::MIN_INGRESS, order, (&self.0, NAME))
            .map_err(|error| CLASSIFIER.refused(error))
    }
}

/// Number of the 2^32 random numbers that mean a loss.
fn threshold(probability: f64) -> u32 {
    // The conversion saturates.
    (probability * 4_294_967_296.0).round_ties_even() as u32
}

const PASS: i32 = 0;
const DROP: i32 = 2;

/// Lets every packet pass that is not UDP.
fn only_udp() -> Code {
    /// Place of the protocol of an IPv4 packet, behind an Ethernet header.
    const PROTOCOL: i32 = 14 + 9;
    let mut code = Code::new();
    let is_udp = code.label();
    code.set(Register::R6, Register::R1);
    code.packet_byte(PROTOCOL);
    code.go_if(Jump::Equal, Register::R0, libc::IPPROTO_UDP, is_udp);
    code.exit_with(PASS);
    code.place(is_udp);
    code
}

/// Draws a number and drops the packet if it is below the threshold.
fn code(mut code: Code, threshold: u32) -> Code {
    let lost = code.label();
    code.call(Helper::Random);
    // The number has 32 bits, but a comparison takes the sign of a constant.
    code.set(Register::R1, (threshold >> 1) as i32);
    code.alu(Alu::Left, Register::R1, 1);
    code.alu(Alu::Or, Register::R1, (threshold & 1) as i32);
    code.go_if(Jump::Below, Register::R0, Register::R1, lost);
    code.exit_with(PASS);
    code.place(lost);
    code.exit_with(DROP);
    code
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
