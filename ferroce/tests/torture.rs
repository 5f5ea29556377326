//! `ferroce torture`.

use crate::common::{Place, bad, good, has, run, scratch};

#[test]
fn seeds_do_the_same_with_any_number_of_threads() {
    let one = good("torture --seeds 40 --from 7 --threads 1");
    has(
        &one,
        [
            "40 seeds, ",
            " 0 findings\n",
            "operations: ",
            "states x events: ",
        ],
    );
    assert_eq!(good("torture --seeds 40 --from 7 --threads 3"), one);
}

#[test]
fn a_replayed_script_says_whether_rules_hold() {
    let script = "seed 1\n0 0 host\n0 1 host\n0 0 qp id=1\n0 1 qp id=1\n0 0 connect qp=1 peer=1 to=1 mtu=3\n";
    let file = scratch("script", script);
    let text = good(format!("torture --replay {file}"));
    assert_eq!(text, "3 operations, 0 packets\nevery rule holds\n");
}

/// Seed 1 has programs that are killed, and one that is stopped.
#[test]
fn programs_of_this_host_come_to_no_harm_by_others() {
    let (code, text, err) = Place::empty().run("torture --world sockets --seeds 1 --json");
    assert_eq!(code, 0, "{text}{err}");
    let rounds: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rounds["schema"], "ferroce.torture.rounds");
    let count = |what: &str| {
        let happened = rounds["happened"].as_array().unwrap();
        let row = happened.iter().find(|row| row["outcome"] == what);
        row.map_or(0, |row| row["count"].as_u64().unwrap())
    };
    assert_eq!(rounds["findings"].as_array().unwrap().len(), 0);
    assert!(count("killed") > 0 && count("requests") > 0, "{text}");
}

#[test]
fn mistakes_are_named() {
    let file = scratch("mistaken", "seed 1\n0 0 hostt\n");
    has(
        &bad(format!("torture --replay {file}")),
        ["line 2: unknown verb \"hostt\"; expected one of host, "],
    );
    has(
        &bad("torture --replay nowhere.txt"),
        ["cannot read nowhere.txt"],
    );
    has(&bad("torture --world moon"), ["fabric, sockets"]);
    has(
        &bad(format!("torture --world sockets --replay {file}")),
        ["--seeds 1 --from SEED"],
    );
    has(&bad("torture --seeds 0"), ["0"]);
    let (code, ..) = run("torture --replay nowhere.txt --seeds 3");
    assert_eq!(code, 2, "a script has no seeds");
}
