//! Each fault that was measured on a ConnectX, caused by plain verbs between two devices, ends as
//! on the card.
//!
//! `programs/card_faults.c` prints a line for each: the case, the card's behaviour, this device's
//! behaviour, and whether they agree. `programs/card_faults.txt` has these lines without the
//! figures that differ from run to run; `FERROCE_UPDATE=1` writes it again.

use std::fs;
use std::path::Path;

use ferroce_interop::lab::{Lab, undisturbed};
use ferroce_testing::has;
use serde_json::Value;

/// A line without what differs from run to run: a figure is either the card's, or within its range.
fn lasting(line: &str) -> String {
    let columns: Vec<&str> = line.split(" | ").collect();
    let [case, card, ours, agrees] = columns[..] else {
        panic!("CASE | CARD | OURS | AGREES: {line}");
    };
    match card.contains(" to ") && agrees == "yes" {
        true => format!("{case} | {card} | in between | {agrees}"),
        false => format!("{case} | {card} | {ours} | {agrees}"),
    }
}

#[test]
fn faults_end_as_on_the_card() {
    let mut lab = Lab::new("card-faults");
    lab.two_devices();
    let compiled = lab.compile("card_faults");
    let program = compiled.to_str().expect("a plain path");
    let print = || -> Vec<String> {
        let printed = lab.run([program]).success();
        printed.lines().map(lasting).collect()
    };
    // A timer that expires on a busy machine retransmits a packet.
    let strays = |lines: &Vec<String>| {
        let strays = lines.iter().filter(|line| !line.ends_with("| yes"));
        let strays: Vec<&String> = strays.collect();
        (!strays.is_empty()).then(|| format!("{strays:#?}"))
    };
    let table = undisturbed(print, strays).join("\n") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/card_faults.txt");
    if std::env::var_os("FERROCE_UPDATE").is_some() {
        fs::write(&file, &table).expect("a file of ours");
    }
    let expected = fs::read_to_string(&file).expect("a file of ours");
    assert_eq!(table, expected, "FERROCE_UPDATE=1 writes it anew");

    // The program has ended, and the device reports what it recorded: the last error is the invalid
    // request.
    let seen = lab.ferroce("explain error -d fr0 -j").success();
    let seen: Value = serde_json::from_str(&seen).expect("JSON");
    let last = seen["errors"].as_array().and_then(|errors| errors.last());
    let last = last.unwrap_or_else(|| panic!("errors: {seen}"));
    assert_eq!(
        (&last["status"], &last["vendor_err"]),
        (&9.into(), &0x8a.into())
    );
    assert_eq!(seen["cause"]["name"], last["name"]);
    assert_eq!(seen["side"], "requester");
    // Those that gave up report how long they waited, and with which attributes.
    let all = seen["errors"].as_array().expect("a list");
    let gave_up = all.iter().find(|it| it["name"] == "IBV_WC_RETRY_EXC_ERR");
    let gave_up = gave_up.unwrap_or_else(|| panic!("one of them: {seen}"));
    assert!(gave_up["waited_ns"].as_u64() > Some(0), "{gave_up}");
    assert!(gave_up["timeout"].as_u64() > Some(0), "{gave_up}");
    assert!(last["waited_ns"].is_null(), "{last}");
    assert_eq!(seen["peer_device"], "fr1", "{seen}");
    let counter = |values: &str, name: &str| {
        let values = seen[values].as_array().expect("a list");
        let value = values.iter().find(|value| value["name"] == name);
        value.and_then(|value| value["value"].as_u64())
    };
    assert!(
        counter("counters", "req_remote_invalid_request") >= Some(2),
        "{seen}"
    );
    let text = lab.ferroce("explain error -d fr0").success();
    has(
        &text,
        [
            "qp_access_flags of the peer",
            "requester    fr0: shows",
            "responder    fr1: shows",
            "by fr0, the requester",
            "retry_cnt",
        ],
    );
}
