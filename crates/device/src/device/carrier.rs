//! The carrier of a link. While there is none, nothing leaves or arrives by it, and timers keep running:
//! queue pairs retry, and fail or resume.
//!
//! A link that is up costs nothing: both its directions drop everything while it is down, and the time
//! of the next change is in the timer heap.

use ferroce_transport::{Span, Time};

use super::Hca;
use crate::event::Event;
use crate::pairing::LinkNumber;
use crate::settings::Settings;
use crate::state::DeviceState;

/// Entries in the timer heap from here on are those of links, the first one's last.
const FIRST_LINK: u32 = u32::MAX;
/// The most changes that one call catches up on, after a long time without any call.
const CHANGES_AT_ONCE: usize = 1 << 10;
/// How far ahead a timer is set.
const LOOK_AGAIN: Span = Span::from_secs(3600);

/// What a device knows of the carrier of a link.
#[derive(Debug)]
pub(super) struct Carrier {
    /// The host's interface has one.
    host_is_up: bool,
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

/// The link that an entry in the timer heap is for; `None`: it is a queue pair's.
#[inline]
pub(super) fn link_of(index: u32) -> Option<LinkNumber> {
    match FIRST_LINK - index {
        0 => Some(1),
        1 => Some(2),
        _ => None,
    }
}

impl Hca {
    /// Returns whether a port, from 1, is up at this time. A bond is up while one of its links is.
    pub fn port_is_up(&mut self, now: Time, port: u8) -> bool {
        self.common.now = self.common.now.max(now);
        self.refresh();
        self.follow_due();
        for number in self.link_numbers() {
            if self.link(number).0.carrier.is_some() {
                self.follow_schedule(number);
            }
        }
        self.has_carrier(port)
    }

    /// Applies settings changed by other processes, for a host that has no other input for the
    /// device.
    pub fn handle_settings(&mut self, now: Time) {
        self.port_is_up(now, 1);
    }

    /// Records that the host's own interface behind a link, from 1, has gained or lost its carrier.
    pub fn set_host_carrier(&mut self, now: Time, number: u8, is_up: bool) {
        self.handle_settings(now);
        let carrier = self.carrier_mut(number);
        if carrier.host_is_up == is_up {
            return;
        }
        carrier.host_is_up = is_up;
        if !is_up {
            carrier.losses_of_host += 1;
            let losses = carrier.losses_of_host;
            let (_, state) = self.link(number);
            state.carrier_losses().note_of_host(losses);
        }
        self.follow_schedule(number);
    }

    /// Sets the initial state of the host's own interface behind a link.
    pub fn begin_with_host_carrier(&mut self, now: Time, number: u8, is_up: bool) {
        let carrier = self.carrier_mut(number);
        carrier.host_is_up = is_up;
        carrier.is_new = true;
        self.handle_settings(now);
    }

    /// Whether a port is up, as programs have been told.
    pub(super) fn has_carrier(&self, port: u8) -> bool {
        self.scheduler.port.links.has_carrier(port)
    }

    /// Handles a link's entry in the timer heap, which is due.
    pub(super) fn handle_carrier_timeout(&mut self, number: LinkNumber, at: Time) {
        let carrier = self.link(number).0.carrier.as_ref();
        if carrier.is_some_and(|it| it.waits_until(at)) {
            self.follow_schedule(number);
        }
    }

    fn carrier_mut(&mut self, number: LinkNumber) -> &mut Carrier {
        let (link, state) = self.link_mut(number);
        link.carrier.get_or_insert_with(|| Carrier::up(state))
    }

    fn settings_of(&self, number: LinkNumber) -> &Settings {
        match &self.second {
            Some(second) if number == 2 => &second.settings,
            _ => &self.settings,
        }
    }

    /// Follows the settings in force up to now, or starts to with the next timeout: before the
    /// first input, the device does not know the time.
    pub(super) fn follow_settings(&mut self, number: LinkNumber) {
        match self.carrier_mut(number).is_new {
            true => self.arm_carrier(number, self.common.now),
            false => self.follow_schedule(number),
        }
    }

    /// Follows the schedules of links whose next change is due, the earliest first: of two links of a bond
    /// that go down one after the other, one is always up.
    pub(super) fn follow_due(&mut self) {
        let now = self.common.now;
        while let Some((_, number)) = self
            .link_numbers()
            .filter_map(|number| Some((self.link(number).0.carrier.as_ref()?.timer_at?, number)))
            .filter(|(at, _)| *at <= now)
            .min()
        {
            self.follow_schedule(number);
        }
    }

    /// Follows the schedule up to now, step by step.
    pub(super) fn follow_schedule(&mut self, number: LinkNumber) {
        let now = self.common.now;
        let carrier = self.carrier_mut(number);
        if carrier.is_new {
            carrier.followed = now;
        }
        for _ in 0..CHANGES_AT_ONCE {
            let carrier = self.carrier_mut(number);
            let (at, host_is_up) = (carrier.followed, carrier.host_is_up);
            let outlook = self.settings_of(number).outlook(at);
            let host_loses = !host_is_up && self.config.host.loses_without_carrier;
            self.set_dark(number, !outlook.is_up || host_loses);
            self.take_carrier(number, at, outlook.is_up && host_is_up);
            let carrier = self.carrier_mut(number);
            match outlook.until {
                Some(until) if until <= now => carrier.followed = until,
                until => {
                    carrier.followed = now;
                    carrier.timer_at = None;
                    if let Some(until) = until {
                        self.arm_carrier(number, until.min(now.after(LOOK_AGAIN)));
                    }
                    return;
                }
            }
        }
        self.arm_carrier(number, now);
    }

    fn arm_carrier(&mut self, number: LinkNumber, at: Time) {
        self.carrier_mut(number).timer_at = Some(at);
        let entry = FIRST_LINK - (u32::from(number) - 1);
        self.scheduler.push_timer(at, entry);
        self.conclude();
    }

    fn take_carrier(&mut self, number: LinkNumber, at: Time, is_up: bool) {
        let links = self.scheduler.port.links;
        let is_new = std::mem::take(&mut self.carrier_mut(number).is_new);
        if links.is_up(number) == is_up {
            return;
        }
        self.scheduler.port.links.set_up(number, is_up);
        self.link(number).1.link_downed(at);
        let port = if links.is_bond() { 1 } else { number };
        if !is_new && self.has_carrier(port) != links.has_carrier(port) {
            self.common.events.push_back(match is_up {
                true => Event::PortActive { port },
                false => Event::PortError { port },
            });
        }
        if links.is_bond() && self.scheduler.port.has_priorities() {
            self.change_queues();
        }
    }

    /// Has queue pairs of a bond wait for the links that carry their packets now.
    fn change_queues(&mut self) {
        for index in 0..self.qps.indices() as u32 {
            if let Some(entry) = self.qps.get_mut(index) {
                self.scheduler.change_queue(index, entry);
                self.conclude();
            }
        }
    }
}
