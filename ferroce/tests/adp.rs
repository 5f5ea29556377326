//! `ferroce adp`: what it prints for good input, and what it says about bad input.

use serde_json::{Value, json};

use crate::common::{bad, good, good_json, has, run, scratch};

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

        let (qp, draw) = (&vector["qp"], &vector["draw"]);
        let mut args = format!(
            "adp trace {file} --timeout {} --retry-cnt {} --draw {draw} -j",
            qp["timeout"], qp["retry_cnt"]
        );
        if qp["min_limit_enforced"] == false {
            args += " --min-ack-timeout-limit-disabled";
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
fn output_of_card_tools_is_imported_and_checked() {
    let card = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/card.txt");
    let (code, out, err) = run(format!("adp import {card}"));
    assert_eq!((code, err.as_str()), (0, "read as a table of fields\n"));
    let file = scratch("imported", &out);
    assert_eq!(
        good(format!("adp encode {card}")),
        good(format!("adp encode {file}"))
    );
    // The output of emit can be read again.
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
        has(&errors, [expected]);
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
    has(&help, ["2  bad input"]);
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
    has(&text, ["spurious"]);
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
