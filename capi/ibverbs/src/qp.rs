//! Queue pairs.

use std::cell::UnsafeCell;
use std::collections::hash_map::Entry;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ferroce_abi::border;
use ferroce_abi::pointer::{change, check, read};
use ferroce_device::{
    Attr, PdId, QpCap, QpInit, QpState, QpType, SendOp, SendTo, SendWr, VerbsError,
};
use ferroce_fault::Target;
use ferroce_wire::{Qpn, Srqn};
use libc::pthread_mutex_t;

use crate::abi::{
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND,
    IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES, IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY,
    IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS, IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG, ibv_ah_attr,
    ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_send_wr,
};
use crate::ah::Sender;
use crate::arena::{Arena, Object};
use crate::context::ContextRef;
use crate::direct::Direct;
use crate::error::{Error, pointer, status};
use crate::events::{Reported, wait_acknowledged};
use crate::routes::{AsyncRoute, write};
use crate::{ah, convert, cq, pd, srq};

pub(crate) struct Qp {
    pub(crate) context: ContextRef,
    pub(crate) qpn: Qpn,
    pub(crate) qp_type: QpType,
    /// That of XRC_RECV is an XRC domain.
    pub(crate) pd: Option<PdId>,
    pub(crate) cap: QpCap,
    init: InitAttr,
    /// The address vector as the program gave it.
    ah_attr: Mutex<ibv_ah_attr>,
    /// Asynchronous events that the program has received.
    pub(crate) reported: Reported,
    /// Work requests that `ibv_wr_*` puts together.
    pub(crate) builder: Builder,
    /// What `mlx5dv_qp_ex_from_ibv_qp_ex` has returned.
    pub(crate) direct: OnceLock<Direct>,
}

impl Qp {
    /// The attributes of a change without those of the half that an XRC queue pair lacks: programs
    /// name all that RC has, and kernels overlook these.
    fn applicable(&self, mask: c_int) -> c_int {
        let lacking = match self.qp_type {
            QpType::XrcSend => Attr::MAX_DEST_RD_ATOMIC | Attr::MIN_RNR_TIMER,
            QpType::XrcRecv => Attr::MAX_QP_RD_ATOMIC | Attr::RETRY_CNT | Attr::RNR_RETRY,
            _ => Attr::empty(),
        };
        mask & !(lacking.bits() as c_int)
    }

    /// Where a send request goes that does not say so.
    pub(crate) fn peer(&self) -> SendTo {
        match self.qp_type {
            QpType::XrcSend => SendTo::Srq(Srqn::new(0)),
            _ => SendTo::Peer,
        }
    }

    /// Where a send request of a chain goes.
    pub(crate) fn destination(&self, op: &SendOp, wr: &ibv_send_wr) -> Result<SendTo, Error> {
        match self.qp_type {
            QpType::Ud if matches!(op, SendOp::Send { .. }) => {
                // SAFETY: of a datagram this is the member that is set.
                let to = unsafe { wr.wr.ud };
                ah::datagram(self.sender(), to.ah, to.remote_qpn, to.remote_qkey)
            }
            QpType::XrcSend => convert::srq(wr.remote_srqn),
            _ => Ok(self.peer()),
        }
    }

    /// Whose address handles its requests may have.
    pub(crate) fn sender(&self) -> Sender<'_> {
        Sender {
            context: &self.context,
            pd: self.pd,
        }
    }

    fn ah_attr(&self) -> MutexGuard<'_, ibv_ah_attr> {
        self.ah_attr.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work requests between `ibv_wr_start` and `ibv_wr_complete`.
pub(crate) struct Builder {
    /// Held by the thread between the two calls.
    pub(crate) mutex: UnsafeCell<pthread_mutex_t>,
    pub(crate) batch: UnsafeCell<Batch>,
}

#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) requests: Vec<SendWr>,
    pub(crate) refused: Option<Error>,
}

// SAFETY: `batch` is accessed only while `mutex` is held.
unsafe impl Send for Builder {}
// SAFETY: as above.
unsafe impl Sync for Builder {}

impl Default for Builder {
    fn default() -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            batch: UnsafeCell::default(),
        }
    }
}

/// What `ibv_query_qp` says of the creation.
struct InitAttr(ibv_qp_init_attr);

// SAFETY: its pointers are given back to the program and never followed.
unsafe impl Send for InitAttr {}
// SAFETY: as above.
unsafe impl Sync for InitAttr {}

static QPS: Arena<ibv_qp_ex, Qp> = Arena::new("queue pair");

pub(crate) fn find(qp: *const ibv_qp) -> Result<&'static Object<ibv_qp_ex, Qp>, Error> {
    QPS.find(qp.cast())
}

/// [`find`] for the data path.
#[inline]
pub(crate) fn get(qp: *const ibv_qp) -> Result<&'static Object<ibv_qp_ex, Qp>, Error> {
    QPS.get(qp.cast())
}

/// Makes a queue pair and writes the capacities it got back into `init` (ibv_create_qp(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: null or a structure of the program that nothing else accesses during the call.
    let init = unsafe { change("qp_init_attr", init) }.map_err(Error::from);
    pointer(
        "ibv_create_qp",
        init.and_then(|init| create(pd, init, Wanted::default(), ibv_qp_ex::of)),
    )
}

/// An end of the dynamically connected transport.
#[derive(Clone, Copy)]
pub(crate) enum DcEnd {
    Initiator,
    Target { key: u64 },
}

/// What direct verbs ask for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// For queue pairs of the dynamically connected transport, which all have the type `IBV_QPT_DRIVER`.
    pub(crate) dc: Option<DcEnd>,
    /// Packets may come in any order.
    pub(crate) any_order: bool,
}

/// Whether all queue pairs of the process are to have packets come in any order, by the variable of the
/// cards' own library.
fn relaxes_order() -> bool {
    static RELAXES: OnceLock<bool> = OnceLock::new();
    let is_set = || std::env::var_os("MLX5_RELAXED_PACKET_ORDERING_ON").is_some_and(|it| it == "1");
    *RELAXES.get_or_init(is_set)
}

/// `extend` adds the `ibv_wr_*` functions of the queue pair, if it is to have some.
pub(crate) fn create(
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    Wanted { dc, any_order }: Wanted,
    extend: impl FnOnce(ibv_qp) -> ibv_qp_ex,
) -> Result<*mut ibv_qp, Error> {
    let domain = pd::find(pd)?.own();
    let qp_type = match (dc, init.qp_type) {
        (Some(DcEnd::Initiator), _) => QpType::Dci,
        (Some(DcEnd::Target { .. }), _) => QpType::Dct,
        (None, IBV_QPT_RC) => QpType::Rc,
        (None, IBV_QPT_UC) => QpType::Uc,
        (None, IBV_QPT_UD) => QpType::Ud,
        (None, IBV_QPT_XRC_SEND) => QpType::XrcSend,
        (None, IBV_QPT_XRC_RECV) => return Err(VerbsError::NeedsXrcDomain.into()),
        _ => return Err(Error::Unsupported("the type of queue pair")),
    };
    let own = Arc::clone(&domain.context);
    let srq = match init.srq.is_null() {
        true => None,
        false => Some(srq::find_in(init.srq, &own)?),
    };
    // The other one is not looked at for a queue pair that only sends, or only receives.
    let (send_cq, recv_cq) = match qp_type {
        QpType::XrcSend | QpType::Dci => (init.send_cq, init.send_cq),
        QpType::Dct => (init.recv_cq, init.recv_cq),
        _ => (init.send_cq, init.recv_cq),
    };
    let device = QpInit {
        qp_type,
        pd: domain.id,
        send_cq: cq::find_in(send_cq, &own)?,
        recv_cq: cq::find_in(recv_cq, &own)?,
        srq,
        cap: convert::cap(&init.cap),
        signal_all: init.sq_sig_all != 0,
    };
    own.adapter.meet(Target::CreateQp, None)?;
    let live = own.adapter.live()?;
    live.join()?;
    let can_relax = live.with(|hca| hca.can_route_adaptively(qp_type));
    if any_order && !can_relax {
        return Err(Error::Unsupported("MLX5DV_QP_CREATE_OOO_DP"));
    }
    let mut made = live.with(|hca| {
        let qpn = match dc {
            Some(DcEnd::Target { key }) => hca.create_dct(&device, key)?,
            _ => hca.create_qp(&device)?,
        };
        if can_relax && (any_order || relaxes_order()) {
            hca.route_adaptively(qpn)?;
        }
        let granted = hca.qp(qpn).map(|qp| qp.config().cap);
        let cap = granted.unwrap_or(device.cap);
        Ok::<_, VerbsError>(Made { qpn, qp_type, cap })
    })?;
    if srq.is_some() {
        (made.cap.max_recv_wr, made.cap.max_recv_sge) = (0, 0);
    }
    init.cap = convert::abi_cap(&made.cap);
    // SAFETY: an object whose memory is never freed.
    let context = unsafe { (*pd).context };
    let pd = Some((pd, domain.id));
    Ok(insert(own, context, pd, made, init, extend))
}

/// A queue pair that the device has made.
pub(crate) struct Made {
    pub(crate) qpn: Qpn,
    pub(crate) qp_type: QpType,
    pub(crate) cap: QpCap,
}

/// The queue pair as the program sees it.
pub(crate) fn insert(
    own: ContextRef,
    context: *mut ibv_context,
    pd: Option<(*mut ibv_pd, PdId)>,
    Made { qpn, qp_type, cap }: Made,
    init: &ibv_qp_init_attr,
    extend: impl FnOnce(ibv_qp) -> ibv_qp_ex,
) -> *mut ibv_qp {
    let base = ibv_qp {
        context,
        qp_context: init.qp_context,
        pd: pd.map_or(null_mut(), |(pd, _)| pd),
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: qpn.value(),
        qp_num: qpn.value(),
        state: 0,
        qp_type: init.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let reported = Reported::default();
    let route = AsyncRoute {
        queue: Arc::clone(&own.events),
        element: 0,
        reported: Arc::clone(&reported),
    };
    let routes = Arc::clone(&own.adapter.routes);
    let qp = Qp {
        context: own,
        qpn,
        qp_type,
        pd: pd.map(|(_, id)| id),
        cap,
        init: InitAttr(*init),
        ah_attr: Mutex::default(),
        reported,
        builder: Builder::default(),
        direct: OnceLock::new(),
    };
    let pointer = QPS.insert(extend(base), qp);
    let element = pointer as u64;
    let route = AsyncRoute { element, ..route };
    write(&routes.qps).entry(qpn).or_default().push(route);
    pointer.cast()
}

/// Changes a queue pair: all that is asked for, or on error nothing (ibv_modify_qp(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    let result = find(qp).and_then(|object| {
        let own = object.own();
        own.context.adapter.meet(Target::ModifyQp, Some(own.qpn))?;
        let device = own.context.adapter.live()?;
        // SAFETY: null or a structure of the program, valid during the call.
        let attr = unsafe { read("attr", attr)? };
        let (change, path) = convert::modify(attr, own.applicable(attr_mask), device)?;
        let ends = matches!(change.state, QpState::Err | QpState::Reset);
        if ends && change.mask.contains(Attr::STATE) {
            device.catch_up();
        }
        let state = device.with(|hca| {
            hca.modify_qp(own.qpn, &change, path)?;
            hca.query_qp(own.qpn).map(|(state, ..)| state)
        })?;
        if path.is_some() {
            *own.ah_attr() = attr.ah_attr;
        } else if state == QpState::Reset {
            cq::forget_late(&own.context, own.qpn);
            *own.ah_attr() = ibv_ah_attr::default();
        }
        // SAFETY: a live object; programs read the field.
        unsafe { (*qp).state = state as c_int };
        Ok(())
    });
    status("ibv_modify_qp", result)
}

/// Whether a message that comes is written in order (ibv_query_qp_data_in_order(3)): packets are, and what is
/// in them, as far as the processor does not change the order of writes.
#[border(value)]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    _op: c_int,
    flags: u32,
) -> c_int {
    const KNOWN: u32 =
        IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS | IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY;
    let writes_in_order = cfg!(target_arch = "x86_64") && flags & !KNOWN == 0;
    let in_order = find(qp).and_then(|object| {
        let own = object.own();
        let device = own.context.adapter.live()?;
        Ok(device.with(|hca| hca.lands_in_order(own.qpn))?)
    });
    match in_order.is_ok_and(|in_order| in_order && writes_in_order) {
        true if flags & IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS != 0 => {
            IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG | IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES
        }
        true => 1,
        false => 0,
    }
}

/// Attributes of a queue pair and of its creation (ibv_query_qp(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let result = find(qp).and_then(|object| {
        let own = object.own();
        let (attr, init) = (check("attr", attr)?, check("init_attr", init)?);
        let device = own.context.adapter.live()?;
        let (state, known, draining) = device.with(|hca| {
            let draining = hca.qp(own.qpn).is_some_and(|qp| qp.is_draining());
            let (state, known, _) = hca.query_qp(own.qpn)?;
            Ok::<_, VerbsError>((state, known, draining))
        })?;
        // SAFETY: not null, and structures that may be written to; the memory of an object is never
        // freed.
        unsafe {
            attr.write(ibv_qp_attr {
                sq_draining: draining.into(),
                ..convert::qp_attr(state, &known, *own.ah_attr(), &own.cap)
            });
            init.write(own.init.0);
            (*qp).state = state as c_int;
        }
        Ok(())
    });
    status("ibv_query_qp", result)
}

/// Destroys a queue pair after its events were acknowledged (ibv_create_qp(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    status("ibv_destroy_qp", destroy(qp, true))
}

fn destroy(pointer: *mut ibv_qp, wait: bool) -> Result<(), Error> {
    let qp = find(pointer)?.own();
    let adapter = &qp.context.adapter;
    if let Ok(device) = adapter.live() {
        device.catch_up();
    }
    let is_live = adapter.end(|hca| hca.destroy_qp(qp.qpn))?;
    if is_live {
        cq::forget_late(&qp.context, qp.qpn);
        forget_route(qp, pointer as u64);
    }
    if is_live && wait {
        // SAFETY: a live object with an initialised mutex and condition.
        unsafe {
            wait_acknowledged(
                &raw mut (*pointer).mutex,
                &raw mut (*pointer).cond,
                &raw const (*pointer).events_completed,
                &qp.reported,
            );
        }
    }
    QPS.remove(pointer.cast());
    Ok(())
}

/// Lets no more events of a queue pair come to one of its handles, nor those that wait.
fn forget_route(qp: &Qp, element: u64) {
    let mut all = write(&qp.context.adapter.routes.qps);
    if let Entry::Occupied(mut routes) = all.entry(qp.qpn) {
        routes.get_mut().retain(|route| route.element != element);
        if routes.get().is_empty() {
            routes.remove();
        }
    }
    qp.context.events.withdraw(|event| event.element == element);
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for qp in QPS.all() {
        if Arc::ptr_eq(&qp.own().context, context) {
            // Nothing more can be done about one that stays.
            let _ = destroy(qp.abi().cast(), false);
        }
    }
}
