//! Congestion control of a rank, by name.

use std::fmt;
use std::str::FromStr;

use thalweg_core::Span;
use thalweg_transport::Control;

use crate::error::Error;

/// Time that packets may wait in queues, for controls that have a target. Hosts that sleep between packets answer late
/// by more than published targets.
const QUEUE_TARGET: Span = Span::from_us(1_500);

/// Makes [`Window`] from the table of controls.
macro_rules! window {
    (
        named { $($(#[$doc:meta])* $file:ident::$Name:ident = $name:literal,)* }
        others { $($others:tt)* }
    ) => {
        /// Congestion control of a rank: of its sums in the network, of its flows and of its deliveries. The ranks of
        /// a job may differ: the slowest one limits all of them. Controls with a target for the time that packets
        /// wait in queues have one of 1.5 ms.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub enum Window {
            /// By queueing delay as [`Delay`](Window::Delay), and [`Dctcp`](Window::Dctcp) for flows of a ring and for those
            /// that move values between ranks: a host sends several of their messages at a time, which would share the delay
            /// that is accepted.
            #[default]
            Auto,
            /// By queueing delay: a window for sums in the network (up to 1.5 ms) and for flows (up to 1 ms), a rate
            /// for deliveries (0.5 to 2 ms).
            Delay,
            $($(#[$doc])* $Name,)*
        }

        impl Window {
            /// All of them.
            pub const ALL: [Window; Control::NAMES.len() + 2] =
                [Window::Auto, Window::Delay, $(Window::$Name),*];

            /// The name, as in files of scenarios.
            pub fn name(self) -> &'static str {
                match self {
                    Window::Auto => "auto",
                    Window::Delay => "delay",
                    $(Window::$Name => $name,)*
                }
            }
        }
    };
}

thalweg_transport::controls!(window);

impl Window {
    /// The control, with settings for real networks. `auto` and `by_delay` are what [`Window::Auto`] and
    /// [`Window::Delay`] mean to the transport that asks.
    pub(crate) fn control(self, auto: impl Into<Control>, by_delay: impl Into<Control>) -> Control {
        match Control::named(self.name()) {
            Some(control) => control.with_target(QUEUE_TARGET),
            None if self == Window::Auto => auto.into(),
            None => by_delay.into(),
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
    use thalweg_transport::control::{Aimd, Fixed};

    use super::*;

    #[test]
    fn every_name_is_read_again_and_others_are_refused() {
        for window in Window::ALL {
            assert_eq!(window.name().parse::<Window>().unwrap(), window);
            window.control(Aimd::DELAY, Aimd::DELAY).check().unwrap();
        }
        let error = "large".parse::<Window>().unwrap_err().to_string();
        assert!(error.contains("write one of auto, delay, aimd, dctcp"), "{error}");
    }

    #[test]
    fn each_is_another_control() {
        let auto = Fixed { bytes: 9 };
        let controls = Window::ALL.map(|window| window.control(auto, Aimd::DELAY));
        for (at, control) in controls.iter().enumerate() {
            assert!(!controls[..at].contains(control), "{control:?}");
        }
        assert_eq!(Window::default().control(auto, Aimd::DELAY), auto.into());
    }
}
