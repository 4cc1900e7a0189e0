//! Congestion control of a rank, by name.

use std::fmt;
use std::str::FromStr;

use thalweg_core::Span;
use thalweg_transport::Control;
use thalweg_transport::control::{Aimd, Bbr, Cubic, Dctcp, NewReno, Swift};

use crate::error::Error;

/// Time that packets may wait in queues. Hosts that sleep between packets answer late by more than the
/// published target of Swift.
const SWIFT_TARGET: Span = Span::from_us(1_500);

/// Congestion control of a rank: of its sums in the network, of its flows and of its deliveries. The ranks of a job
/// may differ: the slowest one limits all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Window {
    /// By queueing delay: a window for sums in the network (up to 1.5 ms) and for flows (up to 1 ms), a rate for
    /// deliveries (0.5 to 2 ms).
    #[default]
    Delay,
    /// The rule that was published for ATP: each round trip with a mark or a loss halves the window.
    Aimd,
    /// DCTCP (RFC 8257): the window falls by the share of marks. Without marks, by half for a loss.
    Dctcp,
    /// NewReno (RFC 5681).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1: by the rate at which packets arrive.
    Bbr,
    /// Swift: keeps the round trip at 1.5 ms above the shortest one.
    Swift,
}

impl Window {
    /// All of them.
    pub const ALL: [Window; 7] = [
        Window::Delay,
        Window::Aimd,
        Window::Dctcp,
        Window::NewReno,
        Window::Cubic,
        Window::Bbr,
        Window::Swift,
    ];

    /// The name, as in files of scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Window::Delay => "delay",
            Window::Aimd => "aimd",
            Window::Dctcp => "dctcp",
            Window::NewReno => "new-reno",
            Window::Cubic => "cubic",
            Window::Bbr => "bbr",
            Window::Swift => "swift",
        }
    }

    /// The control, with settings for real networks. `by_delay` is what [`Window::Delay`] means to the transport
    /// that asks.
    pub(crate) fn control(self, by_delay: impl Into<Control>) -> Control {
        match self {
            Window::Delay => by_delay.into(),
            Window::Aimd => Aimd::default().into(),
            Window::Dctcp => Dctcp::default().into(),
            Window::NewReno => NewReno.into(),
            Window::Cubic => Cubic.into(),
            Window::Bbr => Bbr.into(),
            Window::Swift => Swift { target: SWIFT_TARGET, ..Swift::default() }.into(),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Window {
    type Err = Error;

    fn from_str(text: &str) -> Result<Window, Error> {
        Window::ALL.into_iter().find(|window| window.name() == text).ok_or_else(|| {
            let names = Window::ALL.map(Window::name).join(", ");
            Error::config(format!("{text:?} is no window: write one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_again_and_others_are_refused() {
        for window in Window::ALL {
            assert_eq!(window.name().parse::<Window>().unwrap(), window);
            window.control(Aimd::DELAY).check().unwrap();
        }
        let error = "large".parse::<Window>().unwrap_err().to_string();
        assert!(error.contains("write one of delay, aimd, dctcp"), "{error}");
    }

    #[test]
    fn each_is_another_control() {
        let controls = Window::ALL.map(|window| window.control(Aimd::DELAY));
        for (at, control) in controls.iter().enumerate() {
            assert!(!controls[..at].contains(control), "{control:?}");
        }
        assert_eq!(Window::default().control(Aimd::DELAY), Aimd::DELAY.into());
    }
}
