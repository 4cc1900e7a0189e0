//! A switch's load tables, for a program that must not wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_pace::board::{Answer, Question, Update, Verdict};
use thalweg_pace::{Settings, Slot};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::{runtime, time};

use super::{CallError, Caller};
use crate::access::{Access, AccessError};

/// Messages that may wait to be sent. A switch that is slower than that hears nothing of some slots.
const QUEUE_MESSAGES: usize = 8;

/// Time after which an unreachable switch is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Message of a switch.
#[derive(Debug)]
pub enum FromSwitch {
    /// It can be reached, for the first time or again.
    Found,
    /// It cannot be reached any more; the reason.
    Lost(String),
    /// It refuses a request; the reason.
    Refused(String),
    /// Answers of its links to flows, in the order of the questions.
    Answers {
        /// In which slot they were asked.
        slot: Slot,
        /// The questions.
        questions: Vec<Question>,
        /// The answers.
        answers: Vec<Answer>,
    },
    /// Outcome of plans.
    Verdicts {
        /// The update that was sent.
        update: Update,
        /// The verdicts, in the order of the plans.
        verdicts: Vec<Verdict>,
    },
}

/// A thread that holds a connection to a switch. Ends when dropped.
#[derive(Debug)]
pub struct SwitchLink {
    access: SharedAccess,
    requests: Option<Sender<Asked>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Asked {
    Fetch(Slot, Vec<Question>),
    Update(Update),
    /// Connect again: the token, or a file, is another one.
    Reconnect,
}

/// End of a connection.
enum Ended {
    /// The link is no longer needed.
    Link,
    Reconnect,
    Broken(CallError),
}

/// Access to the switch, which can be replaced.
#[derive(Clone, Debug)]
struct SharedAccess(Arc<Mutex<Access>>);

impl SharedAccess {
    fn get(&self) -> Access {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, access: Access) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = access;
    }
}

impl SwitchLink {
    /// Starts it. What the switch says is handed to `hear`, on the link's thread.
    pub fn start(
        access: Access,
        settings: Settings,
        hear: impl Fn(FromSwitch) + Send + 'static,
    ) -> Result<SwitchLink, AccessError> {
        // An invalid address, token or certificate is reported at once.
        check(&access)?;
        let access = SharedAccess(Arc::new(Mutex::new(access)));
        let used = access.clone();
        let (requests, inbox) = channel(QUEUE_MESSAGES);
        let body = move || match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(serve(&used, settings, inbox, &hear)),
            Err(error) => hear(FromSwitch::Lost(format!("the system gives no runtime: {error}"))),
        };
        let thread = thread::Builder::new().name("thalweg-tables".into()).spawn(body).ok();
        Ok(SwitchLink { access, requests: Some(requests), thread })
    }

    /// Shows the switch another token from now on, over another connection, for which the certificate is read again.
    ///
    /// # Errors
    ///
    /// A token or a certificate that a link would not start with. Then those before stay in force.
    pub fn replace_token(&self, token: Option<String>) -> Result<(), AccessError> {
        let access = Access { token, ..self.access.get() };
        check(&access)?;
        self.access.set(access);
        // A link that is behind connects again when the switch closes the connection.
        self.send(Asked::Reconnect);
        Ok(())
    }

    /// Asks. Whether it could: a switch that is behind is not asked.
    pub fn fetch(&self, slot: Slot, questions: Vec<Question>) -> bool {
        self.send(Asked::Fetch(slot, questions))
    }

    /// Tells. Whether it could.
    pub fn update(&self, update: Update) -> bool {
        self.send(Asked::Update(update))
    }

    fn send(&self, asked: Asked) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.try_send(asked).is_ok())
    }
}

impl Drop for SwitchLink {
    fn drop(&mut self) {
        self.requests.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Checks the address, the token and the certificate.
fn check(access: &Access) -> Result<(), AccessError> {
    access.door().map(drop)
}

async fn serve(
    access: &SharedAccess,
    settings: Settings,
    mut inbox: Receiver<Asked>,
    hear: &impl Fn(FromSwitch),
) {
    let mut was_told = false;
    loop {
        match Caller::connect(&access.get(), settings).await {
            Ok(mut caller) => match converse(&mut caller, &mut inbox, &mut was_told, hear).await {
                Ended::Link => return,
                Ended::Reconnect => continue,
                Ended::Broken(error) => {
                    if !was_told {
                        hear(FromSwitch::Lost(error.to_string()));
                    }
                    was_told = true;
                }
            },
            Err(error) if !was_told => {
                hear(FromSwitch::Lost(error.to_string()));
                was_told = true;
            }
            Err(_) => {}
        }
        time::sleep(RETRY_AFTER).await;
        // What was asked meanwhile is about slots that have passed.
        loop {
            match inbox.try_recv() {
                Ok(_) => {}
                Err(tokio::sync::mpsc::error::TryRecvError::Empty) => break,
                Err(tokio::sync::mpsc::error::TryRecvError::Disconnected) => return,
            }
        }
    }
}

/// Asks and tells until something fails, or nobody asks any more. A switch counts as found with its
/// first answer: a program that only listens there may still refuse everything.
async fn converse(
    caller: &mut Caller,
    inbox: &mut Receiver<Asked>,
    was_told: &mut bool,
    hear: &impl Fn(FromSwitch),
) -> Ended {
    let mut is_found = false;
    while let Some(asked) = inbox.recv().await {
        let said = match asked {
            Asked::Fetch(slot, questions) => caller
                .fetch(slot, &questions)
                .await
                .map(|answers| FromSwitch::Answers { slot, questions, answers }),
            Asked::Update(update) => caller
                .update(&update)
                .await
                .map(|verdicts| FromSwitch::Verdicts { update, verdicts }),
            Asked::Reconnect => return Ended::Reconnect,
        };
        match said {
            Ok(said) => {
                if !is_found {
                    (is_found, *was_told) = (true, false);
                    hear(FromSwitch::Found);
                }
                hear(said);
            }
            Err(CallError::Refused { text, .. }) => hear(FromSwitch::Refused(text)),
            Err(error) => return Ended::Broken(error),
        }
    }
    Ended::Link
}
