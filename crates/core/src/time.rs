//! Simulated and real time in whole picoseconds.
//!
//! A bit at 400 Gbps takes 2.5 ps, so serialisation times of whole bytes are exact at every common
//! rate, and sums of them stay exact. A `u64` holds 213 days.
//!
//! # The epoch
//!
//! A [`Time`] counts from a moment that the driver chooses, its *epoch*: the start of a simulation, or some
//! moment shortly before the start of a process.
//!
//! - A driver owes every machine that it runs one epoch for as long as it runs them, `now` that never goes
//!   back, and an epoch recent enough that 213 days are not reached. It owes no particular epoch, and
//!   drivers of different hosts need not have the same one.
//! - A machine may assume that differences of times are lengths of time. It may not assume that a time
//!   means the same moment on another host, nor that it has anything to do with the time of day, and it
//!   sends no time to another host but to have it echoed.
//! - A machine that has to act at the same moments on several hosts receives what it needs for that as a
//!   setting: the *shared phase*, which is the time that a clock that the hosts share showed at the
//!   driver's epoch, modulo one second. `None` says that there is no such clock, and the machine documents
//!   what it does then. A simulation has one clock for all hosts: its shared phase is zero. The schedule of
//!   pacing, which counts slots, is given times of one epoch for all hosts by its driver.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

const PS_PER_NS: u64 = 1_000;
const PS_PER_US: u64 = 1_000_000;
const PS_PER_MS: u64 = 1_000_000_000;
const PS_PER_S: u64 = 1_000_000_000_000;

/// A moment: picoseconds since the driver's epoch. See the [module](self) for what may be assumed of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The driver's epoch. No input comes before it.
    pub const ZERO: Time = Time(0);
    /// Later than every moment that can come: "no timer".
    pub const NEVER: Time = Time(u64::MAX);

    /// The moment `ps` picoseconds after the epoch.
    pub const fn from_ps(ps: u64) -> Time {
        Time(ps)
    }

    /// Picoseconds since the epoch.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Microseconds since the epoch, for people.
    pub fn as_us_f64(self) -> f64 {
        Span(self.0).as_us_f64()
    }

    /// Seconds since the epoch, for people.
    pub fn as_s_f64(self) -> f64 {
        Span(self.0).as_s_f64()
    }

    /// Time since `earlier`; zero if it is still to come.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any run.
    pub const MAX: Span = Span(u64::MAX);

    /// `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Span {
        Span(ps)
    }

    /// `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Span {
        Span(ns.saturating_mul(PS_PER_NS))
    }

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Span {
        Span(us.saturating_mul(PS_PER_US))
    }

    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Span {
        Span(ms.saturating_mul(PS_PER_MS))
    }

    /// `s` seconds.
    pub const fn from_s(s: u64) -> Span {
        Span(s.saturating_mul(PS_PER_S))
    }

    /// The nearest picosecond to `seconds`. Negative values and NaN give zero, values that do not
    /// fit the largest span.
    pub fn from_s_f64(seconds: f64) -> Span {
        Span(libm::rint(seconds * PS_PER_S as f64) as u64)
    }

    /// The nearest picosecond to `us` microseconds, limited as [`Span::from_s_f64`] is.
    pub fn from_us_f64(us: f64) -> Span {
        Span(libm::rint(us * PS_PER_US as f64) as u64)
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Microseconds, for people and statistics.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / PS_PER_US as f64
    }

    /// Seconds, for people and statistics.
    pub fn as_s_f64(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }

    /// The difference, zero where `other` is longer.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    /// Saturates, so that a hostile or absurd span means "never" and not a wrapped clock.
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0 - other.0)
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, divisor: u64) -> Span {
        Span(self.0 / divisor)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER { f.write_str("never") } else { Span(self.0).fmt(f) }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_ps, unit) = match self.0 {
            0..PS_PER_NS => (1, "ps"),
            PS_PER_NS..PS_PER_US => (PS_PER_NS, "ns"),
            PS_PER_US..PS_PER_MS => (PS_PER_US, "µs"),
            PS_PER_MS..PS_PER_S => (PS_PER_MS, "ms"),
            _ => (PS_PER_S, "s"),
        };
        write!(f, "{} {unit}", self.0 as f64 / unit_ps as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_absorbing() {
        assert_eq!(Time::NEVER + Span::from_ps(1), Time::NEVER);
        assert_eq!(Time::from_ps(5).since(Time::from_ps(7)), Span::ZERO);
    }

    #[test]
    fn floats_round_to_the_nearest_picosecond_and_saturate() {
        assert_eq!(Span::from_us_f64(0.125_12), Span::from_ps(125_120));
        assert_eq!(Span::from_s_f64(-1.0), Span::ZERO);
        assert_eq!(Span::from_s_f64(f64::NAN), Span::ZERO);
        assert_eq!(Span::from_s_f64(f64::INFINITY), Span::MAX);
    }

    #[test]
    fn display_picks_the_unit() {
        assert_eq!(Span::from_ps(125_120).to_string(), "125.12 ns");
        assert_eq!(Span::from_us(1_500).to_string(), "1.5 ms");
    }
}
