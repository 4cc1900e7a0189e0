//! Interface that a transport obeys.

use thalweg_core::{Bytes, Pacer, Rate, Span, Time};

/// Spaces the packets of one flow as its host's scheduler decided.
///
/// The scheduler grants a rate and a volume until some moment; the flow sends at that rate until the
/// volume is used up, and then waits. A few packets at the start of a slot go at once, since their
/// answers are what the next grant is made from.
///
/// Losses are not its business: a packet that is sent again takes its turn like any other.
#[derive(Clone, Copy, Debug)]
pub struct SlotPacer {
    rate: Option<Rate>,
    left: u64,
    until: Time,
    /// When the packets so far have passed at the rate.
    passed: Time,
    probes: u32,
    lag: Span,
    burst: Span,
    /// Nothing has left since the last grant, so there is nothing to make up for.
    is_fresh: bool,
}

impl Default for SlotPacer {
    fn default() -> SlotPacer {
        SlotPacer::new()
    }
}

impl SlotPacer {
    /// A pacer that lets nothing pass yet.
    pub const fn new() -> SlotPacer {
        SlotPacer {
            rate: None,
            left: 0,
            until: Time::ZERO,
            passed: Time::ZERO,
            probes: 0,
            lag: Span::ZERO,
            burst: Span::ZERO,
            is_fresh: true,
        }
    }

    /// One for a host that is not punctual: what it misses by waking up late, up to this time, it may
    /// make up for.
    pub const fn with_lag(lag: Span) -> SlotPacer {
        SlotPacer { lag, ..SlotPacer::new() }
    }

    /// One that lets packets leave together that would have this time between the first and the last of
    /// them: a transport that is woken for every packet does little else.
    pub const fn with_burst(burst: Span) -> SlotPacer {
        SlotPacer { burst, ..SlotPacer::new() }
    }

    /// Replaces what was granted before. No rate means to wait until `until`.
    pub fn grant(&mut self, now: Time, rate: Option<Rate>, volume: Bytes, until: Time) {
        (self.rate, self.left, self.until) = (rate, volume.as_u64(), until);
        // A packet that takes long at a low rate is no debt at a high one.
        self.passed = self.passed.min(now);
        self.is_fresh = true;
    }

    /// Lets this number of packets pass at line rate, to fetch feedback.
    pub fn probe(&mut self, packets: u32) {
        self.probes = packets;
    }
}

impl Pacer for SlotPacer {
    // spec: C-15
    fn next_send(&self, now: Time) -> Time {
        if self.probes > 0 {
            return now;
        }
        let granted = self.rate.is_some() && self.left > 0 && self.passed < self.until;
        match now < self.until {
            true if granted && self.passed <= now + self.burst => now,
            true if granted => self.passed,
            true => self.until,
            // Only a new grant can change that.
            false => Time::NEVER,
        }
    }

    fn on_send(&mut self, now: Time, wire_bytes: Bytes) {
        self.left = self.left.saturating_sub(wire_bytes.as_u64());
        if self.probes > 0 {
            self.probes -= 1;
        }
        if let Some(rate) = self.rate {
            let lag = if self.is_fresh { Span::ZERO } else { self.lag };
            self.is_fresh = false;
            let earliest = Time::from_ps(now.as_ps().saturating_sub(lag.as_ps()));
            self.passed = self.passed.max(earliest) + rate.serialization(wire_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Rng, Span};

    use super::*;
    use crate::testing::Trail;

    const PACKET: Bytes = Bytes::new(1_500);

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    /// Sends whenever allowed until `end`; returns when.
    fn drive(pacer: &mut SlotPacer, mut now: Time, end: Time) -> Vec<Time> {
        let mut sent = Vec::new();
        loop {
            now = now.max(pacer.next_send(now));
            if now >= end {
                return sent;
            }
            pacer.on_send(now, PACKET);
            sent.push(now);
        }
    }

    #[test]
    fn packets_keep_the_rate_and_stop_early() {
        let mut pacer = SlotPacer::new();
        assert!(drive(&mut pacer, Time::ZERO, Time::ZERO + Span::from_ns(1)).is_empty());
        // 12 Mbps: a packet every millisecond; 20 of the 60 that the slot would hold.
        pacer.grant(at_ms(0), Rate::from_bps(12_000_000), PACKET * 20, at_ms(60));
        let sent = drive(&mut pacer, Time::ZERO + Span::from_ns(1), at_ms(60));
        assert_eq!(sent.len(), 20);
        for pair in sent.windows(2) {
            assert_eq!(pair[1].since(pair[0]), Span::from_ms(1));
        }
    }

    #[test]
    fn a_new_grant_replaces_the_old_one() {
        let mut pacer = SlotPacer::new();
        pacer.grant(at_ms(0), Rate::from_bps(12_000_000), PACKET * 1_000, at_ms(60));
        assert_eq!(drive(&mut pacer, Time::ZERO, at_ms(30)).len(), 30);
        pacer.grant(at_ms(0), Rate::from_bps(24_000_000), PACKET * 1_000, at_ms(60));
        assert_eq!(drive(&mut pacer, at_ms(30), at_ms(60)).len(), 60);
        assert_eq!(pacer.next_send(at_ms(60)), Time::NEVER, "nothing is granted any more");
        pacer.grant(at_ms(0), None, Bytes::ZERO, at_ms(120));
        assert_eq!(pacer.next_send(at_ms(61)), at_ms(120));
    }

    /// Grants rates between 50 Mbps and 1 Gbps, another one for every slot, to a pacer whose sender always has
    /// something and is woken this late, at most.
    fn granted_anew(mut pacer: SlotPacer, seed: u64, late: Span) -> Trail {
        let mut rng = Rng::new(seed).stream("rates");
        let slot = Span::from_ms(60);
        let mut trail = Trail::new(slot);
        let mut now = Time::ZERO;
        for number in 0..100 {
            let (start, end) = (Time::ZERO + slot * number, Time::ZERO + slot * (number + 1));
            now = now.max(start);
            let bps = 50_000_000 + rng.below(950_000_001);
            let rate = Rate::from_bps(bps).expect("a rate");
            let volume = rate.bytes_in(slot);
            trail.grant(volume);
            pacer.grant(now, Some(rate), volume, end);
            loop {
                let next = pacer.next_send(now);
                if next > now {
                    now = next.min(end) + Span::from_ps(rng.below(late.as_ps() + 1));
                }
                if now >= end {
                    break;
                }
                if pacer.next_send(now) <= now {
                    pacer.on_send(now, PACKET);
                    trail.leave(now, PACKET);
                }
            }
        }
        trail
    }

    // spec: C-09 machine
    #[test]
    fn rates_that_change_every_slot_are_kept_over_any_ten() {
        let burst = Span::from_us(60);
        let cases = [
            ("punctual", SlotPacer::new(), Span::ZERO),
            ("in bursts", SlotPacer::with_burst(burst), Span::ZERO),
            ("late", SlotPacer::with_lag(Span::from_ms(20)), Span::from_us(500)),
        ];
        for (name, pacer, late) in cases {
            for seed in 0..20 {
                // What is granted ends with a packet that has begun.
                let checked = granted_anew(pacer, seed, late).check(PACKET - Bytes::new(1));
                assert_eq!(checked, Ok(()), "{name}, seed {seed}");
            }
        }
    }

    #[test]
    fn what_a_late_wake_up_missed_is_made_up_for() {
        // 12 Mbps: a packet every millisecond, on a host that wakes up every five.
        let mut pacer = SlotPacer::with_lag(Span::from_ms(10));
        pacer.grant(at_ms(0), Rate::from_bps(12_000_000), PACKET * 1_000, at_ms(160));
        let mut sent = 0;
        for wake_up in (100..160).step_by(5) {
            while pacer.next_send(at_ms(wake_up)) <= at_ms(wake_up) {
                pacer.on_send(at_ms(wake_up), PACKET);
                sent += 1;
            }
        }
        // As many as a punctual one, and at most ten for the time before.
        assert!((56..=70).contains(&sent), "{sent}");
    }

    // spec: C-09 machine
    #[test]
    fn a_packet_at_a_low_rate_is_no_debt_at_a_high_one() {
        let mut pacer = SlotPacer::new();
        // 12 kbps: a packet takes a second.
        pacer.grant(at_ms(0), Rate::from_bps(12_000), PACKET * 9, at_ms(60));
        assert_eq!(drive(&mut pacer, at_ms(0), at_ms(60)).len(), 1);
        pacer.grant(at_ms(60), Rate::from_bps(12_000_000), PACKET * 99, at_ms(120));
        assert_eq!(drive(&mut pacer, at_ms(60), at_ms(120)).len(), 60);
    }

    // spec: C-09 machine
    #[test]
    fn time_before_a_grant_is_nothing_to_make_up_for() {
        let mut pacer = SlotPacer::with_lag(Span::from_ms(10));
        pacer.grant(at_ms(100), Rate::from_bps(12_000_000), PACKET * 99, at_ms(160));
        pacer.on_send(at_ms(100), PACKET);
        assert_eq!(pacer.next_send(at_ms(100)), at_ms(101));
    }

    // spec: C-15 machine
    #[test]
    fn a_few_packets_go_at_once() {
        let mut pacer = SlotPacer::new();
        pacer.probe(3);
        let sent = drive(&mut pacer, at_ms(60), at_ms(61));
        assert!(sent.starts_with(&[at_ms(60); 3]));
        assert!(sent.len() == 3, "{sent:?}");
    }
}
