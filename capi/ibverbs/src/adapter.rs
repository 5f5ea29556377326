//! The available devices, and those that this process has open.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::hash::{BuildHasher, RandomState};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::available_parallelism;

use ferroce_border::border;
use ferroce_hca::{CqId, Event, Hca, QpEvent, SrqId, VerbsError, limits};
use ferroce_os::WallClock;
use ferroce_registry::{DeviceSpec, Registry};
use ferroce_runtime::{AttachOptions, Device};
use ferroce_wire::Qpn;

use crate::abi::ibv_device;
use crate::error::{Error, pointer, report};
use crate::events::{Async, AsyncQueue, CompQueue};
use crate::opened::{CmSink, RemovalSink};
use crate::{border, capture, fork};

/// A device as programs see it before they open it. Providers of other cards look at a pointer to
/// their own operations behind `ibv_device`, and find that this is not their card.
#[repr(C)]
pub(crate) struct Listed {
    abi: ibv_device,
    operations: *const u64,
    behind: [u64; 32],
    pub(crate) spec: DeviceSpec,
    index: c_int,
}

// SAFETY: nothing in it changes after it was made, and its pointers lead to constants.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

static NO_PROVIDER: u64 = 0;

/// All devices ever listed. They stay: a program may keep a pointer longer than its list.
static LISTED: Mutex<Vec<&'static Listed>> = Mutex::new(Vec::new());

pub(crate) fn listed() -> MutexGuard<'static, Vec<&'static Listed>> {
    LISTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refresh() -> Result<Vec<&'static Listed>, Error> {
    border::watch_panics();
    let specs = Registry::open()?.devices()?;
    let mut known = listed();
    let list = specs.into_iter().map(|spec| {
        if let Some(old) = known.iter().find(|old| old.spec == spec) {
            return *old;
        }
        let index = c_int::try_from(known.len()).unwrap_or(c_int::MAX);
        let fresh: &'static Listed = Box::leak(Box::new(Listed::new(spec, index)));
        known.push(fresh);
        fresh
    });
    Ok(list.collect())
}

impl Listed {
    fn new(spec: DeviceSpec, index: c_int) -> Self {
        let uverbs = format!("uverbs{index}");
        let abi = ibv_device {
            ops: [null_mut(); 2],
            node_type: 1,
            transport_type: 0,
            name: text(&spec.name),
            dev_name: text(&uverbs),
            dev_path: text(&format!("/sys/class/infiniband_verbs/{uverbs}")),
            ibdev_path: text(&format!("/sys/class/infiniband/{}", spec.name)),
        };
        Self {
            abi,
            operations: &raw const NO_PROVIDER,
            behind: [0; 32],
            spec,
            index,
        }
    }

    /// The pointer that programs hold.
    pub(crate) fn pointer(&self) -> *mut ibv_device {
        (&raw const self.abi).cast_mut()
    }
}

/// A C string in an array, cut if it is too long.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    array
}

/// The device behind a program's pointer.
pub(crate) fn find(device: *const ibv_device) -> Result<&'static Listed, Error> {
    let known = listed();
    let found = known
        .iter()
        .find(|listed| listed.pointer().cast_const() == device);
    found.copied().ok_or(Error::Handle("device"))
}

/// The device of a name.
pub(crate) fn named(name: &str) -> Result<&'static Listed, Error> {
    let devices = refresh()?;
    let found = devices.into_iter().find(|listed| listed.spec.name == name);
    found.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENODEV).into())
}

/// What the device of a name was when it was listed last.
pub(crate) fn spec(name: &str) -> Option<DeviceSpec> {
    let known = listed();
    let found = known.iter().rev().find(|listed| listed.spec.name == name);
    found.map(|listed| listed.spec.clone())
}

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

/// The only port.
const PORT: u64 = 1;
/// Events of the device and its port that wait for a program; of more the oldest go.
const UNREAD_MAX: usize = 1024;

/// Whom the device's events concern.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) completions: RwLock<HashMap<CqId, Arc<CompQueue>>>,
    pub(crate) cqs: RwLock<HashMap<CqId, AsyncRoute>>,
    /// One for each handle: an XRC queue pair can be open several times.
    pub(crate) qps: RwLock<HashMap<Qpn, Vec<AsyncRoute>>>,
    pub(crate) srqs: RwLock<HashMap<SrqId, AsyncRoute>>,
    /// Who uses the connection manager.
    pub(crate) cm: OnceLock<CmSink>,
    /// Whom it tells that the device was removed.
    pub(crate) removal: OnceLock<RemovalSink>,
    /// The queues of all contexts.
    pub(crate) contexts: RwLock<Vec<Weak<AsyncQueue>>>,
}

/// Where asynchronous events of an object go.
#[derive(Clone)]
pub(crate) struct AsyncRoute {
    pub(crate) queue: Arc<AsyncQueue>,
    /// The object, as programs know it.
    pub(crate) element: u64,
    /// How many of its events the program has got.
    pub(crate) reported: crate::events::Reported,
}

impl AsyncRoute {
    fn push(&self, kind: c_int) {
        self.queue.push(Async {
            element: self.element,
            kind,
            reported: Some(self.reported.clone()),
        });
    }
}

impl Routes {
    /// Takes an event of the device, which is locked.
    fn deliver(&self, hca: &mut Hca, event: Event) {
        match event {
            Event::Completion(cq) => {
                if let Some(queue) = read(&self.completions).get(&cq) {
                    queue.announce();
                }
            }
            Event::CqOverrun(cq) => push(&self.cqs, &cq, 0),
            Event::QpFatal(qpn) => self.push_to_qp(qpn, 1),
            Event::Qp(qpn, event) => {
                if let Some(kind) = kind_of(event) {
                    self.push_to_qp(qpn, kind);
                }
            }
            Event::SrqLimit(srq) => push(&self.srqs, &srq, 15),
            Event::DeviceFatal => self.broadcast(8, 0),
            Event::DeviceRemoved => {
                if let Some(sink) = self.removal.get() {
                    sink();
                }
            }
            Event::PortActive => self.broadcast(9, PORT),
            Event::PortError => self.broadcast(10, PORT),
            Event::GidChange => self.broadcast(18, PORT),
            Event::ConnectionManager => self.deliver_cm(hca),
            Event::ReceiveOverflow => report(
                "the kernel drops packets because the device's receive buffer is full; raise \
                 net.core.rmem_max, or lower what peers send at a time: `ferroce dev set DEV \
                 window 256KiB`",
            ),
            Event::GroupRefused { group, reason } => {
                report(&format!("cannot join the group {group}: {reason}"));
            }
            Event::RequestDropped {
                source,
                service,
                cause,
            } => report(&format!(
                "dropped a request for {service} from {source}: {cause}"
            )),
            Event::SendRefused { dest, reason } => {
                report(&format!("cannot send to {dest}: {reason}"));
            }
            _ => {}
        }
    }

    fn push_to_qp(&self, qpn: Qpn, kind: c_int) {
        for route in read(&self.qps).get(&qpn).into_iter().flatten() {
            route.push(kind);
        }
    }

    fn deliver_cm(&self, hca: &mut Hca) {
        // Without a sink nobody has connections.
        while let Some(event) = hca.poll_cm_event() {
            if let Some(sink) = self.cm.get() {
                sink(event);
            }
        }
    }

    /// An event of the whole device or of its port.
    fn broadcast(&self, kind: c_int, element: u64) {
        for queue in read(&self.contexts).iter().filter_map(Weak::upgrade) {
            queue.push_or_replace(
                Async {
                    element,
                    kind,
                    reported: None,
                },
                UNREAD_MAX,
                |old| old.reported.is_none(),
            );
        }
    }
}

/// The number of `ibv_event_type`.
fn kind_of(event: QpEvent) -> Option<c_int> {
    Some(match event {
        QpEvent::RequestError => 2,
        QpEvent::AccessError => 3,
        QpEvent::CommunicationEstablished => 4,
        QpEvent::SendQueueDrained => 5,
        QpEvent::LastWqeReached => 16,
        _ => return None,
    })
}

fn push<K: std::hash::Hash + Eq>(map: &RwLock<HashMap<K, AsyncRoute>>, key: &K, kind: c_int) {
    if let Some(route) = read(map).get(key) {
        route.push(kind);
    }
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

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
        let _pass = fork::pass();
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
            ..AttachOptions::default()
        };
        let attached = Device::attach(&registry, &listed.spec.name, options);
        let device = match (attached, least_used) {
            (Ok(device), _) => device,
            // The device has no further slot, or the process no further descriptor or thread.
            (Err(_), Some(adapter)) => return Ok(adapter),
            (Err(error), None) => return Err(error.into()),
        };
        let routes = Arc::new(Routes::default());
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
        at_exit();
        fork::watch();
        Ok(adapter)
    }

    /// The one of this identity, if this process has it open.
    pub(crate) fn of_identity(listed: &'static Listed, identity: u64) -> Option<Arc<Self>> {
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let same = Self::live_ones(&open, listed);
        same.into_iter()
            .find(|adapter| adapter.identity == identity)
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

    /// Runs a verb that ends an object. False in a child of the process that has the object: there
    /// is nothing to end, and what the library keeps for its events may be locked for good. And of a
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
        // SAFETY: registers a function that lives as long as the library, which is never unloaded.
        unsafe { libc::atexit(flush) };
    });
}

/// The devices there are, ended by a null pointer (ibv_get_device_list(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    pointer("ibv_get_device_list", device_list(num_devices))
}

fn device_list(num_devices: *mut c_int) -> Result<*mut *mut ibv_device, Error> {
    let devices = refresh()?;
    // SAFETY: `calloc` takes any sizes.
    let list: *mut *mut ibv_device =
        unsafe { libc::calloc(devices.len() + 1, size_of::<*mut c_void>()) }.cast();
    if list.is_null() {
        return Err(std::io::Error::from_raw_os_error(libc::ENOMEM).into());
    }
    for (index, device) in devices.iter().enumerate() {
        // SAFETY: the array has room for them and the null pointer at its end.
        unsafe { *list.add(index) = device.pointer() };
    }
    if !num_devices.is_null() {
        // SAFETY: the program's own variable.
        unsafe { *num_devices = c_int::try_from(devices.len()).unwrap_or(c_int::MAX) };
    }
    Ok(list)
}

/// Frees a list of [`ibv_get_device_list`].
#[border(nothing)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it came from `calloc`; null is allowed.
    unsafe { libc::free(list.cast()) }
}

/// The device's name (ibv_get_device_name(3)): that of the structure, which may be the program's own.
#[border(pointer)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    match device.is_null() {
        true => null(),
        // SAFETY: the caller's structure, of which this takes an address.
        false => unsafe { (&raw const (*device).name).cast() },
    }
}

/// The device's GUID in network order (ibv_get_device_guid(3)).
#[border(value)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    find(device).map_or(0, |listed| listed.spec.guid().to_be())
}

/// The device's number (ibv_get_device_index(3)).
#[border(number)]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    find(device).map_or(-1, |listed| listed.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bindings make structures of their own to look a device up by.
    #[test]
    fn a_structure_of_the_program_has_the_name_in_it() {
        // SAFETY: zero is a value of all fields.
        let mut own: ibv_device = unsafe { std::mem::zeroed() };
        for (place, byte) in own.name.iter_mut().zip(b"own0") {
            *place = byte.cast_signed();
        }
        // SAFETY: the structure, and a name that ends within it.
        let name = unsafe { std::ffi::CStr::from_ptr(ibv_get_device_name(&raw mut own)) };
        assert_eq!(name, c"own0");
        // SAFETY: null is looked at first.
        assert!(unsafe { ibv_get_device_name(null_mut()) }.is_null());
    }
}
