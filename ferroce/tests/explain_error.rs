//! `ferroce explain error`: from a completion to its cause.

use serde_json::Value;

use crate::common::good_json;

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
