//! Memory of devices whose queue pairs have carried traffic and rest.

use std::sync::Arc;

use ferroce_device::{
    CqId, Data, Hca, HcaConfig, Memory, Personality, RecvWr, SendOp, SendWr, Settings, Sges, Span,
    Time, WcStatus,
};
use ferroce_testing::direct::{self, ADDRESSES, End, connected};
use ferroce_wire::Qpn;

/// What each queue pair carries by each operation, in each direction.
const BYTES: u32 = 4 << 20;
const MESSAGE: u32 = 64 << 10;
const OUTSTANDING: u32 = 16;

/// Bytes that the heap and the devices themselves take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// A device without objects, beside the settings that any number of devices share.
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
        let config = HcaConfig::default();
        let settings = Arc::new(Settings::new(Personality::default()));
        let idle = || Hca::with_settings(config.clone(), Arc::clone(&settings));
        let idle_device = heap_of(idle) + size_of::<Hca>();
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
    end: End,
}

impl World {
    /// Pairs of devices that are alike, since every queue pair has done everything at both ends.
    pub(crate) fn used(qps: usize, rests: Rests) -> Self {
        let mut world = Self {
            devices: direct::devices(),
            now: Time::ZERO,
            rests,
        };
        let memory = || Memory::Phantom {
            addr: 4096,
            len: MESSAGE.into(),
        };
        let ends = world.devices.each_mut();
        let ends = ends.map(|hca| End::new(hca, 1024, memory()));
        for _ in 0..qps {
            let [a, b] = [0, 1].map(|own| {
                let (hca, end) = (&mut world.devices[own], ends[own]);
                let qpn = connected(hca, &end.init, ADDRESSES[1 - own], direct::attr());
                Connection { qpn, end }
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

    fn use_both_ways(&mut self, ends: [&Connection; 2]) {
        for own in [0, 1] {
            let (here, there) = (ends[own], ends[1 - own]);
            let (va, rkey) = (there.end.memory.va, there.end.memory.key.rkey());
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
        for _ in 0..BYTES / MESSAGE / OUTSTANDING {
            for wr_id in 0..OUTSTANDING.into() {
                if let SendOp::Send { .. } = op {
                    let sges = Sges::from_slice(&[there.end.sge(MESSAGE)]);
                    let wr = RecvWr { wr_id, sges };
                    self.devices[1 - own].post_recv(there.qpn, wr).unwrap();
                }
                let wr = SendWr::new(wr_id, op, here.end.sge(MESSAGE));
                self.devices[own].post_send(here.qpn, wr).unwrap();
            }
            let mut done = 0;
            while done < OUTSTANDING {
                self.now = self.now.after(Span::from_micros(1));
                let moved = [self.carry(0), self.carry(1)];
                assert!(moved.contains(&true), "{done} of {OUTSTANDING} done");
                done += self.completions(own, here.end.cq());
                self.completions(1 - own, there.end.cq());
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
            let data = Data::Length(packet.payload_len.into());
            direct::deliver(&mut self.devices, self.now, from, &packet, data);
            if self.rests == Rests::AfterEachPacket {
                self.rest();
            }
        }
        any
    }
}
