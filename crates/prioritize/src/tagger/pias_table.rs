//! The thresholds that were published with PIAS.
//!
//! Sources: the simulation scripts `run_pias_dctcp.py` (web search) and `run_pias_vl2.py` (data mining)
//! of HKUST-SING/PIAS-NS2, seven demotion thresholds for eight queues at each load, in packets of 1,460 bytes;
//! and comments of the kernel module's `PIAS/pias2/prio.h` of baiwei0427/PIAS, with eight queues for its testbed, in
//! units of 1,024 bytes. The module itself was published with one edge at 20 KB.

use thalweg_core::Bytes;

use super::thresholds::Thresholds;

/// The loads that there are thresholds for, in percent.
pub const PUBLISHED_LOADS_PERCENT: [u32; 5] = [50, 60, 70, 80, 90];

/// A workload that there are thresholds for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishedWorkload {
    /// The sizes of a web search cluster, as published with DCTCP.
    WebSearch,
    /// The sizes of a data mining cluster, as published with VL2.
    DataMining,
}

const PACKET_BYTES: u64 = 1_460;

const WEB_SEARCH: [[u64; 7]; 5] = [
    [1_059, 1_412, 1_643, 1_869, 2_008, 2_115, 2_184],
    [956, 1_381, 1_718, 2_028, 2_297, 2_551, 2_660],
    [999, 1_305, 1_564, 1_763, 1_956, 2_149, 2_309],
    [909, 1_329, 1_648, 1_960, 2_143, 2_337, 2_484],
    [759, 1_132, 1_456, 1_737, 2_010, 2_199, 2_325],
];

const DATA_MINING: [[u64; 7]; 5] = [
    [805, 1_106, 1_401, 10_693, 11_970, 21_162, 22_272],
    [840, 1_232, 1_617, 11_950, 12_238, 21_494, 25_720],
    [907, 1_301, 1_619, 12_166, 12_915, 21_313, 26_374],
    [745, 1_083, 1_391, 13_689, 14_936, 21_149, 27_245],
    [750, 1_083, 1_416, 13_705, 14_952, 21_125, 28_253],
];

/// The published thresholds of a workload at a load, if there are any.
// spec: Q-04
pub fn published(workload: PublishedWorkload, load_percent: u32) -> Option<Thresholds> {
    let row = PUBLISHED_LOADS_PERCENT.iter().position(|&load| load == load_percent)?;
    let packets = match workload {
        PublishedWorkload::WebSearch => WEB_SEARCH[row],
        PublishedWorkload::DataMining => DATA_MINING[row],
    };
    let bytes = packets.map(|packets| Bytes::new(packets * PACKET_BYTES));
    Some(Thresholds::new(&bytes).expect("published thresholds rise"))
}

/// Thresholds for eight queues of the testbed.
const TESTBED_WEB_SEARCH: [u64; 7] = [65, 1_491, 2_257, 2_814, 2_880, 2_896, 3_000];
const TESTBED_DATA_MINING: [u64; 7] = [1, 8, 80, 122, 130, 132, 133];
const TESTBED_UNIT_BYTES: u64 = 1_024;

/// The thresholds of PIAS's testbed for a workload.
// spec: Q-04
pub fn of_testbed(workload: PublishedWorkload) -> Thresholds {
    let edges = match workload {
        PublishedWorkload::WebSearch => TESTBED_WEB_SEARCH,
        PublishedWorkload::DataMining => TESTBED_DATA_MINING,
    };
    let bytes = edges.map(|edge| Bytes::new(edge * TESTBED_UNIT_BYTES));
    Thresholds::new(&bytes).expect("published thresholds rise")
}

/// The thresholds of a name: `web-search-80` and `data-mining-80` of the simulations, with the load in percent, and
/// `testbed-web-search` and `testbed-data-mining`.
// spec: Q-04
pub fn named(name: &str) -> Option<Thresholds> {
    let workload = |name: &str| match name {
        "web-search" => Some(PublishedWorkload::WebSearch),
        "data-mining" => Some(PublishedWorkload::DataMining),
        _ => None,
    };
    match name.strip_prefix("testbed-") {
        Some(name) => workload(name).map(of_testbed),
        None => {
            let (name, load) = name.rsplit_once('-')?;
            published(workload(name)?, load.parse().ok()?)
        }
    }
}
