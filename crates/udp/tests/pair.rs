//! Two devices on loopback: real sockets, real time.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_hca::{
    AccessFlags, Buffer, Completion, Counter, CqId, Direction, Impairment, Memory, MrInfo, Mtu,
    QpAttr, QpInit, QpType, RecvWr, SendOp, SendWr, Sge, Sges, WcOpcode, WcStatus,
};
use ferroce_udp::{Device, DeviceConfig, Endpoint};
use ferroce_wire::{Psn, Qpn};

const LEN: usize = 4 << 20;

struct End {
    device: Device,
    cq: CqId,
    qpn: Qpn,
    buffer: Buffer,
    mr: MrInfo,
}

impl End {
    fn open(address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let device = Device::open(DeviceConfig::new(address)).unwrap();
        let buffer = Buffer::zeroed(LEN);
        let (cq, qpn, mr) = device.with(|hca| {
            let pd = hca.alloc_pd().unwrap();
            let cq = hca.create_cq(1024).unwrap();
            let mr = hca
                .reg_mr(pd, Memory::Buffer(buffer.clone()), AccessFlags::all())
                .unwrap();
            let init = QpInit::new(QpType::Rc, pd, cq);
            (cq, hca.create_qp(&init).unwrap(), mr)
        });
        Self {
            device,
            cq,
            qpn,
            buffer,
            mr,
        }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.device.address().ip(),
            qpn: self.qpn,
            psn: Psn::new(0xff_fff0),
        }
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge {
            addr: self.buffer.addr() + offset as u64,
            length,
            lkey: self.mr.key.lkey(),
        }
    }

    fn send(&self, op: SendOp, sge: Sge) {
        self.device
            .post_send(self.qpn, [SendWr::new(7, op, sge)])
            .unwrap();
    }

    fn completion(&self) -> Completion {
        let mut out = Vec::new();
        self.device
            .wait(self.cq, 1, &mut out, Duration::from_secs(20))
            .unwrap();
        *out.first().expect("a completion within 20 s")
    }
}

fn attr() -> QpAttr {
    QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu4096,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: 10,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

fn pair(a: &str, b: &str) -> (End, End) {
    let (a, b) = (End::open(a), End::open(b));
    a.device
        .connect(a.endpoint(), b.endpoint(), &attr())
        .unwrap();
    b.device
        .connect(b.endpoint(), a.endpoint(), &attr())
        .unwrap();
    (a, b)
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8 ^ seed).collect()
}

fn contents(buffer: &Buffer, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    buffer.read(offset, &mut bytes);
    bytes
}

fn exchange(a: &End, b: &End) {
    let half = LEN / 2;
    let remote = |offset: usize| (b.mr.va + offset as u64, b.mr.key.rkey());

    a.buffer.write(0, &pattern(half, 1));
    let (va, rkey) = remote(0);
    a.send(
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        a.sge(0, half as u32),
    );
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(contents(&b.buffer, 0, half), pattern(half, 1));

    let wr = RecvWr {
        wr_id: 9,
        sges: Sges::from_slice(&[b.sge(half, half as u32)]),
    };
    b.device.post_recv(b.qpn, wr).unwrap();
    a.send(SendOp::Send { imm: Some(0xabcd) }, a.sge(0, 100_001));
    assert_eq!(a.completion().opcode, WcOpcode::Send);
    let received = b.completion();
    assert_eq!(
        (received.byte_len, received.imm, received.wr_id),
        (100_001, 0xabcd, 9)
    );
    assert_eq!(
        contents(&b.buffer, half, 100_001),
        pattern(half, 1)[..100_001]
    );

    b.buffer.write(0, &pattern(half, 2));
    a.send(SendOp::Read { va, rkey }, a.sge(half, half as u32));
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(contents(&a.buffer, half, half), pattern(half, 2));
}

#[test]
fn writes_sends_and_reads_arrive_whole() {
    let (a, b) = pair("127.31.0.1", "127.31.0.2");
    exchange(&a, &b);
    assert_eq!(a.device.state().counter(Counter::LocalAckTimeoutErr), 0);
}

#[test]
fn they_arrive_whole_over_a_bad_link_too() {
    let (a, b) = pair("127.32.0.1", "127.32.0.2");
    for end in [&a, &b] {
        let bad = Impairment {
            loss: 0.01,
            duplicate: 0.01,
            corrupt: 0.005,
            reorder: 0.005,
            reorder_ns: 100_000,
            delay_ns: 20_000,
            jitter_ns: 10_000,
            ..Impairment::default()
        };
        end.device
            .with(|hca| hca.set_impairment(Direction::Egress, bad))
            .unwrap();
    }
    // The timeouts of a real card are long; a lost last packet would cost a quarter second.
    exchange(&a, &b);
    let state = b.device.state();
    assert!(state.counter(Counter::ImpairLost) > 0);
    assert!(a.device.state().counter(Counter::RetransmittedPackets) > 0);
}

#[test]
fn both_ipv6_ends_understand_each_other() {
    // One address only: the device talks to itself, over two queue pairs.
    let end = End::open("::1");
    let other = end.device.with(|hca| {
        let init = QpInit::new(QpType::Rc, end.mr.pd, end.cq);
        hca.create_qp(&init).unwrap()
    });
    let peer = Endpoint {
        qpn: other,
        ..end.endpoint()
    };
    end.device.connect(end.endpoint(), peer, &attr()).unwrap();
    end.device.connect(peer, end.endpoint(), &attr()).unwrap();
    end.buffer.write(0, &pattern(10_000, 3));
    let (va, rkey) = (end.mr.va + 20_000, end.mr.key.rkey());
    end.send(
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        end.sge(0, 10_000),
    );
    assert_eq!(end.completion().status, WcStatus::Success);
    assert_eq!(contents(&end.buffer, 20_000, 10_000), pattern(10_000, 3));
}
