//! Flow sizes of QCLIMB's workloads.
//!
//! The paper's traces are not public. These are our own smooth curves with the published share of flows
//! below 100 KB, and about the published largest sizes. For K-Means the mean is the published one as well.

use thalweg_workload::{SizeDistribution, SizeError};

const K_MEANS: &str = "size_bytes,cdf
52,0
1000,0.25
3000,0.5
10000,0.75
30000,0.88
100000,0.952
1000000,0.965
10000000,0.975
60000000,0.993
300000000,1
";

const PAGE_RANK: &str = "size_bytes,cdf
1000,0
1200,0.2
5000,0.4
20000,0.6
100000,0.74
1000000,0.88
10000000,0.96
60000000,0.995
340000000,1
";

const SGD: &str = "size_bytes,cdf
44,0
100,0.3
300,0.5
1000,0.6
100000,0.66
260000,0.7
1000000,0.92
10000000,0.99
55000000,1
";

/// Three of four flows have less than 100 bytes.
const TENSOR_FLOW: &str = "size_bytes,cdf
44,0
100,0.77
1000,0.85
100000,0.9
1000000,0.95
10000000,0.99
50000000,1
";

/// The curve of a workload as a table, if there is such a workload.
pub(crate) fn curve(workload: &str) -> Option<&'static str> {
    match workload {
        "K-Means" => Some(K_MEANS),
        "PageRank" => Some(PAGE_RANK),
        "SGD" => Some(SGD),
        "TensorFlow" => Some(TENSOR_FLOW),
        _ => None,
    }
}

/// The sizes of a workload, if there is such a workload.
pub(crate) fn sizes(workload: &str) -> Option<Result<SizeDistribution, SizeError>> {
    curve(workload).map(SizeDistribution::from_csv)
}
