//! One rank's part in a job.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use thalweg::internal::{Call, Combine, Intent, Outcome, Reduction, Request, digest_of_lengths};
use thalweg::{
    Collective, Coverage, Element, Error, ErrorKind, Handle, Policy, Priority, Reduce,
    ReduceOptions, Reliability, SessionConfig,
};

use crate::memory::{Memory, all};
use crate::notes::{self, Notes};

create_exception!(
    thalweg._core,
    SessionError,
    PyRuntimeError,
    "A job failed: the text says why, and which rank is to blame."
);

/// Copies the result of an operation to where it belongs and says what it lacks, or why there is none.
type Finish = Box<dyn FnOnce() -> Result<Lacking, Explained> + Send>;

/// What went wrong with an operation: a text, and the ranks to blame.
type Explained = (String, Vec<u32>);

/// Parts of a tensor, from one value to another, and the ranks whose values these lack. `None` where that is
/// unreported.
type Lacking = Option<Vec<(u64, u64, Vec<u32>)>>;

/// Nothing is missing.
const WHOLE: Lacking = Some(Vec::new());

/// How an operation has ended: its number, what went wrong if something did, and what its result lacks.
type End = (u64, Option<Explained>, Lacking);

/// A session. Every method that begins an operation returns its number.
#[pyclass(module = "thalweg._core", frozen)]
pub(crate) struct Session {
    session: Mutex<Option<thalweg::Session>>,
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
    /// Joins a job and waits until all ranks are there. `patience_s` is how long an operation that does
    /// not move is waited for; `collective` is "auto", "aggregate", "server" or "ring".
    #[new]
    #[pyo3(signature = (
        server, job, rank, ranks, *, switch = None, token = None, patience_s = 30.0, stall_s = 5.0,
        collective = "auto", share_memory = true,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        server: &str,
        job: &str,
        rank: u32,
        ranks: u32,
        switch: Option<String>,
        token: Option<String>,
        patience_s: f64,
        stall_s: f64,
        collective: &str,
        share_memory: bool,
    ) -> PyResult<Session> {
        let notes = notes::of(job, rank);
        let mut config = SessionConfig::new(server, job, rank, ranks);
        (config.switch, config.token, config.share_memory) = (switch, token, share_memory);
        config.operation_timeout = seconds("patience_s", patience_s)?;
        config.stall_after = seconds("stall_s", stall_s)?;
        config.policy = Policy::default().collective(via(collective)?);
        let session = py.detach(|| thalweg::Session::join(config)).map_err(raise)?;
        let (ended, ends) = channel();
        Ok(Session {
            session: Mutex::new(Some(session)),
            under_way: Mutex::default(),
            ended,
            ends: Mutex::new(ends),
            notes,
        })
    }

    /// On how many hosts the ranks are.
    #[getter]
    fn hosts(&self) -> PyResult<u32> {
        self.with(|session| Ok(session.hosts()))
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
        let handle = self.with(|session| {
            let policy = session.policy().reliability(reliability).priority(priority);
            let options = ReduceOptions::new(how).policy(policy);
            Ok(session.all_reduce_bytes(element, memory, options, intent))
        })?;
        Ok(self.begin_lacking(handle, |reduced| Ok(lacking(&reduced.coverage))))
    }

    /// As `all_reduce`, but only one rank gets the result, and the caller divides for a mean.
    #[pyo3(signature = (root, memory, element, how, reduction = None))]
    fn reduce(
        &self,
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
        self.call(Request { is_mean, intent, ..call.into() }, move |outcome| match outcome {
            Outcome::Bytes(bytes) => memory.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => Ok(()),
        })
    }

    /// This rank gets its part of the values of all, combined: `counts[r]` values go to rank r. The caller
    /// divides for a mean.
    #[pyo3(signature = (input, output, counts, element, how, reduction = None))]
    fn reduce_scatter(
        &self,
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
        let own = counts.get(self.rank()? as usize).copied().unwrap_or_default();
        check_own(own.saturating_mul(element.bytes() as u64), output)?;
        let call = Call::ReduceScatter { element, how, data: input.read(), counts };
        self.call(Request { is_mean, intent, ..call.into() }, move |outcome| match outcome {
            Outcome::Bytes(bytes) => output.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => output.write(&[]),
        })
    }

    /// Everybody gets the bytes of one rank. `element` is the type of the values, here and below `None` if
    /// ranks cannot compare it.
    #[pyo3(signature = (root, memory, element = None))]
    fn broadcast(&self, root: u32, memory: (usize, usize), element: Option<&str>) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let memory = Memory::new(memory)?;
        let data = memory.read();
        let bytes = Some(data.len() as u64);
        let call = Call::Broadcast { root, data };
        self.call(Request { element, bytes, ..call.into() }, move |outcome| match outcome {
            Outcome::Bytes(bytes) => memory.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => Ok(()),
        })
    }

    /// Everybody gets the bytes of every rank.
    #[pyo3(signature = (input, outputs, element = None))]
    fn all_gather(
        &self,
        input: (usize, usize),
        outputs: Vec<(usize, usize)>,
        element: Option<&str>,
    ) -> PyResult<u64> {
        let call = Call::AllGather { data: Memory::new(input)?.read() };
        self.exchange(call, all(outputs)?, element)
    }

    /// One rank gets the bytes of every rank; the others have no outputs.
    #[pyo3(signature = (root, input, outputs, element = None))]
    fn gather(
        &self,
        root: u32,
        input: (usize, usize),
        outputs: Vec<(usize, usize)>,
        element: Option<&str>,
    ) -> PyResult<u64> {
        let (input, outputs) = (Memory::new(input)?, all(outputs)?);
        if let Some(own) = outputs.get(self.rank()? as usize) {
            check_own(input.len(), *own)?;
        }
        self.exchange(Call::Gather { root, data: input.read() }, outputs, element)
    }

    /// Every rank gets a part from one; the others have no inputs.
    #[pyo3(signature = (root, inputs, output, element = None))]
    fn scatter(
        &self,
        root: u32,
        inputs: Vec<(usize, usize)>,
        output: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let (inputs, output) = (all(inputs)?, Memory::new(output)?);
        if let Some(own) = inputs.get(self.rank()? as usize) {
            check_own(own.len(), output)?;
        }
        let parts = inputs.into_iter().map(Memory::read).collect();
        let ranks = self.with(|session| Ok(session.ranks()))?;
        let expected = Some(vec![output.len(); ranks as usize]);
        let request = Request { element, expected, ..Call::Scatter { root, parts }.into() };
        self.call(request, move |outcome| match outcome {
            Outcome::Bytes(bytes) => output.write(&bytes),
            Outcome::Parts(_) | Outcome::Nothing => output.write(&[]),
        })
    }

    /// Everybody gets a part from each rank.
    #[pyo3(signature = (inputs, outputs, element = None))]
    fn all_to_all(
        &self,
        inputs: Vec<(usize, usize)>,
        outputs: Vec<(usize, usize)>,
        element: Option<&str>,
    ) -> PyResult<u64> {
        let (inputs, outputs) = (all(inputs)?, all(outputs)?);
        let rank = self.rank()? as usize;
        if let (Some(given), Some(own)) = (inputs.get(rank), outputs.get(rank)) {
            check_own(given.len(), *own)?;
        }
        let parts = inputs.into_iter().map(Memory::read).collect();
        self.exchange(Call::AllToAll { parts }, outputs, element)
    }

    /// Ends when every rank is in it.
    fn barrier(&self) -> PyResult<u64> {
        let handle = self.with(|session| Ok(session.barrier()))?;
        Ok(self.begin(handle, |()| Ok(())))
    }

    /// Sends bytes to a rank, which receives them with the same tag.
    #[pyo3(signature = (to, tag, memory, element = None))]
    fn send(
        &self,
        to: u32,
        tag: u64,
        memory: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let bytes = Memory::new(memory)?.read();
        let handle = self.with(|session| Ok(session.send_bytes(to, tag, element, bytes)))?;
        Ok(self.begin(handle, |()| Ok(())))
    }

    /// Receives what a rank sends with this tag.
    #[pyo3(signature = (from, tag, memory, element = None))]
    fn receive(
        &self,
        from: u32,
        tag: u64,
        memory: (usize, usize),
        element: Option<&str>,
    ) -> PyResult<u64> {
        let memory = Memory::new(memory)?;
        let expected = (element.map(element_of).transpose()?, Some(memory.len()));
        let handle = self.with(|session| Ok(session.receive_bytes(from, tag, expected)))?;
        Ok(self.begin(handle, move |bytes| memory.write(&bytes)))
    }

    /// Waits for an operation to end. `None` if nothing has ended in time.
    fn next(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<End>> {
        let timeout = seconds("timeout_s", timeout_s)?;
        py.detach(|| {
            let number = match lock(&self.ends).recv_timeout(timeout) {
                Ok(number) => number,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            };
            let finish = lock(&self.under_way).finish.remove(&number);
            Ok(Some(match finish.map_or(Ok(WHOLE), |finish| finish()) {
                Ok(lacking) => (number, None, lacking),
                Err(explained) => (number, Some(explained), None),
            }))
        })
    }

    /// What there is to tell since the last call: who is waited for, stalls, servers that went away. With
    /// each, whether it is worth a warning.
    fn take_notes(&self) -> Vec<(bool, String)> {
        self.notes.take()
    }

    /// Leaves the job when everything that was begun has ended.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let session = lock(&self.session).take();
        match session {
            Some(session) => py.detach(|| session.leave()).map_err(raise),
            None => Ok(()),
        }
    }

    /// Ends at once, whatever is under way. The others are told.
    fn abort(&self, py: Python<'_>) {
        let session = lock(&self.session).take();
        py.detach(|| drop(session));
    }
}

impl Session {
    fn with<T>(&self, begin: impl FnOnce(&thalweg::Session) -> Result<T, Error>) -> PyResult<T> {
        match &*lock(&self.session) {
            Some(session) => begin(session).map_err(raise),
            None => Err(SessionError::new_err("the session is over")),
        }
    }

    fn rank(&self) -> PyResult<u32> {
        self.with(|session| Ok(session.rank()))
    }

    fn call(
        &self,
        request: Request,
        finish: impl FnOnce(Outcome) -> Result<(), String> + Send + 'static,
    ) -> PyResult<u64> {
        let handle = self.with(|session| Ok(session.call_bytes(request)))?;
        Ok(self.begin(handle, finish))
    }

    fn exchange(&self, call: Call, outputs: Vec<Memory>, element: Option<&str>) -> PyResult<u64> {
        let element = element.map(element_of).transpose()?;
        let lengths = || outputs.iter().map(|output| output.len()).collect();
        let expected = (!outputs.is_empty()).then(lengths);
        self.call(Request { element, expected, ..call.into() }, move |outcome| {
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
        self.begin_lacking(handle, |result| finish(result).map(|()| WHOLE))
    }

    /// Notes an operation that was begun, and whose result may lack something.
    fn begin_lacking<T: 'static>(
        &self,
        handle: Handle<T>,
        finish: impl FnOnce(T) -> Result<Lacking, String> + Send + 'static,
    ) -> u64 {
        let handle = Arc::new(Mutex::new(Some(handle)));
        let waiting = Arc::clone(&handle);
        let finish: Finish = Box::new(move || {
            let blameless = |text: String| (text, Vec::new());
            let handle = lock(&waiting).take();
            let handle =
                handle.ok_or_else(|| blameless("the operation has ended already".into()))?;
            finish(handle.wait().map_err(|error| explain(&error))?).map_err(blameless)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{name} is {value}: choose seconds from 0 on")))
}

fn via(name: &str) -> PyResult<Collective> {
    Ok(match name {
        "auto" => Collective::Auto,
        "aggregate" => Collective::Aggregate,
        "server" => Collective::Server,
        "ring" => Collective::Ring,
        _ => {
            let text = format!("no collective \"{name}\": auto, aggregate, server or ring");
            return Err(PyValueError::new_err(text));
        }
    })
}

fn reduce(name: &str) -> PyResult<Reduce> {
    Ok(match name {
        "sum" => Reduce::Sum,
        "mean" => Reduce::Mean,
        "min" => Reduce::Min,
        "max" => Reduce::Max,
        "product" => Reduce::Product,
        _ => {
            let text = format!("no reduction \"{name}\": sum, mean, min, max or product");
            return Err(PyValueError::new_err(text));
        }
    })
}

/// The intent of a caller. A reduction of `None` is that of the call.
fn intent(reduction: Option<&str>) -> PyResult<Intent> {
    let by_name = |name: &str| {
        let found = Reduction::ALL.into_iter().find(|reduction| reduction.name() == name);
        found.ok_or_else(|| {
            let names = Reduction::ALL.map(Reduction::name).join(", ");
            PyValueError::new_err(format!("no reduction \"{name}\": one of {names}"))
        })
    };
    Ok(Intent { reduction: reduction.map(by_name).transpose()?, ..Intent::default() })
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

/// Reductions in which the layer above divides for a mean, and whether it does.
fn combine(name: &str) -> PyResult<(Combine, bool)> {
    let how = reduce(name)?;
    Ok((how.combine(), how == Reduce::Mean))
}

fn element_of(name: &str) -> PyResult<Element> {
    Element::ALL.into_iter().find(|element| element.name() == name).ok_or_else(|| {
        let names = Element::ALL.map(Element::name).join(", ");
        PyValueError::new_err(format!("no element \"{name}\": one of {names}"))
    })
}

fn explain(error: &Error) -> Explained {
    (error.to_string(), error.ranks().to_vec())
}

fn raise(error: Error) -> PyErr {
    let (text, _) = explain(&error);
    match error.kind() {
        // The job goes on.
        ErrorKind::Call => PyValueError::new_err(text),
        _ => SessionError::new_err(text),
    }
}
