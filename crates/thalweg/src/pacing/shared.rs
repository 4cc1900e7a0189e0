//! What the threads of a paced session share: what the agent granted, and what has left.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_control::local;
use thalweg_core::{Bytes, Pacer, Rate, Span, Time};
use thalweg_pace::SlotPacer;

/// While a session waits, a few packets may leave this often: questions and answers, so that others need
/// not wait for it.
const TRICKLE_EVERY: Span = Span::from_ms(10);

/// What a late wake-up missed, up to this time, is made up for.
const LAG: Span = Span::from_ms(20);

/// Nothing moves for this long: what was handed over and has not left will not leave.
const SILENCE: Span = Span::from_ms(60);

/// An agent that has been silent for this long hangs: its rates no longer hold.
const SILENT_AFTER: Span = Span::from_ms(local::SILENT_AFTER.as_millis() as u64);

/// How long a rate holds that holds until further notice.
const LONG: Span = Span::from_s(3_600);

/// What the threads of a paced session share.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Before the agent has said anything, and when it is gone.
    is_free: bool,
    has_begun: bool,
    idle: Option<Rate>,
    /// What was said and not taken up: it counts from when the driver, whose clock it is, looks.
    said: Option<Said>,
    /// The last rate is one that must be renewed. The agent has no more to say of a flow that stays on its host.
    is_limited: bool,
    /// A message of the agent came since the driver looked.
    has_message: bool,
    /// Time at which the driver last found a message of the agent.
    message_at: Time,
    handed_over: u64,
    sent: u64,
    moved_at: Time,
    now: Time,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    bps: u64,
    bytes: Option<u64>,
    within: Option<Span>,
}

impl Shared {
    /// The agent is there.
    pub(super) fn begin(&self, idle_bps: u64) {
        let mut state = self.lock();
        state.has_begun = true;
        state.idle = Rate::from_bps(idle_bps);
        (state.has_message, state.is_limited) = (true, true);
        state.said = Some(Said { bps: idle_bps, bytes: None, within: None });
    }

    /// The agent grants a rate.
    pub(super) fn grant(&self, bps: u64, bytes: Option<u64>, within_us: Option<u64>) {
        let within = within_us.map(|us| Span::from_us(us.min(LONG.as_ps() / 1_000_000)));
        let mut state = self.lock();
        (state.has_message, state.is_limited) = (true, bps != u64::MAX);
        state.said = Some(Said { bps, bytes, within });
    }

    /// Returns whether the agent was silent for so long that its rates no longer hold.
    pub(super) fn is_silent(&self) -> bool {
        self.lock().is_silent()
    }

    /// The agent is gone.
    pub(super) fn release(&self) {
        self.lock().is_free = true;
    }

    /// Notes that bytes were handed over.
    pub(super) fn ready(&self, bytes: u64) {
        let mut state = self.lock();
        state.handed_over = state.handed_over.max(state.sent).saturating_add(bytes);
    }

    /// What was handed over and what has left, in all. What does not leave any more is given up:
    /// not everything that is handed over is sent by this thread.
    pub(super) fn counts(&self) -> (u64, u64) {
        let mut state = self.lock();
        if state.now.since(state.moved_at) >= SILENCE {
            state.handed_over = state.handed_over.min(state.sent);
        }
        (state.handed_over.max(state.sent), state.sent)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    // spec: E-14
    fn is_silent(&self) -> bool {
        self.is_limited && !self.has_message && self.now.since(self.message_at) >= SILENT_AFTER
    }
}

/// The pacer of a driver.
pub(super) struct Paced {
    shared: Arc<Shared>,
    pacer: Mutex<SlotPacer>,
}

impl Paced {
    pub(super) fn new(shared: Arc<Shared>) -> Paced {
        Paced { shared, pacer: Mutex::new(SlotPacer::with_lag(LAG)) }
    }
}

impl Pacer for Paced {
    fn next_send(&self, now: Time) -> Time {
        let mut state = self.shared.lock();
        state.now = now;
        if std::mem::take(&mut state.has_message) {
            state.message_at = now;
        }
        if state.is_free || !state.has_begun || state.is_silent() {
            return now;
        }
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = state.said.take() {
            let rate = Rate::from_bps(said.bps).filter(|_| said.bytes != Some(0));
            let bytes = Bytes::new(said.bytes.unwrap_or(u64::MAX));
            pacer.grant(now, rate, bytes, now + said.within.unwrap_or(LONG));
        }
        let mut at = pacer.next_send(now);
        if at == Time::NEVER {
            // Nothing was said since: as if nothing were planned.
            pacer.grant(now, state.idle, Bytes::new(u64::MAX), now + LONG);
            at = pacer.next_send(now);
        }
        at.min(state.moved_at + TRICKLE_EVERY)
    }

    fn on_send(&mut self, now: Time, wire_bytes: Bytes) {
        let mut state = self.shared.lock();
        state.sent += wire_bytes.as_u64();
        state.moved_at = now;
        drop(state);
        let pacer = self.pacer.get_mut().unwrap_or_else(PoisonError::into_inner);
        pacer.on_send(now, wire_bytes);
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Rng;
    use thalweg_pace::testing::Trail;

    use super::*;

    const PACKET: Bytes = Bytes::new(1_500);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    /// What leaves from one moment to another, where the driver wakes up every half millisecond.
    fn drive(paced: &mut Paced, from_ms: u64, to_ms: u64) -> u64 {
        let mut sent = 0;
        for wake_up in from_ms * 2..to_ms * 2 {
            let now = Time::ZERO + Span::from_us(wake_up * 500);
            while paced.next_send(now) <= now {
                paced.on_send(now, PACKET);
                sent += PACKET.as_u64();
                assert!(sent < 100_000_000, "somebody holds it");
            }
        }
        sent
    }

    // spec: C-09 machine
    #[test]
    fn rates_of_the_agent_are_obeyed() {
        let shared = Arc::new(Shared::default());
        let mut paced = Paced::new(Arc::clone(&shared));
        assert_eq!(paced.next_send(at(100)), at(100), "nobody has said anything");
        shared.begin(120_000_000);
        let sent = drive(&mut paced, 1_000, 2_000);
        assert!((14_900_000..=15_200_000).contains(&sent), "idle: {sent}");
        shared.grant(800_000_000, Some(3_000_000), Some(60_000));
        let sent = drive(&mut paced, 2_000, 2_060);
        assert!((3_000_000..=3_020_000).contains(&sent), "3 MB and then a trickle: {sent}");
        shared.grant(0, Some(0), Some(60_000));
        let sent = drive(&mut paced, 2_060, 2_120);
        assert!((1..=12_000).contains(&sent), "waits: {sent}");
        let sent = drive(&mut paced, 2_120, 2_620);
        assert!((7_400_000..=8_200_000).contains(&sent), "idle again: {sent}");
        shared.release();
        assert_eq!(paced.next_send(at(3_121)), at(3_121));
    }

    // spec: E-14 machine
    #[test]
    fn rates_of_an_agent_that_is_silent_do_not_hold_until_it_is_back() {
        let shared = Arc::new(Shared::default());
        let mut paced = Paced::new(Arc::clone(&shared));
        shared.begin(120_000_000);
        let sent = drive(&mut paced, 1_000, 2_000);
        assert!((14_900_000..=15_200_000).contains(&sent) && !shared.is_silent(), "{sent}");
        assert_eq!(paced.next_send(at(2_000)), at(2_000), "it was silent for a second");
        assert!(shared.is_silent());
        shared.grant(120_000_000, None, None);
        let sent = drive(&mut paced, 10_000, 10_500);
        assert!((7_400_000..=8_200_000).contains(&sent), "it is back: {sent}");
        assert!(!shared.is_silent());
    }

    /// What leaves a session whose agent grants another rate for every slot, between 50 Mbps and 1 Gbps. The
    /// driver is woken up to half a millisecond late.
    fn granted_anew(seed: u64) -> Trail {
        let slot = Span::from_ms(60);
        let shared = Arc::new(Shared::default());
        let mut paced = Paced::new(Arc::clone(&shared));
        shared.begin(120_000_000);
        let mut rng = Rng::new(seed).stream("rates");
        let (mut trail, mut now) = (Trail::new(slot), Time::ZERO);
        for number in 0..60 {
            let end = Time::ZERO + slot * (number + 1);
            let rate = Rate::from_bps(50_000_000 + rng.below(950_000_001)).expect("a rate");
            let volume = rate.bytes_in(slot);
            trail.grant(volume);
            let within_us = end.since(now).as_ps() / 1_000_000;
            shared.grant(rate.as_bps(), Some(volume.as_u64()), Some(within_us));
            while now < end {
                let next = paced.next_send(now);
                if next <= now {
                    paced.on_send(now, PACKET);
                    trail.leave(now, PACKET);
                } else {
                    now = next.min(end) + Span::from_ps(rng.below(500_000_000));
                }
            }
        }
        trail
    }

    // spec: C-09 machine
    #[test]
    fn rates_that_change_every_slot_are_kept_over_any_ten() {
        for seed in 0..20 {
            // A packet that has begun; and while it waits for the slot's end, the trickle.
            assert_eq!(granted_anew(seed).check(PACKET * 6), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn what_does_not_leave_is_given_up() {
        let shared = Arc::new(Shared::default());
        let mut paced = Paced::new(Arc::clone(&shared));
        shared.begin(120_000_000);
        shared.ready(1_000_000);
        paced.on_send(at(100), Bytes::new(400_000));
        paced.next_send(at(110));
        assert_eq!(shared.counts(), (1_000_000, 400_000));
        paced.next_send(at(170));
        assert_eq!(shared.counts(), (400_000, 400_000), "the rest goes another way");
        shared.ready(500);
        assert_eq!(shared.counts().1, 400_000);
    }
}
