//! DCQCN through a bottleneck on real sockets: fair, busy, and quick to follow changes.
//!
//! A busy machine may disturb a second, so the tests require one good window within a limited time.
//! On a machine that disturbs every window, the tests are skipped.

mod common;

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{
    Link, Node, Other, PATIENCE, Place, Remote, address, attr, connect, connect_back, hear,
    patient, role,
};
use ferroce_dcqcn::Params;
use ferroce_device::{
    Completion, Counter, DeviceState, Direction, QpAttr, WcStatus, WriteLockError,
};
use ferroce_registry::{Registry, impairment};
use ferroce_testing::skip;
use ferroce_wire::Qpn;

/// Bytes of a message: the resolution of a flow's share.
const MESSAGE: u32 = 16 << 10;
/// Messages that a flow keeps posted: more than its window.
const POSTED: usize = 64;

/// A sample that is this late has waited for a core.
const DISTURBED: Duration = Duration::from_millis(10);
/// The most undisturbed windows until a good one.
const UNDISTURBED_MAX: u32 = 10;

/// A quarter of the rate in docs/congestion.md, so that builds without optimisation can keep up.
const LINK: &str = "rate=250Mbit,red=50KB:500KB:10%";

/// A quarter of the rates as well.
const SLOW_BOTTLENECK: [&str; 9] = [
    "ROCE_CC_CNP_MODERATION=2",
    "min_time_between_cnps=1000",
    "rate_reduce_monitor_period=1000",
    "dce_tcp_rtt=1000",
    "dce_tcp_g=1000",
    "rpg_time_reset=1500",
    "rpg_ai_rate=1",
    "rpg_hai_rate=1",
    "rate_to_set_on_first_cnp=15",
];

fn set(state: &DeviceState, assignments: &[&str]) {
    let change = |params: &mut Params| {
        for text in assignments {
            params.assign(text).unwrap();
        }
        Ok::<_, WriteLockError>(())
    };
    state.change_congestion(change).unwrap();
}

/// Puts the bottleneck in front of a device's receiver.
fn narrow(state: &DeviceState) {
    let link = impairment::parse(LINK).unwrap();
    state.set_impairment(Direction::Ingress, link).unwrap();
}

/// Timeouts longer than the queue: unnecessary retransmissions would make it even longer.
fn slow_attr() -> QpAttr {
    QpAttr {
        timeout: 17,
        ..attr()
    }
}

/// A queue pair that sends.
struct Flow {
    qpn: Qpn,
    to: Remote,
    /// Messages in flight.
    posted: usize,
}

/// Queue pairs of one device that send to another through its bottleneck.
struct Incast {
    /// The name of the test.
    test: &'static str,
    from: Node,
    /// State of the device with the bottleneck.
    to: DeviceState,
    /// That device, if it belongs to this process.
    _target: Option<Node>,
    flows: Vec<Flow>,
    completions: Vec<Completion>,
}

/// The traffic during a window.
struct Seen {
    /// Bytes of each flow.
    bytes: Vec<u64>,
    /// Share of the bottleneck's rate that was used.
    busy: f64,
    queue_mean: u64,
    /// The longest time between two samples, which are a millisecond apart on an idle machine.
    pause_max: Duration,
}

impl Incast {
    fn new(test: &'static str, subnet: u8, flows: usize) -> Self {
        let [from, to] = [1, 2].map(|host| {
            let node = Node::with_config(patient(address(33, subnet, host)), MESSAGE as usize);
            set(node.device.state(), &SLOW_BOTTLENECK);
            node
        });
        narrow(to.device.state());
        let flow = |_| Flow {
            qpn: connect(&from, &to, &slow_attr()).0,
            to: to.remote(0),
            posted: 0,
        };
        Self {
            test,
            flows: (0..flows).map(flow).collect(),
            completions: Vec::new(),
            to: to.device.state().clone(),
            _target: Some(to),
            from,
        }
    }

    /// Keeps the first `flows` of them busy for this time.
    fn run(&mut self, flows: usize, length: Duration) -> Seen {
        let state = self.to.clone();
        let frames = || {
            let headers = 16 * state.counter(Counter::RdmaRxPackets);
            state.counter(Counter::RdmaRxBytes) + headers
        };
        let link = state.impairment(Direction::Ingress).bottleneck.unwrap();
        let (started, before) = (Instant::now(), frames());
        let mut bytes = vec![0; self.flows.len()];
        let (mut queue, mut looks) = (0, 0);
        let (mut looked, mut pause_max) = (started, Duration::ZERO);
        while started.elapsed() < length {
            for flow in 0..flows {
                self.post(flow);
            }
            let pause = Duration::from_millis(1);
            let (device, cq) = (&self.from.device, self.from.cq);
            device
                .wait(cq, 1 << 10, &mut self.completions, pause)
                .unwrap();
            for completion in self.completions.drain(..) {
                assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
                let flow = completion.wr_id as usize;
                self.flows[flow].posted -= 1;
                bytes[flow] += u64::from(MESSAGE);
            }
            queue += state.queue_bytes(Direction::Ingress, device.now()).unwrap();
            looks += 1;
            let now = Instant::now();
            pause_max = pause_max.max(now - looked);
            looked = now;
        }
        let bits = (frames() - before) as f64 * 8.0;
        Seen {
            bytes,
            busy: bits / started.elapsed().as_secs_f64() / link.rate.bps() as f64,
            queue_mean: queue / looks,
            pause_max,
        }
    }

    fn post(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        while flow.posted < POSTED {
            let (write, sge) = (flow.to.write(), self.from.sge(0, MESSAGE));
            self.from.post(flow.qpn, index as u64, write, sge);
            flow.posted += 1;
        }
    }

    /// Runs until a window of this length is good. False if the machine disturbed the windows for
    /// so long that no result is possible; this skips the test.
    #[must_use]
    fn until(&mut self, flows: usize, window: Duration, is_good: impl Fn(&Seen) -> bool) -> bool {
        let (started, mut undisturbed) = (Instant::now(), 0);
        loop {
            let seen = self.run(flows, window);
            println!("{flows} flows, {window:?}: {seen}");
            if is_good(&seen) {
                return true;
            }
            undisturbed += u32::from(seen.pause_max < DISTURBED);
            if started.elapsed() > PATIENCE {
                assert!(undisturbed < UNDISTURBED_MAX, "{flows} flows: {seen}");
                skip(self.test, "the machine is too busy with other work");
                return false;
            }
        }
    }
}

impl Seen {
    /// Jain's index of fairness of the senders.
    fn jain(&self) -> f64 {
        let rates = self.bytes.iter().map(|bytes| *bytes as f64);
        let senders = rates.clone().filter(|rate| *rate > 0.0).count() as f64;
        let (sum, squares) = rates.fold((0.0, 0.0), |(s, q), rate| (s + rate, q + rate * rate));
        sum * sum / (senders * squares)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (jain, busy, queue) = (self.jain(), self.busy, self.queue_mean);
        write!(
            f,
            "Jain {jain:.3}, busy {busy:.3}, queue {queue} bytes, {:?}, paused {:?}",
            self.bytes, self.pause_max
        )
    }
}

/// Tests that measure need the machine for themselves.
static ALONE: Mutex<()> = Mutex::new(());

const SECOND: Duration = Duration::from_secs(1);

fn is_fair_and_busy(seen: &Seen) -> bool {
    seen.jain() >= 0.98 && seen.busy > 0.95
}

#[test]
fn remaining_flows_take_over_a_shared_bottleneck() {
    let _alone = ALONE.lock();
    let test = "remaining_flows_take_over_a_shared_bottleneck";
    for flows in [2, 4, 8, 16] {
        let mut incast = Incast::new(test, flows as u8, flows);
        // What the other flows have posted is still sent at first.
        let is_told = incast.until(flows, SECOND, is_fair_and_busy)
            && incast.until(flows / 2, SECOND / 10, |seen| seen.busy > 0.95)
            && incast.until(flows / 2, SECOND, is_fair_and_busy);
        if !is_told {
            return;
        }
    }
}

#[test]
fn a_change_of_parameters_is_followed() {
    let _alone = ALONE.lock();
    let mut incast = Incast::new("a_change_of_parameters_is_followed", 3, 4);
    if !incast.until(4, SECOND, is_fair_and_busy) {
        return;
    }
    let limits = |incast: &Incast| -> Vec<u64> {
        let device = &incast.from.device;
        let now = device.now();
        // If the machine carries less than the link, no flow is limited in the end.
        let mbps = |flow: &Flow| {
            let rate = device.with(|hca| hca.rate_limit(flow.qpn, now));
            rate.map_or(u64::MAX, |rate| rate.bps() / 1_000_000)
        };
        incast.flows.iter().map(mbps).collect()
    };
    set(incast.from.device.state(), &["rpg_min_rate=200"]);
    let started = Instant::now();
    while limits(&incast).iter().any(|mbps| *mbps < 200) {
        assert!(started.elapsed() < PATIENCE, "{:?}", limits(&incast));
        incast.run(4, SECOND / 20);
    }
    set(incast.from.device.state(), &["rpg_min_rate=1"]);
    let _is_told = incast.until(4, SECOND, is_fair_and_busy);
}

/// A process that receives on the device `a` of a registry, until its parent ends.
fn receiver(role: &[String]) {
    let registry = Registry::at(role[0].as_ref()).unwrap();
    let node = Node::attach(&registry, "a", MESSAGE as usize);
    let _links = [
        connect_back(&node, &slow_attr()),
        connect_back(&node, &slow_attr()),
    ];
    while hear().is_some() {}
}

#[test]
fn processes_that_receive_on_a_device_share_its_bottleneck() {
    if let Some(role) = role() {
        return receiver(&role);
    }
    let _alone = ALONE.lock();
    let place = Place::with_device(address(33, 0, 2));
    let observer = place.registry().observe("a").unwrap();
    narrow(observer.state());
    set(observer.state(), &SLOW_BOTTLENECK);
    let from = Node::with_config(patient(address(33, 0, 1)), MESSAGE as usize);
    set(from.device.state(), &SLOW_BOTTLENECK);
    let test = "processes_that_receive_on_a_device_share_its_bottleneck";
    let dir = place.path().to_str().unwrap();
    let mut others = [Other::start(test, dir), Other::start(test, dir)];
    let mut flows = Vec::new();
    for _ in 0..2 {
        for other in &mut others {
            let Link {
                qpn, memory: to, ..
            } = other.connect(&from, &slow_attr());
            flows.push(Flow { qpn, to, posted: 0 });
        }
    }
    let mut incast = Incast {
        test,
        from,
        to: observer.state().clone(),
        _target: None,
        flows,
        completions: Vec::new(),
    };
    // With separate bottlenecks they would get twice as much.
    let _is_told = incast.until(4, SECOND, |seen| is_fair_and_busy(seen) && seen.busy < 1.1);
    others.into_iter().for_each(Other::finish);
}
