//! A device at the end of a network, with operations for tests.

use std::collections::VecDeque;
use std::net::IpAddr;

use ferroce_admission::{Bounds, Shares};
use ferroce_device::{
    AccessFlags, Attr, Buffer, Completion, CqId, Event, Hca, HcaConfig, HostProfile, Memory,
    Method, MrInfo, Mtu, MwBind, Path, PdId, Personality, QpAttr, QpInit, QpModify, QpState,
    QpType, Rate, Received, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge, Sges, SrqId, SrqModify,
    Time, TimerExpiry,
};
use ferroce_prm::{Field, Image, roce_accl as reg};
use ferroce_wire::Qpn;

use crate::direct::ready;
use crate::flight::Flight;

/// A device whose timeouts are short, as the wire is, and exact.
pub fn config() -> HcaConfig {
    HcaConfig {
        personality: Personality {
            min_ack_timeout: 4,
            initial_exponent: Some(4),
            quantiser: false,
            ..Personality::default()
        },
        trace_timers: true,
        ..HcaConfig::default()
    }
}

/// The same as a card with a port of `mbps` Mb/s, which no receive buffer limits.
pub fn card(mbps: u32) -> HcaConfig {
    HcaConfig {
        host: HostProfile::card(Rate::from_mbps(mbps)).into(),
        ..config()
    }
}

/// A device as its host makes it: on sockets, it shares what peers take among its queue pairs.
pub fn device(config: HcaConfig) -> Hca {
    let is_card = config.host.port_rate.is_some();
    let hca = Hca::new(config);
    match is_card {
        true => hca,
        false => sharing(hca, Bounds::default()),
    }
}

/// Has a device share what peers take among its queue pairs.
pub fn sharing(hca: Hca, bounds: Bounds) -> Hca {
    hca.with_admission(Box::new(Shares::new(bounds, None)))
}

/// Attributes of a queue pair that allow everything.
pub fn attr() -> QpAttr {
    QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu1024,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: 10,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

/// One device, what came out of it, and what a test keeps beside it.
#[derive(Debug)]
pub struct Side<T = ()> {
    /// The device.
    pub hca: Hca,
    /// Its address.
    pub address: IpAddr,
    /// That of its second port, if it has one.
    pub second_address: Option<IpAddr>,
    /// A protection domain.
    pub pd: PdId,
    /// A completion queue, which is polled.
    pub cq: CqId,
    cqs: Vec<CqId>,
    next_va: u64,
    /// In the order in which they were polled.
    pub completions: Vec<Completion>,
    /// In the order in which they were polled.
    pub events: Vec<Event>,
    /// Packets and payload bytes that left the device.
    pub sent: (u64, u64),
    /// Those among them that the device's link damaged.
    pub damaged: u64,
    /// Packets given to the device.
    pub given: u64,
    /// Packets that came to it and did not survive the check of their ICRC.
    pub refused: u64,
    /// Nothing reaches this side any more.
    pub deaf: bool,
    /// Nothing that is from this side arrives any more.
    pub mute: bool,
    /// Its host cannot send: it takes no packets from the device.
    pub blocked: bool,
    /// What the test keeps.
    pub own: T,
    /// Of a packet to a group, for those that have not been sent theirs.
    pub(crate) copies: VecDeque<Flight>,
    /// Where the packet before went, if it left at the same moment, and its length.
    pub(crate) batch: Option<(Path, u16)>,
    /// When it wanted attention last, and how often at that moment.
    pub(crate) calls: (Time, usize),
}

impl Side {
    pub(crate) fn new(number: u8, config: HcaConfig) -> Self {
        Self::on(number, device(config))
    }

    /// A side whose device there is.
    pub fn on(number: u8, hca: Hca) -> Self {
        Self::with(number, hca, ())
    }
}

impl<T> Side<T> {
    /// Has queue pairs that are created from now on repeat selectively, or not, by ROCE_ACCL.
    pub fn repeat_selectively(&mut self, on: bool) {
        let select = &reg::SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT;
        self.write_flag(select, &reg::SELECTIVE_REPEAT_FORCED_EN, on);
    }

    /// Queue pairs that are created from now on have packets that take many paths, or not.
    pub fn route_adaptively(&mut self, on: bool) {
        let select = &reg::ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT;
        self.write_flag(select, &reg::ADAPTIVE_ROUTING_FORCED_EN, on);
    }

    /// Silences slow queue pairs down, or not.
    pub fn restart_after_silence(&mut self, on: bool) {
        let select = &reg::ROCE_SLOW_RESTART_IDLE_FIELD_SELECT;
        self.write_flag(select, &reg::ROCE_SLOW_RESTART_IDLE_EN, on);
    }

    fn write_flag(&mut self, select: &Field, field: &Field, on: bool) {
        let mut image = Image::new(&reg::ROCE_ACCL, vec![0; reg::ROCE_ACCL.size()]).unwrap();
        for (field, value) in [(select, true), (field, on)] {
            image.set(field, value.into()).unwrap();
        }
        let id = reg::ROCE_ACCL.id();
        let mut bytes = image.into_inner();
        let written = self.hca.access_register(id, Method::Write, &mut bytes);
        written.unwrap();
    }

    /// A side whose device there is, and what the test keeps beside it.
    pub fn with(number: u8, mut hca: Hca, own: T) -> Self {
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(1 << 16).unwrap();
        Self {
            address: [10, 0, 0, number].into(),
            second_address: (hca.ports() == 2).then(|| [10, 1, 0, number].into()),
            pd,
            cq,
            cqs: vec![cq],
            next_va: 1 << 32,
            completions: Vec::new(),
            events: Vec::new(),
            sent: (0, 0),
            damaged: 0,
            given: 0,
            refused: 0,
            deaf: false,
            mute: false,
            blocked: false,
            own,
            hca,
            copies: VecDeque::new(),
            batch: None,
            calls: (Time::ZERO, 0),
        }
    }

    /// What packets by this port have for a source.
    pub fn address_at(&self, port: u8) -> IpAddr {
        let second = self.second_address.filter(|_| port == 2);
        second.unwrap_or(self.address)
    }

    pub(crate) fn take(&mut self, now: Time, received: &Received<'_>) {
        self.given += 1;
        self.hca.handle_packet(now, received);
    }

    /// What an RC queue pair is made of.
    pub fn init(&self) -> QpInit {
        QpInit {
            signal_all: false,
            ..QpInit::new(QpType::Rc, self.pd, self.cq)
        }
    }

    /// An RC queue pair in RESET.
    pub fn create_qp(&mut self) -> Qpn {
        self.create_qp_of(QpType::Rc)
    }

    /// A queue pair in RESET.
    pub fn create_qp_of(&mut self, qp_type: QpType) -> Qpn {
        let init = QpInit {
            qp_type,
            ..self.init()
        };
        self.hca.create_qp(&init).unwrap()
    }

    /// A UD queue pair in RTS.
    pub fn create_ud(&mut self, qkey: u32) -> Qpn {
        let qpn = self.create_qp_of(QpType::Ud);
        self.ready(qpn, QpType::Ud, QpAttr { qkey, ..attr() }, None);
        qpn
    }

    /// From RESET to RTS.
    pub fn ready(&mut self, qpn: Qpn, qp_type: QpType, attr: QpAttr, path: Option<Path>) {
        ready(&mut self.hca, qpn, qp_type, attr, path);
    }

    /// An RC queue pair that takes its receives from there.
    pub fn create_qp_with_srq(&mut self, srq: SrqId) -> Qpn {
        let init = QpInit {
            srq: Some(srq),
            ..self.init()
        };
        self.hca.create_qp(&init).unwrap()
    }

    /// From RESET to RTS.
    pub fn connect(&mut self, qpn: Qpn, dest: IpAddr, attr: QpAttr) {
        let path = Path {
            dest,
            traffic_class: 2,
            sl: 0,
            port: 1,
        };
        let qp_type = self.hca.qp(qpn).unwrap().config().qp_type;
        self.ready(qpn, qp_type, attr, Some(path));
    }

    /// Moves a queue pair to a state that needs no attributes.
    pub fn move_to(&mut self, qpn: Qpn, state: QpState) {
        let change = QpModify::to(state, Attr::empty(), QpAttr::default());
        self.hca.modify_qp(qpn, &change, None).unwrap();
    }

    /// The state of a queue pair.
    pub fn state(&self, qpn: Qpn) -> QpState {
        self.hca.query_qp(qpn).unwrap().0
    }

    /// Registers `len` zeros.
    pub fn register(&mut self, len: usize, access: AccessFlags) -> Region {
        let buffer = Buffer::zeroed(len);
        let memory = Memory::Buffer(buffer.clone());
        // Addresses that are the same in every run.
        let va = self.next_va;
        self.next_va += (len as u64).next_multiple_of(4096) + 4096;
        let info = self.hca.reg_mr_iova(self.pd, memory, va, access);
        let info = info.unwrap();
        Region { info, buffer }
    }

    /// Posts a receive into all of a region.
    pub fn recv(&mut self, qpn: Qpn, wr_id: u64, region: &Region) {
        let wr = recv_wr(wr_id, region);
        self.hca.post_recv(qpn, wr).unwrap();
    }

    /// Polls a completion queue besides the first.
    pub fn watch(&mut self, cq: CqId) {
        self.cqs.push(cq);
    }

    /// Leaves the completion queues alone.
    pub fn watch_nothing(&mut self) {
        self.cqs.clear();
    }

    /// Polls completions and events.
    pub fn collect(&mut self, mut trace: Option<&mut Vec<String>>, now: Time) {
        for cq in &self.cqs {
            while let Some(completion) = self.hca.poll_completion(*cq).unwrap() {
                if let Some(trace) = &mut trace {
                    trace.push(format!("{now:?} {completion:?}"));
                }
                self.completions.push(completion);
            }
        }
        while let Some(event) = self.hca.poll_event() {
            if let Some(trace) = &mut trace {
                trace.push(format!("{now:?} {event:?}"));
            }
            self.events.push(event);
        }
    }

    /// The waits of the timers that ran out, and whether each was the last one.
    pub fn expiries(&self) -> Vec<TimerExpiry> {
        let expiry = |event: &Event| match event {
            Event::TimerExpired { expiry, .. } => Some(*expiry),
            _ => None,
        };
        self.events.iter().filter_map(expiry).collect()
    }
}

/// Registered memory.
#[derive(Clone, Debug)]
pub struct Region {
    /// What the device says of it.
    pub info: MrInfo,
    /// Its bytes.
    pub buffer: Buffer,
}

impl Region {
    /// A part of it.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: self.info.va + offset,
            length,
            lkey: self.info.key.lkey(),
        }
    }

    /// A bind of a window to all of it.
    pub fn bind(&self, rkey: u32, access: AccessFlags) -> MwBind {
        MwBind {
            rkey,
            lkey: self.info.key.lkey(),
            va: self.info.va,
            length: self.info.len,
            access,
            zero_based: false,
        }
    }

    /// All of it.
    pub fn whole(&self) -> Sge {
        self.sge(0, self.info.len as u32)
    }

    /// Fills it with noise.
    pub fn fill(&self, seed: u64) {
        let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bytes: Vec<u8> = (0..self.buffer.len())
            .map(|_| {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                word as u8
            })
            .collect();
        self.buffer.write(0, &bytes);
    }

    /// What is in it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.buffer.len()];
        self.buffer.read(0, &mut bytes);
        bytes
    }

    /// A WRITE to its start.
    pub fn write(&self) -> SendOp {
        SendOp::Write {
            va: self.info.va,
            rkey: self.info.key.rkey(),
            imm: None,
        }
    }

    /// A READ from its start.
    pub fn read(&self) -> SendOp {
        SendOp::Read {
            va: self.info.va,
            rkey: self.info.key.rkey(),
        }
    }
}

/// A receive into all of a region.
pub fn recv_wr(wr_id: u64, region: &Region) -> RecvWr {
    RecvWr {
        wr_id,
        sges: Sges::from_buf([region.whole()]),
    }
}

/// A work request without memory.
pub fn local(wr_id: u64, flags: SendFlags, op: SendOp) -> SendWr {
    SendWr {
        wr_id,
        op,
        flags,
        sges: Sges::new(),
        inline: None,
        to: SendTo::Peer,
    }
}

/// Sets the limit of a shared receive queue.
pub fn srq_limit(limit: u32) -> SrqModify {
    SrqModify {
        limit: Some(limit),
        ..SrqModify::default()
    }
}

/// A SEND.
pub const SEND: SendOp = SendOp::Send { imm: None };
