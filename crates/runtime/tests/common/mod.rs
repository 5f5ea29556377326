//! Shared code of the tests of the device on real sockets.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "no test uses all of it"
)]

pub mod datagrams;
pub mod echo;
pub mod flaps;
mod other;
pub mod rings;
pub mod services;
pub mod stranger;

use std::collections::HashMap;
use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, process};

use ferroce_device::{
    AccessFlags, Buffer, Completion, Counter, CqId, DeviceState, Direction, Hca, HcaConfig, Memory,
    Method, MrInfo, Mtu, PdId, Personality, QpAttr, QpCap, QpInit, QpType, RecvWr, SendOp, SendWr,
    Sge, Sges, WcStatus,
};
use ferroce_prm::mlxreg::apply;
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_registry::{DeviceSpec, LinkSetting, Registry, impairment};
use ferroce_runtime::{AttachOptions, Device, DeviceConfig, Endpoint};
use ferroce_sockets::{Options, Socket};
use ferroce_testing::skip;
use ferroce_wire::{Psn, Qpn, ROCE_V2_PORT};
use tempfile::TempDir;

pub use ferroce_testing::{Over, PATIENCE, wait_until};

pub use self::other::{Link, Other, connect_back, hear, in_namespace, role, tell};

/// An address for a single test: `file` and `test` are numbers of its own, and the process adds
/// another, so that two concurrent runs do not collide.
pub fn address(file: u8, test: u8, host: u8) -> IpAddr {
    static RUN: OnceLock<(u8, UdpSocket)> = OnceLock::new();
    let (run, _) = RUN.get_or_init(|| {
        // The process that holds the address of a number has it in the subnets of all files.
        let claim = |run| {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, run, 255), ROCE_V2_PORT)).ok()?;
            Some((run, socket))
        };
        let first = process::id() as u8;
        (0..=u8::MAX)
            .find_map(|n| claim(first.wrapping_add(n)))
            .expect("a free number")
    });
    IpAddr::V4(Ipv4Addr::new(127, file, *run, test * 10 + host % 10))
}

/// A port of `::1` for `test` alone, since there is only one such address. `None` where IPv6 is
/// switched off, which skips that test or its part with IPv6.
pub fn port_v6(test: &str) -> Option<u16> {
    const PORTS: u16 = 10_000;
    static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    let host = Ipv6Addr::LOCALHOST;
    if let Err(error) = UdpSocket::bind((host, 0)) {
        skip(test, &format!("no IPv6 here ({error})"));
        return None;
    }
    // Below the ports that the system assigns by itself; a process that holds one of a pair has
    // both.
    let first = process::id() as u16 % PORTS;
    let claim = |n| {
        let port = 10_000 + (first + n) % PORTS;
        let claim = UdpSocket::bind((host, port + PORTS)).ok()?;
        CLAIMS.lock().unwrap().push(claim);
        Some(port)
    };
    Some((0..PORTS).find_map(claim).expect("a free port"))
}

/// A socket that shares its port with others.
pub fn share(address: SocketAddr) -> Socket {
    let options = Options {
        share_port: true,
        ..Options::default()
    };
    Socket::bind(address, &options).unwrap()
}

/// A device with a completion queue and a registered buffer with all permissions for the peer.
#[derive(Debug)]
pub struct Node {
    pub device: Device,
    pub pd: PdId,
    pub cq: CqId,
    pub buffer: Buffer,
    pub mr: MrInfo,
}

/// Memory of a peer as requests name it.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pub va: u64,
    pub rkey: u32,
}

impl Node {
    pub fn open(address: IpAddr, len: usize) -> Self {
        Self::with_config(DeviceConfig::new(address), len)
    }

    pub fn with_config(config: DeviceConfig, len: usize) -> Self {
        Self::on(Device::open(config).unwrap(), len)
    }

    /// Attaches to a device of a registry.
    pub fn attach(registry: &Registry, name: &str, len: usize) -> Self {
        let device = Device::attach(registry, name, AttachOptions::default());
        Self::on(device.unwrap(), len)
    }

    pub fn on(device: Device, len: usize) -> Self {
        let buffer = Buffer::zeroed(len);
        let (pd, cq, mr) = device.with(|hca| {
            let pd = hca.alloc_pd().unwrap();
            let cq = hca.create_cq(1 << 16).unwrap();
            let memory = Memory::Buffer(buffer.clone());
            let mr = hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
            (pd, cq, mr)
        });
        Self {
            device,
            pd,
            cq,
            buffer,
            mr,
        }
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.device.state().counter(counter)
    }

    /// Waits until a counter has at least this value.
    pub fn wait_for_count(&self, counter: Counter, count: u64) {
        wait_until(counter.name(), || self.count(counter) >= count);
    }

    /// Sets an impairment, written as in [`impairment`].
    pub fn impair(&self, direction: Direction, text: &str) {
        let impairment = impairment::parse(text).unwrap();
        let set = |hca: &mut Hca| hca.set_impairment(direction, impairment);
        self.device.with(set).unwrap();
    }

    /// A queue pair in RESET.
    pub fn qp(&self) -> Qpn {
        let init = QpInit {
            cap: QpCap {
                max_send_wr: 1024,
                max_recv_wr: 1024,
                ..QpCap::default()
            },
            ..QpInit::new(QpType::Rc, self.pd, self.cq)
        };
        self.device.with(|hca| hca.create_qp(&init)).unwrap()
    }

    pub fn endpoint(&self, qpn: Qpn) -> Endpoint {
        Endpoint {
            address: self.device.address().ip(),
            qpn,
            psn: Psn::new(0xff_ffc0 + qpn.value() % 64),
        }
    }

    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge {
            addr: self.mr.va + offset as u64,
            length,
            lkey: self.mr.key.lkey(),
        }
    }

    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            va: self.mr.va + offset as u64,
            rkey: self.mr.key.rkey(),
        }
    }

    pub fn post(&self, qpn: Qpn, wr_id: u64, op: SendOp, sge: Sge) {
        let request = SendWr::new(wr_id, op, sge);
        self.device.post_send(qpn, [request]).unwrap();
    }

    pub fn post_recv(&self, qpn: Qpn, wr_id: u64, offset: usize, length: u32) {
        let request = RecvWr {
            wr_id,
            sges: Sges::from_slice(&[self.sge(offset, length)]),
        };
        self.device.post_recv(qpn, request).unwrap();
    }

    /// The next `count` completions.
    pub fn completions(&self, count: usize) -> Vec<Completion> {
        let started = Instant::now();
        let mut out = Vec::new();
        while out.len() < count {
            assert!(started.elapsed() < PATIENCE, "{count} expected, {out:?}");
            let (left, pause) = (count - out.len(), PATIENCE);
            self.device.wait(self.cq, left, &mut out, pause).unwrap();
        }
        out
    }

    pub fn completion(&self) -> Completion {
        self.completions(1)[0]
    }

    /// The next `count` completions, all of which are successes.
    pub fn succeed(&self, count: usize) -> Vec<Completion> {
        let completions = self.completions(count);
        for completion in &completions {
            assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        }
        completions
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.read(offset, &mut bytes);
        bytes
    }
}

impl Remote {
    pub fn write(self) -> SendOp {
        let Self { va, rkey } = self;
        SendOp::Write {
            va,
            rkey,
            imm: None,
        }
    }

    pub fn write_imm(self, imm: u32) -> SendOp {
        let Self { va, rkey } = self;
        SendOp::Write {
            va,
            rkey,
            imm: Some(imm),
        }
    }

    pub fn read(self) -> SendOp {
        let Self { va, rkey } = self;
        SendOp::Read { va, rkey }
    }

    pub fn add(self, add: u64) -> SendOp {
        let Self { va, rkey } = self;
        SendOp::FetchAdd { va, rkey, add }
    }

    pub fn swap(self, compare: u64, swap: u64) -> SendOp {
        let Self { va, rkey } = self;
        SendOp::CompareSwap {
            va,
            rkey,
            compare,
            swap,
        }
    }
}

/// Attributes for peers that answer: a lost packet costs little, and on a busy machine no retry
/// expires before it is sent.
pub fn attr() -> QpAttr {
    QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu4096,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

/// A device whose queue pairs give up on a silent peer after [`impatient_attr`]'s short timeouts.
pub fn impatient(address: IpAddr) -> DeviceConfig {
    let personality = Personality {
        adaptive: false,
        min_ack_timeout: 1,
        // Only CNPs count as CNPs: on a busy machine there are timeouts anywhere (F13).
        slow_restart: false,
        ..Personality::default()
    };
    DeviceConfig {
        hca: HcaConfig {
            personality,
            ..HcaConfig::default()
        },
        ..DeviceConfig::new(address)
    }
}

/// A device whose queue pairs retransmit a packet only after seconds, with [`patient_attr`]: a test
/// that finds `local_ack_timeout_err` at 0 has lost nothing and waited for nothing, even on a busy
/// machine.
pub fn patient(address: IpAddr) -> DeviceConfig {
    impatient(address)
}

/// 4.3 seconds, eight times.
pub fn patient_attr() -> QpAttr {
    QpAttr {
        timeout: 20,
        ..attr()
    }
}

/// Checks that a device made with [`patient`] has waited for nothing.
pub fn nothing_was_lost(node: &Node) {
    let overtaken = node.device.state().counter(Counter::PacketSeqErr);
    assert_eq!(overtaken, 0, "{}", Counter::PacketSeqErr.name());
    nothing_was_missed(node);
}

/// The same where packets may overtake others: some are forwarded by another process.
pub fn nothing_was_missed(node: &Node) {
    let state = node.device.state();
    for counter in [
        Counter::LocalAckTimeoutErr,
        Counter::RxIcrcEncapsulated,
        Counter::TxDropped,
    ] {
        assert_eq!(state.counter(counter), 0, "{}", counter.name());
    }
}

/// 67 ms, four times.
pub fn impatient_attr() -> QpAttr {
    QpAttr {
        timeout: 14,
        retry_cnt: 3,
        ..attr()
    }
}

/// How long a queue pair of the device waits for a silent peer before it fails.
pub fn total(device: &Device, attr: &QpAttr) -> Duration {
    let qp = ferroce_adp::QpTimeouts {
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
    };
    let total = device.with(|hca| hca.policy().total(qp));
    total.unwrap().into()
}

/// Makes a queue pair on each of the two nodes and connects them.
pub fn connect(a: &Node, b: &Node, attr: &QpAttr) -> (Qpn, Qpn) {
    let (at_a, at_b) = (a.qp(), b.qp());
    let (end_a, end_b) = (a.endpoint(at_a), b.endpoint(at_b));
    a.device.connect(end_a, end_b, attr).unwrap();
    b.device.connect(end_b, end_a, attr).unwrap();
    (at_a, at_b)
}

/// A directory of devices that is removed after the test.
#[derive(Debug)]
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        let private = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(private).tempdir();
        Self(directory.unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn registry(&self) -> Registry {
        Registry::at(self.path()).unwrap()
    }

    /// Attaches to one of its devices.
    pub fn attach(&self, device: &str, len: usize) -> Node {
        Node::attach(&self.registry(), device, len)
    }

    /// Starts a process that attaches to one of its devices and does a task; see [`Other::at`].
    pub fn start(&self, device: &str, len: usize, task: &str) -> Other {
        Other::at(&format!("{} {device}", self.path().display()), len, task)
    }

    /// A registry with a device `a` that has the personality of [`impatient`]. Its link is the
    /// default one, or that of `FERROCE_LINK`: the test holds for all.
    pub fn with_device(address: IpAddr) -> Self {
        let link = std::env::var("FERROCE_LINK").ok();
        let link = link.map(|link| link.parse().unwrap());
        Self::with_link(address, link.unwrap_or_default())
    }

    /// The same for tests of the kernel's treatment of packets.
    pub fn on_the_wire(address: IpAddr) -> Self {
        Self::with_link(address, LinkSetting::Udp)
    }

    /// The same with a device for each link: `a`, `b` and so on. `file` and `test` are as in
    /// [`address`].
    pub fn with_links(file: u8, test: u8, links: &[LinkSetting]) -> Self {
        let place = Self::new();
        for (host, link) in (0..).zip(links) {
            place.add(host, address(file, test, host), *link);
        }
        place
    }

    fn with_link(address: IpAddr, link: LinkSetting) -> Self {
        let place = Self::new();
        place.add(0, address, link);
        place
    }

    fn add(&self, host: u8, address: IpAddr, link: LinkSetting) {
        let name = char::from(b'a' + host).to_string();
        let spec = DeviceSpec {
            link,
            personality: impatient(address).hca.personality,
            ..DeviceSpec::new(&name, address)
        };
        self.registry().add(&spec).unwrap();
    }
}

/// 128 us to 512 us, each value four times, for 262 ms in all.
const PROFILE: &str = "adp_retx_profile_select=1,time_base=4,time_unit=1,range_num=1,\
    retx_total_timeout=16,timeout_init_low_bound=5,timeout_init_range_size=1,range_low_bound_0=5,\
    range_size_0=2,timeout_retry_num_0=4,dec_mode_0=2";

/// Gives a card a profile with short timeouts.
pub fn set_profile(state: &DeviceState) {
    let mut payload = [0; ROCE_ACCL.size()];
    apply(&ROCE_ACCL, &mut payload, "adp_retx_profile_id=1", PROFILE).unwrap();
    let written = state.access_register(ROCE_ACCL.id(), Method::Write, &mut payload);
    written.unwrap();
}

/// Bytes that differ with `seed` and do not repeat with the packets.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mix = |n: u64| (n ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..len as u64).map(|n| mix(n) as u8).collect()
}

/// Every kind of request between two connected queue pairs, with every byte checked.
pub fn check_all_kinds(a: &Node, b: &Node, (at_a, at_b): (Qpn, Qpn), bytes: usize, seed: u64) {
    let half = a.buffer.len() / 2;
    assert!(bytes + 64 <= half);
    let len = bytes as u32;

    a.buffer.write(0, &pattern(bytes, seed));
    a.post(at_a, 1, b.remote(0).write(), a.sge(0, len));
    a.succeed(1);
    assert_eq!(b.bytes(0, bytes), pattern(bytes, seed), "WRITE");

    a.buffer.write(0, &pattern(bytes, seed + 1));
    b.post_recv(at_b, 2, half, len);
    a.post(at_a, 2, SendOp::Send { imm: Some(7) }, a.sge(0, len));
    a.succeed(1);
    let received = b.succeed(1)[0];
    assert_eq!((received.byte_len, received.imm), (len, 7));
    assert_eq!(b.bytes(half, bytes), pattern(bytes, seed + 1), "SEND");

    b.post_recv(at_b, 3, 0, 0);
    a.post(at_a, 3, b.remote(half).write_imm(9), a.sge(0, len));
    a.succeed(1);
    assert_eq!(b.succeed(1)[0].imm, 9);

    b.buffer.write(0, &pattern(bytes, seed + 2));
    a.post(at_a, 4, b.remote(0).read(), a.sge(half, len));
    a.succeed(1);
    assert_eq!(a.bytes(half, bytes), pattern(bytes, seed + 2), "READ");

    let word = half - 8;
    b.buffer.write(word, &100_u64.to_ne_bytes());
    a.post(at_a, 5, b.remote(word).add(11), a.sge(half, 8));
    a.post(at_a, 6, b.remote(word).swap(111, 5), a.sge(half + 8, 8));
    a.succeed(2);
    let found = (a.buffer.load(half), a.buffer.load(half + 8));
    assert_eq!((found, b.buffer.load(word)), ((100, 111), 5), "atomics");
}

/// The same in both directions, between new queue pairs.
pub fn check_both_ways(a: &Node, b: &Node, attr: &QpAttr, bytes: usize) {
    let (at_a, at_b) = connect(a, b, attr);
    check_all_kinds(a, b, (at_a, at_b), bytes, 1);
    check_all_kinds(b, a, (at_b, at_a), bytes, 4);
}

/// Open file descriptors of this process.
pub fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of this process by name.
pub fn threads() -> HashMap<String, usize> {
    let mut names = HashMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        // The thread may end meanwhile.
        if let Ok(name) = fs::read_to_string(task.unwrap().path().join("comm")) {
            *names.entry(name.trim_end().to_string()).or_default() += 1;
        }
    }
    names
}

/// CPU time that this process has used.
pub fn cpu_time() -> Duration {
    // SAFETY: `rusage` is made of integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a writable `rusage`.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(outcome, 0);
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}
