//! The state of a device that only one process uses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ferroce_dcqcn::np::CnpTimer;

use super::SettingsStore;
use crate::carrier::CarrierLosses;
use crate::counters::Counters;
use crate::datagram_timers::DatagramTimers;
use crate::error::WriteLockError;
use crate::error_log::ErrorLog;
use crate::histogram::Histogram;
use crate::impair::Backlog;
use crate::settings::Settings;

#[derive(Debug)]
pub(super) struct Local {
    pub(super) settings: LocalSettings,
    pub(super) backlogs: [Backlog; 2],
    pub(super) cnp_timer: CnpTimer,
    pub(super) counters: Counters,
    /// Made when first needed: most of thousands of devices never have a timeout.
    rare: OnceLock<Box<Rare>>,
}

/// What only devices need that something happened to.
#[derive(Debug, Default)]
struct Rare {
    histogram: Histogram,
    errors: ErrorLog,
    carrier_losses: CarrierLosses,
    /// Made by the first marked datagram.
    datagram_timers: OnceLock<Box<DatagramTimers>>,
}

impl Local {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings: LocalSettings::new(settings),
            backlogs: Default::default(),
            cnp_timer: CnpTimer::default(),
            counters: Counters::default(),
            rare: OnceLock::new(),
        }
    }

    pub(super) fn histogram(&self) -> &Histogram {
        &self.rare().histogram
    }

    pub(super) fn errors(&self) -> &ErrorLog {
        &self.rare().errors
    }

    pub(super) fn carrier_losses(&self) -> &CarrierLosses {
        &self.rare().carrier_losses
    }

    pub(super) fn datagram_timers(&self) -> &DatagramTimers {
        let timers = &self.rare().datagram_timers;
        timers.get_or_init(Box::default)
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// If it was ever needed.
    pub(super) fn histogram_if_made(&self) -> Option<&Histogram> {
        self.rare.get().map(|it| &it.histogram)
    }
}

/// Settings that only threads of this process change.
#[derive(Debug)]
pub struct LocalSettings {
    generation: AtomicU64,
    settings: Mutex<Arc<Settings>>,
}

impl LocalSettings {
    /// A store that has `settings`.
    pub fn new(settings: Arc<Settings>) -> Self {
        Self {
            generation: AtomicU64::new(0),
            settings: Mutex::new(settings),
        }
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What [`MappedState::generation`](super::MappedState::generation) is to be.
    pub fn generation_cell(&self) -> &AtomicU64 {
        &self.generation
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Settings>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SettingsStore for LocalSettings {
    fn load(&self) -> (u64, Arc<Settings>) {
        let settings = self.lock();
        (self.generation(), Arc::clone(&settings))
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&Settings) -> Option<Arc<Settings>>,
    ) -> Result<(), WriteLockError> {
        let mut settings = self.lock();
        if let Some(next) = change(&settings) {
            *settings = next;
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}
