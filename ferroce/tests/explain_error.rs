//! `ferroce explain error`: from a completion to its cause.

mod common;

use common::{Place, good, good_json};
use serde_json::Value;

fn explain(args: impl std::fmt::Display) -> Value {
    good_json(format!("explain error -j {args}"))
}

#[test]
fn names_and_numbers_mean_the_same() {
    let causes = explain("12 0x81");
    let cause = &causes["causes"][0];
    assert_eq!(cause["name"], "IBV_WC_RETRY_EXC_ERR");
    assert_eq!(
        (&cause["status"], &cause["vendor_err"]),
        (&12.into(), &129.into())
    );
    for same in [
        "RETRY_EXC_ERR 0x81",
        "IBV_WC_RETRY_EXC_ERR 129",
        "retry_exc_err 0X81",
        "0xc 129",
    ] {
        assert_eq!(explain(same), causes, "{same:?}");
    }
    assert_eq!(explain("12"), causes, "its only cause");
    let counters = cause["requester"]["counters"].as_array().unwrap();
    assert!(
        counters
            .iter()
            .any(|it| it["name"] == "local_ack_timeout_err")
    );
}

#[test]
fn a_status_of_several_causes_lists_them() {
    let causes = explain("LOC_PROT_ERR");
    let codes: Vec<_> = causes["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["vendor_err"])
        .collect();
    assert_eq!(codes, [0x53, 0x52, 0x33, 0x32]);
    let text = good("explain error 4 0x33");
    assert!(text.contains("IBV_ACCESS_LOCAL_WRITE"), "{text}");
    let all = good("explain error");
    // Meanings that are longer than a line go on below.
    let rows = all.lines().filter(|line| {
        let status = line.split_whitespace().next();
        status.is_some_and(|it| it.parse::<u8>().is_ok())
    });
    assert_eq!(rows.count(), 16, "{all}");
}

#[test]
fn an_unknown_vendor_error_leaves_the_status() {
    let (code, out, err) = common::run("explain error 12 0x99");
    assert_eq!(code, 0);
    assert!(out.contains("IBV_WC_RETRY_EXC_ERR"), "{out}");
    let said = "vendor error 0x99 is not known with RETRY_EXC_ERR; known: 0x81\n";
    assert_eq!(err, said);
}

#[test]
fn a_device_without_errors_says_so() {
    let place = Place::with("fr7", "127.0.0.7");
    let said = place.good("explain error -d fr7");
    assert_eq!(said, "fr7 has seen no error\n");
    let seen: Value = serde_json::from_str(&place.good("explain error -d fr7 -j")).unwrap();
    assert_eq!((&seen["total"], &seen["cause"]), (&0.into(), &Value::Null));
}
