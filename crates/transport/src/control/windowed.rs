//! A window that follows a rule.

use thalweg_core::{Bytes, Rng, Time};

use super::window::Window;
use super::{Acked, ControlStart, Controller, Extent, Lost, PacketInfo, SentPacket};

/// Decisions in which controls with a window differ. [`Windowed`] does what all of them do.
pub(super) trait Rule: std::fmt::Debug {
    /// Share of the window that slow start goes up to after a timeout.
    const BETA: f64;

    /// Share of the window that a mark leaves.
    fn mark_factor(&self) -> f64 {
        Self::BETA
    }

    /// Share of the window that a loss leaves.
    fn loss_factor(&self) -> f64 {
        Self::BETA
    }

    /// Sees every acknowledgement before it changes the window.
    #[inline]
    fn observe(&mut self, _acked: &Acked) {}

    /// Returns whether packets have to carry their state.
    #[inline]
    fn needs_info(&self) -> bool {
        false
    }

    /// Grows the window, if it may, for an acknowledgement that does not cut it.
    #[inline]
    fn grow(&mut self, window: &mut Window, acked: &Acked) {
        window.grow_as_reno(acked);
    }

    /// Sees the window before loss or a mark cuts it.
    fn before_cut(&mut self, _window: &Window) {}

    /// Sees the window before a timeout leaves one packet of it.
    fn before_collapse(&mut self, _window: &Window) {}

    /// Sees the window before packets leave in a class in which they wait for others.
    fn demote(&mut self, _window: &Window) {}

    /// Forgets what was learned in that class.
    fn promote(&mut self, _window: &mut Window) {}

    /// Forgets the marks of a less urgent priority.
    fn on_rise(&mut self) {}

    /// Keeps what holds for another flow on the same path, whose transmissions are numbered from 0.
    fn restart(&mut self) {}
}

/// A window that follows a rule. Answers marks and losses once per window of data.
#[derive(Clone, Debug)]
pub(super) struct Windowed<R> {
    window: Window,
    pub(super) rule: R,
    /// Losses of transmissions below this number were answered already.
    loss_end: u64,
}

impl<R: Rule> Windowed<R> {
    pub fn new(window: Window, rule: R) -> Windowed<R> {
        Windowed { window, rule, loss_end: 0 }
    }

    /// The window that a flow begins with.
    pub fn begin(start: &ControlStart, rule: R) -> Windowed<R> {
        let segment = Bytes::from(start.packet_bytes);
        Windowed::new(Window::new(segment, start.initial_packets), rule)
    }
}

impl<R: Rule> Controller for Windowed<R> {
    #[inline]
    fn on_sent(&mut self, packet: &SentPacket) -> Option<PacketInfo> {
        self.rule.needs_info().then(|| PacketInfo::of(packet))
    }

    #[inline]
    fn on_ack(&mut self, acked: &Acked, _rng: &mut Rng) -> bool {
        self.rule.observe(acked);
        let is_cut = self.window.is_marked_anew(acked);
        if is_cut {
            self.rule.before_cut(&self.window);
            self.window.cut_for_mark(acked, self.rule.mark_factor());
        } else {
            self.rule.grow(&mut self.window, acked);
        }
        is_cut
    }

    fn on_loss(&mut self, lost: &Lost) -> bool {
        if lost.transmission < self.loss_end {
            return false;
        }
        self.loss_end = lost.next_transmission;
        self.rule.before_cut(&self.window);
        self.window.cut(self.rule.loss_factor());
        true
    }

    fn on_timeout(&mut self, _now: Time) {
        self.rule.before_collapse(&self.window);
        self.window.collapse(R::BETA);
    }

    #[inline]
    fn window(&self) -> Bytes {
        self.window.whole_bytes()
    }

    fn demote(&mut self) {
        self.rule.demote(&self.window);
    }

    fn promote(&mut self) {
        self.rule.promote(&mut self.window);
    }

    fn on_rise(&mut self) {
        self.window.leave_avoidance();
        self.rule.on_rise();
    }

    fn extent(&self) -> Extent {
        self.window.extent()
    }

    fn undo_loss(&mut self, before: Extent) {
        self.window.undo(before);
    }

    fn restart(&mut self) {
        self.window.restart();
        self.rule.restart();
        self.loss_end = 0;
    }
}
