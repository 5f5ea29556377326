//! Every command that prints facts can print them as JSON, and each of these documents matches its
//! schema. docs/json.md promises this.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use clap::{ArgMatches, Command, CommandFactory as _};
use ferroce::cli::Cli;
use ferroce_device::{QpInit, QpType};
use ferroce_runtime::{AttachOptions, Device};
use ferroce_wire::pcapng::Writer;
use serde_json::Value;

use crate::common::schema::check;
use crate::common::{Place, address, good, good_json};

/// Commands with -j, and the schemas of their output; `@` is the directory of the test. `a` is a
/// device that a program has open, and `b` one that no program has open.
const DOCUMENTS: &[(&str, &str)] = &[
    ("adp check link-flap", "adp.check"),
    (
        "adp compare ib link-flap --outages list:300ms --count 2",
        "adp.compare",
    ),
    ("adp decode -j @payload", "adp.profile"),
    ("adp emit link-flap mlx5_0 --tool mlxreg", "adp.emit"),
    ("adp encode link-flap", "adp.encode"),
    ("adp import @profile", "adp.profile"),
    ("adp plot link-flap", "adp.plot"),
    ("adp profile list", "adp.profiles"),
    ("adp profile show link-flap", "adp.profile"),
    ("adp apply link-flap b", "adp.show"),
    ("adp apply link-flap b --dry-run", "reg.calls"),
    ("adp show b", "adp.show"),
    ("adp reset b", "adp.show"),
    (
        "adp trace link-flap --timeout 14 --retry-cnt 7",
        "adp.trace",
    ),
    (
        "adp trace link-flap --timeout 14 --retry-cnt 7 --events t,a",
        "adp.trace.events",
    ),
    ("cc emit --preset paper --tool sysfs", "cc.emit"),
    ("cc explain", "cc.explain"),
    ("cc preset list", "cc.preset"),
    ("cc preset show paper", "cc.preset"),
    ("cc reset b", "cc.show"),
    ("cc set b rpg_ai_rate 20", "cc.show"),
    ("cc show", "cc.show"),
    ("cc rates", "cc.watch"),
    ("dev add c 127.0.0.99", "dev.show"),
    ("dev set c seed 1", "dev.show"),
    ("dev reset c", "dev.show"),
    ("dev del c", "dev.del"),
    ("dev cards", "dev.cards"),
    ("dev show", "dev.show"),
    ("explain error", "explain.error"),
    ("explain error 12 0x81", "explain.error"),
    ("explain error a", "explain.error.device"),
    (
        "explain timeout --from nccl --survive 20s",
        "explain.survive",
    ),
    ("explain timeout --from nccl", "explain.timeout"),
    (
        "fault add post_send=EIO,nth=3,device=b completion=late:50ms,p=1%,seed=7",
        "fault",
    ),
    ("fault list", "fault"),
    ("fault clear", "fault"),
    ("identify --times 8.4ms,16.8ms,33.6ms", "identify"),
    (
        "impair set b loss=1%,burst=0.1%:20,rate=1Gbit,red=10KB:40KB:1%,down=200ms@3s --direction both",
        "impair",
    ),
    ("impair show", "impair"),
    ("impair clear b", "impair"),
    ("link set b down for 300ms", "link.show"),
    ("link show", "link.show"),
    ("pcap check @capture", "pcap.check"),
    ("reg get b ROCE_ACCL", "reg.get"),
    ("reg get b ADP_RETX_HISTOGRAM", "reg.get"),
    ("reg get b ROCE_ACCL --dry-run", "reg.calls"),
    ("reg list", "reg.list"),
    ("reg set b ROCE_ACCL ack_dscp 3", "reg.get"),
    ("reg set b ROCE_ACCL ack_dscp 3 --dry-run", "reg.calls"),
    ("reg explain ROCE_ACCL", "reg.show"),
    ("res show", "res"),
    ("res show cm_id", "res.cm_id"),
    ("res show cq", "res.cq"),
    ("res show ctx", "res.ctx"),
    ("res show mr", "res.mr"),
    ("res show pd", "res.pd"),
    ("res show qp", "res.qp"),
    ("res show srq", "res.srq"),
    ("schema", "schema"),
    ("sim check flap-all-reduce", "sim.check"),
    ("sim list", "sim.list"),
    ("sim run @scenario.toml", "sim.run"),
    ("sim run @scenario.toml -o @results --force", "sim.run"),
    ("sim compare @results @results", "sim.compare"),
    ("stat hist clear b", "stat.show"),
    ("stat hist show b", "stat.hist"),
    ("stat hist set b -n 2 -t 0", "stat.hist"),
    ("stat explain", "stat.names"),
    ("stat show", "stat.show"),
    ("stat show --watch 0.01 --count 1", "stat.watch"),
    ("status", "status"),
    ("sweep plan @sweep.toml --shards 2", "sweep.plan"),
    ("sweep run @sweep.toml -o @out", "sweep.run"),
    ("sweep collect @out", "sweep.collect"),
    ("torture --seeds 3", "torture"),
    ("torture --replay @script.txt", "torture"),
    ("version", "version"),
];

/// Commands that take too long to be run twice, or need libraries, and the tests that check their
/// schemas.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("adp fit", "adp.fit", "fit.rs"),
    ("bench", "bench", "bench.rs"),
    ("demo", "demo demo.congestion", "demo.rs"),
    ("drill mooncake", "drill", "interop/tests/drill.rs"),
    ("drill nccl", "drill", "interop/tests/drill.rs"),
    ("drill nixl", "drill", "interop/tests/drill.rs"),
    ("drill openmpi", "drill", "interop/tests/drill.rs"),
    ("drill ucx", "drill", "interop/tests/drill.rs"),
    ("env", "env", "run.rs"),
    ("run", "run", "run.rs"),
    ("torture", "torture.rounds", "torture.rs"),
];

/// Commands without -j, and why they have none.
const WITHOUT: &[(&str, &str)] = &[
    ("completions", "prints a shell's script"),
    ("install", "prints what to do next"),
    ("mlxreg", "prints what the tool of that name prints"),
    (
        "run",
        "standard output is the program's; --stats-json names a file",
    ),
    ("serve", "answers over HTTP"),
    ("sim new", "prints a scenario file"),
    ("sim schema", "prints a schema"),
    ("sweep launch", "prints a scheduler's script"),
    ("sim show", "prints a scenario file"),
    ("sysfs", "prints nothing"),
    ("uninstall", "says what it did"),
];

const SCENARIO: &str = r#"
[topology]
kind = "star"
hosts = 3
[[job]]
workload = "incast"
bytes = "64KiB"
"#;

const SWEEP: &str = r#"
scenario = "scenario.toml"
seeds = 2
[[axis]]
field = "job[0].bytes"
values = ["16KiB", "64KiB"]
"#;

fn place() -> (Place, Device) {
    let place = Place::with("a", &address(41, 1).to_string());
    place.good(format!("dev add b {}", address(41, 2)));
    let device = Device::attach(&place.registry(), "a", AttachOptions::default()).unwrap();
    device.with(|hca| {
        let (pd, cq) = (hca.alloc_pd().unwrap(), hca.create_cq(16).unwrap());
        hca.create_qp(&QpInit::new(QpType::Rc, pd, cq)).unwrap();
    });
    let file = |name: &str| place.path().join(name);
    fs::write(file("profile"), good("adp profile show link-flap")).unwrap();
    fs::write(file("scenario.toml"), SCENARIO).unwrap();
    fs::write(file("sweep.toml"), SWEEP).unwrap();
    fs::write(file("script.txt"), "seed 1\n0 0 host\n").unwrap();
    let mut capture = Vec::new();
    drop(Writer::new(&mut capture).unwrap());
    fs::write(file("capture"), capture).unwrap();
    (place, device)
}

#[test]
fn each_command_prints_what_its_schema_says() {
    let (place, _device) = place();
    let payload = good("adp encode link-flap");
    let mut failures = Vec::new();
    for (command, schema) in DOCUMENTS {
        let directory = format!("{}/", place.path().display());
        let words = command.split(' ').map(|word| match word {
            "@payload" => payload.trim().to_owned(),
            word => match word.strip_prefix('@') {
                Some(file) => format!("{directory}{file}"),
                None => word.to_owned(),
            },
        });
        let words: Vec<_> = words.chain(["-j".to_owned()]).collect();
        let mut words: Vec<_> = words.iter().map(String::as_str).collect();
        if words.iter().filter(|word| **word == "-j").count() > 1 {
            words.pop();
        }
        let output = place.command(&words).output().unwrap();
        let (out, err) = (output.stdout, String::from_utf8(output.stderr).unwrap());
        let found = serde_json::from_slice::<Value>(&out).map_err(|error| error.to_string());
        let found = found.and_then(|document| {
            check(&document)?;
            Ok(document["schema"].clone())
        });
        let expected = Ok(Value::from(format!("ferroce.{schema}")));
        if found != expected || !output.status.success() {
            failures.push(format!("{command}: {found:?}, {err}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The name of the command that these arguments select.
fn path(matches: &ArgMatches) -> String {
    match matches.subcommand() {
        None => String::new(),
        Some((name, inner)) => format!("{name} {}", path(inner)).trim_end().to_owned(),
    }
}

/// Commands that do something, by path, and whether they have -j.
fn leaves(command: &Command, path: &str, found: &mut BTreeMap<String, bool>) {
    let inner = command
        .get_subcommands()
        .filter(|it| it.get_name() != "help" && !it.is_hide_set());
    let mut is_leaf = true;
    for it in inner {
        is_leaf = false;
        let path = format!("{path} {}", it.get_name());
        leaves(it, path.trim_start(), found);
    }
    if is_leaf {
        let has_json = command
            .get_arguments()
            .any(|it| it.get_long() == Some("json") && !it.is_hide_set());
        found.insert(path.to_owned(), has_json);
    }
}

#[test]
fn no_command_is_left_out() {
    let mut command = Cli::command();
    command.build();
    let mut all = BTreeMap::new();
    leaves(&command, "", &mut all);
    let asked = DOCUMENTS.iter().map(|(command, _)| {
        let words = ["ferroce"].into_iter().chain(command.split(' '));
        path(&Cli::command().try_get_matches_from(words).unwrap())
    });
    let elsewhere = ELSEWHERE.iter().map(|(command, ..)| (*command).to_owned());
    let tested: BTreeSet<String> = asked.chain(elsewhere).collect();
    let without: BTreeSet<_> = WITHOUT.iter().map(|(command, _)| *command).collect();
    for (command, has_json) in &all {
        match has_json {
            true => assert!(tested.contains(command), "{command} -j is not tested here"),
            false => assert!(
                without.contains(command.as_str()),
                "{command} has no -j; a command that prints facts has one"
            ),
        }
    }
    for command in tested.iter().map(String::as_str).chain(without) {
        assert!(all.contains_key(command), "there is no command {command}");
    }
}

#[test]
fn schemas_are_listed_and_printed() {
    let list = good_json("schema -j");
    let listed: Vec<_> = list["schemas"].as_array().unwrap().iter().collect();
    let names: BTreeSet<_> = listed
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    let printed = DOCUMENTS.iter().map(|(_, schema)| *schema);
    let elsewhere = ELSEWHERE.iter().flat_map(|it| it.1.split(' '));
    let inputs = ["profile", "scenario"];
    let expected = printed.chain(elsewhere).chain(inputs);
    let expected: BTreeSet<_> = expected.map(|name| format!("ferroce.{name}")).collect();
    let expected: BTreeSet<_> = expected.iter().map(String::as_str).collect();
    assert_eq!(names, expected);
    for it in listed {
        let name = it["name"].as_str().unwrap();
        let text = good(format!("schema {name}"));
        let schema: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            text,
            good(["schema", name.strip_prefix("ferroce.").unwrap()])
        );
        if let Some(named) = schema["properties"]["schema"].get("const") {
            assert_eq!(
                (named, &schema["properties"]["version"]["const"]),
                (&name.into(), &it["version"])
            );
        }
    }
    let table = good("schema");
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
}

#[test]
fn pretty_documents_are_the_same() {
    let place = Place::with("a", &address(42, 1).to_string());
    let [line, lines] = ["-j", "-p"].map(|how| place.good(format!("link show {how}")));
    let [line, lines] = [line, lines].map(|text| {
        let document: Value = serde_json::from_str(&text).unwrap();
        check(&document).unwrap();
        (text.lines().count(), document)
    });
    assert!(line.0 == 1 && lines.0 > 1);
    assert_eq!(line.1, lines.1);
}

#[test]
fn fields_missing_in_a_schema_are_noticed() {
    let version = good_json("version -j");
    assert_eq!(check(&version), Ok(()));
    let changed = |key: &str, value: Value| {
        let mut changed = version.clone();
        changed[key] = value;
        check(&changed).unwrap_err()
    };
    assert!(changed("ferroce_version", 2.into()).contains("is not type"));
    assert!(changed("more", 1.into()).contains("is not in the schema"));
    assert!(changed("version", 0.into()).contains("No such file"));
    let mut less = version.clone();
    less.as_object_mut().unwrap().remove("arch");
    assert!(check(&less).unwrap_err().contains("arch is missing"));
}

const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");

/// `UPDATE_DOCS=1` writes the table of schemas and the examples of docs/json.md again.
#[test]
fn the_manual_lists_all_schemas_and_its_examples_hold() {
    let old = fs::read_to_string(MANUAL).unwrap();
    let (text, _) = old
        .split_once("| schema | printed by |\n|---|---|\n")
        .unwrap();
    let mut new = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        new += &format!("{line}\n");
        if let Some((command, path)) = line
            .strip_prefix("$ ferroce ")
            .and_then(|line| line.strip_suffix('\'')?.split_once(" | jq '"))
        {
            lines.next();
            let words: Vec<_> = command.split(' ').collect();
            new += &format!("{}\n", picked(&good_json(&words), path));
        }
    }
    new += "| schema | printed by |\n|---|---|\n";
    let list = good_json("schema -j");
    for it in list["schemas"].as_array().unwrap() {
        let [name, of] = ["name", "of"].map(|key| it[key].as_str().unwrap());
        let plain = name.strip_prefix("ferroce.").unwrap();
        let file = match of.ends_with(" files") {
            true => format!("{plain}.schema.json"),
            false => format!("schemas/{plain}.v{}.json", it["version"]),
        };
        new += &format!("| [{plain}]({file}) | {of} |\n");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(MANUAL, new).unwrap();
    } else {
        assert!(
            old == new,
            "run UPDATE_DOCS=1 cargo test -p ferroce --test all json::\n{new}"
        );
    }
}

/// What jq selects by `.key` and `[number]`.
fn picked<'a>(document: &'a Value, path: &str) -> &'a Value {
    let mut value = document;
    for key in path.split('.').skip(1) {
        let (key, places) = key.split_once('[').unwrap_or((key, ""));
        value = &value[key];
        for place in places.split('[').filter(|it| !it.is_empty()) {
            value = &value[place.trim_end_matches(']').parse::<usize>().unwrap()];
        }
    }
    value
}
