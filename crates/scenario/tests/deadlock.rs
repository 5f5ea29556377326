//! Switches that pause each other in a circle.

use std::fmt::Write as _;

use ferroce_fabric::{Simulation, Standing};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{Fate, Results};

/// Switches in a circle, a host at each, which sends to the one `away` switches further on.
fn circle(count: u32, away: u32, switch: &str) -> String {
    let names = |kind: char| {
        let names = (0..count).map(|it| format!("'{kind}{it}'"));
        names.collect::<Vec<_>>().join(",")
    };
    let mut cables = String::new();
    for it in 0..count {
        let _ = write!(
            cables,
            "['h{it}','s{it}'],['s{it}','s{}'],",
            (it + 1) % count
        );
    }
    let (hosts, switches) = (names('h'), names('s'));
    let mut text = format!(
        "duration = '1s'\n[topology]\nkind = 'list'\nhost_names = [{hosts}]\nswitch_names = [{switches}]\n\
         cables = [{cables}]\n[switch]\nbuffer = '1MiB'\n{switch}\n[device]\ndcqcn = {{ enabled = false }}\n"
    );
    for it in 0..count {
        let to = (it + away) % count;
        let _ = write!(
            text,
            "[[job]]\nname = 'from{it}'\nworkload = 'incast'\nhosts = [{it}, {to}]\nreceiver = {to}\nbytes = '4MiB'\n"
        );
    }
    text
}

const PFC: &str = "pfc = { priorities = [3], headroom = '64KiB' }";

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, &mut |name| Err(format!("no file {name}"))).unwrap()
}

/// Runs to the end; `look` sees it now and then.
fn run(text: &str, mut look: impl FnMut(&Simulation)) -> Results {
    let scenario = scenario(text);
    let mut simulation = scenario.simulation().unwrap();
    let standing = loop {
        match simulation.run(500).unwrap() {
            Standing::Running => look(&simulation),
            standing => break standing,
        }
    };
    simulation.fabric.audit();
    Results::new(&scenario, &simulation, standing)
}

#[test]
fn a_circle_of_pauses_is_found_and_named() {
    let mut since = None;
    let results = run(&circle(5, 2, PFC), |simulation| {
        let found = simulation.fabric.deadlock();
        if since.is_some() {
            assert_eq!(found, since, "a deadlock does not end");
        }
        since = found;
    });
    let mut ports = results.summary.deadlock.expect("nothing moves any more");
    ports.sort();
    assert_eq!(ports, ["s0-s1", "s1-s2", "s2-s3", "s3-s4", "s4-s0"]);
    assert!(
        results
            .summary
            .jobs
            .iter()
            .any(|job| job.fate == Fate::Unfinished)
    );
}

#[test]
fn without_pauses_there_is_none() {
    let results = run(&circle(5, 2, ""), |simulation| {
        assert_eq!(simulation.fabric.deadlock(), None);
    });
    assert_eq!(results.summary.deadlock, None);
}

fn watched(action: &str) -> String {
    let watchdog = format!(
        "watchdog = {{ detection = '200ms', restoration = '400ms', action = '{action}' }} }}"
    );
    PFC.replace(" }", &format!(", {watchdog}"))
}

/// The same circle as above.
#[test]
fn a_watchdog_that_drops_breaks_the_circle() {
    let text = circle(5, 2, &watched("drop")).replace("duration = '1s'", "duration = '5s'");
    let results = run(&text, |_| {});
    let summary = &results.summary;
    assert_eq!(summary.deadlock, None);
    let is_done = |job: &ferroce_scenario::results::Job| job.fate == Fate::Finished;
    assert!(summary.jobs.iter().all(is_done), "{:?}", summary.jobs);
    let between_switches = |port: &str| port.chars().filter(|it| *it == 's').count() == 2;
    assert!(summary.storms.iter().all(|it| between_switches(&it.port)));
    let first = summary.storms.iter().map(|it| it.first_ns).min();
    assert!(first.is_some_and(|at| (200_000_000..210_000_000).contains(&at)));
    let dropped: u64 = summary.storms.iter().map(|it| it.dropped).sum();
    assert!(dropped > 0 && summary.totals.dropped_storm == dropped);
    // Pauses have ended with the circle, and the queues are restored after that.
    let lasted = summary.storms.iter().map(|it| it.lasted_ns);
    assert!(lasted.min().is_some_and(|it| it >= 400_000_000));
    assert!(
        summary.totals.timeouts > 0,
        "what was dropped is sent again"
    );
}

#[test]
fn a_watchdog_that_forwards_breaks_the_circle_too() {
    let text = circle(5, 2, &watched("forward")).replace("duration = '1s'", "duration = '5s'");
    let results = run(&text, |_| {});
    let summary = &results.summary;
    assert_eq!(summary.deadlock, None);
    let is_done = |job: &ferroce_scenario::results::Job| job.fate == Fate::Finished;
    assert!(summary.jobs.iter().all(is_done));
    assert!(!summary.storms.is_empty());
    assert_eq!(
        summary.totals.dropped_storm, 0,
        "nothing is dropped where the storm is"
    );
}

#[test]
fn a_watchdog_finds_no_storm_in_pauses_that_end() {
    let with = run(&circle(5, 1, &watched("drop")), |_| {});
    let without = run(&circle(5, 1, PFC), |_| {});
    assert_eq!(with.summary.storms, []);
    assert_eq!(with.summary.totals, without.summary.totals);
    assert_eq!(with.summary.jobs, without.summary.jobs);
}

/// Neighbours do not depend on each other, however much they pause.
#[test]
fn a_circle_without_transit_has_none() {
    let results = run(&circle(5, 1, PFC), |simulation| {
        assert_eq!(simulation.fabric.deadlock(), None);
    });
    let is_done = |job: &ferroce_scenario::results::Job| job.fate == Fate::Finished;
    assert!(results.summary.jobs.iter().all(is_done));
}

/// Paths of a leaf-spine go up and down: pauses spread, and end.
#[test]
fn pauses_that_end_are_none() {
    let text = format!(
        "duration = '1s'\n[topology]\nkind = 'leaf-spine'\nleaves = 4\nspines = 2\nhosts_per_leaf = 4\n\
         [switch]\nbuffer = '2MiB'\n{PFC}\n[device]\ndcqcn = {{ enabled = false }}\n\
         [[job]]\nworkload = 'incast'\nreceiver = 0\nbytes = '2MiB'\n\
         [[job]]\nname = 'others'\nworkload = 'all-to-all'\nbytes = '4MiB'\n"
    );
    let mut pauses = 0;
    let results = run(&text, |simulation| {
        assert_eq!(simulation.fabric.deadlock(), None);
        pauses += 1;
    });
    assert!(results.summary.totals.pauses > 1_000 && pauses > 100);
    assert_eq!(results.summary.jobs[1].fate, Fate::Finished);
}
