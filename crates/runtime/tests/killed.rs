//! A process of the device is killed while it has most of what the device may have on the wire to a
//! peer: the others continue, and soon have all of it.

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Link, Node, Other, PATIENCE, Place, address, connect_back, hear, impatient, nothing_was_missed,
    patient, patient_attr, role, tell,
};
use ferroce_device::{Counter, WcStatus};
use ferroce_registry::{DeviceSpec, Registry};

/// What the processes may have on the wire together.
const WINDOW: u64 = 1 << 20;
/// A process keeps twice the window in its queues, so that it takes as much as it is given.
const QPS: usize = 16;
const WRITES: usize = 2;
const BYTES: u32 = 64 << 10;
/// What a process has on the wire at some time, if no other wants any.
const NEARLY_ALL: u64 = WINDOW - WINDOW / 8;

/// A process that writes to its peer without end.
struct Writer {
    node: Node,
    links: Vec<Link>,
    queued: HashMap<u32, usize>,
    done: u64,
    /// The most that it has had on the wire.
    peak: u64,
}

impl Writer {
    fn new(directory: &Path) -> Self {
        let registry = Registry::at(directory).unwrap();
        let node = Node::attach(&registry, "a", BYTES as usize);
        let links = (0..QPS).map(|_| connect_back(&node, &patient_attr()));
        Self {
            links: links.collect(),
            queued: HashMap::new(),
            done: 0,
            peak: 0,
            node,
        }
    }

    fn fill(&mut self) {
        for link in &self.links {
            let queued = self.queued.entry(link.qpn.value()).or_default();
            while *queued < WRITES {
                let sge = self.node.sge(0, BYTES);
                self.node.post(link.qpn, 0, link.memory.write(), sge);
                *queued += 1;
            }
        }
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        let pause = Duration::from_millis(1);
        self.node
            .device
            .wait(self.node.cq, 1, &mut out, pause)
            .unwrap();
        for completion in &out {
            assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
            *self.queued.get_mut(&completion.qpn.value()).unwrap() -= 1;
        }
        self.done += out.len() as u64;
        let look = |hca: &mut ferroce_device::Hca| hca.look_at_qps().find_map(|look| look.window);
        let window = self.node.device.with(look).unwrap();
        assert!(window.used_bytes <= WINDOW, "{window:?}");
        self.peak = self.peak.max(window.used_bytes);
    }

    /// Follows orders until there are no more.
    fn run(mut self, orders: &Receiver<String>) {
        let mut writes = true;
        loop {
            match orders.try_recv().as_deref() {
                Ok("look") => {
                    tell(format!("{} {}", self.done, self.peak));
                    self.peak = 0;
                }
                Ok(order) => writes = order == "write",
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => break,
            }
            if writes {
                self.fill();
            }
            self.step();
        }
        while self.queued.values().any(|queued| *queued > 0) {
            self.step();
        }
        self.node.device.with(|hca| hca.audit());
    }
}

fn writer(directory: &Path) {
    let writer = Writer::new(directory);
    tell("connected");
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        while let Some(order) = hear() {
            sender.send(order).unwrap();
        }
    });
    writer.run(&orders);
}

/// What it has done so far, and the most that it has had on the wire since the last call.
fn look(writer: &mut Other) -> (u64, u64) {
    writer.tell("look");
    let told = writer.hear();
    let (done, peak) = told.split_once(' ').unwrap();
    (done.parse().unwrap(), peak.parse().unwrap())
}

/// Samples until the condition holds; returns how long that took.
fn until(writer: &mut Other, what: &str, is_there: impl Fn((u64, u64)) -> bool) -> Duration {
    let started = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(20));
        let seen = look(writer);
        if is_there(seen) {
            return started.elapsed();
        }
        assert!(started.elapsed() < PATIENCE, "{what}: {seen:?}");
    }
}

#[test]
fn bytes_of_a_killed_process_on_the_wire_go_to_the_others() {
    if let Some(role) = role() {
        return writer(Path::new(&role[0]));
    }
    let own = address(67, 0, 0);
    let place = Place::new();
    let spec = DeviceSpec {
        personality: impatient(own).hca.personality,
        window: "1MiB".parse().unwrap(),
        ..DeviceSpec::new("a", own)
    };
    place.registry().add(&spec).unwrap();
    let peer = Node::with_config(patient(address(67, 0, 1)), BYTES as usize);
    let start = || {
        let test = "bytes_of_a_killed_process_on_the_wire_go_to_the_others";
        let mut writer = Other::start(test, &place.path().display().to_string());
        for _ in 0..QPS {
            writer.connect(&peer, &patient_attr());
        }
        assert_eq!(writer.hear(), "connected");
        writer
    };

    // Alone, the victim takes the whole window.
    let mut victim = start();
    until(&mut victim, "alone", |(_, peak)| peak > NEARLY_ALL);
    let mut others = [(); 3].map(|()| start());
    for other in &mut others {
        until(other, "beside the victim", |(done, _)| done > 100);
    }
    victim.kill();
    let before = others.each_mut().map(|other| look(other).0);
    for (other, before) in others.iter_mut().zip(before) {
        until(other, "after the kill", |(done, _)| done > before + 100);
    }

    // The victim's share is not lost: a process to which the others leave everything gets it.
    let [one, rest @ ..] = &mut others;
    rest.iter_mut().for_each(|other| other.tell("pause"));
    let took = until(one, "what is left", |(_, peak)| peak > NEARLY_ALL);
    println!("all of the window again after {took:?}");
    others.into_iter().for_each(Other::finish);
    // Packets from the peer to the victim are not for the others.
    let observer = Node::attach(&place.registry(), "a", 4096);
    nothing_was_missed(&observer);
    let again = observer.count(Counter::RetransmittedPackets);
    assert_eq!(again, 0, "{}", Counter::RetransmittedPackets.name());
}
