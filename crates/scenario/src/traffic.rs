//! From traffic tables to flows with starting times, and to jobs.

mod all_reduce;
mod members;
mod messages;
mod tensors;
mod training;

use std::iter::Peekable;

use thalweg_core::{Bytes, NodeId, Rate, Rng, Span, Time};
use thalweg_fabric::Topology;
use thalweg_flow::MAX_PACKETS;
use thalweg_workload::{
    ArrivalError, Exchange, FlowSpec, Incast, Pattern, PoissonArrivals, SizeDistribution, Until,
    trace,
};

use crate::error::{Mistake, Under};
use crate::file::{
    BetweenWord, FlowListTable, IncastTable, LoadWord, PermutationTable, PoissonTable, SizesTable,
    TrafficTable,
};
use crate::job::Job;
use crate::plan::Protocol;
pub(crate) use messages::Messages;

/// One source of traffic, checked.
#[derive(Clone, Debug)]
pub(crate) enum Traffic {
    Poisson {
        arrivals: PoissonArrivals,
        unseen: bool,
        /// The types of its messages, if sizes repeat.
        messages: Option<Messages>,
    },
    Incast(Incast),
    Permutation {
        hosts: usize,
        bytes: Bytes,
        start: Time,
    },
    List(Vec<FlowSpec>),
    Tensors {
        exchange: Box<Exchange>,
        /// Of all its flows.
        sizes: Vec<Bytes>,
    },
    Job(Box<Job>),
}

/// Flows in order of time, made as they are needed.
pub(crate) type Source = Peekable<Box<dyn Iterator<Item = FlowSpec> + Send>>;

/// Reads a file that a scenario names.
pub(crate) type Load<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Limits that traffic has to fit.
pub(crate) struct Setting<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) transport: &'a thalweg_flow::Config,
    pub(crate) protocol: &'a Protocol,
    pub(crate) load: Load<'a>,
}

impl Traffic {
    /// Checks a table.
    pub(crate) fn new(table: &TrafficTable, setting: &Setting<'_>) -> Result<Traffic, Mistake> {
        let (kind, checked) = match table {
            TrafficTable::Poisson(table) => ("poisson", setting.poisson(table)),
            TrafficTable::Incast(table) => ("incast", setting.incast(table)),
            TrafficTable::Permutation(table) => ("permutation", setting.permutation(table)),
            TrafficTable::List(table) => ("list", setting.list(table)),
            TrafficTable::Tensors(table) => ("tensors", setting.tensors(table)),
            TrafficTable::Training(table) => ("training", setting.training(table)),
            TrafficTable::AllReduce(table) => ("all-reduce", setting.all_reduce(table)),
        };
        // Flows are drawn anew for every seed, but whether they can be drawn at all is known now.
        let drawn = checked.and_then(|traffic| {
            let source = traffic.source(&Rng::new(0)).map(|_| ());
            source.map_err(|error| arrival_mistake(&error))?;
            Ok(traffic)
        });
        drawn.under(kind)
    }

    /// Source of its flows in one run.
    pub(crate) fn source(&self, rng: &Rng) -> Result<Source, ArrivalError> {
        Ok(match self {
            Traffic::Poisson { arrivals, messages, .. } => {
                let flows = arrivals.clone().flows(rng)?;
                match messages {
                    None => source(flows),
                    Some(messages) => source(messages.clone().of(flows, rng)),
                }
            }
            Traffic::Incast(incast) => source(incast.flows(rng)?.into_iter()),
            &Traffic::Permutation { hosts, bytes, start } => {
                let flows = thalweg_workload::permutation(hosts, bytes, start, rng)?;
                source(flows.into_iter())
            }
            Traffic::List(flows) => source(flows.clone().into_iter()),
            Traffic::Tensors { exchange, .. } => {
                let flows = exchange.flows(rng).expect("checked when the file was read");
                source(flows.into_iter())
            }
            Traffic::Job(_) => source(std::iter::empty()),
        })
    }

    /// Number of flows that will come, if it is known.
    pub(crate) fn expected_flows(&self) -> Option<u64> {
        match self {
            Traffic::Poisson { arrivals, .. } => match arrivals.until {
                Until::Flows(flows) => Some(flows),
                Until::Elapsed(_) => None,
            },
            Traffic::Incast(incast) => Some(incast.senders.len() as u64),
            Traffic::Permutation { hosts, .. } => Some(*hosts as u64),
            Traffic::List(flows) => Some(flows.len() as u64),
            Traffic::Tensors { sizes, .. } => Some(sizes.len() as u64),
            Traffic::Job(_) => Some(0),
        }
    }

    /// True if flows like these may be learned from.
    pub(crate) fn is_seen(&self) -> bool {
        !matches!(self, Traffic::Poisson { unseen: true, .. } | Traffic::Job(_))
    }

    /// The size of a flow like these.
    pub(crate) fn likely_size(&self, rng: &mut Rng) -> Option<Bytes> {
        match self {
            Traffic::Poisson { arrivals, .. } => Some(arrivals.sizes.sample(rng)),
            Traffic::Incast(incast) => Some(incast.bytes_each),
            Traffic::Permutation { bytes, .. } => Some(*bytes),
            Traffic::List(flows) => {
                flows.get(rng.below(flows.len() as u64) as usize).map(|flow| flow.bytes)
            }
            Traffic::Tensors { sizes, .. } => {
                sizes.get(rng.below(sizes.len() as u64) as usize).copied()
            }
            Traffic::Job(_) => None,
        }
    }

    /// The types of its messages, if they have types.
    pub(crate) fn messages(&self) -> Option<&Messages> {
        match self {
            Traffic::Poisson { messages, .. } => messages.as_ref(),
            _ => None,
        }
    }

    /// The job, if it is one.
    pub(crate) fn job(&self) -> Option<&Job> {
        match self {
            Traffic::Job(job) => Some(job),
            _ => None,
        }
    }
}

fn source(flows: impl Iterator<Item = FlowSpec> + Send + 'static) -> Source {
    let flows: Box<dyn Iterator<Item = FlowSpec> + Send> = Box::new(flows);
    flows.peekable()
}

fn arrival_mistake(error: &ArrivalError) -> Mistake {
    match error {
        ArrivalError::Load(_)
        | ArrivalError::TooDense(_)
        | ArrivalError::NoSpan
        | ArrivalError::TooSparse(_) => Mistake::at("load", error),
        ArrivalError::Racks { .. } => Mistake::at("between", error),
        ArrivalError::NoSenders | ArrivalError::OwnSender(_) => Mistake::at("senders", error),
        ArrivalError::NoBytes => Mistake::at("bytes-each", error),
        ArrivalError::TooFewHosts(_) | ArrivalError::WireFactor(_) => Mistake::here(error),
    }
}

impl Setting<'_> {
    fn hosts(&self) -> usize {
        self.topology.hosts() as usize
    }

    fn poisson(&self, table: &PoissonTable) -> Result<Traffic, Mistake> {
        let sizes = self.sizes(&table.sizes).under("sizes")?;
        let sizes = table.cap.map_or(sizes.clone(), |cap| sizes.capped(cap));
        let messages = table.messages.map(|table| Messages::new(&table, &sizes));
        let messages = messages.transpose().under("messages")?;
        // A message may be off the size of its type, by less than once more.
        self.fits(sizes.largest() * if messages.is_some() { 2 } else { 1 }, "sizes")?;
        let sizes = messages.as_ref().map_or(sizes, Messages::sizes);
        let when = "say when to stop: flows = 10000 or lasting = \"20ms\"";
        let until = match (table.flows, table.lasting) {
            (Some(0), None) => {
                return Err(Mistake::at("flows", "no flow would start: give 1 or more"));
            }
            (None, Some(Span::ZERO)) => {
                return Err(Mistake::at("lasting", "no flow would start: give more than 0"));
            }
            (Some(flows), None) => Until::Flows(flows),
            (None, Some(span)) => Until::Elapsed(span),
            (None, None) => return Err(Mistake::here(when)),
            (Some(_), Some(_)) => return Err(Mistake::at("lasting", format!("{when}, not both"))),
        };
        let arrivals = PoissonArrivals {
            host_rates: self.host_rates(),
            load: table.load,
            wire_factor: self.wire_factor(table.load_counts),
            sizes,
            pattern: match table.between {
                BetweenWord::AllHosts => Pattern::AllToAll,
                BetweenWord::Racks => Pattern::InterRack { hosts_per_rack: self.hosts_per_rack()? },
            },
            until,
        };
        Ok(Traffic::Poisson { arrivals, unseen: table.unseen, messages })
    }

    pub(crate) fn sizes(&self, table: &SizesTable) -> Result<SizeDistribution, Mistake> {
        match table {
            SizesTable::WebSearch => Ok(SizeDistribution::web_search()),
            SizesTable::DataMining => Ok(SizeDistribution::data_mining()),
            SizesTable::Fixed(size) => Ok(SizeDistribution::fixed(*size)),
            SizesTable::Uniform([smallest, largest]) => {
                let uniform = SizeDistribution::uniform(*smallest, *largest);
                uniform.map_err(|error| Mistake::at("uniform", error))
            }
            SizesTable::Csv(file) => {
                let text = (self.load)(file).map_err(|error| Mistake::at("csv", error))?;
                let sizes = SizeDistribution::from_csv(&text);
                sizes.map_err(|error| Mistake::at("csv", format!("{file}: {error}")))
            }
        }
    }

    fn incast(&self, table: &IncastTable) -> Result<Traffic, Mistake> {
        for (index, &host) in table.senders.iter().enumerate() {
            self.host(host).map_err(|message| Mistake::at(index, message).under("senders"))?;
        }
        self.host(table.receiver).map_err(|message| Mistake::at("receiver", message))?;
        Ok(Traffic::Incast(Incast {
            senders: table.senders.iter().map(|&host| host as usize).collect(),
            receiver: table.receiver as usize,
            bytes_each: self.fits(table.bytes_each, "bytes-each")?,
            start: Time::ZERO + table.start,
            start_jitter: table.jitter,
        }))
    }

    fn permutation(&self, table: &PermutationTable) -> Result<Traffic, Mistake> {
        let bytes = self.fits(table.bytes_each, "bytes-each")?;
        Ok(Traffic::Permutation { hosts: self.hosts(), bytes, start: Time::ZERO + table.start })
    }

    fn list(&self, table: &FlowListTable) -> Result<Traffic, Mistake> {
        let file = &table.csv;
        let text = (self.load)(file).map_err(|error| Mistake::at("csv", error))?;
        let flows = trace::from_csv(&text, self.hosts());
        let mut flows = flows.map_err(|error| Mistake::at("csv", format!("{file}: {error}")))?;
        if flows.is_empty() {
            let message = format!("{file}: there is no flow under the header: add one a line");
            return Err(Mistake::at("csv", message));
        }
        for flow in &flows {
            self.fits(flow.bytes, "csv")?;
        }
        match (table.load, table.load_counts) {
            (None, None) => {}
            (None, Some(_)) => {
                let message = "this is about load, which is not there: add it, or take this away";
                return Err(Mistake::at("load-counts", message));
            }
            (Some(load), counts) => {
                let wire_factor = self.wire_factor(counts.unwrap_or_default());
                trace::rescale(&mut flows, &self.host_rates(), load, wire_factor)
                    .map_err(|error| arrival_mistake(&error))?;
            }
        }
        Ok(Traffic::List(flows))
    }

    /// Checks that the host exists.
    fn host(&self, number: u32) -> Result<(), String> {
        if (number as usize) < self.hosts() {
            return Ok(());
        }
        Err(format!("there is no host {number}: they go from 0 to {}", self.hosts() - 1))
    }

    /// Checks that the transport can number all packets of a flow.
    fn fits(&self, bytes: Bytes, key: &str) -> Result<Bytes, Mistake> {
        let most = Bytes::from(self.transport.messages.segment_bytes) * u64::from(MAX_PACKETS);
        if bytes <= most {
            return Ok(bytes);
        }
        let message = format!(
            "a flow of {bytes} has too many packets: give at most {most}, or a larger segment-bytes"
        );
        Err(Mistake::at(key, message))
    }

    /// Bytes of load for each byte of payload.
    fn wire_factor(&self, counts: LoadWord) -> f64 {
        if counts == LoadWord::Payload {
            return 1.0;
        }
        let payload_bytes = f64::from(self.transport.messages.segment_bytes);
        (payload_bytes + f64::from(self.transport.messages.overhead_bytes)) / payload_bytes
    }

    fn host_rates(&self) -> Vec<Rate> {
        let hosts = (0..self.topology.hosts()).map(NodeId);
        hosts.map(|host| self.topology.host_cable(host).rate).collect()
    }

    /// Racks of equal size, numbered one after the other.
    fn hosts_per_rack(&self) -> Result<usize, Mistake> {
        let edge = |host: u32| self.topology.edge_of(NodeId(host));
        let hosts = 0..self.topology.hosts();
        let in_first = hosts.clone().take_while(|&host| edge(host) == edge(0)).count();
        let mut racks = hosts.map(|host| (edge(host), edge(host - host % in_first as u32)));
        if racks.all(|(own, of_rack)| own == of_rack) {
            return Ok(in_first);
        }
        let message = "racks must have equal numbers of hosts, listed rack by rack: \
                       write between = \"all-hosts\" otherwise";
        Err(Mistake::at("between", message))
    }
}
