//! Memory of devices whose queue pairs have carried traffic and rest.

use ferroce_hca::{
    AccessFlags, Attr, CqId, Data, Hca, HcaConfig, Memory, MrInfo, Mtu, Path, QpAttr, QpInit,
    QpModify, QpType, Received, RecvWr, SendOp, SendWr, Sge, Sges, Span, Time, WcStatus,
};
use ferroce_wire::Qpn;

/// What each queue pair carries by each operation, in each direction.
const BYTES: u32 = 4 << 20;
const MESSAGE: u32 = 64 << 10;
const OUTSTANDING: u32 = 16;
const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// Bytes that the heap and the devices themselves take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// A device without objects, with its counters, registers and settings.
    pub(crate) idle_device: usize,
    /// A device with 16 queue pairs that were used and rest.
    pub(crate) used_device: usize,
    /// One more of these queue pairs.
    pub(crate) used_qp: usize,
    /// The same before its device has rested.
    pub(crate) restless_qp: usize,
}

impl Sizes {
    pub(crate) fn measured() -> Self {
        let idle_device = heap_of(|| Hca::new(HcaConfig::default())) + size_of::<Hca>();
        let of = |qps, rests| heap_of(|| World::used(qps, rests)) / 2 + size_of::<Hca>();
        let (used_device, twice) = (of(16, Rests::AtTheEnd), of(32, Rests::AtTheEnd));
        Self {
            idle_device,
            used_device,
            used_qp: (twice - used_device) / 16,
            restless_qp: (of(32, Rests::Never) - of(16, Rests::Never)) / 16,
        }
    }

    pub(crate) fn rows(self) -> [(&'static str, usize); 4] {
        [
            ("device without queue pairs", self.idle_device),
            ("device with 16 used queue pairs", self.used_device),
            ("used queue pair, at rest", self.used_qp),
            ("used queue pair, before it rests", self.restless_qp),
        ]
    }
}

/// Bytes on the heap that `make` leaves behind.
fn heap_of<T>(make: impl FnOnce() -> T) -> usize {
    let mut made = None;
    let info = allocation_counter::measure(|| made = Some(make()));
    drop(made);
    usize::try_from(info.bytes_current).unwrap()
}

/// When devices rest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rests {
    Never,
    AtTheEnd,
    AfterEachPacket,
}

/// Two devices and what connects them.
pub(crate) struct World {
    devices: [Hca; 2],
    now: Time,
    rests: Rests,
}

/// A queue pair at each end.
struct Connection {
    qpn: Qpn,
    cq: CqId,
    memory: MrInfo,
}

impl World {
    /// Devices alike, since every queue pair has done everything at both ends.
    pub(crate) fn used(qps: usize, rests: Rests) -> Self {
        let mut world = Self {
            devices: [0, 1].map(|seed| {
                Hca::new(HcaConfig {
                    seed,
                    ..HcaConfig::default()
                })
            }),
            now: Time::ZERO,
            rests,
        };
        let [a, b] = [0, 1].map(|own| world.end(own));
        for _ in 0..qps {
            let [a, b] = [(0, &a), (1, &b)].map(|(own, (init, memory))| Connection {
                qpn: world.connected(own, init),
                cq: init.send_cq,
                memory: *memory,
            });
            world.use_both_ways([&a, &b]);
        }
        if rests != Rests::Never {
            world.rest();
        }
        world
    }

    fn rest(&mut self) {
        for device in &mut self.devices {
            while device.rest() {}
        }
    }

    fn end(&mut self, own: usize) -> (QpInit, MrInfo) {
        let hca = &mut self.devices[own];
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(1024).unwrap();
        let memory = Memory::Phantom {
            addr: 4096,
            len: MESSAGE.into(),
        };
        let memory = hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
        (QpInit::new(QpType::Rc, pd, cq), memory)
    }

    fn connected(&mut self, own: usize, init: &QpInit) -> Qpn {
        let hca = &mut self.devices[own];
        let qpn = hca.create_qp(init).unwrap();
        let attr = QpAttr {
            access: AccessFlags::all(),
            path_mtu: Mtu::Mtu4096,
            dest_qpn: qpn,
            timeout: 14,
            retry_cnt: 7,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ..QpAttr::default()
        };
        let path = Path {
            dest: ADDRESSES[1 - own].into(),
            traffic_class: 2,
        };
        for change in [
            QpModify::init(attr),
            QpModify::rtr(attr),
            QpModify::rts(attr),
        ] {
            let path = change.mask.contains(Attr::AV).then_some(path);
            hca.modify_qp(qpn, &change, path).unwrap();
        }
        qpn
    }

    fn use_both_ways(&mut self, ends: [&Connection; 2]) {
        for own in [0, 1] {
            let (here, there) = (ends[own], ends[1 - own]);
            let (va, rkey) = (there.memory.va, there.memory.key.rkey());
            let write = SendOp::Write {
                va,
                rkey,
                imm: None,
            };
            for op in [write, SendOp::Read { va, rkey }, SendOp::Send { imm: None }] {
                self.carry_all(own, here, there, op);
            }
        }
    }

    fn carry_all(&mut self, own: usize, here: &Connection, there: &Connection, op: SendOp) {
        let sge = |memory: &MrInfo| Sge {
            addr: memory.va,
            length: MESSAGE,
            lkey: memory.key.lkey(),
        };
        for _ in 0..BYTES / MESSAGE / OUTSTANDING {
            for wr_id in 0..OUTSTANDING.into() {
                if let SendOp::Send { .. } = op {
                    let sges = Sges::from_slice(&[sge(&there.memory)]);
                    let wr = RecvWr { wr_id, sges };
                    self.devices[1 - own].post_recv(there.qpn, wr).unwrap();
                }
                let wr = SendWr::new(wr_id, op, sge(&here.memory));
                self.devices[own].post_send(here.qpn, wr).unwrap();
            }
            let mut done = 0;
            while done < OUTSTANDING {
                self.now = self.now.after(Span::from_micros(1));
                let moved = [self.carry(0), self.carry(1)];
                assert!(moved.contains(&true), "{done} of {OUTSTANDING} done");
                done += self.completions(own, here.cq);
                self.completions(1 - own, there.cq);
            }
        }
    }

    fn completions(&mut self, at: usize, cq: CqId) -> u32 {
        let mut count = 0;
        while let Some(completion) = self.devices[at].poll_completion(cq).unwrap() {
            assert_eq!(completion.status, WcStatus::Success);
            count += 1;
        }
        count
    }

    /// Moves what a device has to send; false if there was nothing.
    fn carry(&mut self, from: usize) -> bool {
        let mut any = false;
        while let Some(packet) = self.devices[from].poll_transmit(self.now) {
            any = true;
            let received = Received {
                source: ADDRESSES[from].into(),
                dest: packet.path.dest,
                traffic_class: packet.path.traffic_class,
                headers: &packet.headers,
                data: Data::Length(packet.payload_len),
            };
            self.devices[1 - from].handle_packet(self.now, &received);
            if self.rests == Rests::AfterEachPacket {
                self.rest();
            }
        }
        any
    }
}
