//! The port's carrier. While there is none, nothing leaves or arrives, and timers keep running:
//! queue pairs retry, and fail or resume.
//!
//! A port that is up costs nothing: both links drop everything while it is down, and the time of
//! the next change is in the timer heap.

use ferroce_transport::{Span, Time};

use super::Hca;
use crate::event::Event;
use crate::state::DeviceState;

/// In the timer heap, instead of a queue pair's index.
pub(super) const CARRIER: u32 = u32::MAX;
/// The most changes that one call catches up on, after a long time without any call.
const CHANGES_AT_ONCE: usize = 1 << 10;
/// How far ahead a timer is set.
const LOOK_AGAIN: Span = Span::from_secs(3600);

/// What a device knows of its port's carrier.
#[derive(Debug)]
pub(super) struct Carrier {
    /// The host's interface has one.
    host_is_up: bool,
    /// As programs have been told.
    is_up: bool,
    /// The carrier has not been checked yet, and the first check reports no change.
    is_new: bool,
    /// How many times the host's interface has lost its carrier, over all processes.
    losses_of_host: u64,
    /// When the schedule was followed last.
    followed: Time,
    /// The entry in the heap of timers that counts.
    timer_at: Option<Time>,
}

impl Carrier {
    /// The carrier of a new device.
    pub(super) fn unseen(state: &DeviceState) -> Box<Self> {
        Box::new(Self {
            host_is_up: true,
            is_up: true,
            is_new: true,
            losses_of_host: state.carrier_losses().of_host(),
            followed: Time::ZERO,
            timer_at: None,
        })
    }

    /// The carrier of a port that has always been up.
    fn up(state: &DeviceState) -> Box<Self> {
        let mut carrier = Self::unseen(state);
        carrier.is_new = false;
        carrier
    }

    /// Whether this is the entry in the heap of timers that counts.
    pub(super) fn waits_until(&self, at: Time) -> bool {
        self.timer_at == Some(at)
    }
}

impl Hca {
    /// Returns whether the port is up at this time.
    pub fn port_is_up(&mut self, now: Time) -> bool {
        self.common.now = self.common.now.max(now);
        self.refresh();
        if self.carrier.is_some() {
            self.follow_schedule();
        }
        self.has_carrier()
    }

    /// Applies settings changed by other processes, for a host that has no other input for the
    /// device.
    pub fn handle_settings(&mut self, now: Time) {
        self.port_is_up(now);
    }

    /// Records that the host's own interface has gained or lost its carrier.
    pub fn set_host_carrier(&mut self, now: Time, is_up: bool) {
        self.port_is_up(now);
        let carrier = self.carrier_mut();
        if carrier.host_is_up == is_up {
            return;
        }
        carrier.host_is_up = is_up;
        if !is_up {
            carrier.losses_of_host += 1;
            let losses = carrier.losses_of_host;
            self.common.state.carrier_losses().note_of_host(losses);
        }
        self.follow_schedule();
    }

    /// Sets the initial state of the host's own interface.
    pub fn begin_with_host_carrier(&mut self, now: Time, is_up: bool) {
        let carrier = self.carrier_mut();
        carrier.host_is_up = is_up;
        carrier.is_new = true;
        self.port_is_up(now);
    }

    /// As programs have been told.
    pub(super) fn has_carrier(&self) -> bool {
        self.carrier.as_ref().is_none_or(|it| it.is_up)
    }

    /// Handles the carrier's entry in the timer heap, which is due.
    pub(super) fn handle_carrier_timeout(&mut self, at: Time) {
        if self.carrier.as_ref().is_some_and(|it| it.waits_until(at)) {
            self.follow_schedule();
        }
    }

    fn carrier_mut(&mut self) -> &mut Carrier {
        let state = &self.common.state;
        self.carrier.get_or_insert_with(|| Carrier::up(state))
    }

    /// Follows the settings in force up to now, or starts to with the next timeout: before the
    /// first input, the device does not know the time.
    pub(super) fn follow_settings(&mut self) {
        match self.carrier_mut().is_new {
            true => self.arm_carrier(self.common.now),
            false => self.follow_schedule(),
        }
    }

    /// Follows the schedule up to now, step by step.
    pub(super) fn follow_schedule(&mut self) {
        let now = self.common.now;
        let carrier = self.carrier_mut();
        if carrier.is_new {
            carrier.followed = now;
        }
        for _ in 0..CHANGES_AT_ONCE {
            let (at, host_is_up) = (self.carrier_mut().followed, self.carrier_mut().host_is_up);
            let outlook = self.settings.outlook(at);
            self.take_carrier(at, outlook.is_up && host_is_up);
            let carrier = self.carrier_mut();
            match outlook.until {
                Some(until) if until <= now => carrier.followed = until,
                until => {
                    carrier.followed = now;
                    carrier.timer_at = None;
                    if let Some(until) = until {
                        self.arm_carrier(until.min(now.after(LOOK_AGAIN)));
                    }
                    return;
                }
            }
        }
        self.arm_carrier(now);
    }

    fn arm_carrier(&mut self, at: Time) {
        self.carrier_mut().timer_at = Some(at);
        self.scheduler.push_timer(at, CARRIER);
        self.conclude();
    }

    fn take_carrier(&mut self, at: Time, is_up: bool) {
        let carrier = self.carrier_mut();
        let is_new = std::mem::take(&mut carrier.is_new);
        if carrier.is_up == is_up {
            return;
        }
        carrier.is_up = is_up;
        self.egress.set_dark(!is_up);
        self.ingress.set_dark(!is_up);
        self.common.state.link_downed(at);
        if !is_new {
            let event = if is_up {
                Event::PortActive
            } else {
                Event::PortError
            };
            self.common.events.push_back(event);
        }
    }
}
