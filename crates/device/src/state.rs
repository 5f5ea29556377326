//! The state of a device outside its objects: settings, histogram, counters. A handle to it,
//! whether it belongs to one process or is in memory that several processes map.

mod carrier;
mod histograms;
mod local;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_adp::PolicyKind;
use ferroce_dcqcn::Params;
use ferroce_dcqcn::np::CnpTimer;
use ferroce_transport::{Counter, Time};
use thiserror::Error;

use self::local::Local;
pub use self::local::LocalSettings;
use crate::carrier::CarrierLosses;
use crate::counters::{CounterSlab, Counters};
use crate::datagram_timers::DatagramTimers;
use crate::error::WriteLockError;
use crate::error_log::ErrorLog;
use crate::histogram::{Histogram, HistogramError};
use crate::identity::{Function, Identity};
use crate::impair::{Backlog, Direction, Impairment, ImpairmentError};
use crate::settings::{Personality, Settings};

/// What all processes of a card share beside its settings: how full its links are, when its port last
/// sent a CNP, and the timeout histogram of its PF.
///
/// Only atomics in C layout, and memory full of zeros is a valid one, which [`DeviceState::reset`]
/// must fill.
#[derive(Debug, Default)]
#[repr(C)]
pub struct StateBlock {
    /// Of the bottlenecks of what is sent and of what is received.
    backlogs: [Backlog; 2],
    histogram: Histogram,
    carrier_losses: CarrierLosses,
    cnp_timer: CnpTimer,
    datagram_timers: DatagramTimers,
}

/// What a card keeps for one of its VFs. As of [`StateBlock`], zeros are valid.
#[derive(Debug, Default)]
#[repr(C)]
pub struct VfBlock {
    histogram: Histogram,
}

/// The host's memory for a [`DeviceState`] that other processes map, too. It stays mapped to the
/// end of the process.
#[derive(Clone, Copy, Debug)]
pub struct MappedState {
    /// Differs from an earlier value if a setting was changed in between.
    pub generation: &'static AtomicU64,
    /// What the processes share, also those on other functions of the card.
    pub block: &'static StateBlock,
    /// The same for each VF that the card may have.
    pub vfs: &'static [VfBlock],
    /// A slab for each slot of this function; slot 0 belongs to no process.
    pub slabs: &'static [CounterSlab],
    /// Their last errors.
    pub errors: &'static ErrorLog,
}

/// Where the settings of a card are kept.
///
/// The device does not know which processes have the card open, nor whether the owner of a lock is
/// alive. Storing and locking the settings is therefore up to the host.
pub trait SettingsStore: fmt::Debug + Send + Sync {
    /// The settings as they are now, and their generation.
    fn load(&self) -> (u64, Arc<Settings>);

    /// Replaces the settings with what `change` makes of the current ones, and then raises the
    /// generation; does nothing if it makes none. Calls for the same card exclude each other,
    /// across threads and processes, and a process that is killed during one does not block the
    /// others.
    fn change(
        &self,
        change: &mut dyn FnMut(&Settings) -> Option<Arc<Settings>>,
    ) -> Result<(), WriteLockError>;
}

impl<T: SettingsStore + ?Sized> SettingsStore for &T {
    fn load(&self) -> (u64, Arc<Settings>) {
        (**self).load()
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&Settings) -> Option<Arc<Settings>>,
    ) -> Result<(), WriteLockError> {
        (**self).change(change)
    }
}

/// Why a setting was not changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// See [`WriteLockError`].
    #[error(transparent)]
    Lock(#[from] WriteLockError),
    /// See [`ImpairmentError`].
    #[error(transparent)]
    Impairment(#[from] ImpairmentError),
    /// See [`HistogramError`].
    #[error(transparent)]
    Histogram(#[from] HistogramError),
}

/// A device's registers, personality, impairments, histogram and counters: a handle to them, for
/// the device and for its observers. Clones mean the same device.
///
/// What is set here acts on the device at its next input, in every process that has it open. A card
/// has one set of settings for all its functions; registers know what of it a VF may change.
/// Histogram and counters are each function's own.
#[derive(Clone, Debug)]
pub struct DeviceState(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    function: Function,
    identity: Identity,
    memory: Memory,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is that of thousands of devices"
)]
enum Memory {
    /// Of a device that one process has to itself.
    Local(Local),
    /// Mapped by others, too.
    Mapped {
        memory: MappedState,
        /// Among `memory.slabs`.
        own: &'static CounterSlab,
        store: Arc<dyn SettingsStore>,
    },
}

impl DeviceState {
    /// The private memory of one state, without its settings and the histogram.
    pub(crate) const LOCAL_BYTES: usize = 2 * size_of::<usize>() + size_of::<Inner>();

    /// The state of a device that one process has to itself, after power-on.
    pub fn new(personality: Personality) -> Self {
        Self::local(Arc::new(Settings::new(personality)), Identity::default())
    }

    /// The same with settings that other devices may have, too, for as long as none is changed.
    pub fn local(settings: Arc<Settings>, identity: Identity) -> Self {
        Self(Arc::new(Inner {
            function: Function::default(),
            identity,
            memory: Memory::Local(Local::new(settings)),
        }))
    }

    /// The state of a link that has the settings of this one now, and that one process has to itself.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self::local(self.load().1, *self.identity())
    }

    /// The state of a function in memory that other processes map, too, for the owner of `slot` or,
    /// as slot 0, for an observer. `None` if there is no such slot or function.
    pub fn mapped(
        memory: MappedState,
        store: Arc<dyn SettingsStore>,
        function: Function,
        slot: u8,
        identity: Identity,
    ) -> Option<Self> {
        if let Function::Vf { index, .. } = function {
            memory.vfs.get(usize::from(index))?;
        }
        let own = memory.slabs.get(usize::from(slot))?;
        Some(Self(Arc::new(Inner {
            function,
            identity,
            memory: Memory::Mapped { memory, own, store },
        })))
    }

    /// Which function of its card this is.
    pub fn function(&self) -> &Function {
        &self.0.function
    }

    /// What tools see of the device.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// How the timeouts of queue pairs follow each other.
    pub fn policy_kind(&self) -> PolicyKind {
        let features = self.identity().features();
        self.settings().in_force(features, self.function()).policy
    }

    // Counters.

    #[inline]
    fn own(&self) -> &Counters {
        match &self.0.memory {
            Memory::Local(local) => &local.counters,
            Memory::Mapped { own, .. } => &own.0,
        }
    }

    /// Those of all processes that have or had the device open.
    fn slabs(&self) -> impl Iterator<Item = &Counters> {
        let (own, slabs) = match &self.0.memory {
            Memory::Local(local) => (Some(&local.counters), &[][..]),
            Memory::Mapped { memory, .. } => (None, memory.slabs),
        };
        own.into_iter().chain(slabs.iter().map(|slab| &slab.0))
    }

    /// The value of a counter, summed over all processes that have or had the device open.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.slabs().map(|slab| slab.get(counter)).sum()
    }

    /// All counters at once, each at its number (`counter as usize`): one walk over the slabs in
    /// place of one for each counter.
    pub fn counters(&self) -> [u64; Counter::COUNT] {
        let mut sums = [0u64; Counter::COUNT];
        self.slabs().for_each(|slab| slab.add_to(&mut sums));
        sums
    }

    /// The part of a counter that one process after the other counted in a slot.
    pub fn counter_of(&self, slot: u8, counter: Counter) -> u64 {
        let slab = match &self.0.memory {
            Memory::Local(_) => None,
            Memory::Mapped { memory, .. } => memory.slabs.get(usize::from(slot)),
        };
        slab.map_or_else(|| self.own(), |slab| &slab.0).get(counter)
    }

    /// Adds to a counter of this process. One writer at a time: the owner of the device.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, n: u64) {
        self.own().add(counter, n);
    }

    /// The last errors of the function, of all processes that have or had it open.
    pub fn errors(&self) -> &ErrorLog {
        match &self.0.memory {
            Memory::Local(local) => local.errors(),
            Memory::Mapped { memory, .. } => memory.errors,
        }
    }

    // Settings.

    /// Differs from an earlier value if a setting was changed in between.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        match &self.0.memory {
            Memory::Local(local) => local.settings.generation(),
            Memory::Mapped { memory, .. } => memory.generation.load(Ordering::Acquire),
        }
    }

    fn store(&self) -> &dyn SettingsStore {
        match &self.0.memory {
            Memory::Local(local) => &local.settings,
            Memory::Mapped { store, .. } => &**store,
        }
    }

    /// All settings as they are now.
    pub fn settings(&self) -> Arc<Settings> {
        self.load().1
    }

    /// The same and their generation.
    pub(crate) fn load(&self) -> (u64, Arc<Settings>) {
        self.store().load()
    }

    /// Puts everything of the card but counters to what it is after power-on.
    pub fn reset(&self, after_power_on: Settings) -> Result<(), WriteLockError> {
        let settings = Arc::new(after_power_on);
        self.store().change(&mut |_| {
            self.backlogs().iter().for_each(Backlog::clear);
            self.restart_histograms();
            Some(Arc::clone(&settings))
        })
    }

    /// Changes settings: all that `change` does, or on its error nothing.
    pub(crate) fn change<E: From<WriteLockError>>(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut change = Some(change);
        let mut result = Ok(());
        self.store().change(&mut |before| {
            let mut settings = before.clone();
            result = change.take()?(&mut settings);
            result.is_ok().then(|| {
                self.clear_backlogs(before, &settings);
                Arc::new(settings)
            })
        })?;
        result
    }

    /// Runs `act` while no other thread or process changes settings or takes the histogram's
    /// counts.
    fn exclusively(&self, mut act: impl FnMut()) -> Result<(), WriteLockError> {
        self.store().change(&mut |_| {
            act();
            None
        })
    }

    /// Empties the queues of bottlenecks that have changed. The devices notice and queue the
    /// waiting packets again.
    fn clear_backlogs(&self, before: &Settings, after: &Settings) {
        for direction in [Direction::Egress, Direction::Ingress] {
            let bottleneck = |it: &Settings| it.impairment(direction).bottleneck;
            if bottleneck(before) != bottleneck(after) {
                self.backlog(direction).clear();
            }
        }
    }

    /// Gives the card these settings, which it may have in common with others.
    pub fn set_settings(&self, settings: &Arc<Settings>) -> Result<(), WriteLockError> {
        self.store().change(&mut |before| {
            self.clear_backlogs(before, settings);
            Some(Arc::clone(settings))
        })
    }

    /// Puts settings back that were replaced by `ours`; `false` and no change if another process has set
    /// something since.
    pub fn put_back(&self, saved: &Settings, ours: &Settings) -> Result<bool, WriteLockError> {
        let mut is_ours = false;
        self.change(|settings| {
            // Whether the port is down is set apart from the rest.
            is_ours = *settings == ours.with_schedule_of(settings);
            if is_ours {
                *settings = saved.with_schedule_of(settings);
            }
            Ok::<_, WriteLockError>(())
        })?;
        Ok(is_ours)
    }

    /// Behaviour of the firmware that no register controls.
    pub fn personality(&self) -> Personality {
        *self.settings().personality()
    }

    /// Changes the firmware's behaviour. The registers keep their values.
    pub fn set_personality(&self, personality: Personality) -> Result<(), WriteLockError> {
        self.change(|settings| {
            settings.set_personality(personality);
            Ok(())
        })
    }

    /// Changes the parameters of congestion control with which the firmware starts. Those in force
    /// keep their values until it does.
    pub fn set_nvconfig(&self, nvconfig: Params) -> Result<(), WriteLockError> {
        self.change(|settings| {
            settings.set_nvconfig(nvconfig);
            Ok(())
        })
    }

    /// What the link does to packets in one direction. Blackouts are points in the host's time.
    pub fn impairment(&self, direction: Direction) -> Impairment {
        self.settings().impairment(direction).clone()
    }

    /// Bytes that wait in the queue of the link's bottleneck, of all processes of the device; `None`
    /// if it has no bottleneck.
    pub fn queue_bytes(&self, direction: Direction, now: Time) -> Option<u64> {
        let bottleneck = self.settings().impairment(direction).bottleneck?;
        Some(self.backlog(direction).bytes(&bottleneck, now))
    }

    fn backlogs(&self) -> &[Backlog; 2] {
        match &self.0.memory {
            Memory::Local(local) => &local.backlogs,
            Memory::Mapped { memory, .. } => &memory.block.backlogs,
        }
    }

    pub(crate) fn backlog(&self, direction: Direction) -> &Backlog {
        &self.backlogs()[direction as usize]
    }

    /// When the port last sent a CNP, of all processes of the card.
    pub(crate) fn cnp_timer(&self) -> &CnpTimer {
        match &self.0.memory {
            Memory::Local(local) => &local.cnp_timer,
            Memory::Mapped { memory, .. } => &memory.block.cnp_timer,
        }
    }

    /// The same for each sender of datagrams.
    pub(crate) fn datagram_timers(&self) -> &DatagramTimers {
        match &self.0.memory {
            Memory::Local(local) => local.datagram_timers(),
            Memory::Mapped { memory, .. } => &memory.block.datagram_timers,
        }
    }

    /// Changes what the link does to packets in one direction.
    pub fn set_impairment(
        &self,
        direction: Direction,
        impairment: Impairment,
    ) -> Result<(), SettingError> {
        impairment.check()?;
        self.change(|settings| {
            settings.set_impairment(direction, impairment);
            Ok(())
        })
    }

    /// The parameters of congestion control.
    pub fn congestion(&self) -> Params {
        self.settings().congestion.clone()
    }

    /// Changes parameters of congestion control: all that `change` does, or on its error nothing.
    /// A limiter that is at work goes on from the rate that it has.
    pub fn change_congestion<E: From<WriteLockError>>(
        &self,
        change: impl FnOnce(&mut Params) -> Result<(), E>,
    ) -> Result<(), E> {
        self.change(|settings| change(&mut settings.congestion))
    }

    /// Puts ROCE_ACCL back to what it is after power-on, for all functions of the card.
    pub fn reset_registers(&self) -> Result<(), WriteLockError> {
        self.change(|settings| {
            settings.reset_registers();
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
