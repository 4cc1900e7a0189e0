//! The metrics of a session.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_aggregate::worker;

use super::exposition::Kind;
use super::{OperationTimes, begin, sockets};
use crate::counters::Counters;
use crate::engine::{Command, Post};
use crate::error::Error;
use crate::handle::pair;

/// Labels of a session.
#[derive(Clone, Debug)]
struct Labels {
    address: SocketAddr,
    job_name: String,
    rank: u32,
}

/// All that the metrics of a session are made from, for any thread.
pub(crate) struct Source {
    job_name: String,
    rank: u32,
    part: Mutex<Option<(SocketAddr, Vec<Post>)>>,
    pub times: OperationTimes,
}

impl Source {
    /// A source without threads.
    pub fn new(job_name: &str, rank: u32) -> Source {
        let (part, times) = (Mutex::default(), OperationTimes::default());
        Source { job_name: job_name.to_owned(), rank, part, times }
    }

    /// Takes the address of the first sending thread, and all of them.
    pub fn set_part(&self, address: SocketAddr, posts: Vec<Post>) {
        *self.part() = Some((address, posts));
    }

    /// Number of sending threads.
    pub fn threads(&self) -> u32 {
        // As many as the server announced, in 32 bits.
        self.part().as_ref().map_or(0, |(_, posts)| posts.len() as u32)
    }

    /// Name of the session, for people.
    pub fn about(&self) -> String {
        format!("rank {} of {}", self.rank, self.job_name)
    }

    /// The metrics as they are now.
    pub fn read(&self) -> Result<String, Error> {
        let (address, posts) = self.part().clone().ok_or_else(Error::closed)?;
        let threads = posts.iter().map(counters_of).collect::<Result<Vec<_>, Error>>()?;
        let labels = Labels { address, job_name: self.job_name.clone(), rank: self.rank };
        Ok(session(&labels, &threads, &self.times))
    }

    fn part(&self) -> MutexGuard<'_, Option<(SocketAddr, Vec<Post>)>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of a sending thread.
pub(crate) fn counters_of(post: &Post) -> Result<Counters, Error> {
    let (handle, reply) = pair(|counters: Counters| Ok(counters));
    post.send(Command::Count(reply));
    handle.wait()
}

/// The metrics of a session: counters of each sending thread, and times of operations.
fn session(labels: &Labels, threads: &[Counters], times: &OperationTimes) -> String {
    let mut out = begin("session", labels.address);
    let rank = labels.rank.to_string();
    let job = [("job_name", labels.job_name.as_str()), ("rank", rank.as_str())];
    let numbers: Vec<String> = (0..threads.len()).map(|thread| thread.to_string()).collect();
    let labels: Vec<_> =
        numbers.iter().map(|number| [job[0], job[1], ("thread", number)]).collect();
    let each: Vec<_> = labels.iter().map(|labels| &labels[..]).zip(threads).collect();
    let nets: Vec<_> = each.iter().map(|(labels, counters)| (*labels, &counters.net)).collect();
    sockets::counters_of(&mut out, "thalweg_session", &nets);
    for (at, (name, help, _)) in worker::Stats::default().described().into_iter().enumerate() {
        out.family(&format!("thalweg_session_{name}_total"), Kind::Counter, help);
        for (labels, counters) in &each {
            out.sample(labels, counters.worker.named()[at].1);
        }
    }
    let help = "Packets dropped because they are of another version of the wire format.";
    out.family("thalweg_session_other_version_total", Kind::Counter, help);
    for (labels, counters) in &each {
        out.sample(labels, counters.other_version);
    }
    out.family("thalweg_session_window_bytes", Kind::Gauge, "Bytes of sums that may be in flight.");
    for (labels, counters) in &each {
        out.sample(labels, counters.window_bytes);
    }
    let help = "Round-trip times of packets of sums that were sent once.";
    out.family("thalweg_session_round_trip_seconds", Kind::Histogram, help);
    for (labels, counters) in &each {
        let classes: Vec<_> = counters.round_trips.classes().collect();
        out.histogram(labels, &classes, counters.round_trips.sum().as_s_f64());
    }
    times.add(&mut out, &job);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::assert_reported;

    #[test]
    fn every_thread_has_its_counters() {
        let (mut worker, mut net) = (worker::Stats::default(), thalweg_net::Stats::default());
        (worker.queries, net.sent_packets) = (5, 7);
        let busy = Counters { net, worker, window_bytes: 9, ..Default::default() };
        let address = ([127, 0, 0, 1], 4_808).into();
        let labels = Labels { address, job_name: "res\"net".into(), rank: 3 };
        let text = session(&labels, &[Counters::default(), busy], &OperationTimes::default());
        let of = |thread| format!("{{job_name=\"res\\\"net\",rank=\"3\",thread=\"{thread}\"}}");
        let lines = [
            format!("thalweg_session_packets_sent_total{} 0", of(0)),
            format!("thalweg_session_packets_sent_total{} 7", of(1)),
            format!("thalweg_session_queries_total{} 5", of(1)),
            format!("thalweg_session_window_bytes{} 9", of(1)),
            format!("thalweg_session_round_trip_seconds_count{} 0", of(1)),
        ];
        assert_reported(&text, &lines.each_ref().map(String::as_str));
    }
}
