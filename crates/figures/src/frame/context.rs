//! Context of a running figure.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use thalweg_scenario::sweep;

use super::error::FigureError;
use super::figure::Figure;
use super::report::Settings;

/// Receives the progress of a run, from 0 to 1, and its current step; breaks to end it. It may be called from
/// any thread.
pub type Watch<'a> = dyn Fn(f64, &str) -> ControlFlow<()> + Sync + 'a;

/// One run of a figure: its size, its seed, and who watches it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) figure: &'static Figure,
    /// True for the plan's quick size.
    pub(crate) quick: bool,
    /// Seed of all randomness of the run.
    pub(crate) seed: u64,
    /// Number of threads that [`Context::each`] may use. The findings must not depend on it.
    pub(crate) threads: usize,
    watch: &'a Watch<'a>,
    /// Part of the whole run, from here to `to`.
    from: f64,
    to: f64,
}

impl<'a> Context<'a> {
    /// A run on its own.
    pub(crate) fn new(
        figure: &'static Figure,
        settings: &Settings,
        watch: &'a Watch<'a>,
    ) -> Context<'a> {
        let Settings { quick, seed, threads, .. } = *settings;
        Context { figure, quick, seed, threads, watch, from: 0.0, to: 1.0 }
    }

    /// The error of a plan that does not fit together.
    pub(crate) fn mistake(&self, reason: impl Into<String>) -> FigureError {
        FigureError::Plan { figure: self.figure.name(), reason: reason.into() }
    }

    /// The error of a run without a valid result.
    pub(crate) fn failed(&self, reason: impl Into<String>) -> FigureError {
        FigureError::Failed { figure: self.figure.name(), reason: reason.into() }
    }

    /// The same run as a part of a longer one: what is 0 to 1 for the part is `from` to `to` for the
    /// whole. A figure that works in phases gives each one its own.
    #[must_use]
    pub(crate) fn part(&self, from: f64, to: f64) -> Context<'a> {
        let whole = self.to - self.from;
        Context { from: self.from + from * whole, to: self.from + to * whole, ..*self }
    }

    /// Tells how far the run is, from 0 to 1.
    ///
    /// # Errors
    ///
    /// [`FigureError::Stopped`] when the run has to end: pass it on.
    pub(crate) fn reached(&self, done: f64, label: &str) -> Result<(), FigureError> {
        let whole = self.from + done.clamp(0.0, 1.0) * (self.to - self.from);
        match (self.watch)(whole, label) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(FigureError::Stopped),
        }
    }

    /// Works on every item, on all threads, and returns the results in the order of the items.
    ///
    /// Randomness must come from the seed and the item, never from what other items did. Progress
    /// counts every item alike; `label` says which one is at work.
    pub(crate) fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        label: impl Fn(&T) -> String + Sync,
        work: impl Fn(&T, &Point<'_>) -> Result<R, FigureError> + Sync,
    ) -> Result<Vec<R>, FigureError> {
        let shares = Mutex::new(Shares { of_items: vec![0.0; items.len()], sum: 0.0 });
        let numbered: Vec<(usize, &T)> = items.iter().enumerate().collect();
        let results = sweep::on_all_cores(&numbered, self.threads, |&(index, item)| {
            let point = Point { context: self, shares: &shares, index, label: label(item) };
            point.reached(0.0)?;
            let result = work(item, &point)?;
            point.reached(1.0)?;
            Ok(result)
        });
        results.into_iter().collect()
    }
}

#[cfg(test)]
impl<'a> Context<'a> {
    /// A run of some figure.
    pub(super) fn watched(threads: usize, watch: &'a Watch<'a>) -> Context<'a> {
        let settings = Settings { quick: true, seed: 1, seeds: 1, threads };
        Context::new(&crate::all()[0], &settings, watch)
    }
}

#[cfg(test)]
impl Context<'static> {
    /// A quick run of a figure that nobody watches.
    pub(crate) fn unwatched(figure: &str, seed: u64, threads: usize) -> Context<'static> {
        let settings = Settings { quick: true, seed, seeds: 1, threads };
        let figure = super::figure::find(figure).unwrap();
        Context::new(figure, &settings, &|_, _| ControlFlow::Continue(()))
    }

    pub(crate) fn findings(&self) -> Result<super::findings::Findings, FigureError> {
        self.figure.run(self)
    }
}

/// One item at work.
pub(crate) struct Point<'a> {
    pub(crate) context: &'a Context<'a>,
    shares: &'a Mutex<Shares>,
    index: usize,
    label: String,
}

/// Progress of each item.
struct Shares {
    of_items: Vec<f64>,
    sum: f64,
}

impl Point<'_> {
    /// Tells how far this item is, from 0 to 1. An item that takes long calls it every now and then,
    /// so that the run can be stopped.
    ///
    /// # Errors
    ///
    /// [`FigureError::Stopped`] when the run has to end: pass it on.
    pub(crate) fn reached(&self, share: f64) -> Result<(), FigureError> {
        let done = {
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut shares.of_items[self.index], share);
            shares.sum += share - before;
            shares.sum / shares.of_items.len() as f64
        };
        self.context.reached(done, &self.label)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn items_keep_their_order_and_progress_ends_at_one() {
        let seen = Mutex::new(Vec::new());
        let watch = |done: f64, label: &str| {
            seen.lock().unwrap().push((done, label.to_owned()));
            ControlFlow::Continue(())
        };
        let context = Context::watched(4, &watch);
        let squares = context
            .each(&[3_u64, 1, 2], |item| format!("item {item}"), |item, _| Ok(item * item))
            .unwrap();
        assert_eq!(squares, [9, 1, 4]);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 6);
        assert!(seen.iter().any(|(done, _)| *done == 1.0));
        assert!(seen.iter().any(|(_, label)| label == "item 2"));
    }

    #[test]
    fn parts_lie_within_the_whole() {
        let last = Mutex::new(0.0);
        let watch = |done: f64, _: &str| {
            *last.lock().unwrap() = done;
            ControlFlow::Continue(())
        };
        let context = Context::watched(1, &watch);
        for (done, expected) in [(0.0, 0.625), (0.5, 0.6875), (1.0, 0.75), (7.0, 0.75)] {
            context.part(0.5, 1.0).part(0.25, 0.5).reached(done, "").unwrap();
            assert_eq!(*last.lock().unwrap(), expected);
        }
    }

    #[test]
    fn a_run_that_is_stopped_starts_nothing_more() {
        let watch = |_: f64, _: &str| ControlFlow::Break(());
        let started = AtomicU32::new(0);
        let context = Context::watched(2, &watch);
        let result = context.each(
            &[1, 2, 3],
            |_| String::new(),
            |_, _| {
                started.fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
        );
        assert!(matches!(result, Err(FigureError::Stopped)));
        assert_eq!(started.into_inner(), 0);
    }
}
