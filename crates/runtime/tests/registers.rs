//! Registers of a device that several processes have open, and of a card whose functions they have.

mod common;

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{Node, Other, Over, PATIENCE, Place, address, attr, hear, role, tell};
use ferroce_hca::{Counter, DeviceState, HistogramConfig, Method, QpAttr, SendOp, WcStatus};
use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};
use ferroce_prm::adp_retx_histogram_config::{ADP_RETX_HISTOGRAM_CONFIG, CLEAR_ON_READ};
use ferroce_prm::mlxreg::apply;
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_prm::{Image, Register};
use ferroce_registry::{DeviceSpec, Registry};
use ferroce_runtime::Endpoint;
use ferroce_wire::{Psn, Qpn, ROCE_V2_PORT};

const PROCESSES: usize = 3;
const QPS: usize = 8;

/// 128 us to 512 us, each value four times, for 262 ms in all.
const PROFILE: &str = "adp_retx_profile_select=1,time_base=4,time_unit=1,range_num=1,\
    retx_total_timeout=16,timeout_init_low_bound=5,timeout_init_range_size=1,range_low_bound_0=5,\
    range_size_0=2,timeout_retry_num_0=4,dec_mode_0=2";

/// A process with queue pairs whose peer is silent: by the firmware's own timeouts they would wait
/// for hours.
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

fn set_profile(state: &DeviceState) {
    let mut payload = [0; 0x80];
    apply(&ROCE_ACCL, &mut payload, "adp_retx_profile_id=1", PROFILE).unwrap();
    access(state, &ROCE_ACCL, Method::Write, &mut payload);
}

/// The waits in the bins that a read of the register gives.
fn read(state: &DeviceState) -> u64 {
    let mut data = vec![0; counts::size(HistogramConfig::BINS_MAX)];
    access(state, &ADP_RETX_HISTOGRAM, Method::Query, &mut data);
    counts::bins(&data).sum()
}

/// A profile that one process writes is the profile of the others, whose requests are in flight; and
/// while one process reads the histogram and clears it, and another writes its configuration, every
/// wait of every process is in one answer.
#[test]
fn a_profile_and_the_histogram_are_those_of_all_processes() {
    if let Some(role) = role() {
        return other(&role);
    }
    let silent = address(63, 0, 1);
    let _deaf = UdpSocket::bind((silent, ROCE_V2_PORT)).unwrap();
    let place = Place::new();
    let registry = place.registry();
    let spec = DeviceSpec::new("a", address(63, 0, 0));
    registry.add(&spec).unwrap();
    let test = "a_profile_and_the_histogram_are_those_of_all_processes";
    let role = format!("silent {} a {silent}", place.path().display());
    let mut children: Vec<_> = (0..PROCESSES).map(|_| Other::start(test, &role)).collect();
    for child in &mut children {
        assert_eq!(child.hear(), "sent");
    }

    let observer = registry.observe("a").unwrap();
    let state = observer.state();
    let mut config = [0; 0x80];
    access(
        state,
        &ADP_RETX_HISTOGRAM_CONFIG,
        Method::Query,
        &mut config,
    );
    let mut image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, &mut config[..]).unwrap();
    image.set(&CLEAR_ON_READ, 1).unwrap();
    access(
        state,
        &ADP_RETX_HISTOGRAM_CONFIG,
        Method::Write,
        &mut config,
    );
    set_profile(state);

    let (over, sum) = (AtomicBool::new(false), AtomicU64::new(0));
    let take = |state: &DeviceState| sum.fetch_add(read(state), Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let observer = registry.observe("a").unwrap();
            while !over.load(Ordering::Relaxed) {
                take(observer.state());
            }
        });
        scope.spawn(|| {
            let observer = registry.observe("a").unwrap();
            let mut config = config;
            while !over.load(Ordering::Relaxed) {
                for method in [Method::Query, Method::Write] {
                    access(
                        observer.state(),
                        &ADP_RETX_HISTOGRAM_CONFIG,
                        method,
                        &mut config,
                    );
                }
            }
        });
        let _over = Over(&over);
        let started = std::time::Instant::now();
        for child in &mut children {
            assert_eq!(child.hear(), "failed");
            assert!(started.elapsed() < PATIENCE);
        }
    });
    take(state);
    let expected = state.counter(Counter::RoceAdpRetrans);
    assert!(expected > 10 * (PROCESSES * QPS) as u64, "{expected} waits");
    assert_eq!(sum.into_inner(), expected);
    children.into_iter().for_each(Other::finish);
}

/// A profile that is written through the PF is that of requests in flight in the processes of all
/// functions; and while the histograms of all functions are read and cleared, every wait is in one
/// answer of its function, and in one of the PF.
#[test]
fn a_profile_acts_on_all_functions_and_each_has_its_histogram() {
    if let Some(role) = role() {
        return other(&role);
    }
    let silent = address(63, 1, 9);
    let _deaf = UdpSocket::bind((silent, ROCE_V2_PORT)).unwrap();
    let place = Place::new();
    let registry = place.registry();
    let spec = DeviceSpec {
        vfs: 2,
        ..DeviceSpec::new("b", address(63, 1, 0))
    };
    registry.add(&spec).unwrap();
    let functions = ["b", "bv0", "bv1"];
    let test = "a_profile_acts_on_all_functions_and_each_has_its_histogram";
    let mut children = functions.map(|name| {
        let role = format!("silent {} {name} {silent}", place.path().display());
        Other::start(test, &role)
    });
    for child in &mut children {
        assert_eq!(child.hear(), "sent");
    }
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
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                take();
            }
        });
        let _over = Over(&over);
        set_profile(observers[0].state());
        let started = std::time::Instant::now();
        for child in &mut children {
            assert_eq!(child.hear(), "failed");
            assert!(started.elapsed() < PATIENCE);
        }
    });
    take();
    let waits = observers.map(|it| it.state().counter(Counter::RoceAdpRetrans));
    assert!(
        waits.iter().all(|count| *count > 10 * QPS as u64),
        "{waits:?}"
    );
    let sums = sums.map(AtomicU64::into_inner);
    assert_eq!(sums, [waits.iter().sum(), waits[1], waits[2]]);
    children.into_iter().for_each(Other::finish);
}
