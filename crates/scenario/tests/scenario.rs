//! Scenario files: what is read, refused and remarked on.

use ferroce_adp::{Policy, PolicyKind};
use ferroce_fabric::Standing;
use ferroce_prm::Image;
use ferroce_prm::roce_accl as reg;
use ferroce_scenario::results::{Ended, Fate, Results};
use ferroce_scenario::{Device, Scenario, ScenarioError, json_schema};

fn parse(text: &str) -> Result<Scenario, String> {
    let resolve = &mut |name: &str| Err(format!("no file {name}"));
    Scenario::parse(text, resolve).map_err(|error| {
        let problems = error.problems.iter();
        let lines = problems.map(|it| match it.line {
            Some(line) => format!("{line}: {}", it.text),
            None => it.text.clone(),
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

const STAR: &str =
    "[topology]\nkind = 'star'\nhosts = 4\n[[job]]\nworkload = 'incast'\nbytes = '8KiB'\n";

fn star(more: &str) -> String {
    format!("{STAR}{more}")
}

#[track_caller]
fn refused(text: &str, why: &str) {
    let error = parse(text).expect_err("it is refused");
    assert_eq!(error, why, "{text}");
}

fn run(scenario: &Scenario) -> Results {
    let mut simulation = scenario.simulation().unwrap();
    let standing = loop {
        match simulation.run(100_000).unwrap() {
            Standing::Running => {}
            standing => break standing,
        }
    };
    simulation.fabric.audit();
    Results::new(scenario, &simulation, standing)
}

#[test]
fn a_small_one_runs_to_its_end() {
    let results = run(&parse(STAR).unwrap());
    let summary = &results.summary;
    assert_eq!(summary.ended, Ended::JobsOver);
    let [job] = &summary.jobs[..] else {
        panic!("one job");
    };
    assert_eq!(
        (job.fate, job.delivered, job.payload_bytes),
        (Fate::Finished, 3, 3 * 8192)
    );
    assert!(job.time_ns.unwrap() >= job.ideal_ns, "{job:?}");
    assert_eq!(results.flows.len(), 3);
}

/// Connections are made before the transfers begin that need them.
#[test]
fn a_run_cut_short_has_results() {
    let text = "duration = '100us'\n[topology]\nkind = 'star'\nhosts = 4\n\
                [[job]]\nworkload = 'all-to-all-in-shifts'\nbytes = '4MiB'\n";
    let results = run(&parse(text).unwrap());
    let job = &results.summary.jobs[0];
    assert_eq!((job.fate, job.delivered), (Fate::Unfinished, 4));
    let (carried, made) = (results.flows.len(), results.qps.len());
    assert!(carried < made, "{carried} {made}");
    let paths = (0..made).filter(|it| !results.paths.lines(*it).is_empty());
    assert_eq!(paths.count(), carried);
    assert_eq!(job.spread.as_ref().unwrap().connections, carried as u32);
}

#[test]
fn a_message_alone_takes_the_ideal_time() {
    for kind in [
        "'star'\nhosts = 2",
        "'pair'",
        "'leaf-spine'\nleaves = 2\nspines = 2\nhosts_per_leaf = 1",
    ] {
        for bytes in [1, 4096, 5000, 1 << 20] {
            let text = format!(
                "[topology]\nkind = {kind}\n[[job]]\nworkload = 'incast'\nbytes = {bytes}\n"
            );
            let results = run(&parse(&text).unwrap());
            let job = &results.summary.jobs[0];
            let (took, ideal) = (job.time_ns.unwrap() as f64, job.ideal_ns as f64);
            assert!(
                (took / ideal - 1.0).abs() < 0.01,
                "{kind}, {bytes}: {took} {ideal}"
            );
            let flow = results.flows[0].slowdown().unwrap();
            assert!((flow - 1.0).abs() < 0.01, "{kind}, {bytes}: {flow}");
        }
    }
}

#[test]
fn unknown_keys_are_named_with_the_nearest() {
    refused(
        &star("tiemout = 14"),
        "7: unknown key job[0].tiemout; did you mean timeout?",
    );
    refused(
        &star("[swich]"),
        "7: unknown key swich; did you mean switch?",
    );
    refused(
        &star("[switch.ecn]\nkmni = 5\npreset = 'hpcc'"),
        "8: unknown key switch.ecn.kmni; did you mean kmin?",
    );
}

#[test]
fn values_out_of_range_are_named_with_what_is_allowed() {
    for (more, why) in [
        (
            "timeout = 32",
            "7: invalid job[0].timeout 32: must be 0 to 31",
        ),
        (
            "timeout = -1",
            "7: invalid job[0].timeout -1: must be 0 to 31",
        ),
        ("sl = 8", "7: invalid job[0].sl 8: must be 0 to 7"),
        (
            "[device]\nvlan = 4095",
            "8: invalid device.vlan 4095: must be 1 to 4094",
        ),
        (
            "[device]\nvlan = 0",
            "8: invalid device.vlan 0: must be 1 to 4094",
        ),
        (
            "retry_cnt = 'x'",
            "7: invalid job[0].retry_cnt: must be a whole number, not a string",
        ),
        (
            "at = '-1ms'",
            "7: invalid job[0].at \"-1ms\": must be a time in ns, us, ms, s or min, from 0 to 86400s, \
             for example 50us",
        ),
        (
            "hosts = '0-9'",
            "7: invalid job[0].hosts \"0-9\": the topology has hosts 0 to 3; write a number, a range \
             such as 0-3, a name or all",
        ),
        (
            "receiver = 4",
            "7: invalid job[0].receiver 4: the topology has hosts 0 to 3; write a number, a range such \
             as 0-3, a name or all",
        ),
        (
            "[[fault]]\nkind = 'link-down'\nlink = 'h9'",
            "9: invalid fault[0].link \"h9\": no such link; write the names of its ends, a \
             host's name for its link, all, hosts or fabric, for example h0-switch0",
        ),
        (
            "[[fault]]\nkind = 'loss'\nlink = 'all'\nprobability = 2",
            "10: invalid fault[0].probability \"2\": must be a probability between 0 and 1 (or 0% to \
             100%)",
        ),
        (
            "[[fault]]\nkind = 'switch-reboot'\nswitch = 'leaf0'\nfor = '1s'",
            "9: invalid fault[0].switch \"leaf0\": no such switch; write a name such as switch0",
        ),
        (
            "[device]\nmtu = 1500",
            "8: invalid device.mtu 1500: must be 256, 512, 1024, 2048 or 4096",
        ),
        (
            "[switch]\ndrop_alpha = '1/3'",
            "8: invalid switch.drop_alpha \"1/3\": must be a power of two from 1/256 to 8, for example \
             \"1/8\"",
        ),
    ] {
        refused(&star(more), why);
    }
    refused(
        "",
        "missing [topology]; add it with kind = \"star\" and hosts = 16, for example",
    );
    let parameter = parse(&star("[device.dcqcn]\nrpg_ai = 5")).unwrap_err();
    assert!(
        parameter.starts_with("8: device.dcqcn: unknown parameter \"rpg_ai\""),
        "{parameter}"
    );
    assert!(parse("a = ").unwrap_err().starts_with("1: not TOML: "));
}

/// The fields of ROCE_ACCL that keys stand for; the values that another policy leaves alone.
#[test]
fn accelerations_are_off_unless_a_scenario_switches_them_on() {
    let fields = [
        (
            &reg::SELECTIVE_REPEAT_FORCED_EN,
            "selective_repeat = true",
            1,
        ),
        (
            &reg::ADAPTIVE_ROUTING_FORCED_EN,
            "adaptive_routing = true",
            1,
        ),
        (&reg::ROCE_SLOW_RESTART_EN, "slow_restart = true", 1),
        (
            &reg::ROCE_SLOW_RESTART_IDLE_EN,
            "slow_restart_idle = true",
            1,
        ),
        (&reg::ROCE_TX_WINDOW_EN, "tx_window = true", 1),
        (&reg::CC_BURST_SIZE, "cc_burst_size = '16KB'", 2),
        (&reg::CC_BURST_SIZE, "cc_burst_size = '1.5KB'", 7),
    ];
    let values = |device: &Device| {
        let register = device.settings.to_parts().roce_accl;
        let image = Image::new(&reg::ROCE_ACCL, register).unwrap();
        fields.map(|(field, ..)| image.get(field))
    };
    for (which, (field, line, value)) in fields.iter().enumerate() {
        let mut device = parse(&star(&format!("[device]\n{line}\n"))).unwrap().device;
        for _ in 0..2 {
            for (index, shown) in values(&device).into_iter().enumerate() {
                let expected = if fields[index].0 == *field { *value } else { 0 };
                assert_eq!(shown, expected, "{which} {line}");
            }
            device.set_policy("ib", Policy::new(PolicyKind::IB));
        }
    }
    refused(
        &star("[device]\ncc_burst_size = '2KB'\n"),
        "8: invalid device.cc_burst_size \"2KB\": did you mean 4KB?",
    );
}

#[test]
fn zero_rates_and_impossible_topologies_are_refused() {
    let topology = |rest: &str| {
        let text = format!("[[job]]\nworkload='incast'\nbytes=1\n[topology]\n{rest}");
        parse(&text).expect_err("it is refused")
    };
    let rate = topology("kind = 'star'\nhosts = 2\nrate = '0bit'");
    assert!(
        rate.starts_with("7: invalid topology.rate \"0bit\": must be a rate"),
        "{rate}"
    );
    let many = topology("kind = 'star'\nhosts = 70000");
    assert_eq!(
        many,
        "5: topology.kind: invalid hosts 70000: must be 1 to 65536"
    );
    let odd = topology("kind = 'fat-tree'\nk = 5");
    assert_eq!(
        odd,
        "5: topology.kind: invalid k 5: must be even, for example 6"
    );
    let idle = topology("kind = 'pair'\nhosts = 2");
    assert_eq!(
        idle,
        "6: topology.hosts: has no meaning for this kind; leave it out"
    );
}

#[test]
fn values_can_be_put_in_their_place() {
    let set = |path: &str, value: &str| {
        let values = [(path.to_owned(), value.to_owned())];
        Scenario::parse_with(STAR, &values, &mut |_| Err("none".into()))
    };
    let plain = parse(STAR).unwrap();
    let longer = set("job.timeout", "18").unwrap();
    assert_eq!(longer.jobs[0].attr.timeout, 18);
    assert_ne!(longer.hash, plain.hash);
    let seed = set("seed", "7").unwrap();
    assert_eq!((seed.seed, seed.hash), (7, plain.hash));
    let slower = set("topology.rate", "10Gbit").unwrap();
    assert_eq!(slower.topology.cables[0].rate.bps(), 10_000_000_000);
    let text = |it: Result<Scenario, ScenarioError>| it.expect_err("it is refused").to_string();
    assert_eq!(
        text(set("job[1].timeout", "5")),
        "cannot set job[1].timeout: there are 1 of job, the first is job[0]"
    );
    assert_eq!(
        text(set("job.tiemout", "5")),
        "unknown key job[0].tiemout; did you mean timeout?"
    );
}

fn warnings(text: &str) -> Vec<String> {
    let findings = parse(text).unwrap().check();
    findings.into_iter().map(|it| it.text).collect()
}

#[track_caller]
fn warns(text: &str, words: &str) {
    let all = warnings(text);
    assert!(
        all.iter().any(|it| it.contains(words)),
        "{words:?} is not in {all:#?}"
    );
}

#[test]
fn impossible_conditions_are_reported_in_advance() {
    let quiet = star("[switch.ecn]\npreset = 'hpcc'\n");
    assert_eq!(warnings(&quiet), [""; 0]);
    warns(STAR, "no switch marks");
    let routed = "[switch]\nrouting = 'random'\n[device]\nadaptive_routing = true\n";
    assert_eq!(
        warnings(&star(&format!("{routed}[switch.ecn]\npreset = 'hpcc'\n"))),
        [""; 0]
    );
    for (more, words) in [
        (
            "[switch]\nbuffer = '1MiB'\n[switch.ecn]\nkmin='600KB'\nkmax='700KB'\npmax=1",
            "nothing is ever marked",
        ),
        (
            "[switch.pfc]\npriorities = [4]",
            "nothing of this job is ever paused",
        ),
        (
            "[device]\ntrust = 'pcp'",
            "packets have no VLAN tag, so all of them have priority 0",
        ),
        (
            "[device]\nvlan = 9\n[switch]\ntrust = 'pcp'\n[switch.pfc]\npriorities = [3]",
            "hosts send it with priority 3, and switches pause priority 0",
        ),
        (
            "[device]\nvlan = 9\ntrust = 'pcp'\n[switch.pfc]\npriorities = [3]",
            "sl = 0 is priority 0, which switch.pfc.priorities does not name",
        ),
        (
            "[switch.pfc]\npriorities = [3]\nheadroom = '1KiB'",
            "headroom are too few",
        ),
        (
            "[switch]\nbuffer = '64KiB'\n[switch.pfc]\npriorities = [3]",
            "nothing is left to share",
        ),
        (
            "[switch]\nrouting = 'random'",
            "devices take each gap for a loss",
        ),
        (
            "[switch]\nrouting = 'adaptive'",
            "no packet may take another path",
        ),
        (
            "[[fault]]\nkind='link-down'\nlink='h0'\nat='61s'",
            "begins at 61 s, after the end",
        ),
        ("at = '90s'", "begins at 90 s, after the end"),
        (
            "timeout = 0\n[[fault]]\nkind='loss'\nlink='all'\nprobability=0.1",
            "disables the timeout",
        ),
    ] {
        warns(&star(more), words);
    }
    let large = STAR.replace("'8KiB'", "'3GiB'\nqp_per_transfer = true");
    warns(&large, "each with a queue pair of its own");
}

#[test]
fn more_than_cables_carry_is_reported_in_advance() {
    let poisson = |load: &str, more: &str| {
        format!(
            "[topology]\n{more}\n[[job]]\nworkload = 'poisson'\nsizes = 'GoogleRPC2008'\nload = '{load}'\n\
             for = '20ms'\n"
        )
    };
    let star = "kind = 'star'\nhosts = 4";
    for load in ["10%", "50%", "90%"] {
        let quiet = warnings(&poisson(load, star));
        assert!(
            !quiet.iter().any(|it| it.contains("faster than")),
            "{quiet:#?}"
        );
    }
    // The load does not count headers, which are a third of short packets.
    let short = poisson("90%", star) + "[device]\nmtu = 256\n";
    warns(&short, "messages arrive faster than");
    warns(&short, "queues grow until the last; multiply load by 0.8");
    // Two jobs together.
    let two =
        poisson("60%", star) + "[[job]]" + poisson("70%", star).split("[[job]]").nth(1).unwrap();
    warns(&two, "queues grow until the last");
    // Half of the hosts' rates between the leaves, and two thirds of the messages go there.
    let leaves = "kind = 'leaf-spine'\nleaves = 3\nspines = 2\nhosts_per_leaf = 4";
    warns(&poisson("90%", leaves), "spine");
    // A few of many hosts have more to send than others by chance, and not because of the load.
    let many = "kind = 'fat-tree'\nk = 12";
    let quiet = warnings(&poisson("80%", many).replace("'20ms'", "'100us'"));
    assert!(
        !quiet.iter().any(|it| it.contains("faster than")),
        "{quiet:#?}"
    );
    let quiet = warnings(&poisson("50%", leaves));
    assert!(
        !quiet.iter().any(|it| it.contains("faster than")),
        "{quiet:#?}"
    );
}

#[test]
fn flow_lists_that_no_link_carries_are_reported() {
    let check = |flows: u64, every_us: u64| {
        let text = "[topology]\nkind = 'star'\nhosts = 4\n[[job]]\nworkload = 'hpcc-flows'\nfile = 'flows'\n";
        let lines = (0..flows).map(|n| {
            let src = n % 3;
            format!("{src} 3 3 100 100000 {:.9}\n", (n * every_us) as f64 / 1e6)
        });
        let list = format!("{flows}\n{}", lines.collect::<String>());
        let scenario = Scenario::parse(text, &mut |_| Ok(list.clone().into_bytes())).unwrap();
        let findings = scenario.check().into_iter();
        findings
            .map(|it| it.text)
            .find(|it| it.contains("faster than"))
    };
    // A message takes 8.2 us of 100 Gb/s.
    assert_eq!(check(100, 9), None);
    let text = check(100, 6).unwrap();
    assert!(
        text.contains("than switch0-h3 carries them at 100 Gb/s"),
        "{text}"
    );
    assert!(
        text.ends_with("let them arrive in 809 us or more"),
        "{text}"
    );
    // Few are a burst.
    assert_eq!(check(20, 1), None);
}

#[test]
fn faults_after_the_jobs_are_reported() {
    let fault = |rest: &str| {
        star(&format!(
            "[[fault]]\nkind='link-down'\nlink='h0'\nfor='1us'\n{rest}"
        ))
    };
    warns(
        &fault("at='1ms'"),
        "h0-switch0 down begins at 1 ms, when all jobs are probably over: without queues they end at",
    );
    for early in ["at='5us'", "at='5us'\nevery='1ms'\ncount=9"] {
        let quiet = warnings(&fault(early));
        assert!(!quiet.iter().any(|it| it.contains("over")), "{quiet:#?}");
    }
}

#[test]
fn buffers_smaller_than_a_frame_are_reported() {
    let switch = |keys: &str| warnings(&star(&format!("[switch]\n{keys}\n")));
    let buffer = |keys: &str| {
        let all = switch(keys).into_iter();
        all.filter(|it| it.contains("has to wait"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        buffer("buffer = 4000"),
        [
            "a frame that has to wait is dropped: a queue of a buffer of 4000 bytes can take 4000, and frames \
             have up to 4178; write buffer = \"5KiB\" or more"
        ]
    );
    assert_eq!(buffer("buffer = '5KiB'"), [""; 0]);
    // A queue may take an eighth of what is free.
    assert_eq!(buffer("buffer = '32KiB'\ndrop_alpha = '1/8'").len(), 1);
    assert_eq!(buffer("buffer = '33KiB'\ndrop_alpha = '1/8'"), [""; 0]);
    // Headroom takes what is not shared.
    let lossless = "pfc = { priorities = [3], headroom = '2KiB' }";
    assert_eq!(buffer(&format!("buffer = '8KiB'\n{lossless}")).len(), 1);
    assert_eq!(buffer(&format!("buffer = '13KiB'\n{lossless}")), [""; 0]);
}

#[test]
fn outages_longer_than_the_total_timeout_are_predicted() {
    let flap = |length: &str| {
        star(&format!(
            "timeout = 14\nretry_cnt = 7\n[device]\npersonality = 'ib'\n[[fault]]\nkind='link-down'\n\
             link='h0'\nfor='{length}'\n"
        ))
    };
    // The minimum of 16 applies: eight waits of 268 ms.
    warns(
        &flap("3s"),
        "those that are cut off fail, and the job aborts",
    );
    let short = warnings(&flap("2s"));
    assert!(!short.iter().any(|it| it.contains("tolerate")), "{short:?}");
    let profile = star("[device]\nprofile = 'link-flap'\n[[fault]]\nkind='silent-host'\nhost=0\n");
    warns(&profile, "silent permanently");
}

#[test]
fn predicted_failures_happen() {
    let text = star(
        "timeout = 10\nretry_cnt = 2\n[device]\npersonality = 'ib'\nmin_ack_timeout_limit_disabled = true\n\
         [[fault]]\nkind='link-down'\nlink='h0'\nfor='50ms'\n",
    );
    warns(&text, "those that are cut off fail");
    let results = run(&parse(&text).unwrap());
    let job = &results.summary.jobs[0];
    assert_eq!(
        (job.fate, job.cause.as_deref()),
        (Fate::Aborted, Some("IBV_WC_RETRY_EXC_ERR"))
    );
    assert!(job.timeouts >= 3, "{job:?}");
}

#[test]
fn a_link_is_down_while_anything_keeps_it_down() {
    let text = star(
        "[[fault]]\nkind='link-down'\nlink='h0'\nat='1ms'\nfor='4ms'\n\
         [[fault]]\nkind='link-down'\nlink='h0'\nat='2ms'\nfor='1ms'\n\
         [[fault]]\nkind='link-down'\nlink='h1'\nat='1ms'\nfor='1ms'\nevery='10ms'\ncount=2\n",
    );
    let timeline = parse(&text).unwrap().timeline;
    let show = |(at, fault): &(ferroce_fabric::Time, _)| {
        format!("{} {fault:?}", at.as_nanos() / 1_000_000)
    };
    assert_eq!(
        timeline.iter().map(show).collect::<Vec<_>>(),
        [
            "1 CableDown(0)",
            "1 CableDown(1)",
            "2 CableUp(1)",
            "5 CableUp(0)",
            "11 CableDown(1)",
            "12 CableUp(1)"
        ]
    );
}

#[test]
fn the_same_seed_gives_the_same_results() {
    let text = star(
        "[[fault]]\nkind='loss'\nlink='all'\nprobability='5%'\n[device]\nprofile='fast-recovery'\n",
    );
    let scenario = parse(&text).unwrap();
    let (one, other) = (run(&scenario), run(&scenario));
    assert_eq!(one, other);
    assert!(one.summary.totals.lost > 0);
}

#[test]
fn the_schema_is_json_and_has_all_tables() {
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
    let job = &schema["properties"]["job"]["items"]["properties"];
    let timeout = job["timeout"]["description"].as_str().unwrap();
    assert!(timeout.contains("0 to 31"), "{timeout}");
    assert_eq!(
        schema["properties"]["topology"]["additionalProperties"],
        false
    );
}

#[test]
fn every_workload_runs_to_its_end() {
    for (workload, more) in [
        ("incast", "bytes = 9000"),
        ("permutation", "bytes = 9000"),
        ("ring-all-reduce", "bytes = 9000\nchunks = 2\nrounds = 2"),
        ("ring-all-gather", "bytes = 9000"),
        ("ring-reduce-scatter", "bytes = 9000"),
        ("halving-doubling-all-reduce", "bytes = 9000"),
        ("tree-all-reduce", "bytes = 9000"),
        ("all-to-all", "bytes = 9000"),
        ("all-to-all-in-shifts", "bytes = 9000"),
        ("parameter-server", "bytes = 9000\nservers = [0]"),
        ("poisson", "sizes = 'FbHdp'\nload = '30%'\nfor = '100us'"),
    ] {
        let text =
            format!("[topology]\nkind='star'\nhosts=4\n[[job]]\nworkload = '{workload}'\n{more}\n");
        let scenario = parse(&text).unwrap();
        let results = run(&scenario);
        let job = &results.summary.jobs[0];
        assert_eq!(job.fate, Fate::Finished, "{workload}");
        assert!(job.time_ns.unwrap() >= job.ideal_ns, "{workload}: {job:?}");
        let estimate = scenario.estimate();
        let share = results.summary.hops as f64 / estimate.hops as f64;
        assert!((0.5..2.1).contains(&share), "{workload}: {share}");
    }
}

#[test]
fn every_topology_carries_an_all_to_all() {
    for topology in [
        "kind = 'pair'",
        "kind = 'star'\nhosts = 3",
        "kind = 'dumbbell'\nleft_hosts = 2\nright_hosts = 2\nfabric_rate = '10Gbit'",
        "kind = 'leaf-spine'\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\ncables_per_spine = 2",
        "kind = 'fat-tree'\nk = 4",
        "kind = 'fat-tree'\npods = 2\nleaves_per_pod = 1\nspines_per_pod = 2\ncores_per_spine = 1\n\
         hosts_per_leaf = 2",
        "kind = 'rail-pod'\nservers = 2\nnics = 2\nspines = 2",
        "kind = 'list'\nhost_names = ['a', 'b']\nswitch_names = ['tor']\n\
         cables = [['a', 'tor', '10Gbit', '3us'], ['b', 'tor']]",
    ] {
        let text =
            format!("[topology]\n{topology}\n[[job]]\nworkload='all-to-all'\nbytes='64KiB'\n");
        let results = run(&parse(&text).unwrap());
        assert_eq!(results.summary.jobs[0].fate, Fate::Finished, "{topology}");
    }
}

#[test]
fn files_of_other_simulators_are_read_by_the_caller() {
    let text = "[topology]\nkind = 'hpcc'\nfile = 'star.txt'\n[[job]]\nworkload = 'hpcc-flows'\nfile = 'flows.txt'\n";
    let parse = |flows: &'static str| {
        Scenario::parse(text, &mut |name| match name {
            "star.txt" => Ok("3 1 2\n0\n0 1 100Gbps 1us 0\n0 2 100Gbps 1us 0\n".into()),
            "flows.txt" => Ok(flows.into()),
            _ => Err("No such file".into()),
        })
    };
    let scenario = parse("1\n1 2 3 100 5000 0.000001\n").unwrap();
    let results = run(&scenario);
    assert_eq!(results.summary.jobs[0].fate, Fate::Finished);
    assert_eq!(results.flows[0].start_ns, 1_000);
    let error = parse("1\n1 9 3 100 5000 0.000001\n")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("job[0].workload: flows.txt: line 2"),
        "{error}"
    );
    let missing = text.replace("star.txt", "other.txt");
    let error = Scenario::parse(&missing, &mut |_| Err("No such file".into())).unwrap_err();
    assert_eq!(
        (error.problems[0].line, error.problems[0].text.as_str()),
        (
            Some(3),
            "topology.file: cannot read other.txt: No such file"
        )
    );
}

#[test]
fn results_without_an_end_are_refused_or_remarked() {
    refused(
        &star("[record]\nsamples = 1000000000000"),
        "8: invalid record.samples 1000000000000: must be 0 to 50000000",
    );
    refused(
        &star("[[fault]]\nkind = 'link-down'\nlink = 'h0'\nfor = '1us'\nevery = '10us'"),
        "11: fault[0].every: happens 6000000 times in the scenario's duration: must be at most 100000",
    );
    warns(
        &star("[record]\nsamples = 50000000\nevery = '1us'"),
        "a directory of results takes up to",
    );
}
