//! Events of the control channel, on their path to the sending threads that they are about.
// spec: F-04

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_control::{ControlEvent, Welcome};

use crate::engine::{Command, Post};

/// Most events that wait for threads that have not started: more than a server sends before they have answered.
const EARLY_MAX: usize = 1_024;

/// The sending threads of a session, as its control channel sees them.
///
/// The channel is one for all threads, and is there before all of them are: how many there are follows from what all ranks
/// offer. What is about a later one waits until it has started.
#[derive(Default)]
pub(super) struct Routes(Mutex<State>);

#[derive(Default)]
struct State {
    threads: Vec<Post>,
    /// The last one, which every thread begins with.
    welcome: Option<Arc<Welcome>>,
    /// Events about threads that have not started, by thread.
    early: Vec<(u32, ControlEvent)>,
}

impl Routes {
    /// Adds the next thread, which gets what it has missed.
    pub fn add(&self, thread: Post) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.threads.len() as u32;
        if let Some(welcome) = &state.welcome {
            let welcome = ControlEvent::Welcome(Arc::clone(welcome));
            thread.send(Command::Control(welcome));
        }
        let (own, later) =
            std::mem::take(&mut state.early).into_iter().partition(|(of, _)| *of == number);
        state.early = later;
        let own: Vec<(u32, ControlEvent)> = own;
        own.into_iter().for_each(|(_, event)| thread.send(Command::Control(event)));
        state.threads.push(thread);
    }

    /// Passes on an event about a tree of the job, which is that of one thread, or about the job.
    pub fn pass(&self, tree: u32, event: ControlEvent) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &event {
            ControlEvent::Welcome(welcome) => {
                state.welcome = Some(Arc::clone(welcome));
                state.pass_to_all(&event);
            }
            // Each of them ends, with the same error.
            ControlEvent::Failed(_) | ControlEvent::GaveUp { .. } => state.pass_to_all(&event),
            _ => match state.threads.get(tree as usize) {
                Some(thread) => thread.send(Command::Control(event)),
                None if state.early.len() < EARLY_MAX => state.early.push((tree, event)),
                None => {}
            },
        }
    }
}

impl State {
    fn pass_to_all(&self, event: &ControlEvent) {
        for thread in &self.threads {
            thread.send(Command::Control(event.clone()));
        }
    }
}
