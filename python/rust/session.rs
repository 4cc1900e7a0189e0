//! One rank's part in a job.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg::internal::{Call, Intent, Outcome, Request, digest_of_lengths};
use thalweg::{Coverage, Handle, Priority, ReduceOptions, Reliability, SessionConfig};

use crate::errors::{self, Failure};
use crate::memory::{Memory, all};
use crate::names::{combine, element_of, intent, reduce};
use crate::notes::{self, Note, Notes};
use crate::process::{OfProcess, wait, wait_doing};
use crate::settings::{self, seconds};

/// Copies the result of an operation to where it belongs and returns what it lacks, or the reason why the operation
/// failed.
type Finish = Box<dyn FnOnce() -> Result<Found, Failure> + Send>;

/// Parts of a tensor, from one value to another, and the ranks whose values these lack. `None` where that is
/// unreported.
type Lacking = Option<Vec<(u64, u64, Vec<u32>)>>;

/// Facts about a result: the values that it lacks, and the rank that sent it where that was any.
type Found = (Lacking, Option<u32>);

/// A whole result.
const WHOLE: Found = (Some(Vec::new()), None);

/// The end of an operation: its number, its failure if it failed, the values that its result lacks, and the rank
/// that sent it where that was any.
type End = (u64, Option<Failure>, Lacking, Option<u32>);

/// A session. Every method that begins an operation returns its number.
#[pyclass(module = "thalweg._core", frozen)]
pub(crate) struct Session {
    session: Mutex<OfProcess<thalweg::Session>>,
    config: SessionConfig,
    under_way: Mutex<UnderWay>,
    ended: Sender<u64>,
    ends: Mutex<Receiver<u64>>,
    notes: Arc<Notes>,
}

#[derive(Default)]
struct UnderWay {
    next: u64,
    finish: HashMap<u64, Finish>,
}

#[pymethods]
impl Session {
    /// Joins a job and waits until all ranks are there. Settings are given by name.
    #[new]
    #[pyo3(signature = (server, job, rank, ranks, **given))]
    fn new(
        py: Python<'_>,
        server: &str,
        job: &str,
        rank: u32,
        ranks: u32,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Session> {
        let notes = notes::of(job, rank);
        let mut config = SessionConfig::new(server, job, rank, ranks);
        if let Some(given) = given {
            settings::apply(&mut config, given)?;
        }
        let limit = given.map(settings::join_limit).transpose()?.flatten();
        let session = join(py, config.clone(), limit, &notes)?;
        let (ended, ends) = channel();
        Ok(Session {
            session: Mutex::new(OfProcess::new(session)),
            config,
            under_way: Mutex::default(),
            ended,
            ends: Mutex::new(ends),
            notes,
        })
    }

    /// The settings of the session, as it uses them.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let session = lock(&self.session);
        settings::read(py, &self.config, session.get())
    }

    /// On how many hosts the ranks are.
    #[getter]
    fn hosts(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |session| session.hosts())
    }

    /// Replaces values by those of all ranks, combined: "sum", "mean", "min", "max" or "product". Sums and
    /// means may lack a share `loss` of any rank's values. `layer` is which one of how many they belong to.
    /// `reduction` is what the caller makes of it, and `counts` how many values each rank keeps if it is a
    /// reduce-scatter: ranks that differ in these get an error.
    #[pyo3(signature = (
        memory, element, how, loss = 0.0, layer = None, reduction = None, counts = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn all_reduce(
        &self,
        py: Python<'_>,
        memory: (usize, usize),
        element: &str,
        how: &str,
        loss: f64,
        layer: Option<(u16, u16)>,
        reduction: Option<&str>,
        counts: Option<Vec<u64>>,
    ) -> PyResult<u64> {
        let (memory, how) = (Memory::new(memory)?, reduce(how)?);
        let parts = counts.map(|counts| digest_of_lengths(&counts));
        let intent = Intent { parts, ..intent(reduction)? };
        let element = element_of(element)?;
        let reliability = Reliability::bounded(loss).ok_or_else(|| {
            PyValueError::new_err(format!("loss is {loss}: choose a share from 0 to less than 1"))
        })?;
        let by_layer = |(index, of)| Priority::Layer { index, of };
        let priority = layer.map_or(Priority::Fixed, by_layer);
        let handle = self.with(py, |session| {
            let policy = session.policy().reliability(reliability).priority(priority);
            let options = ReduceOptions::new(how).policy(policy);
            session.all_reduce_bytes(element, memory, options, intent)
        })?;
        Ok(self.begin_finding(handle, |reduced| Ok((lacking(&reduced.coverage), None))))
    }

    /// As `all_reduce`, but only one rank gets the result, and the caller divides for a mean.
    #[pyo3(signature = (root, memory, element, how, reduction = None))]
    fn reduce(
        &self,
        py: Python<'_>,
        root: u32,
        memory: (usize, usize),
        element: &str,
        how: &str,
        reduction: Option<&str>,
    ) -> PyResult<u64> {
        let memory = Memory::new(memory)?;
        let (element, (how, is_mean)) = (element_of(element)?, combine(how)?);
        let intent = intent(reduction)?;
        let call = Call::Reduce { root, element, how, data: memory.read() };
        self.call(py, Request { is_mean, intent, ..call.into() }, move |outcome| match outcome {
            Outcome::Bytes(bytes) => memory.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => Ok(()),
        })
    }

    /// This rank gets its part of the values of all, combined: `counts[r]` values go to rank r. The caller
    /// divides for a mean.
    #[pyo3(signature = (input, output, counts, element, how, reduction = None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        input: (usize, usize),
        output: (usize, usize),
        counts: Vec<u64>,
        element: &str,
        how: &str,
        reduction: Option<&str>,
    ) -> PyResult<u64> {
        let (input, output) = (Memory::new(input)?, Memory::new(output)?);
        let (element, (how, is_mean)) = (element_of(element)?, combine(how)?);
        let intent = intent(reduction)?;
        let own = counts.get(self.rank(py)? as usize).copied().unwrap_or_default();
        check_own(own.saturating_mul(element.bytes() as u64), output)?;
        let call = Call::ReduceScatter { element, how, data: input.read(), counts };
        self.call(py, Request { is_mean, intent, ..call.into() }, move |outcome| match outcome {
            Outcome::Bytes(bytes) => output.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => output.write(&[]),
        })
    }

    /// Everybody gets the bytes of one rank. `element` is the type of the values, here and below `None` if
    /// ranks cannot compare it.
    #[pyo3(signature = (root, memory, element = None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        root: u32,
        memory: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let memory = Memory::new(memory)?;
        let data = memory.read();
        let bytes = Some(data.len() as u64);
        let call = Call::Broadcast { root, data };
        self.call(py, Request { element, bytes, ..call.into() }, move |outcome| match outcome {
            Outcome::Bytes(bytes) => memory.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => Ok(()),
        })
    }

    /// Everybody gets the bytes of every rank.
    #[pyo3(signature = (input, outputs, element = None))]
    fn all_gather(
        &self,
        py: Python<'_>,
        input: (usize, usize),
        outputs: Vec<(usize, usize)>,
        element: Option<&str>,
    ) -> PyResult<u64> {
        let call = Call::AllGather { data: Memory::new(input)?.read() };
        self.exchange(py, call, all(outputs)?, element)
    }

    /// One rank gets the bytes of every rank; the others have no outputs.
    #[pyo3(signature = (root, input, outputs, element = None))]
    fn gather(
        &self,
        py: Python<'_>,
        root: u32,
        input: (usize, usize),
        outputs: Vec<(usize, usize)>,
        element: Option<&str>,
    ) -> PyResult<u64> {
        let (input, outputs) = (Memory::new(input)?, all(outputs)?);
        if let Some(own) = outputs.get(self.rank(py)? as usize) {
            check_own(input.len(), *own)?;
        }
        self.exchange(py, Call::Gather { root, data: input.read() }, outputs, element)
    }

    /// Every rank gets a part from one; the others have no inputs.
    #[pyo3(signature = (root, inputs, output, element = None))]
    fn scatter(
        &self,
        py: Python<'_>,
        root: u32,
        inputs: Vec<(usize, usize)>,
        output: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let (inputs, output) = (all(inputs)?, Memory::new(output)?);
        if let Some(own) = inputs.get(self.rank(py)? as usize) {
            check_own(own.len(), output)?;
        }
        let parts = inputs.into_iter().map(Memory::read).collect();
        let ranks = self.with(py, |session| session.ranks())?;
        let expected = Some(vec![output.len(); ranks as usize]);
        let request = Request { element, expected, ..Call::Scatter { root, parts }.into() };
        self.call(py, request, move |outcome| match outcome {
            Outcome::Bytes(bytes) => output.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => output.write(&[]),
        })
    }

    /// Everybody gets a part from each rank.
    #[pyo3(signature = (inputs, outputs, element = None))]
    fn all_to_all(
        &self,
        py: Python<'_>,
        inputs: Vec<(usize, usize)>,
        outputs: Vec<(usize, usize)>,
        element: Option<&str>,
    ) -> PyResult<u64> {
        let (inputs, outputs) = (all(inputs)?, all(outputs)?);
        let rank = self.rank(py)? as usize;
        if let (Some(given), Some(own)) = (inputs.get(rank), outputs.get(rank)) {
            check_own(given.len(), *own)?;
        }
        let parts = inputs.into_iter().map(Memory::read).collect();
        self.exchange(py, Call::AllToAll { parts }, outputs, element)
    }

    /// Ends when every rank is in it.
    fn barrier(&self, py: Python<'_>) -> PyResult<u64> {
        let handle = self.with(py, thalweg::Session::barrier)?;
        Ok(self.begin(handle, |()| Ok(())))
    }

    /// Sends bytes to a rank, which receives them with the same tag.
    #[pyo3(signature = (to, tag, memory, element = None))]
    fn send(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u64,
        memory: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let bytes = Memory::new(memory)?.read();
        let handle = self.with(py, |session| session.send_bytes(to, tag, element, bytes))?;
        Ok(self.begin(handle, |()| Ok(())))
    }

    /// Receives what a rank sends with this tag.
    #[pyo3(signature = (source, tag, memory, element = None))]
    fn receive(
        &self,
        py: Python<'_>,
        source: u32,
        tag: u64,
        memory: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let memory = Memory::new(memory)?;
        let expected = (element.map(element_of).transpose()?, Some(memory.len()));
        let handle = self.with(py, |session| session.receive_bytes(source, tag, expected))?;
        Ok(self.begin(handle, move |bytes| memory.write(&bytes)))
    }

    /// Receives from the first rank that sends something with this tag.
    #[pyo3(signature = (tag, memory, element = None))]
    fn receive_any(
        &self,
        py: Python<'_>,
        tag: u64,
        memory: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let memory = Memory::new(memory)?;
        let expected = (element.map(element_of).transpose()?, Some(memory.len()));
        let handle = self.with(py, |session| session.receive_any_bytes(tag, expected))?;
        Ok(self.begin_finding(handle, move |(source, bytes)| {
            memory.write(&bytes).map(|()| (Some(Vec::new()), Some(source)))
        }))
    }

    /// Waits for an operation to end. `None` if none has ended in time.
    fn next(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<End>> {
        let timeout = seconds("timeout_s", timeout_s)?;
        py.detach(|| {
            let number = match lock(&self.ends).recv_timeout(timeout) {
                Ok(number) => number,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            };
            let finish = lock(&self.under_way).finish.remove(&number);
            Ok(Some(match finish.map_or(Ok(WHOLE), |finish| finish()) {
                Ok((lacking, source)) => (number, None, lacking, source),
                Err(failure) => (number, Some(failure), None, None),
            }))
        })
    }

    /// Notes since the last call: ranks that are waited for, stalls, servers that went away. Each with the ranks of
    /// which it speaks, and whether it is worth a warning.
    fn take_notes(&self) -> Vec<Note> {
        self.notes.take()
    }

    /// Leaves the job when everything that was begun has ended. Returns false if that took longer than `limit_s`;
    /// then, and when a signal ends the wait, the job is aborted.
    #[pyo3(signature = (limit_s = None))]
    fn leave(&self, py: Python<'_>, limit_s: Option<f64>) -> PyResult<bool> {
        let limit = limit_s.map(|limit_s| seconds("limit_s", limit_s)).transpose()?;
        let Some(session) = lock(&self.session).take() else { return Ok(true) };
        let left = wait(py, limit, || session.leave());
        if !matches!(left, Ok(Some(_))) {
            self.config.cancel.cancel("its program ended before its operations");
        }
        match left? {
            Some(left) => left.map(|()| true).map_err(|error| errors::raise(py, &error)),
            None => Ok(false),
        }
    }

    /// Ends the job at once, whatever is in progress. The other ranks get the reason.
    // spec: E-03
    fn abort(&self, py: Python<'_>, reason: &str) {
        py.detach(|| {
            if let Some(session) = lock(&self.session).get() {
                session.abort(reason);
            }
            // For a session that is just being left.
            self.config.cancel.cancel(reason);
        });
    }
}

impl Session {
    fn with<T>(&self, py: Python<'_>, begin: impl FnOnce(&thalweg::Session) -> T) -> PyResult<T> {
        match lock(&self.session).get() {
            Some(session) => Ok(begin(session)),
            None => {
                let text = "the session is over".into();
                Err(errors::session_error(py, ("closed", text, Vec::new(), None, None)))
            }
        }
    }

    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |session| session.rank())
    }

    fn call(
        &self,
        py: Python<'_>,
        request: Request,
        finish: impl FnOnce(Outcome) -> Result<(), String> + Send + 'static,
    ) -> PyResult<u64> {
        let handle = self.with(py, |session| session.call_bytes(request))?;
        Ok(self.begin(handle, finish))
    }

    fn exchange(
        &self,
        py: Python<'_>,
        call: Call,
        outputs: Vec<Memory>,
        element: Option<&str>,
    ) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let lengths = || outputs.iter().map(|output| output.len()).collect();
        let expected = (!outputs.is_empty()).then(lengths);
        self.call(py, Request { element, expected, ..call.into() }, move |outcome| {
            let Outcome::Parts(parts) = outcome else { return Ok(()) };
            if outputs.len() != parts.len() && !outputs.is_empty() {
                return Err(format!("{} parts came for {} outputs", parts.len(), outputs.len()));
            }
            outputs.iter().zip(&parts).try_for_each(|(output, part)| output.write(part))
        })
    }

    /// Notes an operation that was begun.
    fn begin<T: 'static>(
        &self,
        handle: Handle<T>,
        finish: impl FnOnce(T) -> Result<(), String> + Send + 'static,
    ) -> u64 {
        self.begin_finding(handle, |result| finish(result).map(|()| WHOLE))
    }

    /// Notes an operation that was begun, and whose result has more to it than values.
    fn begin_finding<T: 'static>(
        &self,
        handle: Handle<T>,
        finish: impl FnOnce(T) -> Result<Found, String> + Send + 'static,
    ) -> u64 {
        let handle = Arc::new(Mutex::new(Some(handle)));
        let waiting = Arc::clone(&handle);
        let finish: Finish = Box::new(move || {
            let Some(handle) = lock(&waiting).take() else {
                return Err(errors::internal("the operation has ended already".into()));
            };
            let result = handle.wait().map_err(|error| errors::explain(&error))?;
            finish(result).map_err(errors::internal)
        });
        let mut under_way = lock(&self.under_way);
        let number = under_way.next;
        under_way.next += 1;
        under_way.finish.insert(number, finish);
        drop(under_way);
        let ended = self.ended.clone();
        if let Some(handle) = &*lock(&handle) {
            // The receiver lives as long as the session.
            handle.when_ready(move || {
                let _ = ended.send(number);
            });
        }
        number
    }
}

fn lacking(coverage: &Coverage) -> Lacking {
    let parts = coverage.missing()?.iter();
    Some(parts.map(|part| (part.values.start, part.values.end, part.ranks.clone())).collect())
}

/// The value of a mutex, also after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Joins a job, within the limit if there is one. Ctrl-C ends the wait. Meanwhile events are logged: ranks that are
/// missing above all.
// spec: E-02
fn join(
    py: Python<'_>,
    config: SessionConfig,
    limit: Option<Duration>,
    notes: &Notes,
) -> PyResult<thalweg::Session> {
    let cancel = config.cancel.clone();
    let ended = wait_doing(py, limit, || thalweg::Session::join(config), || notes.log(py));
    let ended = ended.inspect_err(|_| cancel.cancel("interrupted while it joined"))?;
    let Some(joined) = ended else {
        let missing = notes.awaited();
        let seconds = limit.unwrap_or_default().as_secs_f64();
        let who = if missing.is_empty() {
            "no answer of the server".into()
        } else {
            format!("ranks {missing:?} are missing")
        };
        let text = format!("joining timed out, {seconds:.1} s after ranks had met: {who}");
        cancel.cancel(&text);
        return Err(errors::session_error(py, ("timeout", text, missing, Some(seconds), None)));
    };
    joined.map_err(|error| errors::raise(py, &error))
}

/// An error if the part that a rank keeps for itself does not fit its output. Nobody else could notice.
fn check_own(bytes: u64, output: Memory) -> PyResult<()> {
    if bytes == output.len() {
        return Ok(());
    }
    let room = output.len();
    let text =
        format!("this rank's own part is {bytes} bytes and its output {room}: make them equal");
    Err(PyValueError::new_err(text))
}
