//! Where the device's events go.

use std::collections::HashMap;
use std::ffi::c_int;
use std::hash::Hash;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use ferroce_device::cm::CmEvent;
use ferroce_device::{CqId, Event, Hca, QpEvent, SrqId};
use ferroce_fault::{Effect, Occasion, Target};
use ferroce_wire::Qpn;

use crate::error::report;
use crate::events::{Async, AsyncQueue, CompQueue, Reported};
use crate::faults;

/// Takes the events of a device's connection manager. It is called while the device is locked, by any
/// thread that drives it, and must not call the device.
pub type CmSink = Box<dyn Fn(CmEvent) + Send + Sync>;

/// Learns that the device was removed, under the same conditions.
pub type RemovalSink = Box<dyn Fn() + Send + Sync>;

/// Events of the device and its port that wait for a program; of more the oldest go.
const UNREAD_MAX: usize = 1024;

/// The recipients of a device's events.
#[derive(Default)]
pub(crate) struct Routes {
    /// The device's name.
    pub(crate) device: String,
    pub(crate) completions: RwLock<HashMap<CqId, Arc<CompQueue>>>,
    pub(crate) cqs: RwLock<HashMap<CqId, AsyncRoute>>,
    /// One for each handle: an XRC queue pair can be open several times.
    pub(crate) qps: RwLock<HashMap<Qpn, Vec<AsyncRoute>>>,
    pub(crate) srqs: RwLock<HashMap<SrqId, AsyncRoute>>,
    /// The user of the connection manager.
    pub(crate) cm: OnceLock<CmSink>,
    /// Learns that the device was removed.
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
    /// How many of its events the program has received.
    pub(crate) reported: Reported,
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
    pub(crate) fn deliver(&self, hca: &mut Hca, event: Event) {
        match self.fault(&event) {
            Some(Effect::Never) => {}
            Some(Effect::Twice) => {
                self.pass_on(hca, event);
                self.pass_on(hca, event);
            }
            Some(Effect::Port(port)) => self.pass_on(hca, naming(event, port)),
            _ => self.pass_on(hca, event),
        }
    }

    /// What a fault rule has happen to an event.
    fn fault(&self, event: &Event) -> Option<Effect> {
        let (target, qpn) = match event {
            Event::CqOverrun(_) => (Target::CqErr, None),
            Event::QpFatal(qpn) => (Target::QpFatal, Some(qpn)),
            Event::Qp(qpn, event) => (target_of(*event)?, Some(qpn)),
            Event::SrqLimit(_) => (Target::SrqLimitReached, None),
            Event::DeviceFatal => (Target::DeviceFatal, None),
            Event::PortActive { .. } => (Target::PortActive, None),
            Event::PortError { .. } => (Target::PortErr, None),
            Event::GidChange { .. } => (Target::GidChange, None),
            _ => return None,
        };
        let occasion = Occasion {
            qp: qpn.map(|qpn| qpn.value()),
            ..Occasion::on(target, &self.device)
        };
        faults::is_wanted(target)
            .then(|| faults::meet(occasion))
            .flatten()
    }

    fn pass_on(&self, hca: &mut Hca, event: Event) {
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
            Event::PortActive { port } => self.broadcast(9, port.into()),
            Event::PortError { port } => self.broadcast(10, port.into()),
            Event::GidChange { port } => self.broadcast(18, port.into()),
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
        // Without a sink there are no connections.
        while let Some(event) = hca.poll_cm_event() {
            if let Some(sink) = self.cm.get() {
                sink(event);
            }
        }
    }

    /// An event of the whole device or of a port.
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

/// An event of a port with another port's number.
fn naming(event: Event, port: u8) -> Event {
    match event {
        Event::PortActive { .. } => Event::PortActive { port },
        Event::PortError { .. } => Event::PortError { port },
        Event::GidChange { .. } => Event::GidChange { port },
        other => other,
    }
}

/// What rules call it.
fn target_of(event: QpEvent) -> Option<Target> {
    Some(match event {
        QpEvent::RequestError => Target::QpReqErr,
        QpEvent::AccessError => Target::QpAccessErr,
        QpEvent::CommunicationEstablished => Target::CommEst,
        QpEvent::SendQueueDrained => Target::SqDrained,
        QpEvent::LastWqeReached => Target::QpLastWqeReached,
        _ => return None,
    })
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

fn push<K: Hash + Eq>(map: &RwLock<HashMap<K, AsyncRoute>>, key: &K, kind: c_int) {
    if let Some(route) = read(map).get(key) {
        route.push(kind);
    }
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
