//! One device with its memory and its ledger.

use std::net::IpAddr;

use ferroce_admission::Bounds;
use ferroce_device::{
    AccessFlags, Attr, Buffer, CqId, DeviceState, Event, Hca, HcaConfig, Limits, Memory, MrInfo,
    MwId, MwType, Pairing, Path, PdId, Personality, QpAttr, QpCap, QpInit, QpModify, QpState,
    QpType, Secret, Sge, SrqId, Time, XrcObjects, XrcdId,
};
use ferroce_testing::sharing;
use ferroce_wire::{Qpn, Srqn};

use super::ledger::Ledger;
use crate::Cursor;

/// Bytes of each region.
pub(super) const REGION_BYTES: usize = 8192;
/// Bytes before and behind it that must not be written.
const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xa5;

/// What datagrams need.
pub(super) const QKEY: u32 = 0x0102_0304;

/// What a region is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Everything is allowed.
    Open,
    /// Only this side's own work requests may write.
    Local,
    /// Writing is not allowed.
    ReadOnly,
    /// In another protection domain.
    Foreign,
    /// No bytes behind it.
    Phantom,
}

impl Role {
    pub(super) const ALL: [Self; 5] = [
        Self::Open,
        Self::Local,
        Self::ReadOnly,
        Self::Foreign,
        Self::Phantom,
    ];

    fn access(self) -> AccessFlags {
        match self {
            Self::Open | Self::Foreign | Self::Phantom => AccessFlags::all(),
            Self::Local => AccessFlags::LOCAL_WRITE,
            Self::ReadOnly => AccessFlags::REMOTE_READ,
        }
    }
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) role: Role,
    pub(super) info: MrInfo,
    buffer: Option<Buffer>,
    /// Which bytes accepted work requests of this side may write.
    permitted: Vec<bool>,
}

impl Region {
    #[allow(unsafe_code, reason = "registers part of a buffer")]
    fn new(hca: &mut Hca, role: Role, pd: PdId) -> Self {
        let buffer = (role != Role::Phantom).then(|| Buffer::zeroed(REGION_BYTES + 2 * GUARD));
        let memory = match &buffer {
            Some(buffer) => {
                buffer.write(0, &[UNTOUCHED; REGION_BYTES + 2 * GUARD]);
                let base = (buffer.addr() + GUARD as u64) as *mut u8;
                // SAFETY: the bytes lie inside the buffer, which `Region` keeps at least as long
                // as the device is used, and which is only reached through raw pointers.
                unsafe { Memory::borrowed(base, REGION_BYTES) }
            }
            None => Memory::Phantom {
                addr: 0x7000_0000,
                len: 1 << 20,
            },
        };
        let info = hca
            .reg_mr(pd, memory, role.access())
            .expect("a new device has room");
        Self {
            role,
            info,
            buffer,
            permitted: vec![false; REGION_BYTES],
        }
    }

    fn permit(&mut self, sge: &Sge) {
        let Some(offset) = sge.addr.checked_sub(self.info.va) else {
            return;
        };
        let start = (offset as usize).min(REGION_BYTES);
        let end = start.saturating_add(sge.length as usize).min(REGION_BYTES);
        self.permitted[start..end].fill(true);
    }

    /// Panics if bytes changed that were not to be changed.
    fn audit(&self) {
        let Some(buffer) = &self.buffer else { return };
        let mut bytes = vec![0; buffer.len()];
        buffer.read(0, &mut bytes);
        for (at, byte) in bytes.iter().enumerate() {
            let inside = at.checked_sub(GUARD).filter(|at| *at < REGION_BYTES);
            let may_change = match (inside, self.role) {
                (None, _) => false,
                (Some(_), Role::Open | Role::Phantom) => true,
                (Some(at), Role::Local) => self.permitted[at],
                (Some(_), Role::ReadOnly | Role::Foreign) => false,
            };
            assert!(
                may_change || *byte == UNTOUCHED,
                "byte {at} of the {:?} region was written",
                self.role
            );
        }
    }
}

/// What a device is kept with: the only queue pair on it, and what surrounds that.
#[derive(Debug)]
pub(super) struct Books {
    init: QpInit,
    xrcd: XrcdId,
    pub(super) srq: Option<SrqId>,
    /// Its number.
    pub(super) srqn: Option<Srqn>,
    pub(super) qpn: Qpn,
    pub(super) regions: Vec<Region>,
    window: MwId,
    pub(super) ledger: Ledger,
}

pub(super) type Side = ferroce_testing::Side<Books>;

pub(super) fn new(index: u8, qp_type: QpType, input: &mut Cursor<'_>) -> Side {
    let seed = input.u8();
    let bounds = Bounds {
        peer_bytes: if seed.is_multiple_of(4) { 0 } else { 2 << 20 },
        ..Bounds::default()
    };
    let hca = Hca::new(HcaConfig {
        seed: seed.into(),
        slot: if input.one_in(2) { 0 } else { 0xff },
        secret: Some(Secret::new(input.one_in(2).into())),
        limits: Limits {
            max_qp: 16,
            ..Limits::MAX
        },
        window_bytes: input.pick(&[0, 4 << 10, 64 << 10, 512 << 10]),
        trace_timers: true,
        ..HcaConfig::default()
    });
    let second = DeviceState::new(Personality::default());
    let hca = match input.below(4) {
        0 => hca.with_second_link(Pairing::Ports, second),
        1 => hca.with_second_link(Pairing::Bond, second),
        _ => hca,
    };
    let mut hca = sharing(hca, bounds);
    let pd = hca.alloc_pd().expect("a new device has room");
    let other_pd = hca.alloc_pd().expect("a new device has room");
    let regions = Role::ALL
        .map(|role| {
            let pd = if role == Role::Foreign { other_pd } else { pd };
            Region::new(&mut hca, role, pd)
        })
        .into();
    let window = hca.alloc_mw(pd, MwType::Type2);
    let window = window.expect("a new device has room").id;
    let entries = input.pick(&[4096, 4096, 4096, 8, 1]);
    let send_cq = hca.create_cq(entries).expect("a legal size");
    let recv_cq = hca.create_cq(4096).expect("a legal size");
    let xrcd = hca.alloc_xrcd().expect("a new device has room");
    let srq = match qp_type {
        QpType::XrcRecv => {
            let objects = XrcObjects { xrcd, cq: recv_cq };
            Some(hca.create_xrc_srq(pd, objects, 64, 4))
        }
        QpType::XrcSend => None,
        _ => input.one_in(3).then(|| hca.create_srq(pd, 64, 4)),
    };
    let srq = srq.map(|srq| srq.expect("a legal size"));
    let srqn = srq.map(|srq| hca.srq_number(srq).expect("it exists"));
    let init = QpInit {
        qp_type,
        pd,
        send_cq,
        recv_cq,
        srq,
        cap: QpCap {
            max_send_wr: 32,
            max_recv_wr: 32,
            ..QpCap::default()
        },
        signal_all: input.one_in(4),
    };
    let qpn = create_qp(&mut hca, &init, xrcd);
    let books = Books {
        xrcd,
        init,
        srq,
        srqn,
        qpn,
        regions,
        window,
        ledger: Ledger::default(),
    };
    Side::with(1 + index, hca, books)
}

/// What the fuzzer does with a side.
pub(super) trait End {
    /// The present key of its memory window, bound or not.
    fn window_key(&self) -> u32;
    fn qp_type(&self) -> QpType;
    fn signals_all(&self) -> bool;
    fn cqs(&self) -> [CqId; 2];
    /// A new queue pair in place of the old one.
    fn replace_qp(&mut self);
    /// From any state to RTS.
    fn go_to_rts(&mut self, dest: IpAddr, attr: &QpAttr);
    /// Returns whether the device accepted it.
    fn modify(&mut self, change: &QpModify, path: Option<Path>) -> bool;
    /// An accepted work request may write there.
    fn permit(&mut self, sges: &[Sge]);
    fn poll_completions(&mut self);
    /// What must hold after every operation, once everything is sent that can be.
    fn check(&mut self, now: Time);
    fn audit_memory(&self);
}

impl End for Side {
    fn window_key(&self) -> u32 {
        self.hca.query_mw(self.own.window).expect("it exists").rkey
    }

    fn qp_type(&self) -> QpType {
        self.own.init.qp_type
    }

    fn signals_all(&self) -> bool {
        self.own.init.signal_all
    }

    fn cqs(&self) -> [CqId; 2] {
        [self.own.init.send_cq, self.own.init.recv_cq]
    }

    fn replace_qp(&mut self) {
        self.poll_completions();
        self.hca.destroy_qp(self.own.qpn).expect("it exists");
        assert!(self.hca.destroy_qp(self.own.qpn).is_err(), "twice");
        self.own.ledger.begin_life();
        self.own.qpn = create_qp(&mut self.hca, &self.own.init, self.own.xrcd);
    }

    fn go_to_rts(&mut self, dest: IpAddr, attr: &QpAttr) {
        use QpState::{Init, Reset, Rtr, Rts};
        let path = Path {
            dest,
            traffic_class: 2,
            sl: 0,
            port: 1,
        };
        self.modify(&QpModify::to(Reset, Attr::empty(), *attr), None);
        for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
            let change = QpModify::step(self.qp_type(), from, to, *attr);
            let path = change.mask.contains(Attr::AV).then_some(path);
            assert!(self.modify(&change, path), "{change:?} of {attr:?}");
        }
    }

    fn modify(&mut self, change: &QpModify, path: Option<Path>) -> bool {
        self.poll_completions();
        let before = self.hca.query_qp(self.own.qpn).expect("it exists");
        match self.hca.modify_qp(self.own.qpn, change, path) {
            Ok(()) => {
                if change.mask.contains(Attr::STATE) {
                    match (before.0, change.state) {
                        (_, QpState::Reset) => self.own.ledger.begin_life(),
                        (QpState::Sqe, QpState::Rts) => self.own.ledger.recover(),
                        _ => {}
                    }
                }
                true
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(
                    self.hca.query_qp(self.own.qpn).expect("it exists"),
                    before,
                    "an error changes nothing"
                );
                false
            }
        }
    }

    fn permit(&mut self, sges: &[Sge]) {
        for sge in sges {
            for region in &mut self.own.regions {
                if region.info.key.lkey() == sge.lkey {
                    region.permit(sge);
                }
            }
        }
    }

    fn poll_completions(&mut self) {
        for (cq, is_send_queue) in self.cqs().into_iter().zip([true, false]) {
            while let Some(wc) = self.hca.poll_completion(cq).expect("it exists") {
                self.own.ledger.completed(&wc, is_send_queue);
            }
        }
        // The world has polled those until now.
        let polled = std::mem::take(&mut self.events).into_iter();
        for event in polled.chain(std::iter::from_fn(|| self.hca.poll_event())) {
            if let Event::CqOverrun(_) = event {
                self.own.ledger.overrun = true;
            }
        }
    }

    fn check(&mut self, now: Time) {
        let blocked = self.blocked;
        self.hca.audit();
        assert!(blocked || !self.hca.wants_transmit(), "not drained");
        // A CNP may have slowed it down: then its turn comes by the clock.
        let is_limited = self.hca.rate_limit(self.own.qpn, now).is_some();
        let qp = self.hca.qp(self.own.qpn).expect("it exists");
        let own_recvs = self.own.srq.is_none().then(|| qp.recv_queue_len());
        self.own.ledger.balance(qp.send_queue_len(), own_recvs);
        match qp.state() {
            QpState::Rts | QpState::Sqd if qp.in_flight() > 0 => {
                let waits = self.hca.policy().ack_timeout(qp.timeouts()).is_some();
                // Changed timeouts start when the host can send again.
                assert!(
                    !waits
                        || blocked
                        || (qp.poll_timeout().is_some() && self.hca.poll_timeout().is_some()),
                    "hangs with {} packets in flight and no timer",
                    qp.in_flight()
                );
            }
            QpState::Rts => {
                let waits = blocked || is_limited && self.hca.poll_timeout().is_some();
                assert!(
                    qp.send_queue_len() == 0 || waits,
                    "hangs with nothing in flight and work on its queue"
                );
            }
            QpState::Sqd => {}
            state => assert!(
                qp.in_flight() == 0 && qp.send_queue_len() == 0 && qp.poll_timeout().is_none(),
                "still at work in {state:?}"
            ),
        }
    }

    fn audit_memory(&self) {
        for region in &self.own.regions {
            region.audit();
        }
    }
}

fn create_qp(hca: &mut Hca, init: &QpInit, xrcd: XrcdId) -> Qpn {
    match init.qp_type {
        QpType::XrcRecv => hca.create_xrc_recv_qp(xrcd),
        _ => hca.create_qp(init),
    }
    .expect("there is room")
}
