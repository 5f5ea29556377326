//! Fault rules: programs that mishandle what they bring about, and random rules for those that do not.

use std::fs;
use std::path::Path;

use ferroce_base::random::{Dice, mix};
use ferroce_fault::{Errno, Kind, Target};
use ferroce_interop::lab::{Finished, Lab, Ready, Running, free_port, until};
use serde_json::Value;

/// A row of the table in docs/faults.md.
struct Row<'a> {
    rule: &'a str,
    function: &'a str,
    printed: &'a str,
    crashes: bool,
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let (_, table) = page.split_once("| rule | function |").unwrap();
    let lines = table.lines().skip(2);
    let lines = lines.take_while(|line| line.starts_with('|'));
    let row = |line| {
        let cells: Vec<&str> = str::split(line, '|').collect();
        let code = |cell: usize| cells[cell].split('`').nth(1).unwrap();
        Row {
            rule: code(1),
            function: code(2),
            printed: code(4),
            crashes: cells[4].contains("SIGSEGV"),
        }
    };
    lines.map(row).collect()
}

#[test]
fn each_fault_meets_a_program_that_mishandles_it() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/faults.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = rows(&page);
    assert!(rows.len() >= 16);
    let lab = Lab::new("faults");
    let program = lab.compile("mishandles");
    for row in rows {
        let program = [program.to_str().unwrap(), row.function];
        let start = |options: &[&str]| {
            let running = lab.run_with(options, program);
            if row.function == "port_unchecked" {
                until("the program has the device open", || lab.process());
                lab.ferroce("link set fr0 down for 100ms").success();
            }
            running.finish()
        };
        let with = start(&["--fault", row.rule]);
        assert!(with.stdout.contains(row.printed), "{}: {with}", row.rule);
        assert_eq!(with.status.success(), !row.crashes, "{}: {with}", row.rule);
        let counted = format!("fault {}: met ", row.rule);
        let counted = with.stderr.lines().find(|it| it.starts_with(&counted));
        let counted = counted.unwrap_or_else(|| panic!("{}: {with}", row.rule));
        assert!(!counted.ends_with("injected 0"), "{counted}");
        let without = start(&[]);
        assert!(without.status.success(), "{}: {without}", row.function);
        let differs = row.crashes || !without.stdout.contains(row.printed);
        assert!(differs, "{}: {without}", row.function);
    }
}

/// Rules come into force in a program that runs, and out of it; those for others never do.
#[test]
fn rules_change_while_a_program_runs() {
    let lab = Lab::new("live-faults");
    let port = free_port();
    let server = format!("ibv_rc_pingpong -g 1 -p {port} -n 100000000");
    let client = format!("{server} 127.0.0.1");
    let server = Ready::Tcp(port).wait(&lab, lab.run(&server));
    let client = lab.run(&client);
    let rules = || -> Value {
        let text = lab.ferroce("fault list --json").success();
        serde_json::from_str(&text).unwrap()
    };
    let count = |rule: usize, key: &str| rules()["rules"][rule][key].as_u64().unwrap();
    lab.ferroce(
        "fault add completion=late:1us,every=10 post_send=EIO,program=other poll_cq=EIO,nth=4294967295",
    )
    .success();
    until("completions are late", || {
        (count(0, "injected") > 10).then_some(())
    });
    assert_eq!([count(1, "met"), count(1, "injected")], [0, 0]);
    assert!(count(2, "met") > 0);
    lab.ferroce("fault clear 1").success();
    // A call that was under way may still come to it, and then counts for none.
    assert_eq!(rules()["rules"].as_array().unwrap().len(), 2);
    lab.ferroce("fault add post_send=ENOMEM,nth=100").success();
    // Each of the two counts from now on. After the first failure the other program has no peer.
    let mut ends = [server, client];
    until("a program fails", || {
        ends.iter_mut().any(Running::has_ended).then_some(())
    });
    ends.into_iter().for_each(Running::kill);
    assert!(count(2, "injected") >= 1);
    lab.ferroce("fault clear").success();
    assert_eq!(rules()["rules"].as_array().unwrap().len(), 0);
}

/// A program that sleeps until a completion comes is woken when a late one does.
#[test]
fn late_completions_wake_programs_that_sleep() {
    let lab = Lab::new("late");
    let port = free_port();
    let server = format!("timeout 20 ibv_rc_pingpong -e -g 1 -n 300 -p {port}");
    let client = format!("{server} 127.0.0.1");
    let options = ["--fault", "completion=late:20ms,every=50"];
    let server = Ready::Tcp(port).wait(&lab, lab.run_with(options, &server));
    let client = lab.run_with(options, &client);
    for end in [server, client].map(Running::finish) {
        assert!(end.status.success(), "{end}");
        assert!(end.stderr.contains("met 600, injected 12"), "{end}");
        assert!(end.elapsed.as_millis() >= 6 * 20, "{end}");
    }
}

/// How many files of random rules there are, and the seed of the first.
fn runs(default: u64) -> std::ops::Range<u64> {
    let number = |name, otherwise| {
        let text = std::env::var(name).ok();
        text.map_or(otherwise, |text| text.parse().unwrap())
    };
    let (seed, runs) = (number("FERROCE_SEED", 1), number("FERROCE_RUNS", default));
    seed..seed + runs
}

/// A condition that is met soon.
fn when(dice: &mut Dice) -> String {
    match dice.below(3) {
        0 => format!(",nth={}", dice.within(1..=40)),
        1 => format!(",every={}", dice.within(2..=40)),
        _ => format!(",p={}%,seed={}", dice.within(1..=30), dice.next()),
    }
}

/// What our own program, which counts them, has fail, and rules that are for others.
fn counted_rules(dice: &mut Dice) -> Vec<String> {
    let calls = [
        "post_send",
        "post_recv",
        "poll_cq",
        "reg_mr",
        "modify_qp",
        "create_qp",
    ];
    let rules = (0..=dice.below(7)).map(|_| {
        let call = dice.pick(&calls);
        let scope = dice.pick(&["", "", ",device=fr0", ",program=fault_calls", OTHER]);
        format!("{call}=EPROTO{}{scope}", when(dice))
    });
    rules.collect()
}

/// The scope of a rule that is not for the programs here.
const OTHER: &str = ",program=other";

/// The texts of rules, and how often each was met and injected, as a program that has ended left them.
fn outcome(stats: &Path, end: &Finished) -> Vec<(String, u64, u64)> {
    let text = fs::read_to_string(stats)
        .unwrap_or_else(|error| panic!("{}: {error}\n{end}", stats.display()));
    // Those of the next run have to be its own.
    fs::remove_file(stats).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let rules = document["faults"].as_array().unwrap();
    let rule = |it: &Value| {
        let number = |key: &str| it[key].as_u64().unwrap();
        let text = it["rule"].as_str().unwrap().to_owned();
        (text, number("met"), number("injected"))
    };
    rules.iter().map(rule).collect()
}

/// Nothing is injected where nothing matches.
fn check_counts(seed: u64, rules: &[(String, u64, u64)]) {
    for (rule, met, injected) in rules {
        assert!(injected <= met, "seed {seed}: {rule}: {injected} of {met}");
        if rule.contains(OTHER) {
            assert_eq!((*met, *injected), (0, 0), "seed {seed}: {rule}");
        }
        if rule.contains(",nth=") {
            assert!(*injected <= 1, "seed {seed}: {rule}: {injected}");
        }
    }
}

fn start(lab: &Lab, file: &Path, stats: &Path, rules: &[String], program: &str) -> Running {
    fs::write(file, rules.join("\n")).unwrap();
    let [file, stats] = [file, stats].map(|path| path.to_str().unwrap());
    let options = ["--fault-file", file, "--stats-json", stats];
    lab.run_with(options, program)
}

fn check_alive(seed: u64, rules: &[String], end: &Finished) {
    let is_ours = end.stderr.contains("bug in Ferroce");
    let crashed = [134, 135, 139].map(Some).contains(&end.status.code());
    assert!(!is_ours && !crashed, "seed {seed}: {rules:#?}\n{end}");
}

#[test]
fn each_injected_fault_is_counted() {
    let lab = Lab::new("random-faults");
    let program = lab.compile("fault_calls");
    let [file, stats] = ["rules", "stats"].map(|name| lab.path().join("state").join(name));
    for seed in runs(40) {
        let mut dice = Dice::new(mix(seed, 0));
        let rules = counted_rules(&mut dice);
        let program = program.to_str().unwrap();
        let end = start(&lab, &file, &stats, &rules, program).finish();
        check_alive(seed, &rules, &end);
        assert!(end.status.success(), "seed {seed}: {rules:#?}\n{end}");
        let outcome = outcome(&stats, &end);
        check_counts(seed, &outcome);
        for line in end.stdout.lines() {
            let (call, seen) = line.split_once(' ').unwrap();
            let of_call = outcome.iter().filter(|(rule, ..)| {
                let target = rule.split_once('=').unwrap().0;
                target == call
            });
            let injected: u64 = of_call.map(|(_, _, injected)| injected).sum();
            let seen: u64 = seen.parse().unwrap();
            assert_eq!(seen, injected, "seed {seed}: {call}: {rules:#?}\n{end}");
        }
    }
}

/// A rule of any kind.
fn any_rule(dice: &mut Dice) -> String {
    let (_, name, kind) = dice.pick(Target::ALL);
    let errno = dice.pick(Errno::ALL).name();
    let effect = match kind {
        Kind::QpCall => dice.pick(&[errno, errno, "qp-error", "device-fatal"]),
        Kind::Call => dice.pick(&[errno, errno, errno, "device-fatal"]),
        Kind::EarlyCall => errno,
        Kind::Completion => {
            dice.pick(&["late:5ms", "late:20us", "twice", "never", "REM_OP_ERR:0x10"])
        }
        Kind::PortEvent => dice.pick(&["never", "twice", "port:2"]),
        _ => dice.pick(&["never", "twice"]),
    };
    let scope = dice.pick(&["", "", OTHER]);
    format!("{name}={effect}{}{scope}", when(dice))
}

/// Under any rules rdma-core's programs end, or wait for what does not come.
#[test]
fn programs_of_others_live_with_any_rules() {
    let lab = Lab::new("any-faults");
    let path = |name: &str| lab.path().join("state").join(name);
    let (address, bind) = (lab.address(), format!("-b {}", lab.address()));
    // Each with what its server and its client get besides.
    let programs = [
        ("ibv_rc_pingpong -g 1 -n 200", "", "127.0.0.1"),
        ("ibv_rc_pingpong -g 1 -n 200 -e", "", "127.0.0.1"),
        ("ibv_uc_pingpong -g 1 -n 200", "", "127.0.0.1"),
        ("ibv_ud_pingpong -g 1 -n 200", "", "127.0.0.1"),
        ("ibv_srq_pingpong -g 1 -n 200", "", "127.0.0.1"),
        (&format!("rping -a {address} -V -C 50"), "-s", "-c"),
        ("ucmatose -C 20", &bind, &format!("-s {address}")),
        ("udaddy -C 20", &bind, &format!("-s {address}")),
    ];
    for seed in runs(15) {
        let mut dice = Dice::new(mix(seed, 1));
        let (program, server, client) = dice.pick(&programs);
        let port = free_port();
        let [server, client] =
            [server, client].map(|end| format!("timeout 2 {program} -p {port} {end}"));
        let rules: [Vec<String>; 2] =
            std::array::from_fn(|_| (0..=dice.below(4)).map(|_| any_rule(&mut dice)).collect());
        let server = start(&lab, &path("rules-s"), &path("stats-s"), &rules[0], &server);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let client = start(&lab, &path("rules-c"), &path("stats-c"), &rules[1], &client);
        for (end, (rules, stats)) in [server, client]
            .into_iter()
            .zip(rules.iter().zip(["stats-s", "stats-c"]))
        {
            let end = end.finish();
            check_alive(seed, rules, &end);
            check_counts(seed, &outcome(&path(stats), &end));
        }
    }
}
