//! Whether a card's port should be up, and how often it went down.

use ferroce_transport::Time;

use super::{DeviceState, Memory};
use crate::carrier::{CarrierLosses, Outlook, Schedule};
use crate::error::WriteLockError;
use crate::settings::Settings;

impl DeviceState {
    /// When the port is to be down.
    pub fn schedule(&self) -> Schedule {
        self.settings().schedule.clone()
    }

    /// Replaces when the port is to be down, for all functions of the card.
    pub fn set_schedule(&self, now: Time, schedule: Schedule) -> Result<(), WriteLockError> {
        self.change(|settings| {
            self.count_carrier_losses(settings, now);
            settings.schedule = schedule;
            Ok(())
        })
    }

    /// How the port is by what is set, whatever the host's interface does.
    pub fn outlook(&self, now: Time) -> Outlook {
        self.settings().outlook(now)
    }

    /// How often the port went down (`link_downed`).
    pub fn link_downed(&self, now: Time) -> u64 {
        self.count_carrier_losses(&self.settings(), now);
        self.carrier_losses().count()
    }

    pub(crate) fn count_carrier_losses(&self, settings: &Settings, now: Time) {
        self.carrier_losses()
            .catch_up(|at| settings.outlook(at), now);
    }

    pub(crate) fn carrier_losses(&self) -> &CarrierLosses {
        match &self.0.memory {
            Memory::Local(local) => local.carrier_losses(),
            Memory::Mapped { memory, .. } => &memory.block.carrier_losses,
        }
    }
}
