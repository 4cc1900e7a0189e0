//! The meeting of ranks: all of them join one session, or none does.
//!
//! Every rank connects to rank 0, at the address in its handle. Rank 0 sends them where the job is; each joins the session
//! there, passes a barrier of all ranks, and reports to rank 0, which sends the common verdict: `yes` when all have
//! reported it, and `no` with the reason as soon as one has failed, is gone, or is late.
//!
//! A rank that misses the verdict aborts the session, and so does one that dies: then the session fails at all others,
//! those included that have the verdict already.
// spec: N-04

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use thalweg::{Cancel, Error, Session, SessionConfig};

use super::line::{Line, Received};
use super::place::Place;
use crate::handle::Handle;
use crate::listening::{Caller, Listening, hello, watch};
use crate::log;
use crate::settings::Loaded;

/// Time between two looks at all connections.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Time that the others wait longer than rank 0, so that its verdict names who is missing.
const GRACE: Duration = Duration::from_secs(2);
/// Time that a cancelled session has to end.
const END_LIMIT: Duration = Duration::from_secs(5);

const YES: &str = "yes";
const NO: &str = "no\n";
const PLACE: &str = "place\n";

/// A rank that has met all others.
pub struct Joined {
    /// The session of all ranks.
    pub session: Session,
    /// This rank.
    pub rank: usize,
}

/// One rank's part in the meeting.
pub struct Part<'a> {
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Settings.
    pub loaded: &'a Loaded,
}

impl Part<'_> {
    /// Meets as rank 0. The error is the reason of the verdict.
    pub fn host(&self, listening: &Listening) -> Result<Joined, String> {
        let limit = self.loaded.join_timeout();
        let deadline = Instant::now() + limit;
        let settings = self.loaded.settings.as_ref().map_err(String::clone);
        let place = settings.and_then(|settings| {
            Place::choose(settings, self.ranks, limit)
                .map_err(|error| format!("at rank 0, {error}"))
        });
        let mut lines: Vec<Option<Line>> = (1..self.ranks).map(|_| None).collect();
        let mut joining = None;
        let met = place.and_then(|place| {
            self.gather(listening, &mut lines, deadline)?;
            self.decide(&place, &mut lines, &mut joining, deadline)
        });
        if let Err(reason) = &met {
            self.accept_late(listening, &mut lines, deadline);
            let verdict = format!("{NO}{reason}");
            lines.iter_mut().flatten().for_each(|line| drop(line.send(&verdict)));
        }
        // A session that is given up takes a moment to end, and the others have the verdict by then.
        drop(joining);
        met
    }

    /// Waits for all ranks to connect.
    fn gather(
        &self,
        listening: &Listening,
        lines: &mut [Option<Line>],
        deadline: Instant,
    ) -> Result<(), String> {
        loop {
            self.accept(listening, lines)?;
            let missing = missing(lines);
            if missing.is_empty() {
                return Ok(());
            }
            for (index, line) in lines.iter_mut().enumerate() {
                match line.as_mut().map(Line::poll) {
                    // A rank may know already that it cannot take part.
                    Some(Received::Message(message)) => vote(index + 1, &message)?,
                    Some(Received::Gone(why)) => return Err(gone(index + 1, &why)),
                    Some(Received::Nothing) | None => {}
                }
            }
            if Instant::now() > deadline {
                let limit = self.loaded.join_timeout().as_secs_f64();
                return Err(format!("ranks {missing:?} did not connect within {limit:.1} s"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn accept(&self, listening: &Listening, lines: &mut [Option<Line>]) -> Result<(), String> {
        let accepted = listening.accept().map_err(|failure| failure.text.unwrap_or_default())?;
        let Some(Caller { stream, rank, .. }) = accepted else { return Ok(()) };
        watch(&stream, self.loaded.failure_after()).map_err(|error| error.to_string())?;
        let index = (rank as usize).checked_sub(1);
        if let Some(line) = index.and_then(|index| lines.get_mut(index)) {
            *line = Some(Line::new(stream).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// After a failure, waits a little for ranks that are about to connect: they get the reason as well.
    fn accept_late(&self, listening: &Listening, lines: &mut [Option<Line>], deadline: Instant) {
        let until = deadline.min(Instant::now() + GRACE);
        while !missing(lines).is_empty() && Instant::now() < until {
            if self.accept(listening, lines).is_err() {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Has all ranks join, and sends the verdict.
    fn decide(
        &self,
        place: &Place,
        lines: &mut [Option<Line>],
        joining: &mut Option<Joining>,
        deadline: Instant,
    ) -> Result<Joined, String> {
        let message = format!("{PLACE}{}", place.to_text());
        for (index, line) in lines.iter_mut().enumerate() {
            let sent = line.as_mut().map(|line| line.send(&message));
            sent.transpose().map_err(|error| gone(index + 1, &error.to_string()))?;
        }
        let own = joining.insert(self.join(place)?);
        let mut votes = vec![false; self.ranks];
        while votes.contains(&false) {
            votes[0] |= own.poll().map_err(|error| format!("at rank 0, {error}"))?;
            for (index, line) in lines.iter_mut().enumerate() {
                match line.as_mut().map(Line::poll) {
                    Some(Received::Message(message)) => {
                        vote(index + 1, &message)?;
                        votes[index + 1] = true;
                    }
                    Some(Received::Gone(why)) => return Err(gone(index + 1, &why)),
                    Some(Received::Nothing) | None => {}
                }
            }
            if Instant::now() > deadline {
                let late: Vec<usize> = (0..self.ranks).filter(|rank| !votes[*rank]).collect();
                let limit = self.loaded.join_timeout().as_secs_f64();
                return Err(format!("ranks {late:?} did not join within {limit:.1} s"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // One that is gone by now fails the session at all others.
        lines.iter_mut().flatten().for_each(|line| drop(line.send(YES)));
        self.joined(own, place)
    }

    /// Meets as any other rank.
    pub fn attend(&self, root: &Handle) -> Result<Joined, String> {
        let limit = self.loaded.join_timeout();
        let deadline = Instant::now() + limit + GRACE;
        let mut line = self.call(root, limit).map_err(|error| {
            format!("rank {} cannot reach rank 0 at {}: {error}", self.rank, root.address)
        })?;
        if let Err(text) = &self.loaded.settings {
            self.report(&mut line, &Err(text.clone()));
        }
        let place = loop {
            if let Some(message) = self.next(&mut line, deadline)? {
                let place = message.strip_prefix(PLACE).and_then(Place::from_text);
                break place.ok_or("rank 0 sent a message of another version")?;
            }
        };
        let mut joining = self.join(&place)?;
        let mut has_reported = false;
        loop {
            if !has_reported {
                let state = joining.poll();
                has_reported = !matches!(state, Ok(false));
                if has_reported {
                    self.report(&mut line, &state.map(drop).map_err(|error| error.to_string()));
                    log::info(&format!("rank {} waits for the verdict of rank 0", self.rank));
                }
            }
            match self.next(&mut line, deadline)?.as_deref() {
                Some(YES) => return self.joined(&mut joining, &place),
                Some(_) => return Err("rank 0 sent a message of another version".into()),
                None => {}
            }
        }
    }

    fn call(&self, root: &Handle, limit: Duration) -> std::io::Result<Line> {
        let mut stream = TcpStream::connect_timeout(&root.address, limit)?;
        watch(&stream, self.loaded.failure_after())?;
        let rank = u32::try_from(self.rank).unwrap_or(u32::MAX);
        stream.write_all(&hello(root.secret, rank, None))?;
        Line::new(stream)
    }

    fn report(&self, line: &mut Line, state: &Result<(), String>) {
        let report = match state {
            Ok(()) => YES.to_owned(),
            Err(text) => format!("{NO}{text}"),
        };
        // Where it does not arrive, rank 0 is gone, which the next look shows.
        let _ = line.send(&report);
    }

    /// The next message of rank 0, after a moment. The error is a verdict, or that rank 0 is gone or late.
    fn next(&self, line: &mut Line, deadline: Instant) -> Result<Option<String>, String> {
        match line.poll() {
            Received::Message(message) => match message.strip_prefix(NO) {
                Some(reason) => Err(reason.to_owned()),
                None => Ok(Some(message)),
            },
            Received::Gone(why) => Err(gone(0, &why)),
            Received::Nothing if Instant::now() > deadline => {
                let limit = self.loaded.join_timeout().as_secs_f64();
                Err(format!("rank 0 has not answered for {limit:.1} s"))
            }
            Received::Nothing => {
                std::thread::sleep(LOOK_EVERY);
                Ok(None)
            }
        }
    }

    fn join(&self, place: &Place) -> Result<Joining, String> {
        let settings = self.loaded.settings.as_ref().map_err(String::clone)?;
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let config = place.session(settings, number(self.rank), number(self.ranks))?;
        Joining::start(config).map_err(|error| format!("there is no thread to join with: {error}"))
    }

    fn joined(&self, joining: &mut Joining, place: &Place) -> Result<Joined, String> {
        let (rank, ranks) = (self.rank, self.ranks);
        let switch = place.switch.as_deref().unwrap_or("none");
        log::info(&format!(
            "CollNet via server {}, switch {switch}, job {}, rank {rank} of {ranks}",
            place.server, place.job
        ));
        Ok(Joined { session: joining.take_session()?, rank })
    }
}

/// Ranks that have not connected.
fn missing(lines: &[Option<Line>]) -> Vec<usize> {
    (0..lines.len()).filter(|index| lines[*index].is_none()).map(|index| index + 1).collect()
}

fn gone(rank: usize, why: &str) -> String {
    format!("rank {rank} is gone: {why}")
}

/// An error if a rank reports that it cannot take part.
fn vote(rank: usize, message: &str) -> Result<(), String> {
    match message.strip_prefix(NO) {
        Some(text) => Err(format!("at rank {rank}, {text}")),
        None if message == YES => Ok(()),
        None => Err(format!("rank {rank} sent a message of another version")),
    }
}

/// A session that is being joined, on a thread of its own. Dropping it cancels that.
struct Joining {
    cancel: Cancel,
    result: Receiver<Result<Session, Error>>,
    session: Option<Session>,
    /// True once the session is another's.
    is_over: bool,
}

impl Joining {
    fn start(config: SessionConfig) -> std::io::Result<Joining> {
        let (sender, result) = channel();
        let cancel = config.cancel.clone();
        std::thread::Builder::new().name("thalweg-join".into()).spawn(move || {
            // The receiver may be gone; then the session ends here.
            let _ = sender.send(join(config));
        })?;
        Ok(Joining { cancel, result, session: None, is_over: false })
    }

    /// Returns whether the session has joined and passed its barrier.
    fn poll(&mut self) -> Result<bool, Error> {
        if self.session.is_none() {
            match self.result.try_recv() {
                Ok(joined) => self.session = Some(joined?),
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn take_session(&mut self) -> Result<Session, String> {
        self.is_over = self.session.is_some();
        self.session.take().ok_or_else(|| "the session has not joined".to_owned())
    }
}

/// Joins, and waits until values can pass between all ranks.
fn join(config: SessionConfig) -> Result<Session, Error> {
    let session = Session::join(config)?;
    session.barrier().wait()?;
    Ok(session)
}

impl Drop for Joining {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Some(session) = self.session.take() {
            return session.abort("not all ranks could connect");
        }
        self.cancel.cancel("not all ranks could connect");
        // Its session is dropped here, and not while NCCL does something else. A thread that takes longer ends by itself.
        let _: Result<_, RecvTimeoutError> = self.result.recv_timeout(END_LIMIT);
    }
}
