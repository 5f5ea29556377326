//! Fair shares.

use std::collections::BTreeMap;

use super::Path;
use crate::topology::Topology;

/// Returns the max-min fair shares of flows, each of which uses some of the resources: no share can
/// grow except at the cost of one that is not larger.
///
/// All shares grow equally until a resource is full; the flows that use it stop, the others
/// continue (water filling). A flow that uses nothing has an infinite share.
///
/// # Panics
/// Panics if a flow uses a resource that does not exist.
#[must_use]
pub fn max_min(capacities: &[f64], flows: &[Vec<usize>]) -> Vec<f64> {
    let mut shares = vec![f64::INFINITY; flows.len()];
    let mut left = capacities.to_vec();
    let mut users = vec![Vec::new(); capacities.len()];
    for (flow, resources) in flows.iter().enumerate() {
        for &resource in resources {
            users[resource].push(flow);
        }
    }
    let mut active: Vec<usize> = users.iter().map(Vec::len).collect();
    loop {
        let open = (0..capacities.len()).filter(|it| active[*it] > 0);
        let share = |it: usize| (left[it] / active[it] as f64).max(0.0);
        let Some(tight) = open.min_by(|a, b| share(*a).total_cmp(&share(*b))) else {
            return shares;
        };
        let share = share(tight);
        for &flow in &users[tight] {
            if shares[flow].is_finite() {
                continue;
            }
            shares[flow] = share;
            for &resource in &flows[flow] {
                left[resource] -= share;
                active[resource] -= 1;
            }
        }
        // Rounding must not leave it open.
        active[tight] = 0;
    }
}

/// Returns the max-min fair shares of flows on these paths, in bit/s. Each direction of a cable is
/// a resource.
#[must_use]
pub fn fair_shares(topology: &Topology, paths: &[Path]) -> Vec<f64> {
    let mut places = BTreeMap::new();
    let mut capacities = Vec::new();
    let mut resource = |hop| {
        *places.entry(hop).or_insert_with(|| {
            let super::Hop { cable, .. } = hop;
            capacities.push(topology.cables[cable as usize].rate.bps() as f64);
            capacities.len() - 1
        })
    };
    let flows: Vec<Vec<usize>> = paths
        .iter()
        .map(|path| path.hops.iter().map(|hop| resource(*hop)).collect())
        .collect();
    max_min(&capacities, &flows)
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::route::Routes;
    use crate::topology::{CableSpec, Dumbbell, Ports};

    #[test]
    fn a_parking_lot_is_shared() {
        // One flow over all three, one over each.
        let flows = [vec![0, 1, 2], vec![0], vec![1], vec![2]];
        assert_eq!(max_min(&[10.0, 30.0, 30.0], &flows), [5.0, 5.0, 25.0, 25.0]);
        assert_eq!(max_min(&[10.0], &[vec![0], vec![]]), [10.0, f64::INFINITY]);
        assert_eq!(max_min(&[], &[]), [0.0; 0]);
    }

    #[test]
    fn the_middle_of_a_dumbbell_is_shared() {
        let cable = |gbps: u32| CableSpec::new(Rate::from_mbps(1_000 * gbps), Span::ZERO);
        let topology = Dumbbell {
            left_hosts: 3,
            right_hosts: 3,
            host_cable: cable(25),
            middle_cable: cable(40),
        };
        let topology = topology.build().unwrap();
        let (ports, routes) = (Ports::of(&topology), Routes::new(&topology, |_| true));
        let path = |ends| Path::new(&topology, &ports, &routes, ends, |_, it| it[0]).unwrap();
        let shares = fair_shares(
            &topology,
            &[[0, 3], [1, 4], [2, 5], [0, 1], [5, 2]].map(path),
        );
        // The first is held back by its host, which sends another; the rest of the middle is shared.
        assert_eq!(shares, [12.5e9, 13.75e9, 13.75e9, 12.5e9, 25e9]);
    }

    proptest! {
        /// Each flow has a resource that is full, and on which no flow has more.
        #[test]
        fn every_flow_has_a_bottleneck(
            capacities in vec(1..100_u32, 1..8),
            flows in vec(btree_set(0..8_usize, 1..5), 1..20),
        ) {
            let capacities: Vec<f64> = capacities.into_iter().map(f64::from).collect();
            let flows: Vec<Vec<usize>> = flows
                .into_iter()
                .map(|it| it.into_iter().filter(|it| *it < capacities.len()).collect())
                .filter(|it: &Vec<usize>| !it.is_empty())
                .collect();
            let shares = max_min(&capacities, &flows);
            let on = |resource: usize| {
                let users = flows.iter().zip(&shares).filter(move |it| it.0.contains(&resource));
                users.map(|it| *it.1)
            };
            for (resource, capacity) in capacities.iter().enumerate() {
                prop_assert!(on(resource).sum::<f64>() <= capacity + 1e-6);
            }
            for (flow, share) in flows.iter().zip(&shares) {
                let is_bottleneck = |resource: &usize| {
                    on(*resource).sum::<f64>() >= capacities[*resource] - 1e-6
                        && on(*resource).all(|other| other <= share + 1e-6)
                };
                prop_assert!(flow.iter().any(is_bottleneck));
            }
        }
    }
}
