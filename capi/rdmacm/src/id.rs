//! Identifiers.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use ferroce_device::Ece;
use ferroce_device::cm::{CmEvent, CmEventKind, CommId};
use ferroce_fault::Target;
use ferroce_ibverbs::EventQueue;
use ferroce_ibverbs::abi::{IBV_QPT_UD, ibv_qp_init_attr};
use ferroce_ibverbs::arena::Arena;
use ferroce_ibverbs::error::Error;
use ferroce_registry::ServiceClaim;
use ferroce_wire::cm::{PortSpace, ServiceId};

use crate::abi::{ibv_sa_path_rec, rdma_cm_id, rdma_event_channel, rdma_ib_addr};
use crate::address;
use crate::device::Device;
use crate::info::Resolved;
use crate::process::{PerProcess, lock};
use crate::terms::Terms;

/// How far an identifier has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Step {
    #[default]
    Idle,
    /// It has a port.
    Bound,
    /// It knows its peer's address.
    AddressResolved,
    /// It knows the way.
    RouteResolved,
    Listening,
    /// A peer asks for a connection.
    Requested,
    /// A connection, or the way to one.
    Connect,
    /// The connection is over.
    Disconnected,
}

/// What an identifier is about. The program's threads change it one at a time.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) step: Step,
    pub(crate) device: Option<&'static Device>,
    pub(crate) comm: Option<CommId>,
    pub(crate) claims: Vec<ServiceClaim>,
    /// Devices and services that it listens on.
    pub(crate) listens: Vec<(&'static Device, ServiceId)>,
    pub(crate) traffic_class: u8,
    /// Service level.
    pub(crate) sl: u8,
    pub(crate) reuse_port: bool,
    pub(crate) only_own_family: bool,
    pub(crate) ack_timeout: Option<u8>,
    /// Options of the connection that this side offers, or has chosen.
    pub(crate) own_ece: Ece,
    pub(crate) terms: Terms,
    /// The connection failed on this side; what the peer says to that is no news.
    pub(crate) failed: bool,
    /// Queue pairs of the connections of a passive end point.
    pub(crate) template: Option<Template>,
    /// Multicast groups that it is a member of.
    pub(crate) groups: Vec<Group>,
    pub(crate) path: Option<Box<ibv_sa_path_rec>>,
    /// A name that was resolved for the program.
    pub(crate) resolved: Option<Resolved>,
    /// Events of the program's own that it has not read.
    pub(crate) own_events: u32,
}

/// How queue pairs are to be made.
#[derive(Clone, Copy)]
pub(crate) struct Template(pub(crate) ibv_qp_init_attr);

// SAFETY: its pointers are handles that any thread may use.
unsafe impl Send for Template {}

/// A group that an identifier is a member of.
pub(crate) struct Group {
    pub(crate) address: IpAddr,
    /// Its queue pair gets what is sent to the group, and does not only send.
    pub(crate) receives: bool,
    pub(crate) attached: bool,
    /// The program's own.
    pub(crate) context: GroupContext,
}

#[derive(Clone, Copy)]
pub(crate) struct GroupContext(pub(crate) *mut c_void);

// SAFETY: the library only hands it back to the program.
unsafe impl Send for GroupContext {}

/// Events that wait for the program.
pub(crate) type Queue = EventQueue<Arc<Queued>>;

/// An event that waits for the program.
pub(crate) struct Queued {
    pub(crate) id: Arc<Id>,
    pub(crate) what: Incoming,
}

/// What came for an identifier.
pub(crate) enum Incoming {
    /// From the connection manager.
    Cm {
        device: &'static Device,
        event: Box<CmEvent>,
    },
    /// A multicast group to join.
    Join { address: IpAddr },
    /// The end of a call that has no answer from outside: event and status.
    Done { event: c_int, status: c_int },
    /// What the program has written itself.
    Own { status: c_int, arg: u64 },
}

impl Incoming {
    /// It brings a connection that has no identifier yet.
    pub(crate) fn is_request(&self) -> bool {
        matches!(self, Self::Cm { event, .. } if matches!(
            event.kind,
            CmEventKind::Request { .. } | CmEventKind::SidrRequest { .. }
        ))
    }
}

/// The recipients of the events of connection managers.
#[derive(Default)]
pub(crate) struct Routes {
    connections: HashMap<(usize, CommId), Arc<Id>>,
    listeners: HashMap<(usize, ServiceId), Arc<Id>>,
}

static ROUTES: PerProcess<RwLock<Routes>> = PerProcess::new();

fn routes() -> RwLockWriteGuard<'static, Routes> {
    ROUTES.get().write().unwrap_or_else(PoisonError::into_inner)
}

/// Gives an event of the connection manager to the identifier it concerns, while the device is locked.
pub(crate) fn route(device: &'static Device, event: CmEvent) {
    let routes = ROUTES.get().read().unwrap_or_else(PoisonError::into_inner);
    let listener = |service: ServiceId| routes.listeners.get(&(device.key(), service));
    let to = match &event.kind {
        CmEventKind::Request { req, .. } => listener(req.service_id),
        CmEventKind::SidrRequest { req, .. } => listener(req.service_id),
        _ => routes.connections.get(&(device.key(), event.comm)),
    };
    // Without a recipient the connection is one whose request the program has not taken yet.
    if let Some(id) = to {
        let (device, event) = (device.at_port(event.port), Box::new(event));
        id.push(Incoming::Cm { device, event });
    }
}

/// The library's part of an identifier.
pub(crate) struct Id {
    /// The part that the program sees.
    abi: AtomicUsize,
    state: Mutex<State>,
    pub(crate) queue: Mutex<Arc<Queue>>,
    /// Each call waits for its event.
    pub(crate) sync: AtomicBool,
    events: Mutex<Events>,
    acknowledged: Condvar,
}

/// How many events the program has received, and how many it has acknowledged, modulo 2^32: only whether
/// they differ counts.
#[derive(Default)]
struct Events {
    reported: u32,
    completed: u32,
}

impl Events {
    fn report(&mut self) {
        self.reported = self.reported.wrapping_add(1);
    }

    fn acknowledge(&mut self) {
        self.completed = self.completed.wrapping_add(1);
    }

    fn are_pending(&self) -> bool {
        self.completed != self.reported
    }
}

pub(crate) static IDS: Arena<rdma_cm_id, Arc<Id>> = Arena::new("id");

/// The identifier behind a program's pointer.
pub(crate) fn find(id: *const rdma_cm_id) -> Result<Arc<Id>, Error> {
    Ok(Arc::clone(IDS.find(id)?.own()))
}

/// All that there are.
pub(crate) fn all() -> Vec<Arc<Id>> {
    IDS.all().iter().map(|id| Arc::clone(id.own())).collect()
}

impl Id {
    /// The part that the program sees; valid until the identifier is destroyed.
    pub(crate) fn abi(&self) -> *mut rdma_cm_id {
        self.abi.load(Ordering::Acquire) as *mut rdma_cm_id
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Where its events wait.
    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&lock(&self.queue))
    }

    /// Whether each call waits for its event.
    pub(crate) fn is_sync(&self) -> bool {
        self.sync.load(Ordering::Acquire)
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.qp_type() == IBV_QPT_UD
    }

    pub(crate) fn qp_type(&self) -> c_int {
        // SAFETY: a live object; the program does not write to the field.
        unsafe { (*self.abi()).qp_type }
    }

    pub(crate) fn space(&self) -> PortSpace {
        // SAFETY: as above, and so with this field.
        let ps = unsafe { (*self.abi()).ps };
        let known = PortSpace::ALL
            .into_iter()
            .find(|space| c_int::from(*space as u16) == ps);
        known.unwrap_or(PortSpace::Tcp)
    }

    /// Gives the program an event.
    pub(crate) fn push(self: &Arc<Self>, what: Incoming) {
        let queue = lock(&self.queue);
        let id = Arc::clone(self);
        queue.push(Arc::new(Queued { id, what }));
    }

    /// The device that it is bound to.
    pub(crate) fn device(&self) -> Result<&'static Device, Error> {
        self.state().device.ok_or_else(|| {
            let what = "the id is not bound to a device; bind it to an address or resolve one";
            Error::refused(libc::EINVAL, what)
        })
    }

    /// Lets fault rules act on a call, if the identifier has a device.
    pub(crate) fn meet(&self, target: Target) -> Result<(), Error> {
        let device = self.state().device;
        device.map_or(Ok(()), |device| device.meet(target))
    }

    /// Binds it to a device.
    pub(crate) fn bind_device(&self, state: &mut State, device: &'static Device) {
        state.device = Some(device);
        let id = self.abi();
        // SAFETY: the memory of an object is never freed.
        unsafe {
            if (*id).pd.is_null() {
                // Programs make their own objects in it. Without one no queue pair can be made,
                // and that call fails.
                (*id).pd = device.domain().unwrap_or(null_mut());
            }
            (*id).verbs = device.context;
            (*id).port_num = device.port;
            (*id).route.addr.addr = rdma_ib_addr {
                sgid: address::gid(device.address()),
                pkey: ferroce_wire::PKEY_DEFAULT.to_be(),
                ..(*id).route.addr.addr
            };
        }
    }

    /// Shows the program a path.
    pub(crate) fn set_path(&self, state: &mut State, path: ibv_sa_path_rec) {
        let path = state.path.insert(Box::new(path));
        // SAFETY: a live object. The path lives until it is destroyed or gets another one.
        unsafe {
            (*self.abi()).route.path_rec = &raw mut **path;
            (*self.abi()).route.num_paths = 1;
        }
    }

    /// Events of this connection come to this identifier from now on. To be called while the
    /// device is locked, so that none is lost.
    pub(crate) fn follow(self: &Arc<Self>, device: &Device, comm: CommId) {
        let key = (device.key(), comm);
        routes().connections.insert(key, Arc::clone(self));
    }

    /// Requests for a service come to this identifier from now on. To be called while the device is
    /// locked.
    pub(crate) fn serve(self: &Arc<Self>, device: &Device, service: ServiceId) {
        let key = (device.key(), service);
        routes().listeners.insert(key, Arc::clone(self));
    }

    /// No events of a connection come to it any more.
    pub(crate) fn unfollow(&self, device: &Device, comm: CommId) {
        routes().connections.remove(&(device.key(), comm));
    }

    /// No requests for a service come to it any more.
    pub(crate) fn unserve(&self, device: &Device, service: ServiceId) {
        routes().listeners.remove(&(device.key(), service));
    }

    /// An event goes to the program.
    pub(crate) fn report(&self) {
        lock(&self.events).report();
    }

    /// The program is done with an event.
    pub(crate) fn acknowledge(&self) {
        lock(&self.events).acknowledge();
        self.acknowledged.notify_all();
    }

    pub(crate) fn wait_acknowledged(&self) {
        let events = lock(&self.events);
        let pending = |events: &mut Events| events.are_pending();
        let waited = self.acknowledged.wait_while(events, pending);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes the events that the program has not got from its queue.
    pub(crate) fn withdraw(self: &Arc<Self>) {
        for queued in self
            .queue()
            .withdraw(|queued| Arc::ptr_eq(&queued.id, self))
        {
            let what = &queued.what;
            if let Incoming::Cm { device, event } = what
                && what.is_request()
            {
                // The peer of a request that the program will not see is told.
                let _ = device.with(|hca, now| hca.cm_mut().destroy(now, event.comm));
            }
        }
    }
}

/// The identifier has come too far, or not far enough.
pub(crate) fn wrong_step(call: &str, step: Step, allowed: &str) -> Error {
    Error::refused(
        libc::EINVAL,
        format!("an id in state \"{step:?}\" cannot {call}; one in {allowed} can"),
    )
}

/// Makes an identifier whose events go to `queue`.
pub(crate) fn make(
    channel: *mut rdma_event_channel,
    queue: Arc<Queue>,
    context: *mut c_void,
    ps: c_int,
    qp_type: c_int,
    state: State,
) -> Arc<Id> {
    // SAFETY: zero is valid for numbers, addresses and null pointers.
    let zero: rdma_cm_id = unsafe { std::mem::zeroed() };
    let abi = rdma_cm_id {
        channel,
        context,
        ps,
        qp_type,
        ..zero
    };
    let id = Arc::new(Id {
        abi: AtomicUsize::new(0),
        state: Mutex::new(state),
        queue: Mutex::new(queue),
        sync: AtomicBool::new(false),
        events: Mutex::default(),
        acknowledged: Condvar::new(),
    });
    let pointer = IDS.insert(abi, Arc::clone(&id));
    id.abi.store(pointer as usize, Ordering::Release);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_events_come_round() {
        let mut events = Events {
            reported: u32::MAX,
            completed: u32::MAX - 1,
        };
        assert!(events.are_pending());
        events.report();
        events.acknowledge();
        assert!(events.are_pending());
        events.acknowledge();
        assert!(!events.are_pending());
    }
}
