//! What results say about paths, collisions and links.

use ferroce_fabric::{Simulation, Standing};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{LinkRow, Results, line_name};

/// Four leaves of four hosts, and rings whose hops all lead from one leaf to the next.
const RINGS: &str = "
[topology]
kind = 'leaf-spine'
leaves = 4
spines = 4
hosts_per_leaf = 4
[[job]]
name = 'ring'
workload = 'ring-all-reduce'
bytes = '4MiB'
hosts = ['h0', 'h4', 'h8', 'h12', 'h1', 'h5', 'h9', 'h13', 'h2', 'h6', 'h10', 'h14', 'h3', 'h7', 'h11', 'h15']
[record]
every = '10us'
";

fn run(text: &str, values: &[(&str, &str)]) -> (Scenario, Simulation, Results) {
    let values: Vec<_> = values
        .iter()
        .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
        .collect();
    let scenario = Scenario::parse_with(text, &values, &mut |_| Err("no files".into())).unwrap();
    let mut simulation = scenario.simulation().unwrap();
    let standing = simulation.run(u64::MAX).unwrap();
    let results = Results::new(&scenario, &simulation, standing);
    assert_eq!(standing, Standing::Over);
    (scenario, simulation, results)
}

/// Where the frames of a job went is where its paths say.
#[test]
fn paths_are_those_that_packets_take() {
    let links = |kind| ("topology.host_links", kind);
    for more in [
        ("seed", "1"),
        ("seed", "2"),
        ("seed", "3"),
        links("bond"),
        links("two-ports"),
    ] {
        let (scenario, simulation, results) = run(RINGS, &[more]);
        let mut payload = vec![0; 2 * scenario.topology.cables.len()];
        for (number, qp) in results.qps.iter().enumerate() {
            let lines = results.paths.lines(number);
            assert!(matches!(lines.len(), 2 | 4), "{more:?}: {lines:?}");
            assert!(!results.paths.has_changed(number));
            for line in lines {
                payload[*line as usize] += qp.bytes;
            }
        }
        for (line, payload) in payload.into_iter().enumerate() {
            let carried = simulation.fabric.line(line / 2, line % 2).bytes as f64;
            let name = line_name(&scenario.topology, line / 2, line % 2);
            // Headers take 2 %; acknowledgements and nothing else go where no data goes.
            let (least, most) = (payload as f64, payload as f64 * 1.03 + 300e3);
            assert!(
                (least..most).contains(&carried),
                "{more:?}, {name}: {payload} {carried}"
            );
        }
    }
}

#[test]
fn collisions_bound_the_time_of_a_job() {
    let mut worst = 0.0_f64;
    for seed in 1..=8 {
        let (.., results) = run(RINGS, &[("seed", &seed.to_string())]);
        let job = &results.summary.jobs[0];
        let spread = job.spread.as_ref().unwrap();
        let took = job.time_ns.unwrap();
        assert_eq!(spread.connections, 16);
        assert!(spread.busy_ns <= took, "{spread:?}, {took}");
        assert!(
            took as f64 <= spread.busy_ns as f64 * 1.6,
            "{spread:?}, {took}"
        );
        // Sixteen flows over sixteen uplinks, four to each spine's leaf.
        let ratio = spread.busy_ns as f64 / spread.even_ns as f64;
        assert!(
            (ratio - f64::from(spread.sharing)).abs() < 1e-3,
            "{spread:?}"
        );
        assert_eq!(spread.matters(job.ideal_ns), spread.sharing > 1);
        assert_eq!(spread.colliding > 0, spread.sharing > 1);
        worst = worst.max(ratio);
    }
    assert!(worst >= 3.0, "{worst}");
}

#[test]
fn a_star_has_no_collisions() {
    let text =
        "[topology]\nkind = 'star'\nhosts = 5\n[[job]]\nworkload = 'incast'\nbytes = '64KiB'\n";
    let (.., results) = run(text, &[]);
    let job = &results.summary.jobs[0];
    let spread = job.spread.as_ref().unwrap();
    assert_eq!(
        (spread.connections, spread.colliding, spread.sharing),
        (4, 0, 4)
    );
    assert_eq!(spread.busiest, "switch0-h0");
    assert_eq!(spread.busy_ns, spread.even_ns);
    assert!(!spread.matters(job.ideal_ns));
}

#[test]
fn random_routing_has_no_paths() {
    let (.., results) = run(RINGS, &[("switch.routing", "'random'")]);
    assert_eq!(results.paths.lines(0), [] as [u32; 0]);
    assert_eq!(results.summary.jobs[0].spread, None);
}

#[test]
fn a_path_that_switches_leave_has_changed() {
    let fault = "[[fault]]\nkind = 'link-down'\nlink = 'leaf0-spine0'\nat = '50us'\nfor = '10ms'\nreroute_after = '10us'\n";
    let text = format!("{RINGS}{fault}");
    let (scenario, _, results) = run(&text, &[]);
    let cable = scenario.port("leaf0-spine0").unwrap().0 as u32;
    let mut changed = 0;
    for number in 0..results.qps.len() {
        let crosses = results
            .paths
            .lines(number)
            .iter()
            .any(|line| line / 2 == cable);
        assert!(results.paths.has_changed(number) || !crosses, "{number}");
        changed += usize::from(results.paths.has_changed(number));
    }
    assert!(changed > 0 && changed < results.qps.len(), "{changed}");
}

#[test]
fn links_say_how_busy_they_were_and_with_what() {
    let (scenario, simulation, results) = run(RINGS, &[]);
    let job = &results.summary.jobs[0];
    let busiest = &results.summary.busiest_links;
    assert_eq!(busiest.len(), 5);
    assert!(busiest.is_sorted_by(|a, b| a.carried.utilisation >= b.carried.utilisation));
    let first = &busiest[0];
    let spread = job.spread.as_ref().unwrap();
    assert_eq!(first.carried.connections, spread.sharing);
    let share = spread.busy_ns as f64 / job.time_ns.unwrap() as f64;
    assert!(
        (first.carried.utilisation - share).abs() < 0.03,
        "{first:?}, {share}"
    );
    assert!(first.carried.peak.unwrap() > 0.95, "{first:?}");
    assert_eq!(first.talkers.len(), spread.sharing.min(3) as usize);
    for talker in &first.talkers {
        let qp = results.qps.iter().find(|it| {
            (it.qpn, scenario.topology.names[it.host as usize].as_str())
                == (talker.qpn, &*talker.src)
        });
        assert_eq!(qp.unwrap().bytes, talker.bytes);
    }
    let bytes: u64 = results.links.iter().map(|it| it.carried.bytes).sum();
    let lines = 0..2 * scenario.topology.cables.len();
    let all: u64 = lines
        .map(|it| simulation.fabric.line(it / 2, it % 2).bytes)
        .sum();
    assert_eq!(bytes, all);
}

#[test]
fn drops_and_pauses_are_those_of_their_links() {
    let text = "[topology]\nkind = 'star'\nhosts = 9\n[switch]\nbuffer = '100KB'\n\
                [[job]]\nworkload = 'incast'\nbytes = '256KiB'\ndscp = 24\n";
    let at = |results: &Results, scenario: &Scenario, name: &str| -> LinkRow {
        let named = |it: &&LinkRow| {
            line_name(
                &scenario.topology,
                it.line as usize / 2,
                it.line as usize % 2,
            ) == name
        };
        *results.links.iter().find(named).unwrap()
    };
    let (scenario, _, results) = run(text, &[]);
    let full = at(&results, &scenario, "switch0-h0").carried;
    assert!(full.dropped > 0 && full.queue_max > 50_000, "{full:?}");
    assert_eq!(full.dropped, results.summary.totals.dropped_full);
    let (scenario, _, results) = run(
        text,
        &[
            ("switch.pfc", "{ priorities = [3], headroom = '8KiB' }"),
            ("switch.buffer", "'200KB'"),
        ],
    );
    let paused: u64 = results.links.iter().map(|it| it.carried.pauses).sum();
    assert!(paused > 0);
    assert_eq!(paused, results.summary.totals.pauses);
    assert!(at(&results, &scenario, "h1-switch0").carried.pauses > 0);
}

#[test]
fn transfers_have_their_delivery_and_connection() {
    let (.., results) = run(RINGS, &[]);
    for flow in &results.flows {
        let qp = &results.qps[flow.connection as usize];
        assert_eq!((qp.host, qp.peer), (flow.src, flow.dst));
        assert!(flow.delivery_ns.unwrap() < flow.fct_ns.unwrap());
    }
}

/// What queue pairs deliver adds up, whether messages are long or short.
#[test]
fn goodput_is_what_queue_pairs_deliver() {
    for (bytes, own) in [("8MiB", "false"), ("5KB", "false"), ("1MiB", "true")] {
        let text = format!(
            "[topology]\nkind = 'star'\nhosts = 3\n[[job]]\nworkload = 'incast'\nbytes = '{bytes}'\n\
             qp_per_transfer = {own}\n[record]\nevery = '200ns'\ngoodput = true\n"
        );
        let (_, simulation, results) = run(&text, &[]);
        let samples = &simulation.samples.goodput;
        for qp in &results.qps {
            let own = samples
                .iter()
                .filter(|it| (it.of, it.qpn) == (qp.host, qp.qpn));
            let delivered: u64 = own.map(|it| it.value).sum();
            // A message is delivered long before its acknowledgement is back.
            assert_eq!(delivered, qp.bytes, "{bytes}");
        }
        assert!(!samples.is_empty());
    }
}

/// A link that is slower for a while is as busy as its rate of that time allows.
#[test]
fn a_slow_link_is_a_busy_one() {
    let text = "[topology]\nkind = 'pair'\nrate = '100Gbit'\n[[job]]\nworkload = 'permutation'\nbytes = '10MB'\n\
                [[fault]]\nkind = 'rate'\nlink = 'h0-h1'\nrate = '10Gbit'\nat = '500us'\n";
    let (.., results) = run(text, &[]);
    let took = results.summary.jobs[0].time_ns.unwrap();
    assert!(took > 3_000_000, "{took}");
    let busiest = &results.summary.busiest_links[0].carried;
    assert!(busiest.utilisation > 0.97, "{busiest:?}");
    assert!(busiest.peak > Some(0.97), "{busiest:?}");
}
