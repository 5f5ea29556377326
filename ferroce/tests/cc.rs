//! `ferroce cc` on a device that nobody has open.

mod common;

use std::fs;

use common::Place;
use serde_json::{Value, json};

/// The parameters of fr0 as JSON.
#[track_caller]
fn parameters(place: &Place, args: &str) -> Value {
    let out = place.good(format!("cc -j -d fr0 {args}"));
    let mut rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rows["devices"][0]["device"], "fr0");
    rows["devices"][0]["parameters"].take()
}

#[test]
fn what_is_set_in_one_vocabulary_is_shown_in_all() {
    let place = Place::empty();
    place.good("cc set -d fr0 rpg_ai_rate=20 CNP_DSCP_P1=46");
    assert_eq!(parameters(&place, "")["rpg_ai_rate"], 20);
    for (whose, name) in [
        ("sysfs", "rpg_ai_rate"),
        ("debugfs", "rp_ai_rate"),
        ("mlxconfig", "RPG_AI_RATE"),
        ("winof", "DcQcnAIRate"),
    ] {
        let shown = parameters(&place, &format!("show --names {whose}"));
        assert_eq!(shown[name], 20, "{whose}");
        // What is printed can be set.
        let lines = place.good(format!("cc show -d fr0 --names {whose}"));
        let assignments: Vec<&str> = lines.lines().skip(1).map(str::trim).collect();
        assert!(assignments.len() > 15, "{lines}");
        place.good("cc reset -d fr0");
        assert_eq!(parameters(&place, "")["cnp_dscp"], 48);
        place.good(format!("cc set -d fr0 {}", assignments.join(" ")));
        assert_eq!(parameters(&place, "")["cnp_dscp"], 46, "{whose}");
    }
}

#[test]
fn a_priority_is_switched_alone() {
    let place = Place::empty();
    place.good("cc set -d fr0 --prio 3 enable=0");
    let masks = |place: &Place| {
        let all = parameters(place, "");
        ["roce_rp/enable", "roce_np/enable"].map(|mask| all[mask].as_u64().unwrap())
    };
    assert_eq!(masks(&place), [0b1111_0111; 2]);
    let both = |prio: &str, on: u8| json!({ format!("roce_rp/enable/{prio}"): on, format!("roce_np/enable/{prio}"): on });
    assert_eq!(parameters(&place, "--prio 3"), both("3", 0));
    assert_eq!(parameters(&place, "--prio 4"), both("4", 1));
    place.good("cc set -d fr0 --prio 3 roce_rp/enable=1");
    assert_eq!(masks(&place), [0b1111_1111, 0b1111_0111]);
    place.good("cc reset -d fr0 --prio 3");
    assert_eq!(masks(&place), [255; 2]);
}

#[test]
fn a_preset_is_the_ground_for_what_else_is_set() {
    let place = Place::empty();
    let barre = place.good("cc preset show barre");
    assert!(
        barre.starts_with("barre: Barre, USENIX ATC 2025"),
        "{barre}"
    );
    place.good("cc set -d fr0 rpg_hai_rate=77");
    place.good("cc set -d fr0 --preset barre rpg_ai_rate=9");
    let now = parameters(&place, "");
    let values = ["rpg_min_dec_fac", "rpg_ai_rate", "rpg_hai_rate"].map(|name| &now[name]);
    assert_eq!(values, [89, 9, 50]);
}

#[test]
fn what_one_device_shows_another_takes_from_a_file() {
    let place = Place::empty();
    let file = place.path().join("shown");
    let path = file.to_str().unwrap();
    place.good("cc set -d fr0 rpg_ai_rate=20 roce_np/enable/3=0");
    fs::write(&file, place.good("cc show -d fr0")).unwrap();
    let set = parameters(&place, "");
    place.good("cc reset -d fr0");
    place.good(format!("cc set -d fr0 --from {path}"));
    assert_eq!(parameters(&place, ""), set);
    fs::write(&file, "# of a card\n\nRPG_GD_P1 = 10\nRPG_GD_P1 = 9\n").unwrap();
    let error = place.bad(2, format!("cc set -d fr0 --from {path}"));
    assert!(
        error.contains(&format!("{path}:4: invalid rpg_gd 9")),
        "{error}"
    );
    // Those of all devices are not for one.
    fs::write(&file, "dev fr0\nrpg_gd=10\ndev fr1\nrpg_gd=11\n").unwrap();
    let error = place.bad(2, format!("cc set -d fr0 --from {path}"));
    assert!(
        error.contains(&format!("{path}:3: parameters of another device")),
        "{error}"
    );
    assert_eq!(parameters(&place, ""), set);
}

#[test]
fn what_acts_otherwise_than_it_reads_is_told() {
    let place = Place::empty();
    for (assignment, warning) in [
        (
            "rpg_ai_rate=100001",
            "above the port's speed and acts as 100000",
        ),
        ("ROCE_CC_ALGORITHM=1", "changes nothing: there is no QCN"),
    ] {
        let (code, out, err) = place.run(format!("cc set -d fr0 {assignment}"));
        assert_eq!((code, out.as_str()), (0, ""));
        assert!(err.contains(warning), "{err}");
        // Only of what this command has changed.
        place.good(format!("cc set -d fr0 {assignment}"));
    }
    place.good("dev set fr0 speed 25G");
    let (_, _, err) = place.run("cc set -d fr0 rpg_hai_rate=25001");
    assert!(err.contains("and acts as 25000"), "{err}");
}

#[test]
fn every_parameter_is_explained_by_any_of_its_names() {
    let place = Place::empty();
    let explain = |names: &str| -> Value {
        let out = place.good(format!("cc -j explain {names}"));
        let mut explained: Value = serde_json::from_str(&out).unwrap();
        explained["parameters"].take()
    };
    let all = explain("");
    assert!(all.as_array().unwrap().len() > 20);
    for row in all.as_array().unwrap() {
        assert!(row["min"].as_u64() <= row["default"].as_u64(), "{row}");
        for key in ["meaning", "source", "other_values"] {
            assert!(row[key].as_str().unwrap().len() > 10, "{row}");
        }
        for name in row["names"].as_object().unwrap().values() {
            let name = name.as_str().unwrap().replace("0..7", "3");
            let explained = &explain(&name)[0];
            let is_for_both = matches!(name.as_str(), "ROCE_CC_PRIO_MASK" | "DcQcnEnablePrio3");
            assert!(
                explained["meaning"] == row["meaning"] || is_for_both,
                "{name}"
            );
        }
    }
}

#[test]
fn commands_for_a_card_undo_themselves() {
    let place = Place::empty();
    place.good("cc set -d fr0 rpg_ai_rate=20 roce_np/enable/3=0");
    let emit = |more: &str| {
        let args = "cc emit -d fr0 --tool sysfs --on eth0";
        place.good(format!("{args} {more}"))
    };
    let root = "/sys/class/net/eth0/ecn";
    let lines = |np: u32, ai: u32| {
        format!("echo {np} > {root}/roce_np/enable/3\necho {ai} > {root}/roce_rp/rpg_ai_rate\n")
    };
    assert_eq!(emit(""), lines(0, 20));
    assert_eq!(emit("--undo"), lines(1, 5));
    let all = "cc emit --preset firmware --all --tool sysfs";
    let (_, out, err) = place.run(all);
    assert_eq!(out.lines().count(), 16 + 19, "{out}");
    assert!(
        err.lines().all(|line| line.contains("does not have")),
        "{err}"
    );
}

#[test]
fn nobody_to_watch_is_said() {
    let place = Place::empty();
    let out = place.good("cc rates fr0");
    assert_eq!(out, "no queue pair has received a CNP\n");
    assert_eq!(
        place.good("cc rates -j --count 2 --watch 0.01"),
        "{\"schema\":\"ferroce.cc.watch\",\"version\":1,\"queue_pairs\":[],\"silent\":[]}\n"
            .repeat(2)
    );
}
