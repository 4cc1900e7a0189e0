//! Queues of a lab's links, as arguments of a command.

use clap::Args;
use thalweg_console::Failure;
use thalweg_core::{Bytes, PRIORITIES};
use thalweg_lab::Queues;

/// Queues of every link of a lab.
#[derive(Args, Clone, Debug)]
pub struct QueueArguments {
    /// Queues of every link of the lab, in each direction: 8, with strict priorities by DSCP
    ///
    /// Class selector 7 (56 to 63) chooses the first queue, class selector 0 (0 to 7) the last. Without it every link
    /// has one queue.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(8..=8))]
    queues: Option<u8>,
    /// Most that each queue holds, such as 128KiB [default: 128 KiB with --per-packet, else 512 KiB; more above 1 Gbps]
    #[arg(long, value_name = "SIZE", requires = "queues")]
    queue_limit: Option<Bytes>,
    /// Packets that find more than this waiting in their queue get a congestion mark: one size, or eight with commas, the
    /// first queue's first [default: from a sixteenth of the limit for the first queue to half of it for the last]
    #[arg(long, value_name = "SIZES", requires = "queues", value_delimiter = ',')]
    ecn_thresholds: Vec<Bytes>,
    /// Queues above their threshold drop packets that are not ECN-capable
    #[arg(long, requires = "queues")]
    drop_unmarkable: bool,
    /// Share of the link that the last queue has while others wait, 0 to 0.5 [default: 0.05]
    #[arg(long, value_name = "SHARE", requires = "queues")]
    last_share: Option<f64>,
}

impl QueueArguments {
    /// Number of queues of a link, if it has more than one.
    pub(crate) fn number(&self) -> Option<u8> {
        self.queues
    }

    /// The queues, if links have more than one.
    pub fn queues(&self) -> Result<Option<Queues>, Failure> {
        if self.queues.is_none() {
            return Ok(None);
        }
        let default = Queues::default();
        Ok(Some(Queues {
            limit_bytes: self.queue_limit.map(bytes).transpose()?,
            thresholds_bytes: self.thresholds()?,
            drops_unmarkable: self.drop_unmarkable,
            last_share: self.last_share.unwrap_or(default.last_share),
        }))
    }

    fn thresholds(&self) -> Result<Option<[u32; PRIORITIES]>, Failure> {
        let sizes = self.ecn_thresholds.iter().copied().map(bytes);
        let sizes = sizes.collect::<Result<Vec<u32>, Failure>>()?;
        match *sizes {
            [] => Ok(None),
            [all] => Ok(Some([all; PRIORITIES])),
            _ => sizes.as_slice().try_into().map(Some).map_err(|_| {
                let number = sizes.len();
                Failure::usage(format!(
                    "--ecn-thresholds has {number} sizes: give one or {PRIORITIES}"
                ))
            }),
        }
    }
}

fn bytes(size: Bytes) -> Result<u32, Failure> {
    u32::try_from(size.as_u64()).map_err(|_| {
        Failure::usage(format!("{} bytes for a queue: give less than 4 GiB", size.as_u64()))
    })
}
