//! `ferroce explain timeout`: from what an application sets to the seconds.

mod common;

use common::{bad, good, good_json};
use serde_json::{Value, json};

fn explain(args: &[&str]) -> Value {
    good_json(&[&["explain", "timeout", "-j"], args].concat())
}

#[track_caller]
fn qp(args: &[&str], timeout: u8, retry_cnt: u8) -> Vec<String> {
    let explained = explain(args);
    assert_eq!(
        explained["qp"],
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
fn the_three_answers_of_nccl() {
    let explained = explain(&["--from", "nccl"]);
    assert_eq!(explained["ib_ns"], 30_064_771_072_u64);
    assert_eq!(explained["device_ns"], 60_129_542_144_u64);
    assert_eq!(explained["exact_ns"], 60_129_542_144_u64);
    assert_eq!(explained["from"]["app"], "nccl");
    assert_eq!(explained["policy"], "firmware");
}

#[test]
fn applications_lead_to_attributes() {
    let nothing: [&str; 0] = [];
    let clean = |args: &[&str], timeout, retry_cnt| {
        assert_eq!(qp(args, timeout, retry_cnt), nothing, "{args:?}");
    };
    clean(&["--from", "nccl"], 20, 7);
    clean(
        &[
            "--from",
            "nccl",
            "NCCL_IB_TIMEOUT=22",
            "NCCL_IB_RETRY_CNT=3",
        ],
        22,
        3,
    );
    clean(&["--from", "ucx"], 18, 7);
    clean(&["--from", "ucx", "UCX_RC_TIMEOUT=300ms"], 16, 7);
    clean(&["--from", "ucx", "UCX_RC_TIMEOUT=4s"], 20, 7);
    clean(&["--from", "ucx", "UCX_RC_TIMEOUT=300m"], 0, 7);
    clean(&["--from", "openmpi"], 20, 7);
    clean(
        &["--from", "openmpi", "OMPI_MCA_btl_openib_ib_timeout=17"],
        17,
        7,
    );
    clean(&["--from", "perftest", "u=20", "retry_count=2"], 20, 2);
    clean(&["--from", "rdma_cm"], 18, 7);
    clean(&["--from", "rdma-cm", "cma_iboe_packet_lifetime=18"], 19, 7);
    clean(&["--from", "nccl", "--timeout", "21"], 21, 7);
    clean(
        &["--from", "rdma_cm", "--timeout", "21", "--retry-cnt", "1"],
        21,
        1,
    );
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
        clean(&["--from", "rdma_cm", &option], timeout, 7);
    }
}

#[test]
fn what_does_not_fit_is_flagged() {
    let does_not_fit = ["does_not_fit"];
    assert_eq!(
        qp(&["--timeout", "20", "--retry-cnt", "15"], 20, 7),
        does_not_fit
    );
    assert_eq!(
        qp(&["--timeout", "20", "--retry-cnt", "9"], 20, 1),
        does_not_fit
    );
    assert_eq!(
        qp(&["--timeout", "50", "--retry-cnt", "7"], 18, 7),
        does_not_fit
    );
    assert_eq!(
        qp(&["--from", "nccl", "NCCL_IB_RETRY_CNT=15"], 20, 7),
        does_not_fit
    );
    assert_eq!(
        qp(&["--from", "ucx", "UCX_RC_RETRY_COUNT=1000"], 18, 7),
        does_not_fit
    );
    assert_eq!(
        qp(&["--from", "rdma_cm", "retry_count=15"], 18, 7),
        does_not_fit
    );
    assert_eq!(
        qp(&["--from", "openmpi", "btl_openib_ib_timeout=40"], 31, 7),
        does_not_fit
    );
    let text = good(&["explain", "timeout", "--timeout", "20", "--retry-cnt", "15"]);
    assert!(
        text.contains("retry_cnt = 15 does not fit its 3 bits (0 to 7)"),
        "{text}"
    );
}

#[test]
fn what_has_no_effect_is_flagged() {
    let no_effect = ["no_effect"];
    assert_eq!(
        qp(&["--timeout", "14", "--retry-cnt", "7"], 14, 7),
        no_effect
    );
    assert_eq!(
        qp(&["--timeout", "20", "--retry-cnt", "0"], 20, 0),
        no_effect
    );
    let both = ["--from", "nccl", "NCCL_IB_TIMEOUT=22", "--timeout", "21"];
    assert_eq!(qp(&both, 22, 7), no_effect);
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../profiles/fast-recovery.toml"
    );
    assert_eq!(
        qp(&["--from", "nccl", "--profile", profile], 20, 7),
        no_effect
    );
    let disabled = [
        "--timeout",
        "14",
        "--retry-cnt",
        "7",
        "--min-ack-timeout-limit-disabled",
    ];
    assert_eq!(qp(&disabled, 14, 7), [""; 0]);
    let explained = explain(&disabled);
    assert_eq!(explained["minimum_timeout"], Value::Null);
    //= F15: and an initial wait before those, of 0.51 to 1.16 timeouts.
    let waits_ns = 8 * 67_108_864_u64;
    assert_eq!(explained["exact_ns"], waits_ns + 34_225_520);
    assert_eq!(explained["device_min_ns"], explained["exact_ns"]);
    assert_eq!(explained["device_ns"], waits_ns + 77_846_282);
    assert_eq!(explained["waits"][0]["event"], "initial");
    //= F14: coarse timers end the ladder of T=14, R=7 within this.
    let explained = explain(&["--timeout", "14", "--retry-cnt", "7"]);
    assert_eq!(explained["device_ns"], 3_758_096_384_u64);
    assert_eq!(explained["device_min_ns"], 3_490_709_504_u64);
}

#[test]
fn a_timer_that_is_off_never_fails() {
    let explained = explain(&["--timeout", "0", "--retry-cnt", "7"]);
    for key in ["ack_timeout_ns", "ib_ns", "device_ns", "exact_ns"] {
        assert_eq!(explained[key], Value::Null, "{key}");
    }
    assert_eq!(explained["waits"][0]["event"], "never");
}

#[test]
fn every_policy_is_explained() {
    let ib = explain(&["--from", "perftest", "--personality", "ib"]);
    assert_eq!(
        (&ib["policy"], &ib["exact_ns"]),
        (&json!("ib"), &json!(8 * 268_435_456_u64))
    );
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../profiles/nvidia-ranges.toml"
    );
    let explained = explain(&["--from", "nccl", "--profile", profile]);
    assert_eq!(explained["policy"], "profile");
    assert_eq!(explained["exact_ns"], 30_064_771_072_u64);
    assert_eq!(explained["waits"].as_array().unwrap().len(), 13);
}

#[test]
fn bad_questions_say_what_to_ask() {
    for (args, expected) in [
        (&[][..], "Give --timeout T and --retry-cnt R, or --from APP"),
        (
            &["--timeout", "20"],
            "Give --retry-cnt R, 0 to 7, or --from APP",
        ),
        (
            &["--from", "mpich"],
            "unknown application; write nccl, ucx, openmpi, perftest or rdma_cm",
        ),
        (
            &["--from", "nccl", "NCCL_IB_TIMOUT=20"],
            "the nearest is NCCL_IB_TIMEOUT, and all are",
        ),
        (
            &["--from", "nccl", "20"],
            "\"20\" is no setting; write NAME=VALUE",
        ),
        (
            &["--from", "nccl", "NCCL_IB_TIMEOUT=high"],
            "is not a number of this field",
        ),
        (
            &["--from", "nccl", "NCCL_IB_TIMEOUT=-1"],
            "is not a number of this field",
        ),
        (
            &["--from", "ucx", "UCX_RC_TIMEOUT=1 fortnight"],
            "is not a duration",
        ),
    ] {
        let errors = bad(&[&["explain", "timeout"], args].concat());
        assert!(errors.contains(expected), "{errors}");
    }
}
