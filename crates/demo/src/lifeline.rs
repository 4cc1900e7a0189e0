//! The child's side of its standard input: orders come in, and its end is the end.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, channel};

use thalweg_console::Failure;

/// Orders to this process, line by line. When nobody is left who could send any, the whole process ends, whatever it is
/// at: so nothing outlives the demo, even if that is killed.
pub(super) struct Lifeline(Receiver<String>);

impl Lifeline {
    pub(super) fn hold() -> Lifeline {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                // Nobody needs to wait for it.
                let _ = sender.send(line);
            }
            std::process::exit(1);
        });
        Lifeline(lines)
    }

    /// Waits for the next line.
    pub(super) fn next(&self) -> Result<String, Failure> {
        self.0.recv().map_err(|_| Failure::Ran("the demo is gone".to_owned()))
    }
}
