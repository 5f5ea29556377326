//! Every topology of the builders can be simulated, and has its theoretical properties.

use std::collections::BTreeSet;

use ferroce_fabric::route::pick;
use ferroce_fabric::topology::{CableSpec, Dumbbell, FatTree, LeafSpine, Ports, RailPod};
use ferroce_fabric::{NodeId, Rate, Routes, Span, Topology};
use proptest::prelude::*;

fn cable() -> impl Strategy<Value = CableSpec> {
    (1..400_000_u32, 0..1_000_000_u64)
        .prop_map(|(mbps, ps)| CableSpec::new(Rate::from_mbps(mbps), Span::from_picos(ps)))
}

/// The number of cables between two hosts, by a search from host to host.
fn searched_hops(topology: &Topology, from: u32) -> Vec<u32> {
    let ports = Ports::of(topology);
    let mut hops = vec![u32::MAX; topology.names.len()];
    hops[from as usize] = 0;
    let mut queue = std::collections::VecDeque::from([NodeId(from)]);
    while let Some(node) = queue.pop_front() {
        let next = hops[node.0 as usize] + 1;
        for port in ports.at(node) {
            let peer = &mut hops[port.peer.0 as usize];
            if *peer == u32::MAX {
                *peer = next;
                queue.push_back(port.peer);
            }
        }
    }
    hops.truncate(topology.hosts as usize);
    hops
}

/// All hosts reach each other on shortest paths, whatever the switches choose.
fn check_routes(topology: &Topology) -> Result<(), TestCaseError> {
    prop_assert_eq!(topology.check(), Ok(()));
    let (ports, routes) = (Ports::of(topology), Routes::new(topology, |_| true));
    for src in 0..topology.hosts {
        let hops = searched_hops(topology, src);
        for dst in 0..topology.hosts {
            prop_assert_eq!(routes.hops(src, dst), Some(hops[dst as usize]));
            let mut at = ports.switch_of(src).unwrap();
            let mut taken = 1;
            while src != dst && at != NodeId(dst) {
                let choice = pick(routes.ports(at, dst), src ^ dst << 8, at.0).unwrap();
                at = ports.at(at)[usize::from(choice)].peer;
                taken += 1;
            }
            prop_assert!(src == dst || taken == hops[dst as usize]);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn stars_and_dumbbells(
        left_hosts in 1..20_u32,
        right_hosts in 1..20_u32,
        host_cable in cable(),
        middle_cable in cable(),
    ) {
        check_routes(&Topology::star(left_hosts, host_cable).unwrap())?;
        let dumbbell = Dumbbell { left_hosts, right_hosts, host_cable, middle_cable };
        let topology = dumbbell.build().unwrap();
        check_routes(&topology)?;
        let routes = Routes::new(&topology, |_| true);
        prop_assert_eq!(routes.hops(0, topology.hosts - 1), Some(3));
    }

    #[test]
    fn leaf_spines(
        leaves in 1..8_u32,
        spines in 1..6_u32,
        hosts_per_leaf in 1..6_u32,
        cables_per_spine in 1..4_u32,
        host_cable in cable(),
        spine_cable in cable(),
    ) {
        let it = LeafSpine {
            leaves, spines, hosts_per_leaf, cables_per_spine, host_cable, spine_cable,
        };
        let topology = it.build().unwrap();
        prop_assert_eq!(topology.hosts, leaves * hosts_per_leaf);
        prop_assert_eq!(topology.switches(), leaves + spines);
        check_routes(&topology)?;
        if leaves > 1 {
            let routes = Routes::new(&topology, |_| true);
            let ways = routes.ports(NodeId(topology.hosts), topology.hosts - 1);
            prop_assert_eq!(ways.len() as u32, spines * cables_per_spine);
        }
    }

    #[test]
    fn fat_trees(
        pods in 1..5_u32,
        leaves_per_pod in 1..4_u32,
        spines_per_pod in 1..4_u32,
        cores_per_spine in 1..4_u32,
        hosts_per_leaf in 1..4_u32,
        cable in cable(),
    ) {
        let it = FatTree {
            pods, leaves_per_pod, spines_per_pod, cores_per_spine, hosts_per_leaf,
            host_cable: cable, spine_cable: cable, core_cable: cable,
        };
        let topology = it.build().unwrap();
        check_routes(&topology)?;
        let routes = Routes::new(&topology, |_| true);
        let last = topology.hosts - 1;
        let expected = match (last, pods, leaves_per_pod) {
            (0, _, _) => 0,
            (_, 1, 1) => 2,
            (_, 1, _) => 4,
            _ => 6,
        };
        prop_assert_eq!(routes.hops(0, last), Some(expected));
    }

    #[test]
    fn rail_pods(
        servers in 1..12_u32,
        nics in 1..5_u32,
        servers_per_unit in 1..6_u32,
        spines in 1..4_u32,
        host_cable in cable(),
    ) {
        let it = RailPod {
            servers, nics, servers_per_unit, spines, cables_per_spine: 2,
            host_cable, spine_cable: host_cable,
        };
        let topology = it.build().unwrap();
        check_routes(&topology)?;
        prop_assert_eq!(topology.hosts, servers * nics);
        prop_assert_eq!(topology.switches(), servers.div_ceil(servers_per_unit) * nics + spines);
        let routes = Routes::new(&topology, |_| true);
        let host = |server, nic| topology.find(&format!("s{server}-nic{nic}")).unwrap().0;
        for nic in 1..nics {
            prop_assert_eq!(routes.hops(host(0, 0), host(0, nic)), Some(4), "another rail");
        }
        if servers > 1 && servers_per_unit > 1 {
            prop_assert_eq!(routes.hops(host(0, 0), host(1, 0)), Some(2), "the same rail");
        }
    }

    /// With cables down, routes are the shortest over the remaining ones, and never contain a loop.
    #[test]
    fn cables_fail(down in prop::collection::btree_set(0..48_usize, 0..20)) {
        let cable = CableSpec::new(Rate::from_mbps(100_000), Span::ZERO);
        let topology = FatTree::k_ary(4, cable).unwrap().build().unwrap();
        prop_assert_eq!(topology.cables.len(), 48);
        let routes = Routes::new(&topology, |cable| !down.contains(&cable));
        let mut rest = topology.clone();
        let mut place = 0;
        rest.cables.retain(|_| {
            place += 1;
            !down.contains(&(place - 1))
        });
        for src in 0..topology.hosts {
            let hops = searched_hops(&rest, src);
            for (dst, hops) in (0..).zip(hops).filter(|it| it.0 != src) {
                prop_assert_eq!(routes.hops(src, dst).unwrap_or(u32::MAX), hops);
            }
        }
    }
}

#[test]
fn k_ary_fat_trees_have_the_published_sizes() {
    let cable = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));
    for k in [2, 4, 8, 16] {
        let two = LeafSpine::k_ary(k, cable).unwrap().build().unwrap();
        assert_eq!((two.hosts, two.switches()), (k * k / 2, k + k / 2));
        let three = FatTree::k_ary(k, cable).unwrap().build().unwrap();
        assert_eq!(
            (three.hosts, three.switches()),
            (k * k * k / 4, 5 * k * k / 4)
        );
        for topology in [two, three] {
            let ports = Ports::of(&topology);
            let switches = (topology.hosts..topology.nodes()).map(NodeId);
            let degrees: BTreeSet<_> = switches.map(|it| ports.at(it).len() as u32).collect();
            assert_eq!(degrees, [k].into(), "every switch has k ports");
        }
    }
    let odd = FatTree::k_ary(5, cable).unwrap_err().to_string();
    assert_eq!(odd, "invalid k 5: must be even, for example 6");
    let large = FatTree::k_ary(66, cable)
        .unwrap()
        .build()
        .unwrap_err()
        .to_string();
    assert_eq!(large, "invalid hosts 71874: must be 1 to 65536");
}

#[test]
fn oversized_input_takes_no_memory() {
    let cable = CableSpec::new(Rate::from_mbps(100_000), Span::ZERO);
    let wide = LeafSpine {
        leaves: 60_000,
        spines: 60_000,
        hosts_per_leaf: 1,
        cables_per_spine: 60_000,
        host_cable: cable,
        spine_cable: cable,
    };
    let error = wide.build().unwrap_err().to_string();
    assert_eq!(error, "invalid switches 120000: must be 0 to 65536");
    let dense = LeafSpine {
        leaves: 5_000,
        spines: 5_000,
        ..wide
    };
    let error = dense.build().unwrap_err().to_string();
    assert_eq!(error, "invalid cables 1500000005000: must be 1 to 1048576");
    assert!(LeafSpine { leaves: 0, ..wide }.build().is_err());
    let none = LeafSpine {
        cables_per_spine: 0,
        ..wide
    };
    let error = none.build().unwrap_err().to_string();
    assert_eq!(error, "invalid cables_per_spine 0: must be 1 to 65535");
    let pod = RailPod {
        servers: 65_536,
        nics: 65_536,
        servers_per_unit: 1,
        spines: 65_536,
        cables_per_spine: 65_535,
        host_cable: cable,
        spine_cable: cable,
    };
    let error = pod.build().unwrap_err().to_string();
    assert_eq!(error, "invalid hosts 4294967296: must be 1 to 65536");
    let slow = Topology::star(3, CableSpec::new(Rate::default(), Span::ZERO));
    let error = slow.unwrap_err().to_string();
    assert!(
        error.starts_with("cable 0 (h0 to switch0): invalid rate 0 bit/s"),
        "{error}"
    );
}
