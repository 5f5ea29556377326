//! Cards with virtual functions.

mod common;

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{Node, Other, PATIENCE, Place, address, attr, connect, hear, role, tell};
use ferroce_hca::{
    Counter, DeviceState, Direction, HistogramConfig, Impairment, Method, QpAttr, SendOp, WcStatus,
};
use ferroce_prm::Register;
use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};
use ferroce_prm::mlxreg::apply;
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_udp::socket::ROCE_PORT;
use ferroce_udp::{DeviceSpec, Endpoint, Registry, RegistryError};
use ferroce_wire::{Psn, Qpn};

const FILE: u8 = 30;
const QPS: usize = 8;

/// 128 us to 512 us, each value four times, for 262 ms in all.
const PROFILE: &str = "adp_retx_profile_select=1,time_base=4,time_unit=1,range_num=1,\
    retx_total_timeout=16,timeout_init_low_bound=5,timeout_init_range_size=1,range_low_bound_0=5,\
    range_size_0=2,timeout_retry_num_0=4,dec_mode_0=2";

/// The device `name` with two VFs.
fn card(name: &str, address: IpAddr) -> DeviceSpec {
    DeviceSpec {
        vfs: 2,
        ..DeviceSpec::new(name, address)
    }
}

fn names(registry: &Registry) -> Vec<String> {
    let devices = registry.devices().unwrap();
    devices.into_iter().map(|spec| spec.name).collect()
}

fn access(state: &DeviceState, register: &Register, method: Method, bytes: &mut [u8]) {
    state.access_register(register.id(), method, bytes).unwrap();
}

fn set_profile(state: &DeviceState) {
    let mut payload = [0; ROCE_ACCL.size()];
    apply(&ROCE_ACCL, &mut payload, "adp_retx_profile_id=1", PROFILE).unwrap();
    access(state, &ROCE_ACCL, Method::Write, &mut payload);
}

#[test]
fn a_card_is_listed_with_its_vfs_which_come_and_go_with_it() {
    let place = Place::new("vf-list");
    let registry = place.registry();
    registry.add(&card("b", address(FILE, 0, 0))).unwrap();
    assert_eq!(names(&registry), ["b", "bv0", "bv1", "fr0"]);
    let devices = registry.devices().unwrap();
    let pci = devices
        .iter()
        .zip(0..)
        .map(|(it, n)| it.pci_at(n).to_string());
    assert_eq!(
        pci.collect::<Vec<_>>()[..3],
        ["10fe:00:00.0", "10fe:00:00.1", "10fe:00:00.2"]
    );
    let vf = registry.device("bv1").unwrap();
    assert_eq!((vf.vhca_id(), vf.pf().name.as_str()), (2, "b"));
    for refused in [registry.remove("bv1"), registry.replace(&vf)] {
        assert_eq!(
            refused.unwrap_err().to_string(),
            "bv1 is a VF of b, and goes by its settings: change those with `ferroce dev set b`, \
             how many VFs there are with `ferroce dev set b vfs N`"
        );
    }
    let fewer = DeviceSpec {
        vfs: 1,
        ..card("b", address(FILE, 0, 0))
    };
    registry.replace(&fewer).unwrap();
    assert_eq!(names(&registry), ["b", "bv0", "fr0"]);
    registry.remove("b").unwrap();
    assert_eq!(names(&registry), ["fr0"]);
}

#[test]
fn what_a_vf_needs_must_be_free() {
    let place = Place::new("vf-free");
    let registry = place.registry();
    let pci = |text: &str| Some(text.parse().unwrap());
    let one = DeviceSpec {
        pci: pci("1a:00.0"),
        ..card("b", address(FILE, 1, 0))
    };
    registry.add(&one).unwrap();
    let told = |spec: &DeviceSpec, told: &[&str]| {
        let error = registry.add(spec).unwrap_err().to_string();
        assert!(told.iter().all(|it| error.contains(it)), "{error}");
    };
    let far = address(FILE, 1, 7);
    // On a VF of the other; a VF of it on the other, and on a VF of the other.
    told(
        &DeviceSpec::new("c", address(FILE, 1, 1)),
        &["c cannot", "device bv0 has"],
    );
    let on = |vf_address| DeviceSpec {
        vf_address: Some(vf_address),
        ..card("c", far)
    };
    told(
        &on(one.address),
        &["cv0 cannot", "device b has", "vf_address"],
    );
    told(&on(address(FILE, 1, 2)), &["cv0 cannot", "device bv1 has"]);
    told(&on(address(FILE, 1, 6)), &["cv1 cannot", "device c has"]);
    let beside = DeviceSpec {
        pci: pci("1a:00.1"),
        ..DeviceSpec::new("c", far)
    };
    told(&beside, &["c cannot", "0000:1a:00.1", "device bv0 has"]);
    let mut named = DeviceSpec::new("bv0", far);
    told(&named, &["bv0 exists"]);
    named.name = "c".to_owned();
    registry.add(&named).unwrap();
    // Another port is another place.
    let other_port = DeviceSpec {
        port: 4792,
        ..card("d", address(FILE, 1, 6))
    };
    registry.add(&other_port).unwrap();
    // More VFs than there is room for, later on.
    let more = DeviceSpec { vfs: 7, ..one };
    let error = registry.replace(&more).unwrap_err();
    assert!(
        matches!(&error, RegistryError::AddressTaken { device, name, .. } if device == "bv6" && name == "c"),
        "{error}"
    );
    assert_eq!(registry.device("b").unwrap().vfs, 2);
}

#[test]
fn a_card_stays_while_a_vf_is_open() {
    let place = Place::new("vf-open");
    let registry = place.registry();
    let spec = card("b", address(FILE, 2, 0));
    registry.add(&spec).unwrap();
    let node = Node::attach(&registry, "bv1", 64);
    node.device.with(|hca| hca.count(Counter::TxDropped, 3));
    let in_use = |result: Result<(), RegistryError>, user: &str| {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, RegistryError::InUse { name } if name == user),
            "{error}"
        );
    };
    in_use(registry.remove("b"), "bv1");
    let vfs = |vfs| DeviceSpec {
        vfs,
        ..spec.clone()
    };
    in_use(registry.replace(&vfs(1)), "bv1");
    // The VF stays where it is, but not the settings that it goes by.
    let moved = DeviceSpec {
        address: address(FILE, 2, 5),
        vf_address: Some(address(FILE, 2, 1)),
        ..spec.clone()
    };
    in_use(registry.replace(&moved), "b");
    registry.replace(&vfs(3)).unwrap();
    let counted = |name| {
        let observer = registry.observe(name).unwrap();
        observer.state().counter(Counter::TxDropped)
    };
    assert_eq!(["b", "bv0", "bv1"].map(counted), [0, 0, 3]);
    let users = |name| registry.observe(name).unwrap().processes().unwrap().len();
    assert_eq!(["b", "bv0", "bv1"].map(users), [0, 0, 1]);
    drop(node);
    registry.replace(&vfs(1)).unwrap();
    registry.replace(&vfs(2)).unwrap();
    assert_eq!(counted("bv1"), 0, "it is a new one");
    registry.remove("b").unwrap();
}

#[test]
fn settings_are_those_of_the_card_and_counters_those_of_the_function() {
    let place = Place::new("vf-settings");
    let registry = place.registry();
    registry.add(&card("b", address(FILE, 3, 0))).unwrap();
    let (pf, vf) = (
        Node::attach(&registry, "b", 4096),
        Node::attach(&registry, "bv0", 4096),
    );
    let firmware = vf.device.with(|hca| hca.policy().kind);
    let late = Node::attach(&registry, "bv1", 64);
    set_profile(registry.observe("b").unwrap().state());
    for node in [&pf, &vf, &late] {
        node.device.progress();
        let kind = node.device.with(|hca| {
            hca.poll_transmit(node.device.now());
            hca.policy().kind
        });
        assert_ne!(kind, firmware);
    }
    // Writers through both neither wait for ever nor undo each other's work.
    let id = ROCE_ACCL.id();
    thread::scope(|scope| {
        for (name, direction) in [("b", Direction::Egress), ("bv0", Direction::Ingress)] {
            let observer = registry.observe(name).unwrap();
            scope.spawn(move || {
                let state = observer.state();
                let mut image = [0; 128];
                for n in 1..=300u32 {
                    let link = Impairment {
                        duplicate: f64::from(n) / 1e6,
                        ..Impairment::default()
                    };
                    state.set_impairment(direction, link.clone()).unwrap();
                    for method in [Method::Query, Method::Write] {
                        state.access_register(id, method, &mut image).unwrap();
                    }
                    assert_eq!(state.impairment(direction), link);
                }
            });
        }
    });
    let (at_pf, _) = connect(&pf, &vf, &attr());
    pf.post(at_pf, 1, vf.remote(0).write(), pf.sge(0, 4096));
    pf.succeed(1);
    let written = |node: &Node| node.device.state().counter(Counter::RxWriteRequests);
    assert_eq!((written(&pf), written(&vf)), (0, 1));
    // A process that opens a VF first makes the card's settings.
    registry.add(&card("c", address(FILE, 4, 0))).unwrap();
    let first = Node::attach(&registry, "cv1", 64);
    assert_eq!(first.device.with(|hca| hca.policy().kind), firmware);
}

/// A process with queue pairs whose peer is silent: by the firmware's own timeouts they would wait
/// for hours.
fn other(role: &[String]) {
    let registry = Registry::at(Path::new(&role[1])).unwrap();
    let node = Node::attach(&registry, &role[2], 64);
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

/// Ends what waits for it, also when a test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A profile that is written through the PF is that of requests in flight in the processes of all
/// functions; and while the histograms of all functions are read and cleared, every wait is in one
/// answer of its function, and in one of the PF.
#[test]
fn a_profile_acts_on_all_functions_and_each_has_its_histogram() {
    if let Some(role) = role() {
        return other(&role);
    }
    let silent = address(FILE, 5, 9);
    let _deaf = UdpSocket::bind((silent, ROCE_PORT)).unwrap();
    let place = Place::new("vf-processes");
    let registry = place.registry();
    registry.add(&card("b", address(FILE, 5, 0))).unwrap();
    let functions = ["b", "bv0", "bv1"];
    let test = "a_profile_acts_on_all_functions_and_each_has_its_histogram";
    let mut children = functions.map(|name| {
        let role = format!("silent {} {name} {silent}", place.0.display());
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
    let read = || {
        for (observer, sum) in observers.iter().zip(&sums) {
            let mut data = vec![0; counts::size(HistogramConfig::BINS_MAX)];
            access(
                observer.state(),
                &ADP_RETX_HISTOGRAM,
                Method::Query,
                &mut data,
            );
            sum.fetch_add(counts::bins(&data).sum(), Ordering::Relaxed);
        }
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                read();
            }
        });
        let _done = Done(&done);
        set_profile(observers[0].state());
        let started = std::time::Instant::now();
        for child in &mut children {
            assert_eq!(child.hear(), "failed");
            assert!(started.elapsed() < PATIENCE);
        }
    });
    read();
    let waits = observers.map(|it| it.state().counter(Counter::RoceAdpRetrans));
    assert!(
        waits.iter().all(|count| *count > 10 * QPS as u64),
        "{waits:?}"
    );
    let sums = sums.map(AtomicU64::into_inner);
    assert_eq!(sums, [waits.iter().sum(), waits[1], waits[2]]);
    children.into_iter().for_each(Other::finish);
}
