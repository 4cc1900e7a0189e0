//! Congestion control: the bytes that may be in flight, and the time at which the next packet may leave.
//!
//! A transport tells a [`Controller`] what it sent, what was acknowledged and what was lost; the controller
//! neither sends nor keeps timers. Which one it is, a setting says: [`Control`]. To add one, write its file, name the
//! file below, and add a line to the table `controls`: all transports, scenario files and sessions take it by its
//! name.
//!
//! Windows that follow RFCs count payload bytes in `f64` and use only `+ − × ÷` and `libm`, so that a run gives
//! the same windows on every machine. They grow only while at least half of the window is in use.

mod aimd;
mod arrivals;
mod bbr;
mod classes;
mod cubic;
mod dctcp;
mod delay;
mod fixed;
mod infos;
mod newreno;
mod queueing;
mod rate;
mod swift;
#[cfg(test)]
mod testing;
mod timely;
mod window;
mod windowed;

use std::fmt;

use thalweg_core::{Bytes, Rng, Span, Time};
use thiserror::Error;

pub use aimd::Decrease;
pub use classes::SampledClasses;
pub use infos::PacketInfos;
pub use rate::{DelayRateError, RateCuts, RateFloor, RateStart};

/// A congestion control of one path.
pub trait Controller: fmt::Debug {
    /// A packet leaves. Returns the state to keep with the packet and to hand back with its acknowledgement,
    /// if the control needs any.
    #[inline]
    fn on_sent(&mut self, _packet: &SentPacket) -> Option<PacketInfo> {
        None
    }

    /// Data was acknowledged. Random numbers come from `rng`. Returns whether a mark cut the window.
    fn on_ack(&mut self, acked: &Acked, rng: &mut Rng) -> bool;

    /// A packet was lost, as later acknowledgements show. Returns whether that cut the window: losses of one
    /// window of data count once.
    fn on_loss(&mut self, lost: &Lost) -> bool;

    /// Nothing came back for a whole timeout.
    fn on_timeout(&mut self, now: Time);

    /// Bytes that may be in flight.
    fn window(&self) -> Bytes;

    /// The earliest time at which the next packet may leave. In the past unless the control paces.
    #[inline]
    fn earliest_departure(&self) -> Time {
        Time::ZERO
    }

    /// Returns whether a lost packet makes room in the window before it is repaired.
    #[inline]
    fn frees_lost_packets(&self) -> bool {
        true
    }

    /// A burst begins: nothing was in flight for a round trip. `senders` nodes send to the same receiver at the same
    /// time, this one included.
    // spec: M-19
    fn on_burst(&mut self, _senders: u32) {}

    /// From now on packets leave in the last class: what they meet says nothing about more urgent ones.
    // spec: C-16
    fn demote(&mut self) {}

    /// From now on packets leave in a more urgent class again. Forgets the caution that was learned in the last one.
    // spec: C-16
    fn promote(&mut self) {}

    /// Packets leave with a more urgent priority than those before them, and wait behind fewer others: marks and losses so
    /// far no longer tell anything.
    fn on_rise(&mut self) {}

    /// The window, and up to where it doubles, for [`Controller::undo_loss`].
    fn extent(&self) -> Extent {
        Extent { window: self.window(), threshold: self.window() }
    }

    /// Packets that were taken for lost were late: the window is again as large as before, if it is smaller.
    fn undo_loss(&mut self, _before: Extent) {}

    /// Keeps what holds for another flow on the same path, whose transmissions are numbered from 0.
    fn restart(&mut self);

    /// Panics where the state breaks a law.
    fn check(&self) {}
}

/// Size of a window at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// The window.
    pub window: Bytes,
    /// The window up to which it doubles every round trip.
    pub threshold: Bytes,
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub struct SentPacket {
    /// Time of departure.
    pub now: Time,
    /// Bytes of the packet, counted as those of the window.
    pub bytes: Bytes,
    /// Bytes in flight before it.
    pub in_flight: Bytes,
    /// Strict priority of the packet, 0 the most urgent.
    pub priority: u8,
}

/// State of a control at the departure of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketInfo {
    /// Time of departure.
    pub sent_at: Time,
    /// Bytes that had been delivered by then.
    pub delivered_bytes: u64,
    /// Time at which they had been delivered.
    pub delivered_at: Time,
    /// Departure of the packet that was acknowledged last.
    pub first_sent_at: Time,
    /// Strict priority of the packet, 0 the most urgent.
    pub priority: u8,
}

impl PacketInfo {
    /// The state of a control that needs the departure of a packet and no more.
    #[inline]
    pub fn of(packet: &SentPacket) -> PacketInfo {
        PacketInfo {
            sent_at: packet.now,
            delivered_bytes: 0,
            delivered_at: packet.now,
            first_sent_at: packet.now,
            priority: packet.priority,
        }
    }
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Time of arrival.
    pub now: Time,
    /// Bytes that it newly acknowledges.
    pub bytes: Bytes,
    /// True if a queue marked the packet that it answers.
    pub congested: bool,
    /// Time from sending to acknowledgement of the packet that it answers. `None` if it may answer either of
    /// two transmissions.
    pub round_trip: Option<Span>,
    /// Strict priority of the packet that it answers, 0 the most urgent. `None` if it is not known.
    // spec: M-17
    pub priority: Option<u8>,
    /// Bytes that were in flight before it arrived.
    pub in_flight: Bytes,
    /// True while losses of an earlier window are being repaired.
    pub in_recovery: bool,
    /// Number of the transmission that it answers. A flow numbers all its transmissions, resends included, in
    /// the order of sending.
    pub transmission: u64,
    /// Number that the next transmission will have. A control that remembers it has passed a whole window of
    /// data when `transmission` reaches it.
    pub next_transmission: u64,
    /// State that the control gave to the packet that it answers. `None` if a packet that was sent later was
    /// acknowledged before.
    pub info: Option<PacketInfo>,
    /// Bytes that have arrived, as the receiver reports them. `None` if it does not.
    // spec: M-18
    pub arrived: Option<ArrivalCount>,
}

/// Report of a receiver about all packets of one sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrivalCount {
    /// Bytes of all packets that have arrived. Wraps around.
    pub bytes: u64,
    /// Time of the report, by the receiver's clock.
    pub at: Time,
}

/// One lost packet.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Time of detection.
    pub now: Time,
    /// Number of the lost transmission.
    pub transmission: u64,
    /// Number that the next transmission will have.
    pub next_transmission: u64,
}

/// Sizes that a control begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlStart {
    /// Bytes of a full packet.
    pub packet_bytes: u32,
    /// Packets that may leave before anything was acknowledged.
    pub initial_packets: u32,
}

/// Reason why settings of a control are invalid. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ControlError {
    /// A share outside its range.
    #[error("{name} of {control} is {value}: set it from 0 to 1")]
    Share {
        /// The control.
        control: &'static str,
        /// The setting.
        name: &'static str,
        /// The value.
        value: f64,
    },
    /// A setting that must be positive.
    #[error("{name} of {control} is zero: set it to more")]
    Zero {
        /// The control.
        control: &'static str,
        /// The setting.
        name: &'static str,
    },
    /// Invalid settings of a rate by delay.
    #[error(transparent)]
    Rate(#[from] DelayRateError),
}

/// Settings of one control.
trait Settings {
    /// The control itself, a [`Controller`]. Large ones are in a box, so that flows with small ones stay small.
    type Running;

    /// Begins to control a path.
    fn start(&self, start: &ControlStart) -> Self::Running;

    /// Checks the settings.
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }

    /// Settings that controls by delay have in common. Default none.
    fn by_delay(&mut self) -> DelaySettings<'_> {
        DelaySettings::default()
    }
}

/// Settings that controls by delay have in common, each as far as the control has it.
#[derive(Default)]
struct DelaySettings<'a> {
    /// Time that packets may wait in queues.
    target: Option<&'a mut Span>,
    /// Round trip of the uncongested path, if it is known before one is measured.
    base: Option<&'a mut Option<Span>>,
    /// Classes whose round trips are read.
    classes: Option<&'a mut SampledClasses>,
    /// Phase of a clock that all hosts share.
    shared_phase: Option<&'a mut Option<Span>>,
}

/// The table of all controls: the named ones, which all transports take by their names, and others, which only code
/// sets up. Hands its lines to a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! controls {
    ($make:ident) => {
        $make! {
            named {
                /// Additive increase and multiplicative decrease in whole packets, as published for ATP: each round
                /// trip with a mark or a loss halves the window.
                aimd::Aimd = "aimd",
                /// DCTCP (RFC 8257): the window falls by the share of marks. Without marks, by half for a loss.
                dctcp::Dctcp = "dctcp",
                /// NewReno (RFC 5681).
                newreno::NewReno = "new-reno",
                /// CUBIC (RFC 9438).
                cubic::Cubic = "cubic",
                /// BBR, version 1 (Cardwell et al., 2016): by the rate at which packets arrive. Paces.
                bbr::Bbr = "bbr",
                /// Swift (Kumar et al., 2020): a window that keeps the round trip at a target.
                swift::Swift = "swift",
                /// TIMELY (Mittal et al., 2015): a rate by the gradient of round trips. Paces.
                timely::Timely = "timely",
            }
            others {
                /// By queueing delay: for hosts whose own queues are long, and links that lose packets by chance.
                delay::Delay,
                /// A rate by delay, as published for MLT. Paces, without a window.
                rate::DelayRate,
                /// A window that does not move.
                fixed::Fixed,
            }
        }
    };
}

/// Makes the enums of settings and of running controls from the table.
macro_rules! enums {
    (
        named { $($(#[$doc:meta])* $file:ident::$Named:ident = $name:literal,)* }
        others { $($(#[$other_doc:meta])* $other_file:ident::$Other:ident,)* }
    ) => {
        impl Control {
            /// Names of the controls that all transports take.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The control of a name, with its default settings.
            pub fn named(name: &str) -> Option<Control> {
                match name {
                    $($name => Some($Named::default().into()),)*
                    _ => None,
                }
            }
        }

        enums! {
            $($(#[$doc])* $file::$Named,)* $($(#[$other_doc])* $other_file::$Other,)*
        }
    };
    ($($(#[$doc:meta])* $file:ident::$Name:ident,)*) => {
        $(pub use $file::$Name;)*

        /// A congestion control and its settings.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum Control {
            $($(#[$doc])* $Name($Name),)*
        }

        #[derive(Clone, Debug)]
        enum Running {
            $($Name(<$Name as Settings>::Running),)*
        }

        $(impl From<$Name> for Control {
            fn from(settings: $Name) -> Control {
                Control::$Name(settings)
            }
        })*

        impl Control {
            fn start(&self, start: &ControlStart) -> CongestionControl {
                let running = match self {
                    $(Control::$Name(settings) => Running::$Name(settings.start(start)),)*
                };
                CongestionControl { window: running.window(), running }
            }

            /// Checks the settings.
            pub fn check(&self) -> Result<(), ControlError> {
                match self {
                    $(Control::$Name(settings) => Settings::check(settings),)*
                }
            }

            fn by_delay(&mut self) -> DelaySettings<'_> {
                match self {
                    $(Control::$Name(settings) => settings.by_delay(),)*
                }
            }
        }

        impl Running {
            #[inline]
            fn window(&self) -> Bytes {
                match self { $(Running::$Name(control) => control.window(),)* }
            }
        }

        // Calls are static and can be inlined: a transport asks its control for every packet.
        impl Controller for CongestionControl {
            #[inline]
            fn on_sent(&mut self, packet: &SentPacket) -> Option<PacketInfo> {
                match &mut self.running { $(Running::$Name(control) => control.on_sent(packet),)* }
            }

            #[inline]
            fn on_ack(&mut self, acked: &Acked, rng: &mut Rng) -> bool {
                // One look at which control it is, for the call and for the window after it.
                match &mut self.running {
                    $(Running::$Name(control) => {
                        let is_cut = control.on_ack(acked, rng);
                        self.window = control.window();
                        is_cut
                    })*
                }
            }

            fn on_loss(&mut self, lost: &Lost) -> bool {
                let is_cut = match &mut self.running {
                    $(Running::$Name(control) => control.on_loss(lost),)*
                };
                self.window = self.running.window();
                is_cut
            }

            fn on_timeout(&mut self, now: Time) {
                match &mut self.running { $(Running::$Name(control) => control.on_timeout(now),)* }
                self.window = self.running.window();
            }

            #[inline]
            fn window(&self) -> Bytes {
                self.window
            }

            #[inline]
            fn earliest_departure(&self) -> Time {
                match &self.running { $(Running::$Name(control) => control.earliest_departure(),)* }
            }

            #[inline]
            fn frees_lost_packets(&self) -> bool {
                match &self.running { $(Running::$Name(control) => control.frees_lost_packets(),)* }
            }

            fn on_burst(&mut self, senders: u32) {
                match &mut self.running { $(Running::$Name(control) => control.on_burst(senders),)* }
            }

            fn demote(&mut self) {
                match &mut self.running { $(Running::$Name(control) => control.demote(),)* }
                self.window = self.running.window();
            }

            fn promote(&mut self) {
                match &mut self.running { $(Running::$Name(control) => control.promote(),)* }
                self.window = self.running.window();
            }

            fn on_rise(&mut self) {
                match &mut self.running { $(Running::$Name(control) => control.on_rise(),)* }
            }

            fn extent(&self) -> Extent {
                match &self.running { $(Running::$Name(control) => control.extent(),)* }
            }

            fn undo_loss(&mut self, before: Extent) {
                match &mut self.running { $(Running::$Name(control) => control.undo_loss(before),)* }
                self.window = self.running.window();
            }

            fn restart(&mut self) {
                match &mut self.running { $(Running::$Name(control) => control.restart(),)* }
                self.window = self.running.window();
            }

            fn check(&self) {
                match &self.running { $(Running::$Name(control) => control.check(),)* }
                assert_eq!(self.window, self.running.window(), "the window is that of the control");
            }
        }
    };
}

controls!(enums);

impl Control {
    /// Checks the settings, once for all paths.
    pub fn checked(self) -> Result<CheckedControl, ControlError> {
        self.check()?;
        Ok(CheckedControl(self))
    }

    /// Returns whether packets may wait in queues for a time that is set.
    pub fn has_target(mut self) -> bool {
        self.by_delay().target.is_some()
    }

    /// Returns whether the control reads round trips, of all classes or of some.
    pub fn reads_round_trips(mut self) -> bool {
        self.by_delay().classes.is_some()
    }

    /// The same control, which lets packets wait in queues for `target`, if it has a target.
    #[must_use]
    pub fn with_target(mut self, target: Span) -> Control {
        set(self.by_delay().target, target);
        self
    }

    /// The same control with the round trip of the uncongested path, if it needs that.
    #[must_use]
    pub fn with_base_rtt(mut self, round_trip: Span) -> Control {
        set(self.by_delay().base, Some(round_trip));
        self
    }

    /// The same control, which reads the round trips of these classes if it is one by delay.
    // spec: M-17
    #[must_use]
    pub fn with_classes(mut self, classes: SampledClasses) -> Control {
        set(self.by_delay().classes, classes);
        self
    }

    /// The same control with the phase of a clock that all hosts share, if it probes the base round trip.
    #[must_use]
    pub fn with_shared_phase(mut self, phase: Option<Span>) -> Control {
        set(self.by_delay().shared_phase, phase);
        self
    }
}

/// Sets a setting that a control has.
fn set<T>(setting: Option<&mut T>, value: T) {
    if let Some(setting) = setting {
        *setting = value;
    }
}

impl Default for Control {
    fn default() -> Control {
        Dctcp::default().into()
    }
}

/// A congestion control whose settings were checked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CheckedControl(Control);

impl CheckedControl {
    /// Begins to control a path.
    pub fn start(&self, start: &ControlStart) -> CongestionControl {
        self.0.start(start)
    }
}

/// A running congestion control of one path.
#[derive(Clone, Debug)]
pub struct CongestionControl {
    running: Running,
    /// The window of the control. Transports ask for it several times per packet, and it changes with
    /// acknowledgements, losses and timeouts only.
    window: Bytes,
}

#[cfg(test)]
mod tests;
