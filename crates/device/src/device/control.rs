//! What hosts change on a device while it runs: settings and addresses. The host decides which GIDs exist.

use std::sync::Arc;

use ferroce_transport::Counter;

use super::Hca;
use crate::admission::Seat;
use crate::error::{RegisterError, WriteLockError};
use crate::event::Event;
use crate::impair::{Direction, Impairment};
use crate::pairing::LinkNumber;
use crate::register::Method;
use crate::services::SlowRestart;
use crate::settings::Settings;
use crate::state::SettingError;

impl Hca {
    /// See [`crate::DeviceState::access_register`]. Writes take effect immediately.
    pub fn access_register(
        &mut self,
        id: u16,
        method: Method,
        data: &mut [u8],
    ) -> Result<(), RegisterError> {
        self.common.state.access_register(id, method, data)?;
        self.refresh();
        Ok(())
    }

    /// See [`crate::DeviceState::firmware_reset`].
    pub fn firmware_reset(&mut self) -> Result<(), WriteLockError> {
        self.common.state.firmware_reset()?;
        self.refresh();
        Ok(())
    }

    /// See [`crate::DeviceState::reset_registers`].
    pub fn reset_registers(&mut self) -> Result<(), WriteLockError> {
        self.common.state.reset_registers()?;
        self.refresh();
        Ok(())
    }

    /// See [`crate::DeviceState::set_impairment`]; of the first link.
    pub fn set_impairment(
        &mut self,
        direction: Direction,
        impairment: Impairment,
    ) -> Result<(), SettingError> {
        self.common.state.set_impairment(direction, impairment)?;
        self.refresh();
        Ok(())
    }

    /// Adds to a counter, for what only the host sees (a wrong ICRC, a packet that cannot be parsed
    /// or that the socket refused).
    pub fn count(&mut self, counter: Counter, n: u64) {
        self.common.count(counter, n);
    }

    /// Takes over what was set, by this host or another one.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if self.common.state.generation() != self.generation {
            let (generation, settings) = self.common.state.load();
            self.generation = generation;
            self.enforce(settings);
        }
        if self.second.is_some() {
            self.refresh_second();
        }
    }

    fn refresh_second(&mut self) {
        if let (Some(second), Some(state)) = (&mut self.second, &self.common.second)
            && state.generation() != second.generation
        {
            let (generation, settings) = state.load();
            second.generation = generation;
            self.enforce_second(settings);
        }
    }

    /// Puts the settings of the second link in force.
    #[cold]
    pub(super) fn enforce_second(&mut self, settings: Arc<Settings>) {
        let (link, _) = self.link(2);
        let is_followed = link.carrier.is_some() || settings.has_outages();
        self.follow_due(); // a bond's other link may be up again
        if is_followed {
            self.follow_settings(2); // those that end now
        }
        self.impair(2, &settings);
        if let Some(second) = &mut self.second {
            second.settings = settings;
        }
        if is_followed {
            self.follow_settings(2);
        }
    }

    fn impair(&mut self, number: LinkNumber, settings: &Settings) {
        let now = self.common.now;
        let (link, state) = self.link_mut(number);
        link.set(settings, now, state);
    }

    /// Puts settings in force.
    #[cold]
    pub(super) fn enforce(&mut self, settings: Arc<Settings>) {
        let is_followed = self.first.carrier.is_some() || settings.has_outages();
        self.follow_due();
        if is_followed {
            self.follow_settings(1); // those that end now
        }
        let personality = settings.personality();
        self.common.policy.dec_trigger = personality.dec_trigger;
        self.common.policy.range_bound_exclusive = personality.range_bound_exclusive;
        self.common.policy.rnr_ticks = personality.rnr_ticks;
        self.common.policy.dc_half_handshake = settings.dc_half_handshake();
        let state = &self.common.state;
        let in_force = settings.in_force(state.identity().features(), state.function());
        self.common.policy.change(in_force.policy, in_force.floor);
        self.congestion.set(&settings, in_force.burst_bytes);
        let of_enabled = |is_on| if is_on { self.congestion.enabled() } else { 0 };
        self.common.slow_restart = SlowRestart {
            lost: of_enabled(in_force.slow_restart),
            silent: of_enabled(in_force.slow_restart_idle),
        };
        self.use_tx_windows(in_force.transmission_window);
        self.ack_dscp = in_force.ack_dscp;
        self.selective_repeat = in_force.selective_repeat;
        self.adaptive_routing = in_force.adaptive_routing;
        self.impair(1, &settings);
        self.settings = settings;
        if is_followed {
            self.follow_settings(1);
        }
    }

    /// Gives each queue pair a transmission window, or none; see [`Scheduler::use_tx_windows`].
    ///
    /// [`Scheduler::use_tx_windows`]: crate::scheduler::Scheduler::use_tx_windows
    fn use_tx_windows(&mut self, on: bool) {
        if !self.scheduler.use_tx_windows(on, self.config.speed) {
            return;
        }
        let now = self.common.now;
        for index in 0..self.qps.indices() as u32 {
            if let Some(entry) = self.qps.get_mut(index) {
                entry.seat = Seat::default();
                self.scheduler.follow_path(now, index, entry);
            }
        }
    }

    /// The GIDs of a port are others. If its own address was lost, every queue pair that is
    /// bound to it stays so though the address comes back: it sends into nowhere, hears nothing, and
    /// fails when its retries are over (F21). A new path binds it anew.
    pub fn handle_gid_change(&mut self, port: u8, is_own_lost: bool) {
        self.common.events.push_back(Event::GidChange { port });
        if !is_own_lost {
            return;
        }
        for entry in self.qps.iter_mut() {
            entry.is_severed |= entry.path.is_some_and(|path| path.port == port);
        }
    }
}
