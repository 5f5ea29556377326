//! `ferroce explain timeout`: from an application's settings to the seconds.

use serde_json::{Value, json};

use crate::common::{self, Words, good_json, has};

fn explain(args: impl std::fmt::Display) -> Value {
    good_json(format!("explain timeout -j {args}"))
}

#[track_caller]
fn qp(args: impl std::fmt::Display, timeout: u8, retry_cnt: u8) -> Vec<String> {
    let explained = explain(args);
    assert_eq!(
        explained["queue_pair"],
        json!({"timeout": timeout, "retry_cnt": retry_cnt})
    );
    let remarks = explained["remarks"].as_array().unwrap();
    let kind = |remark: &Value| remark["kind"].as_str().unwrap().to_owned();
    remarks
        .iter()
        .map(kind)
        .filter(|kind| kind != "note")
        .collect()
}

#[test]
fn applications_lead_to_attributes() {
    let nothing: [&str; 0] = [];
    let clean = |args: &str, timeout, retry_cnt| {
        assert_eq!(qp(args, timeout, retry_cnt), nothing, "{args:?}");
    };
    clean("--from nccl", 20, 7);
    clean("--from nccl NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=3", 22, 3);
    clean("--from ucx", 18, 7);
    clean("--from ucx UCX_RC_TIMEOUT=300ms", 16, 7);
    clean("--from ucx UCX_RC_TIMEOUT=4s", 20, 7);
    clean("--from ucx UCX_RC_TIMEOUT=300m", 0, 7);
    clean("--from openmpi", 20, 7);
    clean("--from openmpi OMPI_MCA_btl_openib_ib_timeout=17", 17, 7);
    clean("--from perftest u=20 retry_count=2", 20, 2);
    // Each says where its values come from.
    for (app, timeout) in [("rccl", 20), ("nixl", 18), ("mooncake", 14)] {
        qp(format!("--from {app}"), timeout, 7);
    }
    for app in ["libfabric", "mpich"] {
        assert_eq!(
            qp(format!("--from {app}"), 18, 7),
            ["does_not_fit"],
            "{app}"
        );
    }
    clean("--from rccl NCCL_IB_TIMEOUT=18", 18, 7);
    clean("--from nixl UCX_RC_RETRY_COUNT=3", 18, 3);
    clean("--from rdma_cm", 18, 7);
    clean("--from rdma-cm cma_iboe_packet_lifetime=18", 19, 7);
    clean("--from nccl --timeout 21", 21, 7);
    clean("--from rdma_cm --timeout 21 --retry-cnt 1", 21, 1);
    for (option, timeout) in [
        (1, 16),
        (14, 16),
        (15, 17),
        (16, 17),
        (17, 18),
        (18, 18),
        (19, 19),
    ] {
        let option = format!("RDMA_OPTION_ID_ACK_TIMEOUT={option}");
        clean(&format!("--from rdma_cm {option}"), timeout, 7);
    }
}

#[test]
fn conflicting_values_are_flagged() {
    let does_not_fit = ["does_not_fit"];
    assert_eq!(qp("--timeout 20 --retry-cnt 15", 20, 7), does_not_fit);
    assert_eq!(qp("--timeout 20 --retry-cnt 9", 20, 1), does_not_fit);
    assert_eq!(qp("--timeout 50 --retry-cnt 7", 18, 7), does_not_fit);
    assert_eq!(qp("--from nccl NCCL_IB_RETRY_CNT=15", 20, 7), does_not_fit);
    assert_eq!(
        qp("--from ucx UCX_RC_RETRY_COUNT=1000", 18, 7),
        does_not_fit
    );
    assert_eq!(qp("--from rdma_cm retry_count=15", 18, 7), does_not_fit);
    assert_eq!(
        qp("--from openmpi btl_openib_ib_timeout=40", 31, 7),
        does_not_fit
    );
}

#[test]
fn settings_without_effect_are_flagged() {
    let no_effect = ["no_effect"];
    assert_eq!(qp("--timeout 14 --retry-cnt 7", 14, 7), no_effect);
    assert_eq!(qp("--timeout 20 --retry-cnt 0", 20, 0), no_effect);
    let both = "--from nccl NCCL_IB_TIMEOUT=22 --timeout 21";
    assert_eq!(qp(both, 22, 7), no_effect);
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../profiles/fast-recovery.toml"
    );
    assert_eq!(
        qp(format!("--from nccl --profile {profile}"), 20, 7),
        no_effect
    );
    let disabled = "--timeout 14 --retry-cnt 7 --min-ack-timeout-limit-disabled";
    assert_eq!(qp(disabled, 14, 7), [""; 0]);
    let explained = explain(disabled);
    assert_eq!(explained["minimum_timeout"], Value::Null);
    //= F15: plus an initial wait before those, of 0.51 to 1.16 timeouts.
    let waits_ns = 8 * 67_108_864_u64;
    assert_eq!(explained["exact_ns"], waits_ns + 34_225_520);
    assert_eq!(explained["device_min_ns"], explained["exact_ns"]);
    assert_eq!(explained["device_ns"], waits_ns + 77_846_282);
    assert_eq!(explained["waits"][0]["event"], "initial");
    //= F14: coarse timers end the ladder of T=14, R=7 within this time.
    let explained = explain("--timeout 14 --retry-cnt 7");
    assert_eq!(explained["device_ns"], 3_758_096_384_u64);
    assert_eq!(explained["device_min_ns"], 3_490_709_504_u64);
}

/// Runs the command in a process, with environment variables of its own.
fn with_variables(variables: &[(&str, &str)], args: impl Words) -> (bool, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ferroce"))
        .args(["explain", "timeout"])
        .args(args.words())
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn the_environment_is_read_and_reported() {
    let timeout_22 = [("NCCL_IB_TIMEOUT", "22")];
    for app in ["nccl", "env"] {
        let (good, text) = with_variables(&timeout_22, format!("--from {app}"));
        assert!(
            good && text.contains("NCCL_IB_TIMEOUT = 22 (environment)"),
            "{text}"
        );
        has(&text, ["timeout 22: 17.2 s"]);
    }
    let given = "--from nccl NCCL_IB_TIMEOUT=21";
    let (_, text) = with_variables(&timeout_22, given);
    has(&text, ["NCCL_IB_TIMEOUT = 21 (given)"]);
    let openmpi = [("OMPI_MCA_btl_openib_ib_timeout", "19")];
    let (_, text) = with_variables(&openmpi, "--from env");
    has(&text, ["btl_openib_ib_timeout = 19 (environment)"]);

    for (variables, expected) in [
        (&[][..], "no variable of nccl, ucx or openmpi is set"),
        (
            &[
                ("NCCL_IB_TIMEOUT", "22"),
                ("UCX_RC_MLX5_TIMEOUT", "4s"),
                ("UCX_TLS", "rc"),
            ],
            "NCCL_IB_TIMEOUT and UCX_RC_MLX5_TIMEOUT are set; write --from nccl or --from ucx",
        ),
        (&[("UCX_TLS", "rc")], "no variable of nccl"),
        (
            &[("NCCL_IB_TIMEOUT", "high")],
            "NCCL_IB_TIMEOUT=high (in the environment) is not a number",
        ),
    ] {
        let (good, text) = with_variables(variables, "--from env");
        assert!(!good && text.contains(expected), "{text}");
    }
}

#[test]
fn ucx_has_variables_for_each_transport() {
    let clean = |args: &str, timeout, retry_cnt| {
        assert_eq!(
            qp(format!("--from ucx {args}"), timeout, retry_cnt),
            [""; 0]
        );
    };
    clean("UCX_RC_MLX5_TIMEOUT=4s", 20, 7);
    clean("UCX_RC_VERBS_TIMEOUT=4s UCX_RC_VERBS_RETRY_COUNT=3", 20, 3);
    clean("UCX_DC_MLX5_TIMEOUT=4s UCX_DC_RETRY_COUNT=2", 20, 2);
    clean("UCX_TLS=self,dc_x UCX_RC_TIMEOUT=4s", 20, 7);
    let no_effect = |args: &str, timeout| {
        assert_eq!(qp(format!("--from ucx {args}"), timeout, 7), ["no_effect"]);
    };
    no_effect("UCX_RC_MLX5_TIMEOUT=4s UCX_RC_TIMEOUT=8s", 20);
    no_effect("UCX_DC_MLX5_TIMEOUT=4s UCX_DC_TIMEOUT=8s", 20);
    no_effect("UCX_TLS=rc_verbs UCX_RC_MLX5_TIMEOUT=4s", 18);
    no_effect("UCX_RC_MLX5_TIMEOUT=4s UCX_DC_MLX5_TIMEOUT=8s", 20);
}

#[test]
fn a_proposal_keeps_its_promise_when_it_is_explained() {
    for survive in ["5ms", "300ms", "3s", "20s", "200s"] {
        let found = explain(format!("--survive {survive} --from nccl"));
        let Some(first) = found["proposals"].as_array().and_then(|it| it.first()) else {
            panic!("{found}");
        };
        let settings = first["settings"].as_str().unwrap();
        let explained = explain(format!("--from nccl {settings}"));
        let survives = &explained["answer"]["survives_ns"];
        assert_eq!(survives, &first["endurance"]["survives_ns"]);
        assert!(survives.as_u64() >= found["survive_ns"].as_u64());
    }
}

#[test]
fn an_extended_retry_count_is_explained() {
    let args = "--timeout 14 --retry-cnt 7 --extended-retry-count 50";
    let explained = explain(args);
    assert_eq!(explained["queue_pair"]["retry_cnt"], 50);
    assert_eq!(explained["device_ns"], 50 * 2 * 268_435_456_u64);
    let remarks = explained["remarks"].to_string();
    has(&remarks, ["extended_retry_count 50 replaces it"]);
    let trace = good_json(format!("adp trace -j --personality firmware {args}"));
    assert_eq!(trace["total_ns"], explained["exact_ns"]);
    // A profile that leaves the total to the QP.
    let survives = |more: &str| {
        let checked = good_json(format!("adp check -j link-flap --timeout 14 {more}"));
        checked["queue_pairs"][0]["endurance"]["gives_up_last_ns"].as_u64()
    };
    let total = |count: u64| Some(count * 268_435_456);
    assert_eq!(survives("--retry-cnt 7"), total(7));
    assert_eq!(survives("--extended-retry-count 50"), total(50));
    let refused = common::bad("explain timeout --survive 3s --extended-retry-count 9");
    has(&refused, ["leave out --extended-retry-count"]);
}

#[test]
fn the_multiplier_of_plain_timers_is_explained() {
    for multiplier in 1..=4 {
        let args = format!("--timeout 17 --retry-cnt 7 --personality ib --multiplier {multiplier}");
        let explained = explain(args);
        assert_eq!(explained["exact_ns"], 8 * multiplier * 536_870_912_u64);
        // Timeout * retries * 2, as cards have been measured.
        assert_eq!(explained["device_ns"], 7 * 2 * 536_870_912_u64);
    }
}

proptest::proptest! {
    //= D7: the policy's number of waits, for every retry count.
    #[test]
    fn explain_and_trace_agree(
        timeout in 0u8..32, retry_cnt in 0u8..8, ib: bool, multiplier in 1u8..5, floor: bool,
    ) {
        let mut args = format!("--timeout {timeout} --retry-cnt {retry_cnt} --personality ");
        args += &match ib {
            true => format!("ib --multiplier {multiplier}"),
            false => "firmware".to_owned(),
        };
        if floor {
            args += " --min-ack-timeout-limit-disabled";
        }
        let explained = explain(&args);
        let trace = good_json(format!("adp trace -j {args}"));
        proptest::prop_assert_eq!(&explained["waits"], &trace["waits"]);
        proptest::prop_assert_eq!(&explained["exact_ns"], &trace["total_ns"]);
        let waits = trace["waits"].as_array().unwrap();
        proptest::prop_assert_eq!(&explained["exact_ns"], &waits[waits.len() - 1]["at_ns"]);
        if ib && floor && multiplier == 1 {
            proptest::prop_assert_eq!(&explained["ib_ns"], &explained["exact_ns"]);
        }
        if ib && timeout != 0 {
            let at = |n: usize| waits[n]["at_ns"].as_u64().unwrap();
            let last = waits.len().checked_sub(2).map_or(0, at);
            proptest::prop_assert_eq!(explained["answer"]["survives_ns"].as_u64(), Some(last));
        }
    }
}
