//! Sweeps over a small fabric: plans, shards, results, and what is said of bad input.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_scenario::Scenario;
use ferroce_sweep::curves::Curves;
use ferroce_sweep::parts::Parts;
use ferroce_sweep::{
    Collected, Finished, Halt, Id, Options, Plan, PlanError, Ran, Shard, Sweep, run,
};
use ferroce_testing::rows;

const SCENARIO: &str = r#"
title = "A link flaps under an incast"
duration = "2s"
[topology]
kind = "star"
hosts = 3
[device]
personality = "ib"
min_ack_timeout_limit_disabled = true
[[job]]
workload = "incast"
bytes = "64KiB"
timeout = 8
retry_cnt = 3
[[fault]]
kind = "link-down"
link = "h1"
at = "2us"
for = "1ms"
"#;

const SWEEP: &str = r#"
title = "Flaps"
scenario = "scenario.toml"
assumption = "One outage."
seeds = 3
baseline = true
[[axis]]
field = "fault[0].for"
values = ["1us", "2ms", "100ms"]
[[axis]]
field = "job.incast.timeout"
values = [8, 12]
[[draw]]
field = "fault.link-down.at"
range = ["1us", "5us"]
"#;

fn plan(sweep: &str, scenario: &str) -> Result<Plan, PlanError> {
    let sweep = Sweep::parse(sweep).unwrap();
    Plan::new(&sweep, scenario, &mut |_| Err("no such file".into()), "1.0")
}

const ALL: Options = Options {
    shard: Shard::WHOLE,
    threads: 2,
    points_max: usize::MAX,
    again: false,
};

fn work(plan: &Plan, directory: &Path, options: Options) -> Ran {
    run(plan, directory, options, &|| Halt::No, None, &|_| {}).unwrap()
}

#[test]
fn a_sweep_runs_and_reports_the_survivors() {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(SWEEP, SCENARIO).unwrap();
    // Two timeouts without faults and six combinations with, three seeds each.
    assert_eq!(plan.points.len(), 3 * (2 + 6));
    let ran = work(&plan, directory.path(), ALL);
    assert_eq!((ran.done, ran.skipped, ran.left), (24, 0, 0));
    let collected = Collected::new(&plan, Parts::read(directory.path()).unwrap());
    assert_eq!(collected.missing().count(), 0);
    let survived = |group: usize| collected.groups[group].survived;
    // 4.096 us * 2^8 four times is 4 ms, with 12 it is 67 ms.
    let labels: Vec<_> = collected
        .groups
        .iter()
        .map(|it| it.labels.join(" "))
        .collect();
    assert_eq!(
        labels,
        ["1us 8", "1us 12", "2ms 8", "2ms 12", "100ms 8", "100ms 12"]
    );
    assert_eq!([0, 1, 2, 3, 4, 5].map(survived), [3, 3, 3, 3, 0, 0]);
    let survival = Curves::of_survival(&collected, "time_lost_ms", None).unwrap();
    assert_eq!(
        (survival.along.as_str(), survival.runs),
        ("fault[0].for", (3, 3))
    );
    let curves: Vec<_> = survival.curves.iter().map(|it| it.label.as_str()).collect();
    assert_eq!(curves, ["8", "12"]);
    let lost = survival.curves[1].points[1].mean.unwrap();
    assert!(lost.value > 1.0 && lost.value < 70.0, "{lost:?}");
    let slower = Curves::of_survival(&collected, "slowdown_p99", None).unwrap();
    let slowdown = |timeout: usize, length: usize| slower.curves[timeout].points[length].mean;
    // Messages that take 10 us wait for timers of 1 and 17 ms. None survive 100 ms.
    for (timeout, expected) in [(0, 100.0..400.0), (1, 1_000.0..3_000.0)] {
        let of_short = slowdown(timeout, 1).unwrap().value;
        assert!(expected.contains(&of_short), "{slower:?}");
        assert!(slowdown(timeout, 2).is_none(), "{slower:?}");
    }
    let unknown = Curves::of_survival(&collected, "slowdown", None).unwrap_err();
    assert!(
        unknown.to_string().starts_with(
            "no metric is called slowdown; there are survival, ended_ms, time_lost_ms,"
        ),
        "{unknown}"
    );
    let table = collected.table();
    assert_eq!(table.lines().count(), 7);
    assert!(table.starts_with("fault[0].for,job.incast.timeout,runs,missing,survived,survival,"));
    assert_eq!(collected.points().lines().count(), 1 + 18);
}

#[test]
fn a_plan_is_reproducible() {
    let first = plan(SWEEP, SCENARIO).unwrap();
    assert_eq!(first, plan(SWEEP, SCENARIO).unwrap());
    let directory = tempfile::tempdir().unwrap();
    first.write(directory.path()).unwrap();
    assert_eq!(Plan::read(directory.path()).unwrap(), first);
    // Comments and order are nothing.
    let commented = SCENARIO.replace("hosts = 3", "hosts = 3 # few");
    let ids = |plan: &Plan| plan.points.iter().map(|it| it.id).collect::<BTreeSet<_>>();
    assert_eq!(ids(&first), ids(&plan(SWEEP, &commented).unwrap()));
    // Everything else is.
    let other = SCENARIO.replace("hosts = 3", "hosts = 4");
    assert!(ids(&first).is_disjoint(&ids(&plan(SWEEP, &other).unwrap())));
    let sweep = Sweep::parse(SWEEP).unwrap();
    let other = Plan::new(&sweep, SCENARIO, &mut |_| Err(String::new()), "1.1").unwrap();
    assert!(ids(&first).is_disjoint(&ids(&other)));
    // More seeds add points, and keep those that there are.
    let more = plan(&SWEEP.replace("seeds = 3", "seeds = 5"), SCENARIO).unwrap();
    assert!(ids(&first).is_subset(&ids(&more)));
}

#[test]
fn shards_make_the_table_that_one_worker_makes() {
    let plan = plan(SWEEP, SCENARIO).unwrap();
    let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    work(&plan, one.path(), ALL);
    let mut done = 0;
    for index in 0..4 {
        let shard = Shard::new(index, 4).unwrap();
        let options = Options {
            shard,
            threads: 1,
            ..ALL
        };
        done += work(&plan, many.path(), options).done;
    }
    assert_eq!(done, plan.points.len());
    let tables = [&one, &many].map(|directory| {
        let parts = Parts::read(directory.path()).unwrap();
        let collected = Collected::new(&plan, parts);
        (collected.table(), collected.points())
    });
    assert_eq!(tables[0], tables[1]);
}

#[test]
fn finished_work_is_not_repeated_unless_asked() {
    let plan = plan(SWEEP, SCENARIO).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let few = Options {
        points_max: 5,
        ..ALL
    };
    assert_eq!(work(&plan, directory.path(), few).done, 5);
    let ran = work(&plan, directory.path(), ALL);
    assert_eq!((ran.done, ran.skipped), (19, 5));
    assert_eq!(work(&plan, directory.path(), ALL).done, 0);
    let again = Options { again: true, ..ALL };
    assert_eq!(work(&plan, directory.path(), again).done, 24);
    let collected = Collected::new(&plan, Parts::read(directory.path()).unwrap());
    assert_eq!((collected.duplicates, collected.unequal.len()), (24, 0));
}

#[test]
fn results_that_differ_are_found_and_foreign_ones_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(SWEEP, SCENARIO).unwrap();
    work(&plan, directory.path(), ALL);
    let mut parts = Parts::read(directory.path()).unwrap();
    let mut wrong = parts.rows[3].clone();
    wrong.outcome.timeouts += 1;
    let mut foreign = parts.rows[3].clone();
    foreign.id = Id(foreign.id.0 ^ 1);
    let id = wrong.id;
    parts.rows.extend([wrong, foreign]);
    let collected = Collected::new(&plan, parts);
    assert_eq!(collected.unequal, [id]);
    assert_eq!((collected.duplicates, collected.foreign), (1, 1));
}

#[test]
fn intervals_of_counts_and_times_do_not_begin_below_zero() {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(SWEEP, SCENARIO).unwrap();
    work(&plan, directory.path(), ALL);
    let mut parts = Parts::read(directory.path()).unwrap();
    // One point in three with many: the interval is wider than the mean is large.
    for (n, row) in parts.rows.iter_mut().enumerate() {
        row.outcome.timeouts = if n % 3 == 0 { 9000 } else { 0 };
    }
    let collected = Collected::new(&plan, parts);
    let table = collected.table();
    let mut lines = table.lines();
    let header: Vec<_> = lines.next().unwrap().split(',').collect();
    let lines: Vec<_> = lines.collect();
    assert!(!lines.is_empty());
    for line in lines {
        assert_eq!(line.split(',').count(), header.len());
        for (name, cell) in header.iter().zip(line.split(',')) {
            let may_be_negative = name.starts_with("time_lost_ms");
            assert!(
                may_be_negative || !cell.starts_with('-'),
                "{name} is {cell}"
            );
        }
    }
}

#[test]
fn a_worker_stops_between_points_and_goes_on_later() {
    let plan = plan(SWEEP, SCENARIO).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let one = Options { threads: 1, ..ALL };
    let seen = AtomicUsize::new(0);
    let halt = || match seen.load(Ordering::Relaxed) < 4 {
        true => Halt::No,
        false => Halt::Soon,
    };
    let count = |progress: ferroce_sweep::Progress| seen.store(progress.done, Ordering::Relaxed);
    let ran = run(&plan, directory.path(), one, &halt, None, &count).unwrap();
    assert_eq!((ran.done, ran.left), (4, 20));
    let ran = run(&plan, directory.path(), one, &|| Halt::Now, None, &|_| {}).unwrap();
    assert_eq!((ran.done, ran.skipped, ran.left), (0, 4, 20));
    assert_eq!(work(&plan, directory.path(), one).done, 20);
}

#[test]
fn a_plan_that_was_changed_by_hand_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plan.json");
    plan(SWEEP, SCENARIO)
        .unwrap()
        .write(directory.path())
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("64KiB", "65KiB")).unwrap();
    let changed = Plan::read(directory.path()).unwrap();
    let error = run(&changed, directory.path(), ALL, &|| Halt::No, None, &|_| {}).unwrap_err();
    assert!(error.to_string().contains("changed by hand"), "{error}");
    for text in ["", "{}", "[", &text.replace("\"format\":1", "\"format\":2")] {
        fs::write(&path, text).unwrap();
        assert!(Plan::read(directory.path()).is_err());
    }
}

#[test]
fn wrong_fields_and_values_are_named_before_anything_runs() {
    let cases = rows(
        r#"
        fault[0].for => fault[0].fro => unknown key fault[0].fro; did you mean for?
        fault[0].for => fault[3].for => axis fault[3].for: fault has entries 0 to 0 only
        job.incast.timeout => job.incst.timeout => did you mean incast?
        [8, 12] => [8, 32] => axis job.incast.timeout = 32: invalid job[0].timeout 32
        "2ms" => "2 monkeys" => axis fault[0].for = "2 monkeys": invalid fault[0].for
        "5us" => "5Gbit" => 
        "#,
    );
    for [old, new, must] in cases {
        let sweep = SWEEP.replace(old, new);
        assert_ne!(sweep, SWEEP);
        let Ok(sweep) = Sweep::parse(&sweep) else {
            assert!(must.is_empty());
            continue;
        };
        let made = Plan::new(&sweep, SCENARIO, &mut |_| Err("none".into()), "1.0");
        let error = made.unwrap_err().to_string();
        assert!(!must.is_empty() && error.contains(must), "{error}");
    }
}

#[test]
fn senseless_values_are_refused() {
    let without = SCENARIO.split("[[fault]]").next().unwrap();
    let simple = "scenario = 's'\nbaseline = true";
    assert_eq!(plan(simple, without), Err(PlanError::NoFaults));
    let many =
        "scenario = 's'\nseeds = 1000000\n[[axis]]\nfield = 'job[0].timeout'\nvalues = [8, 9]";
    assert_eq!(plan(many, without), Err(PlanError::TooMany(2_000_000)));
    assert!(matches!(
        plan("scenario = 's'", "[topology]"),
        Err(PlanError::Scenario(_))
    ));
}

/// What keeps runs gets each of them, with all that is recorded, and changes no result.
#[test]
fn runs_can_be_kept() {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(SWEEP, SCENARIO).unwrap();
    work(&plan, directory.path(), ALL);
    let kept = Mutex::new(BTreeSet::new());
    let keep = |run: &Finished<'_>| {
        assert!(!run.simulation.samples.links.is_empty());
        let again = Scenario::parse(run.text, &mut |_| Err("no files".into())).unwrap();
        assert_eq!(
            (again.hash, again.seed),
            (run.scenario.hash, run.point.seed)
        );
        kept.lock().unwrap().insert(run.point.id);
        Ok(())
    };
    let again = Options { again: true, ..ALL };
    let halt = || Halt::No;
    run(&plan, directory.path(), again, &halt, Some(&keep), &|_| {}).unwrap();
    let planned: BTreeSet<_> = plan.points.iter().map(|it| it.id).collect();
    assert_eq!(*kept.lock().unwrap(), planned);
    let collected = Collected::new(&plan, Parts::read(directory.path()).unwrap());
    assert_eq!(collected.duplicates, plan.points.len() as u64);
    assert_eq!(collected.unequal, []);
    let full = |_: &Finished<'_>| Err("the disk is full".to_owned());
    let error = run(&plan, directory.path(), again, &halt, Some(&full), &|_| {});
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("cannot be kept: the disk is full"),
        "{error}"
    );
}

/// Curves run along any axis, whose values may be words, and show any metric.
#[test]
fn curves_run_along_any_axis() {
    let directory = tempfile::tempdir().unwrap();
    let sweep =
        format!("{SWEEP}[[axis]]\nfield = \"switch.routing\"\nvalues = [\"hash\", \"adaptive\"]\n");
    let plan = plan(&sweep, SCENARIO).unwrap();
    work(&plan, directory.path(), ALL);
    let collected = Collected::new(&plan, Parts::read(directory.path()).unwrap());
    let curves = Curves::new(&collected, "timeouts", Some("switch.routing")).unwrap();
    assert!(!curves.is_measured);
    assert_eq!(curves.curves.len(), 6, "three lengths and two timeouts");
    for curve in &curves.curves {
        let points = curve.points.iter().map(|it| (it.label.as_str(), it.x));
        assert_eq!(
            points.collect::<Vec<_>>(),
            [("hash", 0.0), ("adaptive", 1.0)]
        );
        assert!(curve.points.iter().all(|it| it.mean.is_some()));
    }
    let survival = Curves::new(&collected, "survival", None).unwrap();
    assert_eq!(
        (survival.along.as_str(), survival.is_measured),
        ("fault[0].for", true)
    );
    for point in survival.curves.iter().flat_map(|it| &it.points) {
        assert_eq!(point.mean, point.survival);
    }
    assert!(Curves::new(&collected, "survived", None).is_err());
    let words = Curves::of_survival(&collected, "timeouts", Some("switch.routing"));
    assert!(words.unwrap_err().to_string().contains("are not numbers"));
}
