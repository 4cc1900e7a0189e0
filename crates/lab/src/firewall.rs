//! A firewall: a classifier that drops received UDP but for one port.

use netlink_packet_route::tc::TcHandle;
use thalweg_linux::{
    Alu, Code, Hook, Jump, Netlink, Program, Register, Size, add_clsact, add_filter,
};

use crate::error::LabError;
use crate::kernel::{BPF, CLASSIFIER, CLSACT};

const NAME: &str = "firewall";
/// The programs of queues and of losses run before it.
const FILTER_PRIORITY: u16 = 3;
/// Place of the protocol in what a program knows of a packet.
const SKB_PROTOCOL: i16 = 16;
/// Places in a packet, behind the 14 bytes of Ethernet, of IPv4's protocol and of UDP's second port.
const TRANSPORT: i32 = 23;
const TO_PORT: i32 = 36;

/// Drops UDP that arrives through a link, but for one port.
pub(crate) fn apply(netlink: &mut Netlink, index: u32, open_port: u16) -> Result<(), LabError> {
    let program = Program::load(&code(open_port), Hook::Device, NAME);
    let program = program.map_err(|error| BPF.refused(error))?;
    add_clsact(netlink, index).map_err(|error| CLSACT.refused(error))?;
    let order = (FILTER_PRIORITY, libc::ETH_P_IP as u16);
    add_filter(netlink, index, TcHandle::MIN_INGRESS, order, (&program, NAME))
        .map_err(|error| CLASSIFIER.refused(error))
}

fn code(open_port: u16) -> Code {
    use Register::{R0, R1, R2, R6, R7};
    const PASS: i32 = 0;
    const DROP: i32 = 2;
    let mut code = Code::new();
    let pass = code.label();
    code.set(R6, R1);
    code.load(Size::Word, R2, R6, SKB_PROTOCOL);
    code.go_if(Jump::NotEqual, R2, i32::from((libc::ETH_P_IP as u16).to_be()), pass);
    code.packet_byte(TRANSPORT);
    code.go_if(Jump::NotEqual, R0, libc::IPPROTO_UDP, pass);
    code.packet_byte(TO_PORT);
    code.set(R7, R0);
    code.alu(Alu::Left, R7, 8);
    code.packet_byte(TO_PORT + 1);
    code.alu(Alu::Or, R7, R0);
    let other = code.label();
    code.go_if(Jump::NotEqual, R7, i32::from(open_port), other);
    code.place(pass);
    code.exit_with(PASS);
    code.place(other);
    code.exit_with(DROP);
    code
}
