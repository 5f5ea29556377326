//! Random policies, as a capture of a queue pair whose peer is silent for a while shows them, and what is
//! made of them. The benchmark of quality has them from here.

use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{
    AckTimeoutFloor, Policy as Device, PolicyKind, Profile, QpTimeouts, RawProfile, RetryState,
};
use ferroce_base::time::Span;
use ferroce_capture::{Policy, Step, Sure, analyse, identify};
use ferroce_wire::pcapng::{UdpMeta, Writer};
use ferroce_wire::{Connection, Headers, IcrcFlow, IpPair, Place, Psn, Qpn, Reth};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What was made of a policy.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Waits that the capture shows.
    pub(crate) waits: usize,
    /// Whether the answer is at least likely.
    pub(crate) is_decided: bool,
    /// The case and the answer, if none of the policies named is right.
    pub(crate) wrong: Option<String>,
}

/// A captured packet: its time in nanoseconds, its PSN, and the queue pair that it goes to.
pub(crate) type Packet = (u64, u32, u32);

/// The queue pair whose policy is identified, and another one.
pub(crate) const QPN: u32 = 11;
const OTHER_QPN: u32 = 12;

/// Identifies the policy of a seed, from what `disturb` leaves of a capture. None if that shows no wait: its
/// only one was the fatal one, or none came.
pub(crate) fn judge(
    seed: u64,
    disturb: impl FnOnce(Vec<Packet>, &mut Xoshiro256PlusPlus) -> Vec<Packet>,
) -> Option<Verdict> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let case = random_case(&mut rng);
    let packets = capture(&case, &mut rng);
    let packets = disturb(packets, &mut rng);
    let analysis = analyse(&file(&packets)[..]).unwrap();
    let mut ways = analysis.conversations.ways.iter();
    let way = ways.find(|way| way.key.dest_qp == Qpn::new(QPN))?;
    let answer = identify(&way.requests.ladders);
    if answer.waits == 0 {
        return None;
    }
    let is_one_right = answer.policies.iter().any(|it| is_right(&case, it));
    let is_wrong = !is_one_right && answer.sure != Sure::No;
    Some(Verdict {
        waits: answer.waits,
        is_decided: answer.sure >= Sure::Likely,
        wrong: is_wrong.then(|| {
            let ladders = &way.requests.ladders;
            format!("seed {seed}: {case:?}\n  {answer:?}\n  {ladders:?}")
        }),
    })
}

/// A queue pair on a device.
#[derive(Debug)]
struct Case {
    device: Device,
    qp: QpTimeouts,
}

fn random_case(rng: &mut Xoshiro256PlusPlus) -> Case {
    let qp = QpTimeouts {
        timeout: rng.random_range(8..=20),
        retry_cnt: rng.random_range(1..=7),
    };
    let floor = match rng.random_range(0..3) {
        0 => AckTimeoutFloor::Disabled,
        _ => AckTimeoutFloor::DEFAULT,
    };
    let kind = match rng.random_range(0..3) {
        0 => PolicyKind::Ib {
            multiplier: rng.random_range(1..=2),
        },
        1 => PolicyKind::Firmware {
            quantiser: rng.random(),
            initial_exponent: None,
        },
        _ => PolicyKind::Profile(random_profile(rng)),
    };
    let mut device = Device::new(kind);
    device.floor = floor;
    device.seed = rng.random();
    Case { device, qp }
}

fn random_profile(rng: &mut Xoshiro256PlusPlus) -> Profile {
    loop {
        let mut raw = RawProfile {
            time_base: 4,
            time_unit: 1,
            range_num: rng.random_range(1..=4),
            qp_total_timeout: rng.random(),
            retx_total_timeout: rng.random_range(16..=24),
            timeout_init_low_bound: rng.random_range(6..=12),
            timeout_init_range_size: rng.random_range(0..=3),
            ..RawProfile::EMPTY
        };
        let mut low = rng.random_range(6..=12);
        for range in &mut raw.timeout_range {
            range.range_low_bound = low;
            range.range_size = rng.random_range(0..=3);
            range.timeout_retry_num = rng.random_range(1..=4);
            low += range.range_size + rng.random_range(1..=3);
        }
        if let Ok(profile) = Profile::try_from(raw) {
            return profile;
        }
    }
}

/// Waits until the queue pair fails, or until its peer comes back after some of them.
fn capture(case: &Case, rng: &mut Xoshiro256PlusPlus) -> Vec<Packet> {
    let state = RetryState::new(&case.device, case.qp, 0x11);
    let trace = SilentPeer::new(case.device, state);
    let answered_after = match rng.random_range(0..2) {
        0 => usize::MAX,
        _ => rng.random_range(1..12),
    };
    // Something else goes on long before.
    let mut packets = vec![(1_000_000_000, 7, OTHER_QPN)];
    let mut at = 300_000_000_000;
    let late = |rng: &mut Xoshiro256PlusPlus| match rng.random_range(0..20) {
        0 => rng.random_range(100_000..1_500_000),
        _ => rng.random_range(2_000..80_000),
    };
    let mut sent = 0;
    packets.push((at, 100, QPN));
    for wait in trace.take(1000) {
        at += wait.wait.unwrap().as_nanos() + late(rng);
        match wait.event {
            Event::Retransmit { .. } if sent < answered_after => {
                packets.push((at, 100, QPN));
                sent += 1;
            }
            Event::Initial => {}
            _ => break,
        }
    }
    if sent == answered_after {
        packets.push((at + 50_000, 101, QPN));
    } else {
        // Something else goes on for long after.
        packets.push((at + 300_000_000_000, 8, OTHER_QPN));
    }
    packets
}

fn file(packets: &[Packet]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    for packet in packets {
        write(&mut writer, *packet);
    }
    drop(writer);
    file
}

fn write(writer: &mut Writer<&mut Vec<u8>>, (at, psn, qpn): Packet) {
    let meta = UdpMeta::new(
        "10.0.0.1:50000".parse().unwrap(),
        "10.0.0.2:4791".parse().unwrap(),
    );
    let ip = IpPair::new(meta.src.ip(), meta.dst.ip()).unwrap();
    let flow = IcrcFlow::new(ip, meta.src.port(), meta.dst.port());
    let headers = Headers::write(Connection::Rc, Place::Only, Reth::default(), None);
    let headers = headers.to(Qpn::new(qpn), Psn::new(psn));
    let mut packet = [0; 128];
    let len = headers.emit_packet(&[1; 8], &flow, 0, &mut packet).unwrap();
    writer.write_packet(at, &meta, &packet[..len]).unwrap();
}

/// Whether this policy is the case's, as far as it says something.
fn is_right(case: &Case, policy: &Policy) -> bool {
    let t = case.qp.timeout;
    let effective = case.device.floor.apply(t);
    let is_disabled = case.device.floor == AckTimeoutFloor::Disabled;
    match (policy, &case.device.kind) {
        (
            Policy::Plain {
                readings,
                retry_cnt,
            },
            PolicyKind::Ib { multiplier },
        ) => {
            let said = |reading: &ferroce_capture::Reading| {
                reading.multiplier == *multiplier
                    && reading.timeout.contains(&t)
                    && reading.floor.is_none_or(|floor| floor != is_disabled)
            };
            // Twice a timeout without a minimum is the next one.
            let is_next = |reading: &ferroce_capture::Reading| {
                *multiplier == 2 && reading.timeout.contains(&(effective + 1))
            };
            readings.iter().any(|it| said(it) || is_next(it))
                && retry_cnt.contains(&case.qp.retry_cnt)
        }
        // Without the minimum, the firmware has no ladder.
        (
            Policy::Plain {
                readings,
                retry_cnt,
            },
            PolicyKind::Firmware { .. },
        ) if is_disabled => {
            readings.iter().any(|reading| reading.timeout.contains(&t))
                && retry_cnt.contains(&case.qp.retry_cnt)
        }
        (
            Policy::Firmware {
                top,
                retry_cnt,
                first,
                ..
            },
            PolicyKind::Firmware { .. },
        ) => {
            !is_disabled
                && top.contains(&effective)
                && retry_cnt.contains(&case.qp.retry_cnt)
                && first.is_none_or(|first| (10..=14).contains(&first))
        }
        // A profile whose waits the timeout always cuts looks like no profile.
        (Policy::Plain { readings, .. }, PolicyKind::Profile(_)) => {
            let waits = SilentPeer::new(case.device, RetryState::new(&case.device, case.qp, 0x11));
            let ack = case.device.ack_timeout(case.qp);
            let mut retransmitted = waits.filter(|wait| wait.event != Event::Error).take(2000);
            retransmitted.all(|wait| wait.wait == ack)
                && readings.iter().any(|reading| reading.timeout.contains(&t))
        }
        (Policy::Profile { steps, cap }, PolicyKind::Profile(_)) => {
            let waits: Vec<Span> =
                SilentPeer::new(case.device, RetryState::new(&case.device, case.qp, 0x11))
                    .filter_map(|wait| wait.wait)
                    .take(2000)
                    .collect();
            // A late timer may be taken for another step, and short waits do not tell 4.096 from 4.
            let is_one = |step: &&Step| {
                let near = |wait: &Span| *wait.max(&step.wait) * 97 <= *wait.min(&step.wait) * 100;
                waits.iter().any(near)
            };
            let uses = |steps: &[&Step]| steps.iter().map(|step| step.uses).sum::<usize>();
            let all: Vec<&Step> = steps.iter().collect();
            let right: Vec<&Step> = steps.iter().filter(is_one).collect();
            cap.is_none_or(|cap| cap == effective) && uses(&right) * 10 >= uses(&all) * 8
        }
        _ => false,
    }
}
