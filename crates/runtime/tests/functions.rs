//! Cards with virtual functions.

mod common;

use std::net::IpAddr;
use std::thread;

use common::{Node, Place, address, attr, connect, set_profile};
use ferroce_device::{Counter, Direction, Impairment, Method};
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_registry::{DeviceSpec, Registry, RegistryError};

const FILE: u8 = 30;

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

#[test]
fn a_card_is_listed_with_its_vfs_which_come_and_go_with_it() {
    let place = Place::new();
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
            "bv1 is a VF of b and uses its settings: change those with `ferroce dev set b`, \
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
fn a_vf_needs_a_free_name_and_addresses() {
    let place = Place::new();
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
    // A device at the address of a VF of the other card; VFs at the other's address, and at its
    // VF's.
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
    // With another port, the address is free.
    let other_port = DeviceSpec {
        port: 4792,
        ..card("d", address(FILE, 1, 6))
    };
    registry.add(&other_port).unwrap();
    // More VFs than the addresses that follow allow.
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
    let place = Place::new();
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
    // The VF keeps its address, but not the settings that it uses.
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
fn a_card_has_the_settings_and_each_function_its_counters() {
    let place = Place::new();
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
    // Writers through both functions neither block nor undo each other's changes.
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
    let written = |node: &Node| node.count(Counter::RxWriteRequests);
    assert_eq!((written(&pf), written(&vf)), (0, 1));
    // A process that opens a VF first creates the card's settings.
    registry.add(&card("c", address(FILE, 4, 0))).unwrap();
    let first = Node::attach(&registry, "cv1", 64);
    assert_eq!(first.device.with(|hca| hca.policy().kind), firmware);
}
