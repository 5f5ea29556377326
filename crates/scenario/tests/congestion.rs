//! Congestion control and acknowledgements by the keys of scenario files.

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::presets::PRESETS;
use ferroce_dcqcn::rp::Phase;
use ferroce_dcqcn::{AlphaPrecision, FullRate, HyperIncrease, Switches};
use ferroce_fabric::{Simulation, Standing};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::Results;

fn parse(text: &str) -> Result<Scenario, String> {
    let resolve = &mut |name: &str| Err(format!("no file {name}"));
    Scenario::parse(text, resolve).map_err(|error| error.to_string())
}

fn play(scenario: &Scenario, mut each: impl FnMut(&mut Simulation)) -> (Simulation, Results) {
    let mut simulation = scenario.simulation().unwrap();
    let standing = loop {
        match simulation.run(1_000).unwrap() {
            Standing::Running => each(&mut simulation),
            standing => break standing,
        }
    };
    simulation.fabric.audit();
    let results = Results::new(scenario, &simulation, standing);
    (simulation, results)
}

/// Some hosts send to one, behind a switch that marks as HPCC's do.
fn incast(senders: u32, bytes: &str, device: &str) -> Scenario {
    let hosts = senders + 1;
    let text = format!(
        "duration = '40ms'\n[topology]\nkind = 'star'\nhosts = {hosts}\n\
         [switch]\necn = {{ preset = 'hpcc' }}\npfc = {{ priorities = [3] }}\n\
         [device]\n{device}\n[[job]]\nworkload = 'incast'\nbytes = '{bytes}'\n"
    );
    parse(&text).unwrap()
}

/// The phases that flows have been in between two cuts.
fn phases(device: &str) -> Vec<Phase> {
    let mut seen = Vec::new();
    play(&incast(4, "16MiB", device), |simulation| {
        let fabric = &simulation.fabric;
        for host in 1..=4 {
            for flow in fabric.host(host).hca.look_at_flows(fabric.now()) {
                let phase = flow.limit.map(|limit| limit.phase);
                seen.extend(phase.filter(|phase| !seen.contains(phase)));
            }
        }
    });
    seen
}

#[test]
fn published_simulators_increase_as_published() {
    let all = [Phase::FastRecovery, Phase::Additive, Phase::Hyper];
    let reaches = |device: &str, expected: &[Phase]| {
        let seen = phases(device);
        let of_both = all.iter().filter(|phase| seen.contains(phase));
        assert!(of_both.eq(expected), "{device}: {seen:?}");
    };
    reaches("dcqcn = { preset = 'hpcc' }", &all);
    let both = "dcqcn = { preset = 'hpcc', algorithm = { hyper_increase = 'both-counters' } }";
    // It has no byte counter.
    reaches(both, &all[..2]);
}

/// The mean queue of the port to the receiver, bytes, and the pauses.
fn queue(senders: u32, device: &str) -> (f64, u64) {
    let (simulation, results) = play(&incast(senders, "32MiB", device), |_| ());
    let waited = simulation.samples.queues.iter().filter(|it| it.of == 1);
    let sum: f64 = waited.map(|it| it.value as f64).sum();
    let looks = simulation.fabric.now().as_nanos() as f64 / 1e3;
    (sum / looks, results.summary.totals.pauses)
}

/// With CNPs for each flow, four senders are held back before pauses do it.
#[test]
fn cnps_of_a_port_do_not_hold_four_senders_back() {
    let per_port = queue(4, "dcqcn = { preset = 'firmware' }");
    let per_flow = queue(4, "dcqcn = { ROCE_CC_CNP_MODERATION = 2 }");
    assert!(per_port.1 > 100, "{per_port:?}");
    assert_eq!(per_flow.1, 0, "{per_flow:?}");
    let tuned = queue(4, "dcqcn = { preset = 'barre' }");
    assert!(tuned.0 < per_port.0 / 2.0, "{tuned:?}, {per_port:?}");
}

#[test]
fn results_say_that_they_rest_on_the_scope_of_cnps() {
    let assumed = |senders: u32, device: &str| {
        let scenario = incast(senders, "4MiB", device);
        let (_, results) = play(&scenario, |_| ());
        let assumptions = results.summary.assumptions;
        let found = scenario.assumptions().into_iter().map(|it| it.text);
        assert!(found.eq(assumptions.iter().cloned()), "{assumptions:?}");
        assumptions
    };
    let [text] = &assumed(4, "")[..] else {
        panic!("one assumption");
    };
    assert!(
        text.starts_with("CNPs are limited to one in 4 us for each port, which up to 4 senders"),
        "{text}"
    );
    assert_eq!(assumed(2, ""), [""; 0]);
    for scope in [1, 2] {
        let device = format!("dcqcn = {{ ROCE_CC_CNP_MODERATION = {scope} }}");
        assert_eq!(assumed(4, &device), [""; 0]);
    }
    assert_eq!(assumed(4, "dcqcn = { min_time_between_cnps = 0 }"), [""; 0]);
}

#[test]
fn a_preset_brings_its_algorithm_and_keys_change_it() {
    let switches = |device: &str| incast(2, "1MiB", device).device.switches;
    assert_eq!(switches(""), Switches::default());
    for preset in PRESETS {
        let device = format!("dcqcn = {{ preset = '{}' }}", preset.name);
        assert_eq!(switches(&device), preset.switches());
    }
    let changed =
        "dcqcn = { preset = 'hpcc', algorithm = { full_rate = 'releases', qau_extras = true } }";
    let expected = Switches {
        hyper_increase: HyperIncrease::AfterOneStep,
        alpha_precision: AlphaPrecision::Bits26,
        full_rate: FullRate::Releases,
        qau_extras: true,
        ..Switches::default()
    };
    assert_eq!(switches(changed), expected);
}

#[test]
fn unknown_answers_are_refused_with_the_known_ones() {
    let refused = |dcqcn: &str, why: &str| {
        let text = format!(
            "[topology]\nkind = 'pair'\n[device]\ndcqcn = {dcqcn}\n[[job]]\nworkload = 'incast'\nbytes = '1KiB'"
        );
        let error = parse(&text).expect_err("it is refused");
        assert!(error.ends_with(why), "{error}");
    };
    refused(
        "{ algorithm = { tie = 'both' } }",
        "invalid device.dcqcn.algorithm.tie \"both\": must be \"alpha-first\" or \"cut-first\"",
    );
    refused(
        "{ algorithm = { ties = 'both' } }",
        "unknown key device.dcqcn.algorithm.ties; did you mean tie?",
    );
    refused("{ preset = 'hpc' }", "did you mean hpcc?");
}

/// Packets of a message of 64, and of its acknowledgements.
fn packets(device: &str) -> u64 {
    let text = format!(
        "[topology]\nkind = 'pair'\n[device]\nmtu = 1024\n{device}\n\
         [[job]]\nworkload = 'incast'\nbytes = '64KiB'\n"
    );
    let (_, results) = play(&parse(&text).unwrap(), |_| ());
    results.summary.totals.packets
}

#[test]
fn acknowledgements_are_requested_as_often_as_the_file_says() {
    assert_eq!(packets(""), 64 + 1);
    assert_eq!(packets("ack_every = 1"), 64 + 64);
    assert_eq!(packets("ack_every = 10"), 64 + 7);
    assert_eq!(packets("ack_every = 255"), 64 + 1);
}

/// The time until a packet of host 0 is acknowledged, while data fills the cable to that host.
fn answered(device: &str) -> Span {
    let text = format!(
        "[topology]\nkind = 'star'\nhosts = 4\n[device]\ndcqcn = {{ enabled = false }}\n{device}\n\
         [[job]]\nworkload = 'incast'\nhosts = [0, 2, 3]\nreceiver = 0\nbytes = '1MiB'\n\
         [[job]]\nworkload = 'permutation'\nhosts = [0, 1]\nbytes = '64'\nat = '60us'\n"
    );
    let (simulation, _) = play(&parse(&text).unwrap(), |_| ());
    let single = simulation.player.outcomes.iter().skip(2);
    let took = single.map(|it| it.acknowledged.since(it.started));
    took.min().unwrap()
}

#[test]
fn acknowledgements_of_a_high_priority_overtake_data() {
    let behind = answered("");
    let ahead = answered("ack_dscp = 48");
    assert!(ahead < Span::from_micros(10), "{ahead}");
    assert!(behind > Span::from_micros(20), "{behind}");
}

/// What a limited queue pair has in flight follows its rate, in every queue.
#[test]
fn a_paced_window_bounds_the_queue() {
    let longest = |device: &str| {
        let device = format!("mtu = 1024\ndcqcn = {{ preset = 'hpcc' }}\n{device}");
        let (simulation, _) = play(&incast(8, "32MiB", &device), |_| ());
        let late = Time::from_nanos(5_000_000);
        let waited = simulation.samples.queues.iter();
        let waited = waited.filter(|it| it.of == 1 && it.at > late);
        waited.map(|it| it.value).max().unwrap()
    };
    let (without, with) = (longest(""), longest("paced_window = '8us'"));
    assert!(with * 10 < without * 7, "{with}, {without}");
}

/// Each switch adds its latency to the way there and back, and to the ideal time.
#[test]
fn the_latency_of_switches_adds_up() {
    let took = |latency: &str| {
        let text = format!(
            "[topology]\nkind = 'dumbbell'\nleft_hosts = 1\nright_hosts = 1\n[switch]\nlatency = '{latency}'\n\
             [[job]]\nworkload = 'incast'\nbytes = '20KiB'\n"
        );
        let (_, results) = play(&parse(&text).unwrap(), |_| ());
        let flow = results.flows[0];
        assert_eq!(flow.fct_ns, Some(flow.ideal_ns));
        flow.ideal_ns
    };
    assert_eq!(took("600ns") - took("0"), 4 * 600);
}

/// A host that takes 20 Gb/s of 100: its sender is paused, and what passes has that rate.
#[test]
fn a_slow_receiver_pauses_its_switch() {
    let run = |pfc: &str| {
        let text = format!(
            "[topology]\nkind = 'star'\nhosts = 2\n[switch]\n{pfc}\n[device]\ndcqcn = {{ enabled = false }}\n\
             [[job]]\nworkload = 'incast'\nbytes = '8MiB'\n\
             [[fault]]\nkind = 'slow-receiver'\nhost = 0\nrate = '20Gbit'\nfor = '2ms'\n"
        );
        let (_, results) = play(&parse(&text).unwrap(), |simulation| {
            simulation.fabric.audit()
        });
        (results.flows[0].fct_ns.unwrap(), results.summary.totals)
    };
    let (took, totals) = run("pfc = { priorities = [3] }");
    assert_eq!((totals.dropped_full, totals.retransmitted), (0, 0));
    assert!(totals.pauses > 10, "{totals:?}");
    // 5 MB in 2 ms, and the rest at the cable's rate.
    let expected = 2_000_000 + (8 * 1_048_576 - 5_000_000) * 8 / 100;
    assert!(
        took.abs_diff(expected) < 100_000,
        "{took} ns, not {expected}"
    );
    let (_, totals) = run("");
    assert!(totals.dropped_full > 0 && totals.pauses == 0, "{totals:?}");
}
