//! Registers of a device that several processes have open, and of a card with its functions.

mod common;

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{Node, Other, Over, PATIENCE, Place, address, attr, hear, role, set_profile, tell};
use ferroce_device::{Counter, DeviceState, HistogramConfig, Method, QpAttr, SendOp, WcStatus};
use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};
use ferroce_prm::adp_retx_histogram_config::{ADP_RETX_HISTOGRAM_CONFIG, CLEAR_ON_READ};
use ferroce_prm::{Image, Register};
use ferroce_registry::{DeviceSpec, Registry};
use ferroce_runtime::Endpoint;
use ferroce_wire::{Psn, Qpn, ROCE_V2_PORT};

const PROCESSES: usize = 3;
const QPS: usize = 8;

/// A process with queue pairs whose peer is silent: with the firmware's own timeouts they would
/// wait for hours.
fn other(role: &[String]) {
    let node = Node::attach(&Registry::at(Path::new(&role[1])).unwrap(), &role[2], 64);
    let silent: IpAddr = role[3].parse().unwrap();
    let attr = QpAttr {
        timeout: 31,
        ..attr()
    };
    for _ in 0..QPS {
        let qpn = node.qp();
        let peer = Endpoint {
            address: silent,
            qpn: Qpn::new(0x100),
            psn: Psn::new(0),
        };
        node.device
            .connect(node.endpoint(qpn), peer, &attr)
            .unwrap();
        node.post(qpn, 1, SendOp::Send { imm: None }, node.sge(0, 64));
    }
    tell("sent");
    for completion in node.completions(QPS) {
        assert_eq!(completion.status, WcStatus::RetryExcErr);
    }
    tell("failed");
    while hear().is_some() {}
}

fn access(state: &DeviceState, register: &Register, method: Method, bytes: &mut [u8]) {
    state.access_register(register.id(), method, bytes).unwrap();
}

/// The waits in the bins that a read of the register returns.
fn read(state: &DeviceState) -> u64 {
    let mut data = vec![0; counts::size(HistogramConfig::BINS_MAX)];
    access(state, &ADP_RETX_HISTOGRAM, Method::Query, &mut data);
    counts::bins(&data).sum()
}

/// Processes with queue pairs, one for each of these functions of a card, that wait for a silent
/// peer.
struct Scene {
    registry: Registry,
    others: Vec<Other>,
    _deaf: UdpSocket,
    _place: Place,
}

impl Scene {
    fn new(test: &str, spec: &DeviceSpec, silent: IpAddr, functions: &[&str]) -> Self {
        let place = Place::new();
        place.registry().add(spec).unwrap();
        let deaf = UdpSocket::bind((silent, ROCE_V2_PORT)).unwrap();
        let directory = place.path().display();
        let start = |name| Other::start(test, &format!("silent {directory} {name} {silent}"));
        let mut others: Vec<_> = functions.iter().map(start).collect();
        for other in &mut others {
            assert_eq!(other.hear(), "sent");
        }
        Self {
            registry: place.registry(),
            others,
            _deaf: deaf,
            _place: place,
        }
    }

    /// Calls `change`, and waits until all queue pairs have failed, while other threads repeat
    /// `meanwhile`.
    fn fail(&mut self, meanwhile: &[&(dyn Fn() + Sync)], change: impl FnOnce()) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for work in meanwhile {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        work();
                    }
                });
            }
            let _over = Over(&over);
            change();
            let started = std::time::Instant::now();
            for other in &mut self.others {
                assert_eq!(other.hear(), "failed");
                assert!(started.elapsed() < PATIENCE);
            }
        });
    }
}

/// A profile that one process writes applies to the others, whose requests are in flight. While one
/// process reads and clears the histogram, and another writes its configuration, every wait of
/// every process is in exactly one answer.
#[test]
fn a_profile_and_the_histogram_are_those_of_all_processes() {
    if let Some(role) = role() {
        return other(&role);
    }
    let test = "a_profile_and_the_histogram_are_those_of_all_processes";
    let spec = DeviceSpec::new("a", address(63, 0, 0));
    let mut scene = Scene::new(test, &spec, address(63, 0, 1), &["a"; PROCESSES]);
    let registry = scene.registry.clone();
    let observer = registry.observe("a").unwrap();
    let state = observer.state();
    let register = &ADP_RETX_HISTOGRAM_CONFIG;
    let mut config = [0; 0x80];
    access(state, register, Method::Query, &mut config);
    let mut image = Image::new(register, &mut config[..]).unwrap();
    image.set(&CLEAR_ON_READ, 1).unwrap();
    access(state, register, Method::Write, &mut config);

    let sum = AtomicU64::new(0);
    let take = |state: &DeviceState| {
        sum.fetch_add(read(state), Ordering::Relaxed);
    };
    let [reader, writer] = [(); 2].map(|()| registry.observe("a").unwrap());
    let configure = || {
        let mut config = config;
        for method in [Method::Query, Method::Write] {
            access(writer.state(), register, method, &mut config);
        }
    };
    scene.fail(&[&|| take(reader.state()), &configure], || {
        set_profile(state)
    });
    take(state);
    let expected = state.counter(Counter::RoceAdpRetrans);
    assert!(expected > 10 * (PROCESSES * QPS) as u64, "{expected} waits");
    assert_eq!(sum.into_inner(), expected);
    scene.others.into_iter().for_each(Other::finish);
}

/// A profile that is written through the PF applies to requests in flight in the processes of all
/// functions. While the histograms of all functions are read and cleared, every wait is in one
/// answer of its function, and in one of the PF.
#[test]
fn a_profile_acts_on_all_functions_and_each_has_its_histogram() {
    if let Some(role) = role() {
        return other(&role);
    }
    let spec = DeviceSpec {
        vfs: 2,
        ..DeviceSpec::new("b", address(63, 1, 0))
    };
    let functions = ["b", "bv0", "bv1"];
    let test = "a_profile_acts_on_all_functions_and_each_has_its_histogram";
    let mut scene = Scene::new(test, &spec, address(63, 1, 9), &functions);
    let registry = &scene.registry;
    let observers = functions.map(|name| registry.observe(name).unwrap());
    for observer in &observers {
        let config = HistogramConfig {
            clear_on_read: true,
            ..HistogramConfig::default()
        };
        observer.state().configure_histogram(config).unwrap();
    }

    let sums = [(); 3].map(|()| AtomicU64::new(0));
    let take = || {
        for (observer, sum) in observers.iter().zip(&sums) {
            sum.fetch_add(read(observer.state()), Ordering::Relaxed);
        }
    };
    scene.fail(&[&take], || set_profile(observers[0].state()));
    take();
    let waits = observers.map(|it| it.state().counter(Counter::RoceAdpRetrans));
    assert!(
        waits.iter().all(|count| *count > 10 * QPS as u64),
        "{waits:?}"
    );
    let sums = sums.map(AtomicU64::into_inner);
    assert_eq!(sums, [waits.iter().sum(), waits[1], waits[2]]);
    scene.others.into_iter().for_each(Other::finish);
}
