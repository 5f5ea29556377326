//! `ferroce adp`: what it prints for good input, and what it says about bad input.

mod common;

use common::{bad, good, good_json, run, scratch};
use serde_json::{Value, json};

const VECTORS: &str = include_str!("../../crates/adp/tests/vectors/adp.json");

const GOOD: &str = r#"time_base = 4
qp_total_timeout = false
retx_total_timeout = 20
timeout_init_low_bound = 8
timeout_init_range_size = 3
start_range_index = 0

[[timeout_range]]
range_low_bound = 8
range_size = 2
timeout_retry_num = 2
dec_mode = "TO_LOW_BOUND"
prev_range_index = 0

[[timeout_range]]
range_low_bound = 12
range_size = 2
timeout_retry_num = 1
dec_mode = "TO_DIV_2"
prev_range_index = 0
"#;

fn profiles() -> Vec<String> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../profiles");
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect()
}

#[test]
fn the_vectors_pass_through_decode_trace_and_encode() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for vector in vectors.as_array().unwrap() {
        let payload = vector["set_payload"].as_str().unwrap();
        let file = scratch(
            vector["name"].as_str().unwrap(),
            &good(format!("adp decode {payload}")),
        );
        assert_eq!(good(format!("adp encode {file}")), format!("{payload}\n"));

        let text = |value: &Value| value.to_string();
        let (timeout, retry_cnt) = (
            text(&vector["qp"]["timeout"]),
            text(&vector["qp"]["retry_cnt"]),
        );
        let draw = text(&vector["draw"]);
        let mut args = vec![
            "adp",
            "trace",
            &file,
            "--timeout",
            &timeout,
            "--retry-cnt",
            &retry_cnt,
            "--draw",
            &draw,
            "-j",
        ];
        if vector["qp"]["min_limit_enforced"] == false {
            args.push("--min-ack-timeout-limit-disabled");
        }
        let trace = good_json(&args);
        assert_eq!(trace["ack_timeout_ns"], vector["ack_ns"]);
        assert_eq!(trace["total_ns"], vector["total_ns"]);
        let waits: Vec<Value> = vector["trace"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| {
                json!({
                    "wait_ns": step["wait"],
                    "at_ns": step["t"],
                    "exponent": step["exp"],
                    "range": step["range"],
                    "event": step["kind"],
                })
            })
            .collect();
        assert_eq!(trace["waits"], Value::from(waits), "{}", vector["name"]);
    }
}

#[test]
fn the_shipped_profiles_are_valid_without_warnings() {
    let profiles = profiles();
    assert!(profiles.len() >= 4);
    for profile in &profiles {
        let checked = good(format!("adp check {profile}"));
        let first = checked.lines().next();
        assert_eq!(first, Some(format!("{profile}: valid").as_str()));
        assert!(!checked.contains("warning"), "{checked}");
        for timeout in ["14", "18", "20", "31"] {
            let findings = good_json(format!("adp check {profile} --timeout {timeout} -j"));
            assert_eq!(findings["warnings"], json!([]), "{profile} {timeout}");
        }
        let payload = good(format!("adp encode {profile}"));
        let canonical = scratch("canonical", &good(format!("adp decode {}", payload.trim())));
        assert_eq!(good(format!("adp encode {canonical}")), payload);
        assert_eq!(
            good(format!("adp decode {}", payload.trim())),
            std::fs::read_to_string(&*canonical).unwrap()
        );
    }
}

#[test]
fn plain_ib_and_profile_0_are_traced_by_name() {
    let ib = "adp trace --personality ib --timeout 14 --retry-cnt 7 -j";
    let trace = good_json(format!("{ib} --multiplier 2"));
    assert_eq!(trace["waits"].as_array().unwrap().len(), 8);
    assert_eq!(trace["total_ns"], 4_294_967_296_u64);
    assert_eq!(trace["waits"][7]["event"], "error");
    let trace = good_json(format!("{ib} --min-ack-timeout-limit-disabled"));
    assert_eq!(trace["total_ns"], 536_870_912);

    let firmware = "adp trace --personality firmware --retry-cnt 7 -j";
    for (timeout, waits, total) in [
        ("14", 13, 3_758_096_384_u64),
        ("17", 14, 7_516_192_768),
        ("20", 17, 60_129_542_144),
    ] {
        let args = format!("--timeout {timeout} --initial-exponent 11");
        let trace = good_json(format!("{firmware} {args}"));
        assert_eq!(trace["waits"].as_array().unwrap().len(), waits);
        assert_eq!(trace["waits"][waits - 1]["at_ns"], total);
        assert_eq!(trace["waits"][0]["range"], Value::Null);
    }
}

#[test]
fn what_is_infinite_is_null() {
    let file = scratch("infinite", GOOD);
    let trace = good_json(format!("adp trace {file} --timeout 0 --retry-cnt 7 -j"));
    let never = json!([
        {"wait_ns": null, "at_ns": null, "exponent": 8, "range": null, "event": "never"}
    ]);
    assert_eq!(
        trace,
        json!({
            "schema": "ferroce.adp.trace", "version": 1,
            "queue_pair": {"timeout": 0, "retry_cnt": 7},
            "ack_timeout_ns": null, "total_ns": null, "shortest_total_ns": null, "waits": never,
            "cut": false
        })
    );

    let endless = scratch("endless", &GOOD.replace("timeout = 20", "timeout = 60"));
    let args = format!("adp trace {endless} --timeout 16 --retry-cnt 1 --max 50 -j");
    let (code, out, err) = run(&args);
    let trace: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, trace["total_ns"].clone()), (0, Value::Null));
    assert_eq!(trace["waits"].as_array().unwrap().len(), 50);
    assert_eq!(err, "cut after 50 waits; --max N shows more\n");
}

#[test]
fn events_show_the_state_after_each() {
    let file = scratch("events", GOOD);
    let args = format!("adp trace {file} --timeout 18 --retry-cnt 7 --events");
    let states = good_json(format!("{args} t,t,t,t,t,t,t,a,a,a -j"));
    let states = states["states"].as_array().unwrap();
    let exponents: Vec<_> = states
        .iter()
        .map(|state| state["exponent"].as_u64().unwrap())
        .collect();
    assert_eq!(exponents, [8, 8, 9, 9, 10, 10, 12, 10, 8, 8]);
    assert_eq!(
        states[7],
        json!({"event": "a", "exponent": 10, "range": 0, "timer_ns": 4_096_000, "error": null})
    );

    let ib = "adp trace --personality ib --timeout 14 --retry-cnt 0";
    let (code, out, err) = run(format!("{ib} --events t,t -j"));
    let error = "IBV_WC_RETRY_EXC_ERR";
    let state =
        json!({"event": "t", "exponent": 16, "range": null, "timer_ns": null, "error": error});
    let states: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &states["states"]), (0, &json!([state])));
    assert_eq!(err, "1 events left out: the QP has failed\n");
}

#[test]
fn each_command_names_line_field_value_range_and_remedy() {
    for (from, to, expected) in [
        (
            "time_base = 4",
            "time_base = 6",
            ":1: error: time_base = 6: must be a power of two from 4 to 32768; write time_base = \
             4 or time_base = 8",
        ),
        (
            "retx_total_timeout",
            "retx_totl_timeout",
            ":3: error: unknown key retx_totl_timeout; did you mean retx_total_timeout?",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{to}");
        let file = scratch("violation", &text);
        let expected = format!("{file}{expected}\n");
        for command in [
            format!("adp check {file}"),
            format!("adp encode {file}"),
            format!("adp plot {file}"),
            format!("adp trace {file} --timeout 14 --retry-cnt 7"),
            format!("explain timeout --timeout 14 --retry-cnt 7 --profile {file}"),
        ] {
            let errors = bad(&command);
            assert!(
                errors.contains(&expected),
                "{command:?}\n{errors}\n{expected}"
            );
        }
    }
}

#[test]
fn check_speaks_json() {
    let file = scratch("json", &GOOD.replace("time_base = 4", "time_base = 5"));
    let (code, out, err) = run(format!("adp check {file} -j"));
    let finding = json!({
        "field": "time_base",
        "value": 5,
        "allowed": "a power of two from 4 to 32768",
        "instead": "time_base = 4 or time_base = 8",
        "line": 1,
        "decision": "D12",
    });
    let findings: Value = serde_json::from_str(&out).unwrap();
    let expected = json!({
        "schema": "ferroce.adp.check", "version": 1,
        "valid": false, "deadly": false, "violations": [finding], "warnings": [], "notes": [],
        "problems": [], "queue_pairs": []
    });
    assert_eq!((code, findings, err.as_str()), (2, expected, ""));

    let file = scratch("json", &GOOD.replace("retry_num = 1", "retry_num = 0"));
    let findings = good_json(format!("adp check {file} -j"));
    assert_eq!(findings["valid"], true);
    assert_eq!(
        findings["warnings"][0]["field"],
        "timeout_range[1].timeout_retry_num"
    );

    let file = scratch("json", "time_base = [");
    let (code, out, _) = run(format!("adp check {file} -j"));
    let findings: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &findings["valid"]), (2, &json!(false)));
    assert!(
        findings["problems"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("not TOML: ")
    );
}

#[test]
fn warnings_do_not_make_a_profile_invalid() {
    let file = scratch("warning", &GOOD.replace("retry_num = 1", "retry_num = 0"));
    assert_eq!(
        good(format!("adp check {file}")),
        format!(
            "{file}: valid, 1 warning\n{file}:18: warning: timeout_range[1].timeout_retry_num = 0: \
             counts as 1, every timeout is used at least once; write timeout_retry_num = 1\n\n\
             QP    survives  resumes within  gives up after  retransmissions\n\
             14/7     4.1 s         65.6 ms           4.2 s               72\n\
             20/7     4.1 s         65.6 ms           4.2 s               72\n"
        )
    );
}

#[test]
fn a_profile_that_kills_jobs_is_deadly_and_not_applied() {
    let deadly = GOOD.replace("retx_total_timeout = 20", "retx_total_timeout = 10");
    let file = scratch("brief", &deadly);
    let text = good(format!("adp check {file}"));
    assert!(
        text.contains(":3: deadly: retx_total_timeout = 10: for a QP"),
        "{text}"
    );
    assert_eq!(text.matches(": deadly: ").count(), 1, "{text}");
    let findings = good_json(format!("adp check {file} -j"));
    assert_eq!(
        (&findings["valid"], &findings["deadly"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(findings["warnings"][0]["deadly"], true);
    let qp = &findings["queue_pairs"][1];
    assert_eq!(qp["timeout"], 20);
    assert_eq!(qp["endurance"]["gives_up_last_ns"], 4_096_000);

    let apply = format!("adp apply {file} -d nosuch --dry-run");
    let errors = bad(&apply);
    assert!(errors.contains("retx_total_timeout = 10"), "{errors}");
    assert!(errors.ends_with("or write it with --force\n"), "{errors}");
    good(format!("{apply} --force"));
    good("adp apply link-flap -d nosuch --dry-run");
}

#[test]
fn a_cap_that_hides_ranges_is_noted_for_the_qp_that_has_it() {
    let text = good("adp check nvidia-ranges");
    assert!(text.contains("note: timeout_range[1].range_low_bound = 18: a QP with timeout 14"));
    assert!(!good("adp check nvidia-ranges --timeout 20").contains("note"));
}

#[test]
fn built_in_profiles_have_names() {
    let listed = good_json("adp profile list -j");
    for profile in listed["profiles"].as_array().unwrap() {
        let name = profile["name"].as_str().unwrap();
        let path = format!("{}/../profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(
            good(format!("adp profile show {name}")),
            std::fs::read_to_string(&path).unwrap()
        );
        assert_eq!(
            good(format!("adp encode {name}")),
            good(format!("adp encode {path}"))
        );
    }
    assert!(good("adp profile").lines().all(|line| line.len() <= 80));
}

#[test]
fn what_tools_print_of_a_card_is_imported_and_checked() {
    let card = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/card.txt");
    let (code, out, err) = run(format!("adp import {card}"));
    assert_eq!((code, err.as_str()), (0, "read as a table of fields\n"));
    let file = scratch("imported", &out);
    assert_eq!(
        good(format!("adp encode {card}")),
        good(format!("adp encode {file}"))
    );
    let (code, out, err) = run(format!("adp check {card}"));
    assert_eq!((code, err.as_str()), (0, "read as a table of fields\n"));
    assert!(
        out.contains("card.txt: deadly: retx_total_timeout = 10: "),
        "{out}"
    );

    // What emit prints goes in again.
    for tool in ["mlxreg", "mlxreg-raw", "mstreg", "ferroce"] {
        let command = scratch(
            "command",
            &good(format!("adp emit link-flap --tool {tool}")),
        );
        let (code, out, _) = run(format!("adp encode {command}"));
        assert_eq!((code, out), (0, good("adp encode link-flap")), "{tool}");
    }
    let dump = scratch("dump", &good("adp encode patient"));
    let (_, out, err) = run(format!("adp import {dump}"));
    assert_eq!(
        good(["adp", "encode", &scratch("toml", &out)]),
        good("adp encode patient")
    );
    assert!(err.starts_with("read as a register dump\n"), "{err}");
    let errors = bad(["adp", "import", &scratch("cut", "time_base | 0x00000004\n")]);
    assert!(
        errors.contains("error: the table has no row time_unit; it seems to be cut"),
        "{errors}"
    );
}

#[test]
fn bad_payloads_say_what_to_give() {
    let payload = good(["adp", "encode", &scratch("payload", GOOD)]);
    let payload = payload.trim();
    let change =
        |at: usize, to: &str| format!("{}{to}{}", &payload[..at], &payload[at + to.len()..]);
    for (hex, expected) in [
        (
            "",
            "ROCE_ACCL has 128 bytes (64 in older tools), not 0; give all of it",
        ),
        (
            "xyz",
            "'x' is not a hex digit; give the payload that `ferroce adp encode` prints",
        ),
        (
            "123",
            "3 hex digits are half a byte too many; give two digits for each byte",
        ),
        (
            &payload[2..],
            "ROCE_ACCL has 128 bytes (64 in older tools), not 127",
        ),
        (
            &change(0, "0"),
            "the payload writes no profile: adp_retx_profile_select (bit 28",
        ),
        (
            &change(8, "0"),
            "adp_retx_profile_id = 0 stands for the firmware's own timeouts",
        ),
        (
            &change(8, "2"),
            "adp_retx_profile_id = 2 is beyond the only profile there is; write 1",
        ),
        (&change(36, "0005"), "time_base = 5: must be a power of two"),
    ] {
        let errors = bad(["adp", "decode", hex]);
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn payloads_decode_with_0x_white_space_and_in_the_short_size() {
    let payload = good(["adp", "encode", &scratch("forms", GOOD)]);
    let payload = payload.trim();
    let canonical = good(format!("adp decode {payload}"));
    let upper = payload.to_uppercase();
    assert_eq!(good(format!("adp decode {upper}")), canonical);
    assert_eq!(good(format!("adp decode 0x{payload}")), canonical);
    assert_eq!(good(["adp", "decode", &payload[..128]]), canonical);
    let words: Vec<String> = payload
        .as_bytes()
        .chunks(8)
        .map(|word| format!("0x{}", std::str::from_utf8(word).unwrap()))
        .collect();
    assert_eq!(good(format!("adp decode {}", words.join(" "))), canonical);
    assert_eq!(good(["adp", "decode", &words.join("\n")]), canonical);
}

#[test]
fn a_payload_that_writes_more_is_decoded_with_remarks() {
    let payload = good(["adp", "encode", &scratch("more", GOOD)]);
    let payload = payload.trim();
    // roce_adp_retrans_field_select and roce_adp_retrans_en, and a reserved bit.
    let more = format!("10000001{}{}", "10000001", &payload[16..250]);
    let (code, out, err) = run(format!("adp decode {more}800000"));
    assert_eq!((code, out), (0, good(format!("adp decode {payload}"))));
    assert_eq!(
        err,
        "warning: roce_adp_retrans_field_select = 1: the payload writes more than a profile; the \
         file leaves it out\n\
         warning: roce_adp_retrans_en = 1: is not part of a profile; the file leaves it out\n\
         warning: reserved bits 00800000 at byte 0x7c; the file leaves them out\n"
    );
}

#[test]
fn commands_may_be_abbreviated() {
    let file = scratch("short", GOOD);
    assert_eq!(
        good(format!("adp enc {file}")),
        good(format!("ad en {file}"))
    );
}

#[test]
fn help_documents_the_exit_codes() {
    let help = good("--help");
    assert!(help.contains("2  bad input"), "{help}");
}

#[test]
fn policies_are_compared_over_outages() {
    let lognormal = "lognormal:median=300ms,p99=20s";
    let svg = scratch("compare", "");
    let args = format!(
        "adp compare --outages {lognormal} --timeout 20 --loss 0.1% --count 200 --svg \
                {svg} -j"
    );
    let compared = good_json(&args);
    let policies = compared["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 7);
    let of = |name: &str| policies.iter().find(|it| it["policy"] == name).unwrap();
    let lost = |name| of(name)["lost_p50_ns"].as_u64().unwrap();
    assert!(lost("link-flap") < lost("firmware") && lost("firmware") < lost("ib"));
    assert!(of("fast-recovery")["survived"].as_f64() < of("link-flap")["survived"].as_f64());
    let configuration = &compared["configuration"];
    assert_eq!(configuration["outages"], lognormal);
    assert_eq!(configuration["loss"], 0.001);
    assert_eq!(
        configuration["round_trip"],
        "lognormal: median 20 us, p99 200 us"
    );
    assert_eq!(
        (&configuration["timeout"], &configuration["count"]),
        (&20.into(), &200.into())
    );
    let picture = std::fs::read_to_string(&*svg).unwrap();
    assert!(
        picture.starts_with("<svg") && picture.contains("link-flap") && !picture.contains("NaN")
    );

    assert_eq!(good_json(&args), compared);
    let other_seed = good_json(format!("{args} --seed 2"));
    assert_ne!(other_seed["policies"], compared["policies"]);
    let text = good(format!(
        "adp compare --outages {lognormal} --timeout 20 --loss 0.1% --count 200 ib firmware nvidia-ranges"
    ));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(text.contains("spurious"), "{text}");
}

#[test]
fn outages_are_lists_files_and_flaps() {
    let lengths = scratch("lengths", "# seconds\n0.3\n2s\n\n500ms # short\n");
    let text = good(format!("adp compare ib patient --outages {lengths}"));
    let head = "3 outages, median 500 ms, longest 2 s; loss 0%;";
    assert!(text.starts_with(head), "{text}");
    let flaps = "flaps:down=2s,up=5s,count=10";
    let text = good(format!("adp compare ib --outages {flaps} --count 5"));
    let head = "5 queue pairs, 10 times down for 2 s and up for 5 s;";
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn policies_are_compared_on_a_fabric() {
    let args = "adp compare ib link-flap --scenario flap-all-reduce --count 2";
    let compared = good_json(format!("{args} -j"));
    let [ib, flap] = [0, 1].map(|at| &compared["policies"][at]);
    for it in [ib, flap] {
        assert_eq!(it["survived"], 1.0);
        assert!(it["retransmissions"].as_f64().unwrap() > 0.0);
    }
    let lost = |it: &Value| it["lost_p50_ns"].as_u64().unwrap();
    assert!(lost(flap) < lost(ib), "{compared}");
    let text = good(format!("{args} --outages list:1ms,5ms"));
    assert!(text.contains("2 runs of flap-all-reduce"), "{text}");
}

#[test]
fn the_picture_of_the_manual_is_what_the_command_draws() {
    let svg = scratch("picture", "");
    let outages = "lognormal:median=300ms,p99=20s";
    let args = format!("adp compare --outages {outages} --loss 0.1%");
    let more = format!("--timeout 20 --count 200 --svg {svg}");
    good(format!("{args} {more}"));
    let drawn = std::fs::read_to_string(&*svg).unwrap();
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/compare.svg");
    let manual = std::fs::read_to_string(manual).unwrap();
    assert!(
        drawn == manual,
        "draw docs/compare.svg anew with the command of docs/outages.md"
    );
}
