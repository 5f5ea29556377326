//! The same two hosts on sockets and in the fabric: losses by the same script lead to the same
//! naks, waits and retransmissions, and to the same result.
//!
//! On sockets, the script is a relay between the two devices: each takes it for its peer. In the
//! fabric, it is a rule. Waits are tens of milliseconds. A busy machine may add as much, and then
//! an additional timer expires on sockets, so only undisturbed runs have to match the fabric.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_adp::{Profile, RawProfile, RawRange};
use ferroce_device::{
    AccessFlags, Buffer, Completion, Counter, Event, Hca, HcaConfig, Memory, MrInfo, Outgoing,
    Path, Personality, QpAttr, QpInit, QpType, Secret, SendFlags, SendOp, SendWr, Sge, WcStatus,
};
use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{
    Fabric, FabricConfig, Fate, Rate, Span, SwitchConfig, Time, Topology, address,
};
use ferroce_runtime::{Device, DeviceConfig, Endpoint};
use ferroce_testing::{Bounds, longest_wait, register, sharing, skip};
use ferroce_wire::{
    Headers, ICRC_LEN, IcrcFlow, IpPair, NakCode, Opcode, Packet, Psn, ROCE_V2_PORT, Syndrome,
};

use crate::common;

/// Ten packets.
const LEN: u32 = 10 << 10;
const A: usize = 0;
const B: usize = 1;
/// The most attempts until a run on sockets is undisturbed.
const TRIES: usize = 20;
/// A run is disturbed if a thread had to wait this long for a processor: after several such waits
/// in a row, an answer is later than the shortest timeout.
const DISTURBED: Duration = Duration::from_millis(4);

/// What is lost: packets by their numbers, from 1, in the order in which each side sent them, and
/// everything during an initial time.
#[derive(Clone, Copy, Default)]
struct Script {
    numbers: [&'static [usize]; 2],
    /// What B answers until A has sent this number of packets. The number of answers is not fixed,
    /// because it depends on how many packets B receives at a time.
    answers_to: usize,
    all_ms: u64,
}

/// The course of one message from A to B.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Course {
    /// Requests, lost ones included, in the order in which they were sent.
    requests: Vec<(Opcode, u32)>,
    /// PSNs that B reported as missing.
    naks: Vec<u32>,
    /// Expired waits, and whether each was the last one.
    waits: Vec<(Span, bool)>,
    /// A's counters, see [`COUNTERS`].
    counted: Vec<u64>,
    outcome: Option<(WcStatus, u32)>,
}

/// Records what passes, and decides what is lost.
#[derive(Default)]
struct Observer {
    script: Script,
    sent: [usize; 2],
    course: Course,
}

impl Observer {
    fn new(script: Script) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            script,
            ..Self::default()
        }))
    }

    fn loses(&mut self, from: usize, headers: &Headers) -> bool {
        let (opcode, psn) = (headers.opcode(), headers.psn.value());
        self.sent[from] += 1;
        if from == A {
            self.course.requests.push((opcode, psn));
        }
        let syndrome = headers.aeth().map(|aeth| aeth.syndrome);
        if syndrome == Some(Syndrome::Nak(NakCode::SequenceError)) {
            self.course.naks.push(psn);
        }
        let is_answer = from != A && self.sent[A] <= self.script.answers_to;
        is_answer || self.script.numbers[from].contains(&self.sent[from])
    }
}

#[derive(Clone, Copy)]
enum Policy {
    Plain,
    Adaptive,
    Profile,
}

/// The configuration of both devices, in either world.
fn device(policy: Policy) -> HcaConfig {
    HcaConfig {
        seed: 7,
        secret: Some(Secret::new(1)),
        personality: Personality {
            adaptive: matches!(policy, Policy::Adaptive | Policy::Profile),
            // Coarse timers follow the clock, and each world has its own.
            quantiser: false,
            ..Personality::default()
        },
        trace_timers: true,
        ..HcaConfig::default()
    }
}

fn set_up(hca: &mut Hca, policy: Policy) {
    if let Policy::Profile = policy {
        register::set_profile(hca, &profile());
    }
}

/// Waits of 33 to 262 ms, for a second.
fn profile() -> Profile {
    let range = |low| RawRange {
        range_low_bound: low,
        range_size: 1,
        timeout_retry_num: 2,
        ..RawRange::EMPTY
    };
    let mut raw = RawProfile {
        time_base: 4,
        range_num: 2,
        timeout_init_low_bound: 13,
        timeout_init_range_size: 1,
        retx_total_timeout: 18,
        ..RawProfile::EMPTY
    };
    raw.timeout_range[0] = range(13);
    raw.timeout_range[1] = range(15);
    Profile::try_from(raw).unwrap()
}

fn attr() -> QpAttr {
    QpAttr {
        timeout: 13,
        retry_cnt: 6,
        ..ferroce_testing::attr()
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Read,
}

fn request(kind: Kind, local: &MrInfo, remote: &MrInfo) -> SendWr {
    let (va, rkey) = (remote.va, remote.key.rkey());
    let op = match kind {
        Kind::Write => SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        Kind::Read => SendOp::Read { va, rkey },
    };
    let sge = Sge {
        addr: local.va,
        length: LEN,
        lkey: local.key.lkey(),
    };
    let mut wr = SendWr::new(1, op, sge);
    wr.flags |= SendFlags::SIGNALED;
    wr
}

/// The last wait of a profile is the rest of its total. On sockets, the previous waits have taken a
/// few milliseconds more, so its length is left out.
fn note(course: &mut Course, policy: Policy, event: Event) {
    if let Event::TimerExpired { expiry, .. } = event {
        let is_rest = expiry.fatal && matches!(policy, Policy::Profile);
        let wait = if is_rest { Span::ZERO } else { expiry.wait };
        course.waits.push((wait, expiry.fatal));
    }
}

fn outcome(completion: &Completion) -> Option<(WcStatus, u32)> {
    Some((completion.status, completion.vendor_err))
}

const COUNTERS: [Counter; 3] = [
    Counter::LocalAckTimeoutErr,
    Counter::PacketSeqErr,
    Counter::RetransmittedPackets,
];

fn counted(hca: &Hca) -> Vec<u64> {
    COUNTERS.map(|counter| hca.state().counter(counter)).into()
}

/// Long enough that the whole message has left before the answer to its first packet arrives, as on
/// sockets, where it leaves in one call.
const CABLE: CableSpec = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(20));

fn in_fabric(policy: Policy, script: Script, kind: Kind) -> Course {
    let config = FabricConfig {
        topology: Topology::pair(CABLE).unwrap(),
        switch: SwitchConfig::default(),
        seed: 1,
    };
    // A socket's buffer limits what is in flight, so the same limit applies here.
    let devices = [A, B].map(|_| sharing(Hca::new(device(policy)), Bounds::default()));
    let mut fabric = Fabric::new(config, devices).unwrap();
    let observer = Observer::new(script);
    let is_dark = Arc::new(AtomicBool::new(script.all_ms > 0));
    let (noting, dark) = (Arc::clone(&observer), Arc::clone(&is_dark));
    let b = address(1);
    fabric.rules(0).add(move |packet: &Outgoing| {
        let from = if packet.path.dest == b { A } else { B };
        let lost = noting.lock().unwrap().loses(from, &packet.headers);
        (lost || dark.load(Ordering::Relaxed)).then_some(Fate::Lost)
    });
    let qpns = [0, 1].map(|host| {
        set_up(&mut fabric.host_mut(host).hca, policy);
        fabric.host_mut(host).create_qp(16).unwrap()
    });
    for (own, peer) in [(0, 1), (1, 0)] {
        let [own_qpn, peer_qpn] = [own, peer].map(|host| qpns[host as usize]);
        let host = fabric.host_mut(own);
        let path = Path::to(address(peer));
        host.connect(own_qpn, peer_qpn, path, attr()).unwrap();
    }
    let memory = [0, 1].map(|host| *fabric.host(host).memory());
    let wr = request(kind, &memory[A], &memory[B]);
    fabric.host_mut(0).hca.post_send(qpns[A], wr).unwrap();
    fabric.kick(0);
    let light = Time::ZERO.after(Span::from_millis(script.all_ms));
    let mut course = Course::default();
    while course.outcome.is_none() {
        let next = fabric.next_event().expect("it waits for something");
        if is_dark.load(Ordering::Relaxed) && next >= light {
            is_dark.store(false, Ordering::Relaxed);
        }
        fabric.run(Time::NEVER, &mut 1);
        for (_, event) in fabric.take_told() {
            note(&mut course, policy, event);
        }
        let completion = fabric.take_completions().into_iter().next();
        course.outcome = completion.and_then(|(_, it)| outcome(&it));
    }
    course.counted = counted(&fabric.host(0).hca);
    finish(course, &observer)
}

fn finish(course: Course, observer: &Mutex<Observer>) -> Course {
    let seen = &observer.lock().unwrap().course;
    Course {
        requests: seen.requests.clone(),
        naks: seen.naks.clone(),
        ..course
    }
}

/// Forwards packets from one device to the other, except for those that are lost, until `over`.
fn relay(
    from: usize,
    ears: &[UdpSocket; 2],
    ends: [SocketAddr; 2],
    seen: &Mutex<Observer>,
    over: &AtomicBool,
) {
    let (hears, speaks, to) = (&ears[from], &ears[1 - from], ends[1 - from]);
    let speaker = speaks.local_addr().unwrap();
    let ip = IpPair::new(speaker.ip(), to.ip()).unwrap();
    let flow = IcrcFlow::new(ip, speaker.port(), to.port());
    let (mut bytes, mut first) = ([0; 4096], None);
    while !over.load(Ordering::Relaxed) {
        let Ok((len, _)) = hears.recv_from(&mut bytes) else {
            continue; // nothing yet
        };
        let first = *first.get_or_insert_with(Instant::now);
        let packet = &mut bytes[..len];
        let Ok(headers) = Packet::new_checked(packet).map(|packet| *packet.headers()) else {
            continue; // a question whether the peer takes trailers
        };
        let (is_lost, all_ms) = {
            let mut seen = seen.lock().unwrap();
            (seen.loses(from, &headers), seen.script.all_ms)
        };
        let is_dark = first.elapsed() < Duration::from_millis(all_ms);
        if is_lost || from == A && is_dark {
            continue;
        }
        let (body, icrc) = packet.split_last_chunk_mut::<ICRC_LEN>().unwrap();
        *icrc = flow.compute(0, body).to_le_bytes();
        speaks.send_to(packet, to).unwrap();
    }
}

fn on_sockets(policy: Policy, script: Script, kind: Kind, test: u8) -> Course {
    let address = |host| IpAddr::V4(common::address(test, host));
    let ends = [0, 1].map(|host| SocketAddr::new(address(host), ROCE_V2_PORT));
    // The relay's sockets for the two devices.
    let ears = [2, 3].map(|host| {
        let socket = UdpSocket::bind((address(host), ROCE_V2_PORT)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        socket
    });
    let devices = ends.map(|end| {
        let config = DeviceConfig {
            hca: device(policy),
            ..DeviceConfig::new(end.ip())
        };
        Device::open(config).unwrap()
    });
    let made = devices.each_ref().map(|device| {
        device.with(|hca| {
            set_up(hca, policy);
            let pd = hca.alloc_pd().unwrap();
            let cq = hca.create_cq(16).unwrap();
            let memory = Memory::Buffer(Buffer::zeroed(LEN as usize));
            let memory = hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
            let qpn = hca.create_qp(&QpInit::new(QpType::Rc, pd, cq)).unwrap();
            (cq, memory, qpn)
        })
    });
    for (own, heard) in [(A, 2), (B, 3)] {
        let endpoint = |address, qpn| Endpoint {
            address,
            qpn,
            psn: Psn::ZERO,
        };
        let peer = endpoint(address(heard), made[1 - own].2);
        let own_end = endpoint(ends[own].ip(), made[own].2);
        devices[own].connect(own_end, peer, &attr()).unwrap();
    }
    let (observer, over) = (Observer::new(script), AtomicBool::new(false));
    let mut course = Course::default();
    thread::scope(|scope| {
        for from in [A, B] {
            let (ears, observer, over) = (&ears, &observer, &over);
            scope.spawn(move || relay(from, ears, ends, observer, over));
        }
        let [(cq, local, qpn), (_, remote, _)] = &made;
        let wr = request(kind, local, remote);
        devices[A].post_send(*qpn, [wr]).unwrap();
        let mut completions = Vec::new();
        let waited = devices[A].wait(*cq, 1, &mut completions, Duration::from_secs(60));
        over.store(true, Ordering::Relaxed);
        waited.unwrap();
        course.outcome = completions.first().and_then(outcome);
    });
    while let Some(event) = devices[A].poll_event() {
        note(&mut course, policy, event);
    }
    course.counted = devices[A].with(|hca| counted(hca));
    finish(course, &observer)
}

/// Numbers of packets from A, and from B.
const fn lost(from_a: &'static [usize], from_b: &'static [usize]) -> Script {
    Script {
        numbers: [from_a, from_b],
        answers_to: 0,
        all_ms: 0,
    }
}

const ALL: &[usize] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
    27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
];

/// Until A repeats the last of its ten packets.
const ANSWERS_TO_TEN: Script = Script {
    numbers: [&[], &[]],
    answers_to: 10,
    all_ms: 0,
};

const SCRIPTS: &[(&str, Kind, Script)] = &[
    ("nothing", Kind::Write, lost(&[], &[])),
    ("a packet in the middle", Kind::Write, lost(&[3], &[])),
    ("the last packet", Kind::Write, lost(&[10], &[])),
    ("three packets", Kind::Write, lost(&[1, 4, 9], &[])),
    ("one, and again", Kind::Write, lost(&[3, 11], &[])),
    (
        "all, and three repetitions",
        Kind::Write,
        lost(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], &[]),
    ),
    ("acknowledgements", Kind::Write, ANSWERS_TO_TEN),
    ("all of them", Kind::Write, lost(ALL, &[])),
    ("the request for bytes", Kind::Read, lost(&[1], &[])),
    ("one response", Kind::Read, lost(&[], &[4])),
    ("two responses", Kind::Read, lost(&[], &[2, 7])),
    ("the last response", Kind::Read, lost(&[], &[10])),
    (
        "all responses",
        Kind::Read,
        lost(&[], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ),
];

/// Long enough for a few timeouts, and far from the next timer of any policy here.
const OUTAGES_MS: [u64; 2] = [170, 400];

#[track_caller]
fn compare(name: &str, policy: Policy, test: u8) {
    let outages = OUTAGES_MS.map(|all_ms| {
        let numbers = [&[][..]; 2];
        (
            "everything for a while",
            Kind::Write,
            Script {
                numbers,
                answers_to: 0,
                all_ms,
            },
        )
    });
    for &(what, kind, script) in SCRIPTS.iter().chain(&outages) {
        let expected = in_fabric(policy, script, kind);
        println!("{what}, {kind:?}: {expected:?}");
        let run = || longest_wait(|| on_sockets(policy, script, kind, test));
        let different = (0..TRIES)
            .map(|_| run())
            .take_while(|(seen, _)| *seen != expected);
        let waits = different.map(|(seen, waited)| {
            assert!(
                waited >= DISTURBED,
                "{what}: {seen:?}, expected {expected:?}"
            );
            waited
        });
        let waits: Vec<_> = waits.collect();
        if waits.len() == TRIES {
            skip(
                name,
                &format!("{what}: threads wait for a processor here: {waits:?}"),
            );
        }
    }
}

#[test]
fn plain_timeouts() {
    compare("plain_timeouts", Policy::Plain, 51);
}

#[test]
fn adaptive_retransmission() {
    compare("adaptive_retransmission", Policy::Adaptive, 52);
}

#[test]
fn a_profile() {
    compare("a_profile", Policy::Profile, 53);
}
