//! tshark reads what a device records of its own traffic over real sockets, and what passes a port
//! of the simulated fabric.

use std::collections::HashSet;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use ferroce_dcqcn::Params;
use ferroce_device::{
    AccessFlags, Buffer, Counter, CqId, Direction, Hca, Impairment, Memory, MrInfo, Mtu, QpAttr,
    QpInit, QpType, RecvWr, SendOp, SendWr, Sge, Sges, WcStatus, WriteLockError,
};
use ferroce_fabric::Standing;
use ferroce_interop::tshark::fields;
use ferroce_os::{Tap, TapDirection};
use ferroce_registry::impairment;
use ferroce_runtime::{Device, DeviceConfig, Endpoint};
use ferroce_scenario::Scenario;
use ferroce_wire::{IcrcFlow, IpPair, Opcode, Psn, Qpn};
use tempfile::TempDir;

const LEN: usize = 64 << 10;

struct End {
    device: Device,
    cq: CqId,
    qpn: Qpn,
    mr: MrInfo,
}

impl End {
    /// `host` is a number of its own; the process adds another, so that two runs do not collide.
    fn open(host: u8, tap: &Tap) -> Self {
        let run = (std::process::id() % 250) as u8;
        let address = IpAddr::from([127, 49, run, host]);
        let tap = Some(tap.clone());
        let config = DeviceConfig::new(address);
        let device = Device::open(DeviceConfig { tap, ..config }).unwrap();
        let (cq, qpn, mr) = device.with(|hca| {
            let pd = hca.alloc_pd().unwrap();
            let cq = hca.create_cq(64).unwrap();
            let memory = Memory::Buffer(Buffer::zeroed(LEN));
            let mr = hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
            let init = QpInit::new(QpType::Rc, pd, cq);
            (cq, hca.create_qp(&init).unwrap(), mr)
        });
        Self {
            device,
            cq,
            qpn,
            mr,
        }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.device.address().ip(),
            qpn: self.qpn,
            psn: Psn::new(0xff_fffd),
        }
    }

    fn sge(&self, length: u32) -> Sge {
        Sge {
            addr: self.mr.va,
            length,
            lkey: self.mr.key.lkey(),
        }
    }

    fn succeed(&self, count: usize) {
        let mut out = Vec::new();
        while out.len() < count {
            let limit = Duration::from_secs(60);
            let taken = self.device.wait(self.cq, count, &mut out, limit).unwrap();
            assert!(taken > 0, "{out:?}");
        }
        assert!(out.iter().all(|c| c.status == WcStatus::Success), "{out:?}");
    }
}

/// Records traffic of every kind between two devices, disturbed by `impairment`.
fn record(path: &Path, hosts: [u8; 2], impairment: &Impairment) {
    let tap = Tap::create(path, TapDirection::Sent).unwrap();
    let (a, b) = (End::open(hosts[0], &tap), End::open(hosts[1], &tap));
    let attr = QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu1024,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    };
    for (own, peer) in [(&a, &b), (&b, &a)] {
        let impairment = impairment.clone();
        own.device
            .with(|hca| hca.set_impairment(Direction::Egress, impairment))
            .unwrap();
        own.device
            .connect(own.endpoint(), peer.endpoint(), &attr)
            .unwrap();
    }
    let (va, rkey) = (b.mr.va, b.mr.key.rkey());
    let write = |imm| SendOp::Write { va, rkey, imm };
    let (compare, swap) = (0, 1);
    let requests = [
        (write(None), 5_001),
        (write(Some(7)), 1_024),
        (SendOp::Send { imm: None }, 3_333),
        (SendOp::Send { imm: Some(9) }, 40_000),
        (SendOp::Read { va, rkey }, 10_000),
        (SendOp::FetchAdd { va, rkey, add: 3 }, 8),
        (
            SendOp::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            },
            8,
        ),
    ];
    for _ in 0..3 {
        let request = RecvWr {
            wr_id: 0,
            sges: Sges::from_slice(&[b.sge(LEN as u32)]),
        };
        b.device.post_recv(b.qpn, request).unwrap();
    }
    let count = requests.len();
    let requests = requests.map(|(op, length)| SendWr::new(1, op, a.sge(length)));
    a.device.post_send(a.qpn, requests).unwrap();
    a.succeed(count);
    b.succeed(3);
    drop((a, b));
    tap.finish().unwrap();
}

/// A captured packet as tshark dissects it.
struct Seen {
    flow: IcrcFlow,
    ip_id: u16,
    bytes: Vec<u8>,
}

fn packets(path: &Path) -> Vec<Seen> {
    let columns = [
        "ip.src",
        "ip.dst",
        "udp.srcport",
        "udp.dstport",
        "ip.id",
        "udp.payload",
    ];
    let rows = fields(path, "udp", columns);
    rows.iter()
        .map(|row| {
            let [src, dst, from, to, id, payload] = &row[..] else {
                panic!("{row:?}")
            };
            let address = |ip: &str, port: &str| format!("{ip}:{port}").parse::<SocketAddr>();
            let (src, dst) = (address(src, from).unwrap(), address(dst, to).unwrap());
            let ip = IpPair::new(src.ip(), dst.ip()).unwrap();
            let hex = |at: usize| u8::from_str_radix(&payload[at..at + 2], 16).unwrap();
            Seen {
                flow: IcrcFlow::new(ip, src.port(), dst.port()),
                ip_id: u16::from_str_radix(id.trim_start_matches("0x"), 16).unwrap(),
                bytes: (0..payload.len()).step_by(2).map(hex).collect(),
            }
        })
        .collect()
}

fn is_good(packet: &Seen) -> bool {
    let (transport, icrc) = packet.bytes.split_last_chunk().unwrap();
    packet.flow.compute(packet.ip_id, transport) == u32::from_le_bytes(*icrc)
}

#[test]
fn every_packet_is_well_formed_and_its_icrc_right() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("good.pcapng");
    let none = Impairment::default();
    record(&path, [1, 2], &none);

    let remarks = "_ws.malformed || _ws.expert.severity >= note";
    let remarked = fields(&path, remarks, ["frame.number", "_ws.expert.message"]);
    assert_eq!(remarked, Vec::<Vec<String>>::new());
    let roce = fields(&path, "infiniband", ["infiniband.bth.opcode"]);
    let all = packets(&path);
    assert_eq!(roce.len(), all.len(), "tshark takes all for InfiniBand");
    assert!(all.iter().all(is_good));

    let opcodes: HashSet<Opcode> = roce
        .iter()
        .filter_map(|row| Opcode::from_u8(row[0].parse().ok()?))
        .collect();
    for opcode in [
        Opcode::RcWriteFirst,
        Opcode::RcWriteMiddle,
        Opcode::RcWriteLast,
        Opcode::RcWriteOnlyImm,
        Opcode::RcSendLast,
        Opcode::RcSendLastImm,
        Opcode::RcReadRequest,
        Opcode::RcReadResponseMiddle,
        Opcode::RcFetchAdd,
        Opcode::RcCompareSwap,
        Opcode::RcAtomicAcknowledge,
        Opcode::RcAcknowledge,
    ] {
        assert!(opcodes.contains(&opcode), "{opcode} in {opcodes:?}");
    }
}

/// A packet that the impaired link damages is recorded as it leaves, with the damage, and nothing
/// else is wrong.
#[test]
fn damage_is_in_the_capture() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("bad.pcapng");
    let bad = Impairment {
        corrupt: 0.2,
        ..Impairment::default()
    };
    record(&path, [3, 4], &bad);
    let all = packets(&path);
    let good = all.iter().filter(|packet| is_good(packet)).count();
    assert!(
        good > all.len() / 2 && good < all.len(),
        "{good} of {}",
        all.len()
    );
}

/// A bottleneck marks packets of a stream, and each mark is answered by a CNP.
#[test]
fn marks_and_cnps_are_well_formed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("congestion.pcapng");
    let tap = Tap::create(&path, TapDirection::Sent).unwrap();
    let (a, b) = (End::open(5, &tap), End::open(6, &tap));
    for (end, dscp) in [(&a, 26), (&b, 46)] {
        let change = |params: &mut Params| {
            let texts = [format!("cnp_dscp={dscp}"), "min_time_between_cnps=0".into()];
            texts.iter().for_each(|text| params.assign(text).unwrap());
            Ok::<_, WriteLockError>(())
        };
        end.device.state().change_congestion(change).unwrap();
    }
    let link = impairment::parse("rate=1Gbit,red=2KB:2KB:100%").unwrap();
    let set = |hca: &mut Hca| hca.set_impairment(Direction::Egress, link);
    a.device.with(set).unwrap();
    let attr = QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu1024,
        timeout: 14,
        retry_cnt: 7,
        ..QpAttr::default()
    };
    for (own, peer) in [(&a, &b), (&b, &a)] {
        let (own_end, peer_end) = (own.endpoint(), peer.endpoint());
        own.device.connect(own_end, peer_end, &attr).unwrap();
    }
    let (va, rkey) = (b.mr.va, b.mr.key.rkey());
    let write = SendOp::Write {
        va,
        rkey,
        imm: None,
    };
    let request = || SendWr::new(1, write, a.sge(LEN as u32));
    a.device.post_send(a.qpn, [request(), request()]).unwrap();
    a.succeed(2);
    let sent = b.device.state().counter(Counter::NpCnpSent);
    let (source, dest_qp) = (b.device.address().ip(), a.qpn);
    drop((a, b));
    tap.finish().unwrap();

    assert!(packets(&path).iter().all(is_good));
    let remarks = "_ws.malformed || _ws.expert.severity >= note";
    assert!(fields(&path, remarks, ["frame.number"]).is_empty());
    let marked = fields(
        &path,
        "infiniband.bth.opcode < 11 && ip.dsfield.ecn == 3",
        ["ip.dsfield"],
    );
    assert!(!marked.is_empty());
    let columns = [
        "ip.src",
        "ip.dsfield",
        "udp.length",
        "infiniband.bth.se",
        "infiniband.bth.m",
        "infiniband.bth.padcnt",
        "infiniband.bth.tver",
        "infiniband.bth.p_key",
        "infiniband.bth.destqp",
        "infiniband.bth.a",
        "infiniband.bth.psn",
    ];
    let cnps = fields(&path, "infiniband.bth.opcode == 0x81", columns);
    // Marked packets may have arrived after the count was taken.
    let answers = sent as usize..=marked.len();
    assert!(
        sent > 0 && answers.contains(&cnps.len()),
        "{} of {answers:?}",
        cnps.len()
    );
    // DSCP 46 and not ECN-capable; UDP header, BTH, 16 bytes and ICRC.
    let expected = [
        &source.to_string(),
        "0xb8",
        "40",
        "0",
        "0",
        "0",
        "0",
        "65535",
        &format!("0x{:06x}", dest_qp.value()),
        "0",
        "0",
    ];
    for cnp in cnps {
        assert_eq!(cnp, expected);
    }
}

/// The packets that pass a port of a simulated switch, in both directions.
#[test]
fn a_port_of_the_fabric_is_well_formed() {
    let scenario = r#"
        [topology]
        kind = "leaf-spine"
        leaves = 2
        spines = 1
        hosts_per_leaf = 2
        [switch]
        ecn = { kmin = "5KB", kmax = "50KB", pmax = "50%" }
        [[job]]
        workload = "incast"
        bytes = "256KiB"
        [[fault]]
        kind = "corruption"
        link = "h2"
        probability = "5%"
    "#;
    let scenario = Scenario::parse(scenario, &mut |_| Err("no files".into())).unwrap();
    let mut simulation = scenario.simulation().unwrap();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("port.pcapng");
    let (cable, end) = scenario.port("leaf0-spine0").unwrap();
    let file = Box::new(File::create(&path).unwrap());
    simulation.fabric.capture(cable, end, file).unwrap();
    while simulation.run(100_000).unwrap() == Standing::Running {}
    simulation.fabric.finish_captures().unwrap();

    let counters = [0, 1].map(|end| simulation.fabric.line(cable, end).frames);
    let all = packets(&path);
    assert_eq!(all.len() as u64, counters.iter().sum::<u64>());
    let bad = all.iter().filter(|packet| !is_good(packet)).count();
    assert!(
        (1..all.len() / 10).contains(&bad),
        "{bad} damaged by the cable of h2"
    );
    // h2 is behind the spine, h0 is not: 1 is incoming, 2 outgoing.
    for (source, direction) in [("10.0.0.3", 1), ("10.0.0.1", 2)] {
        let rows = fields(
            &path,
            &format!("ip.src == {source}"),
            ["frame.packet_flags_direction"],
        );
        let number = |row: &Vec<String>| u32::from_str_radix(row[0].trim_start_matches("0x"), 16);
        assert!(!rows.is_empty());
        assert!(
            rows.iter().all(|row| number(row) == Ok(direction)),
            "{rows:?}"
        );
    }
    let remarks = "_ws.malformed || _ws.expert.severity >= note";
    let remarked = fields(&path, remarks, ["frame.number", "_ws.expert.message"]);
    assert!(remarked.len() <= bad, "{remarked:?}");
    assert!(
        !fields(&path, "ip.dsfield.ecn == 3", ["frame.number"]).is_empty(),
        "marks"
    );
    assert!(
        !fields(&path, "infiniband.bth.opcode == 0x81", ["frame.number"]).is_empty(),
        "CNPs"
    );
}
