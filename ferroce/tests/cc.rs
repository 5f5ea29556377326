//! `ferroce cc` on a device that no program has open.

use std::fs;

use serde_json::Value;

use crate::common::{Place, has};

/// The parameters of fr0 as JSON.
#[track_caller]
fn parameters(place: &Place, args: &str) -> Value {
    let out = place.good(format!("cc -j -d fr0 {args}"));
    let mut rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rows["devices"][0]["device"], "fr0");
    rows["devices"][0]["parameters"].take()
}

#[test]
fn settings_are_shown_in_every_vocabulary() {
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
        // The output can be set again.
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
fn shown_parameters_can_be_set_from_a_file() {
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
    has(&error, [&format!("{path}:4: invalid rpg_gd 9")]);
    // A file of several devices is not for one device.
    fs::write(&file, "dev fr0\nrpg_gd=10\ndev fr1\nrpg_gd=11\n").unwrap();
    let error = place.bad(2, format!("cc set -d fr0 --from {path}"));
    has(&error, [&format!("{path}:3: parameters of another device")]);
    assert_eq!(parameters(&place, ""), set);
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
