mod function;
mod published;
mod registers;
mod settings;

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_dcqcn::Params;
use ferroce_transport::{Counter, Time};
use thiserror::Error;

pub use self::function::{Function, VfBlock};
use self::published::Published;
pub(crate) use self::settings::Settings;
use crate::credit::LeaseTable;
use crate::device::Personality;
use crate::histogram::{Histogram, HistogramError};
use crate::impair::{Backlog, Direction, Impairment, ImpairmentError};
use crate::register::Identity;

/// What all processes of a card share: its settings, and the timeout histogram of its PF.
///
/// Only atomics in C layout, so that it lives in a `Box` or in memory that several processes map.
/// Memory full of zeros is a valid block whose settings [`DeviceState::reset`] must make.
#[derive(Debug)]
#[repr(C)]
pub struct StateBlock {
    settings: Published<{ settings::WORDS }>,
    /// Of the bottlenecks of what is sent and of what is received.
    backlogs: [Backlog; 2],
    histogram: Histogram,
}

impl Default for StateBlock {
    fn default() -> Self {
        Self::new()
    }
}

impl StateBlock {
    fn new() -> Self {
        Self {
            settings: Published::new(),
            backlogs: Default::default(),
            histogram: Histogram::new(),
        }
    }
}

/// The counters of one process of a device. One thread at a time writes, anybody reads.
///
/// In C layout for the same reason; cache lines of its own, since each has another writer.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct CounterSlab {
    counters: [AtomicU64; Counter::COUNT],
}

impl Default for CounterSlab {
    fn default() -> Self {
        Self {
            counters: [const { AtomicU64::new(0) }; Counter::COUNT],
        }
    }
}

impl CounterSlab {
    /// The value of a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }

    #[inline]
    fn count(&self, counter: Counter, n: u64) {
        let cell = &self.counters[counter as usize];
        let sum = cell.load(Ordering::Relaxed).wrapping_add(n);
        cell.store(sum, Ordering::Relaxed);
    }
}

/// The host's memory for a [`DeviceState`] that other processes map, too. It stays mapped to the
/// end of the process.
#[derive(Clone, Copy, Debug)]
pub struct MappedState {
    /// What the processes share, also those on other functions of the card.
    pub block: &'static StateBlock,
    /// The same for each VF that the card may have.
    pub vfs: &'static [VfBlock],
    /// A slab for each slot of this function; slot 0 belongs to nobody.
    pub slabs: &'static [CounterSlab],
    /// What the processes of this function have leased.
    pub leases: &'static LeaseTable,
}

/// Keeps others from changing the shared state for the length of a call.
///
/// Below the host nobody can tell whether a lock's owner is still alive, so the lock is the host's
/// matter: one that the death of its owner opens.
pub trait WriteLock: fmt::Debug + Send + Sync {
    /// Runs `write` while no other thread or process is in such a call for the same state.
    fn locked(&self, write: &mut dyn FnMut()) -> Result<(), WriteLockError>;
}

/// The shared state could not be changed because the host could not lock it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("cannot lock the device's shared state: {}", io::Error::from_raw_os_error(*errno))]
pub struct WriteLockError {
    /// What the operating system said.
    pub errno: i32,
}

/// All settings of a device at one time: registers, personality, impairments, congestion control.
#[derive(Clone, PartialEq, Debug)]
pub struct SavedSettings(Settings);

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
pub struct DeviceState {
    block: Shared<StateBlock>,
    /// The VFs' part; among them is this one if `function` is a VF.
    vfs: &'static [VfBlock],
    function: Function,
    own: Shared<CounterSlab>,
    /// What all processes of the device map; `None` if there is but one.
    memory: Option<Arc<MappedState>>,
    lock: Arc<dyn WriteLock>,
    identity: Identity,
}

#[derive(Debug)]
enum Shared<T: 'static> {
    Owned(Arc<T>),
    Mapped(&'static T),
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Owned(owned) => Self::Owned(Arc::clone(owned)),
            Self::Mapped(mapped) => Self::Mapped(mapped),
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Owned(owned) => owned,
            Self::Mapped(mapped) => mapped,
        }
    }
}

/// For a state that nobody else maps.
#[derive(Debug, Default)]
struct OwnLock(Mutex<()>);

impl WriteLock for OwnLock {
    fn locked(&self, write: &mut dyn FnMut()) -> Result<(), WriteLockError> {
        let _guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write();
        Ok(())
    }
}

impl DeviceState {
    /// The state of a device that one process has to itself, after power-on.
    pub fn new(personality: Personality) -> Self {
        let state = Self {
            block: Shared::Owned(Arc::new(StateBlock::new())),
            vfs: &[],
            function: Function::default(),
            own: Shared::Owned(Arc::default()),
            memory: None,
            lock: Arc::new(OwnLock::default()),
            identity: Identity::default(),
        };
        state.fill(personality);
        state
    }

    /// The state of a function in memory that other processes map, too, for the owner of `slot` or,
    /// as slot 0, for an observer. `None` if there is no such slot or function.
    pub fn mapped(
        memory: MappedState,
        function: Function,
        slot: u8,
        lock: Arc<dyn WriteLock>,
    ) -> Option<Self> {
        if let Function::Vf { index, .. } = function {
            memory.vfs.get(usize::from(index))?;
        }
        Some(Self {
            block: Shared::Mapped(memory.block),
            vfs: memory.vfs,
            function,
            own: Shared::Mapped(memory.slabs.get(usize::from(slot))?),
            memory: Some(Arc::new(memory)),
            lock,
            identity: Identity::default(),
        })
    }

    /// The same state of a device that tools see as something else.
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Which function of its card this is.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Puts everything of the card but counters to what it is after power-on.
    pub fn reset(&self, personality: Personality) -> Result<(), WriteLockError> {
        self.lock.locked(&mut || self.fill(personality))
    }

    fn fill(&self, personality: Personality) {
        self.block.backlogs.iter().for_each(Backlog::clear);
        let settings = Settings::reset(personality);
        self.block.settings.store(&settings.to_words());
        self.restart_histograms();
    }

    // Counters.

    /// All slabs; `None` if there is but `own`.
    fn slabs(&self) -> Option<&'static [CounterSlab]> {
        self.memory.as_ref().map(|memory| memory.slabs)
    }

    /// The value of a counter, summed over all processes that have or had the device open.
    pub fn counter(&self, counter: Counter) -> u64 {
        match self.slabs() {
            None => self.own.counter(counter),
            Some(slabs) => slabs.iter().map(|slab| slab.counter(counter)).sum(),
        }
    }

    /// All counters at once, each at its number (`counter as usize`): one walk over the slabs in
    /// place of one for each counter.
    pub fn counters(&self) -> [u64; Counter::COUNT] {
        let slabs = self
            .slabs()
            .unwrap_or_else(|| std::slice::from_ref(&*self.own));
        let mut sums = [0u64; Counter::COUNT];
        for slab in slabs {
            for (sum, cell) in sums.iter_mut().zip(&slab.counters) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        sums
    }

    /// The part of a counter that one process after the other counted in a slot.
    pub fn counter_of(&self, slot: u8, counter: Counter) -> u64 {
        let slab = self.slabs().and_then(|slabs| slabs.get(usize::from(slot)));
        slab.unwrap_or(&self.own).counter(counter)
    }

    /// Adds to a counter of this process. One writer at a time: the owner of the device.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, n: u64) {
        self.own.count(counter, n);
    }

    /// What it shares with other processes of what peers take.
    #[inline]
    pub(crate) fn leases(&self) -> Option<&'static LeaseTable> {
        self.memory.as_ref().map(|memory| memory.leases)
    }

    // Settings.

    /// Differs from an earlier value if a setting was changed in between.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.block.settings.generation()
    }

    /// All settings as they are now, and their generation.
    pub(crate) fn settings(&self) -> (u64, Settings) {
        let (generation, words) = self.block.settings.load();
        (generation, Settings::from_words(&words))
    }

    fn change<E: From<WriteLockError>>(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut change = Some(change);
        let mut result = Ok(());
        self.lock.locked(&mut || {
            let Some(change) = change.take() else { return };
            let before = self.settings().1;
            let mut settings = before.clone();
            result = change(&mut settings);
            if result.is_ok() {
                self.clear_backlogs(&before, &settings);
                self.block.settings.store(&settings.to_words());
            }
        })?;
        result
    }

    /// Empties the queues of bottlenecks that are others now. The devices see that and let what
    /// waits queue up anew.
    fn clear_backlogs(&self, before: &Settings, after: &Settings) {
        for direction in [Direction::Egress, Direction::Ingress] {
            let bottleneck = |it: &Settings| it.impairment(direction).bottleneck;
            if bottleneck(before) != bottleneck(after) {
                self.backlog(direction).clear();
            }
        }
    }

    /// All settings as they are now.
    pub fn save(&self) -> SavedSettings {
        SavedSettings(self.settings().1)
    }

    /// Puts settings back that were replaced by `ours`; `false` and no change if somebody has set
    /// something since.
    pub fn put_back(
        &self,
        saved: &SavedSettings,
        ours: &SavedSettings,
    ) -> Result<bool, WriteLockError> {
        let mut is_ours = false;
        self.change(|settings| {
            is_ours = *settings == ours.0;
            if is_ours {
                *settings = saved.0.clone();
            }
            Ok::<_, WriteLockError>(())
        })?;
        Ok(is_ours)
    }

    /// Behaviour of the firmware that no register controls.
    pub fn personality(&self) -> Personality {
        self.settings().1.personality
    }

    /// Changes the firmware's behaviour. The registers keep their values.
    pub fn set_personality(&self, personality: Personality) -> Result<(), WriteLockError> {
        self.change(|settings| {
            settings.personality = personality;
            Ok(())
        })
    }

    /// What the link does to packets in one direction. Blackouts are points in the host's time.
    pub fn impairment(&self, direction: Direction) -> Impairment {
        self.settings().1.impairment(direction).clone()
    }

    /// Bytes that wait in the queue of the link's bottleneck, of all processes of the device; `None`
    /// if it has no bottleneck.
    pub fn queue_bytes(&self, direction: Direction, now: Time) -> Option<u64> {
        let bottleneck = self.impairment(direction).bottleneck?;
        Some(self.backlog(direction).bytes(&bottleneck, now))
    }

    pub(crate) fn backlog(&self, direction: Direction) -> &Backlog {
        &self.block.backlogs[direction as usize]
    }

    /// Changes what the link does to packets in one direction.
    pub fn set_impairment(
        &self,
        direction: Direction,
        impairment: Impairment,
    ) -> Result<(), SettingError> {
        impairment.check()?;
        self.change(|settings| {
            match direction {
                Direction::Egress => settings.egress = impairment,
                Direction::Ingress => settings.ingress = impairment,
            }
            Ok(())
        })
    }

    /// The parameters of congestion control.
    pub fn congestion(&self) -> Params {
        self.settings().1.congestion
    }

    /// Changes parameters of congestion control: all that `change` does, or on its error nothing.
    /// A limiter that is at work goes on from the rate that it has.
    pub fn change_congestion<E: From<WriteLockError>>(
        &self,
        change: impl FnOnce(&mut Params) -> Result<(), E>,
    ) -> Result<(), E> {
        self.change(|settings| change(&mut settings.congestion))
    }
}
