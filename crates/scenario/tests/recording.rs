//! Samples of queue pairs, against looking at all of them.

use std::collections::HashMap;

use ferroce_fabric::{Sample, Simulation, Standing, TransferId};
use ferroce_scenario::Scenario;

/// An all-to-all with congestion, of which one link is down for a while.
fn scenario(record: &str) -> Scenario {
    let text = format!(
        "duration = '8ms'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\nspines = 2\nhosts_per_leaf = 8\n\
         [device]\ndcqcn = {{ rpg_time_reset = 20, rpg_ai_rate = 2000 }}\n[switch]\necn = {{ preset = 'hpcc' }}\n\
         [[job]]\nworkload = 'all-to-all'\nbytes = '2MiB'\non_error = {{ reconnect = '1ms' }}\n\
         [[fault]]\nkind = 'link-down'\nlink = 'leaf1-spine0'\nat = '100us'\nfor = '300us'\n\
         [record]\nevery = '5us'\nqueues = false\nlinks = false\n{record} = true\n"
    );
    Scenario::parse(&text, &mut |_| Err("no files".into())).unwrap()
}

/// Runs it to its end, as jobs or time have it, with a call after each window of time.
fn play(scenario: &Scenario, mut each: impl FnMut(&mut Simulation)) -> Simulation {
    let mut simulation = scenario.simulation().unwrap();
    loop {
        if simulation.run(1).unwrap() != Standing::Running {
            assert!(!simulation.samples.is_cut_short);
            return simulation; // there is no sample at the end
        }
        each(&mut simulation);
    }
}

#[test]
fn rates_are_those_of_all_limited_queue_pairs() {
    let scenario = scenario("rates");
    let (mut compared, mut recovered) = (0, 0);
    play(&scenario, |simulation| {
        let (fabric, now) = (&simulation.fabric, simulation.fabric.now());
        if !now.as_picos().is_multiple_of(5_000_000) || now.as_picos() == 0 {
            return;
        }
        let samples = &simulation.samples.rates;
        let first = samples.partition_point(|it| it.at < now);
        let mut expected = Vec::new();
        for host in 0..16 {
            for flow in fabric.host(host).hca.look_at_flows(now) {
                let Some(limit) = flow.limit else {
                    recovered += 1;
                    continue;
                };
                expected.push(Sample {
                    at: now,
                    of: host,
                    qpn: flow.qpn.into(),
                    value: limit.rate.bps(),
                });
            }
        }
        assert_eq!(samples[first..], expected);
        compared += expected.len();
    });
    assert!(
        compared > 1_000 && recovered > 300,
        "{compared} {recovered}"
    );
}

#[test]
fn goodput_adds_up_to_what_connections_carried() {
    let scenario = scenario("goodput");
    let simulation = play(&scenario, |_| ());
    let mut carried: HashMap<(u32, u32), u64> = HashMap::new();
    for it in &simulation.samples.goodput {
        *carried.entry((it.of, it.qpn)).or_default() += it.value;
    }
    // What was delivered after the last sample is missing.
    let end = simulation.samples.goodput.last().unwrap().at;
    let mut complete = 0;
    for (transfer, outcome) in (0..).zip(&simulation.player.outcomes) {
        let connection = simulation
            .player
            .connection_of(TransferId(transfer))
            .unwrap();
        let look = simulation
            .player
            .connections()
            .nth(connection as usize)
            .unwrap();
        let sampled = carried.get(&(look.ends[0], look.qpns[0].into()));
        if outcome.acknowledged <= end && look.failures == 0 {
            assert_eq!(sampled, Some(&look.bytes), "{look:?}");
            complete += 1;
        }
    }
    assert!(complete > 100, "{complete}");
}
