//! The devices that this process has open.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::thread::available_parallelism;

use ferroce_abi::border;
use ferroce_abi::border::{Consequence, on_panic, uncancelled};
use ferroce_device::{Attr, Hca, QpAttr, QpModify, QpState, VerbsError, limits};
use ferroce_fault::{Effect, Occasion, Target};
use ferroce_os::WallClock;
use ferroce_registry::Registry;
use ferroce_runtime::{AttachOptions, Device};
use ferroce_wire::Qpn;

use crate::devices::Listed;
use crate::error::Error;
use crate::routes::{Routes, read};
use crate::{capture, faults, gate};

/// A device that this process has open; the contexts that a thread opens share it.
///
/// To the device it is a process: it has a slot there, and a socket, queue pairs and a lock of its own.
/// Threads with contexts of their own therefore do not wait for each other.
pub(crate) struct Adapter {
    pub(crate) listed: &'static Listed,
    /// The thread that opened it.
    opener: u64,
    pub(crate) device: Device,
    pub(crate) routes: Arc<Routes>,
    /// Tells the time of day of completions.
    pub(crate) wall_clock: WallClock,
    /// Address handles.
    pub(crate) ahs: AtomicU32,
    /// Bytes of device memory left.
    pub(crate) dm_free: Arc<AtomicU64>,
    /// Tells this process's use of the device from that of others.
    pub(crate) identity: u64,
}

/// A process has a device open at most so often at a time: the device has 254 slots for all processes.
const ADAPTERS_MAX: usize = 16;

static OPEN: LazyLock<Mutex<Vec<Weak<Adapter>>>> = LazyLock::new(Mutex::default);

/// A number that no other thread has, before or after. Unlike the standard library's, it leaves
/// nothing on the heap that leak checkers would report in each program.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

impl Adapter {
    /// Opens a device, or shares it with contexts of this process: those of this thread, or any if more
    /// threads have it open than gain by that.
    pub(crate) fn attach(listed: &'static Listed) -> Result<Arc<Self>, Error> {
        faults::watch()?;
        let _pass = gate::pass();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|adapter| adapter.strong_count() > 0);
        let same = Self::live_ones(&open, listed);
        let opener = this_thread();
        if let Some(own) = same.iter().find(|adapter| adapter.opener == opener) {
            return Ok(Arc::clone(own));
        }
        let least_used = same
            .iter()
            .min_by_key(|adapter| adapter.contexts())
            .cloned();
        let max = available_parallelism().map_or(1, |cores| cores.get().min(ADAPTERS_MAX));
        if same.len() >= max
            && let Some(adapter) = least_used
        {
            return Ok(adapter);
        }
        let registry = Registry::open()?;
        let options = AttachOptions {
            tap: capture::tap(),
            once_more: least_used.is_some(),
            card_process: std::env::var_os("FERROCE_CARD_PROCESS")
                .is_some_and(|value| value == "1"),
            ..AttachOptions::default()
        };
        let attached = Device::attach(&registry, &listed.spec.name, options);
        let device = match (attached, least_used) {
            (Ok(device), _) => device,
            // The device has no further slot, or the process no further descriptor or thread.
            (Err(_), Some(adapter)) => return Ok(adapter),
            (Err(error), None) => return Err(error.into()),
        };
        let routes = Arc::new(Routes {
            device: listed.spec.name.clone(),
            ..Routes::default()
        });
        let sink = Arc::clone(&routes);
        device.set_event_sink(Box::new(move |hca, event| sink.deliver(hca, event)));
        let adapter = Arc::new(Self {
            listed,
            opener,
            wall_clock: WallClock::new(|| device.now()),
            device,
            routes,
            ahs: AtomicU32::new(0),
            dm_free: Arc::new(AtomicU64::new(limits::MAX_DM_SIZE)),
            identity: RandomState::new().hash_one(0),
        });
        open.push(Arc::downgrade(&adapter));
        on_panic(Consequence {
            end: fail_all,
            text: "its devices in this process have failed, restart the program",
        });
        at_exit();
        Ok(adapter)
    }

    /// The one of this identity, if this process has it open.
    pub(crate) fn of_identity(listed: &'static Listed, identity: u64) -> Option<Arc<Self>> {
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let same = Self::live_ones(&open, listed);
        same.into_iter()
            .find(|adapter| adapter.identity == identity)
    }

    /// How many ports of the card make the port that programs see.
    pub(crate) fn lag_ports(&self) -> u8 {
        let spec = self.device.spec();
        spec.links().count() as u8 / spec.ports() // 1 or 2
    }

    fn contexts(&self) -> usize {
        let queues = read(&self.routes.contexts);
        queues.iter().filter(|it| it.strong_count() > 0).count()
    }

    fn live_ones(open: &[Weak<Self>], listed: &'static Listed) -> Vec<Arc<Self>> {
        let adapters = open.iter().filter_map(Weak::upgrade);
        let is_live = |adapter: &Arc<Self>| {
            let is_live = !adapter.device.is_orphaned() && !adapter.device.has_failed();
            is_live && std::ptr::eq(adapter.listed, listed)
        };
        adapters.filter(is_live).collect()
    }

    /// The device, unless this process is a child of the one that opened it.
    #[inline]
    pub(crate) fn live(&self) -> Result<&Device, Error> {
        if self.device.is_orphaned() {
            return Err(Error::Orphaned);
        }
        if self.device.has_failed() {
            return Err(Error::Failed);
        }
        if self.device.is_in_call() {
            return Err(Error::InCall);
        }
        Ok(&self.device)
    }

    /// Lets fault rules act on a call, which fails if one says so.
    #[inline]
    pub(crate) fn meet(&self, target: Target, qp: Option<Qpn>) -> Result<(), Error> {
        match faults::is_wanted(target) {
            true => self.strike(target, qp),
            false => Ok(()),
        }
    }

    #[cold]
    fn strike(&self, target: Target, qp: Option<Qpn>) -> Result<(), Error> {
        let occasion = Occasion {
            qp: qp.map(Qpn::value),
            ..Occasion::on(target, &self.listed.spec.name)
        };
        match (faults::meet(occasion), qp) {
            (Some(Effect::Fail(errno)), _) => return Err(Error::Injected(errno)),
            (Some(Effect::QpError), Some(qp)) => self.to_error(qp)?,
            (Some(Effect::DeviceFatal), _) => uncancelled(|| self.device.fail()),
            _ => {}
        }
        Ok(())
    }

    /// Takes a queue pair to ERR, after all that was posted to it has been seen.
    pub(crate) fn to_error(&self, qp: Qpn) -> Result<(), Error> {
        let to_error = QpModify::to(QpState::Err, Attr::STATE, QpAttr::default());
        let device = self.live()?;
        device.catch_up();
        device.with(|hca| hca.modify_qp(qp, &to_error, None))?;
        Ok(())
    }

    /// Runs a verb that ends an object. False in a child of the process that has the object: there
    /// is nothing to end, and what the library keeps for its events may be locked permanently. And of a
    /// device that has failed, which has no objects any more.
    pub(crate) fn end(
        &self,
        verb: impl FnOnce(&mut Hca) -> Result<(), VerbsError>,
    ) -> Result<bool, Error> {
        let is_live = match self.live() {
            Ok(_) => true,
            Err(Error::Orphaned | Error::Failed) => false,
            Err(error) => return Err(error),
        };
        if is_live {
            self.device.with(verb)?;
        }
        Ok(is_live)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        capture::flush();
    }
}

/// In the child of a fork: none of the parent's devices is open here. What is inherited of them is
/// never freed: a thread that is not here may have been at it.
pub(crate) fn forget_all() {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    for adapter in open.drain(..).filter_map(|adapter| adapter.upgrade()) {
        std::mem::forget(adapter);
    }
}

/// Ends the life of all devices of this process, after a panic in one of its threads.
pub(crate) fn fail_all() {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let adapters: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
    drop(open);
    for adapter in adapters {
        adapter.device.fail();
    }
}

/// Has the last acknowledgements sent when the program ends: its peers wait for them.
fn at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    #[border(nothing)]
    extern "C" fn flush() {
        let Ok(open) = OPEN.try_lock() else {
            return; // a thread that opens a device owes nothing yet
        };
        for adapter in open.iter().filter_map(Weak::upgrade) {
            adapter.device.finish();
        }
        capture::flush();
    }
    ONCE.call_once(|| {
        // SAFETY: a function of the library, which is never unloaded.
        unsafe { libc::atexit(flush) };
    });
}
