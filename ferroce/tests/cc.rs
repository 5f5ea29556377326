//! `ferroce cc` on a device that nobody has open.

mod common;

use std::fs;
use std::process::Command;

use ferroce_testing::said;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A new directory of devices: there is fr0.
struct Devices(TempDir);

impl Devices {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Exit code, standard output and standard error.
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command
            .args(args)
            .env("FERROCE_DIR", self.0.path().join("registry"));
        let output = command.env_remove("FERROCE_DEVICES").output().unwrap();
        let (code, out, err) = said(output);
        common::schema::check_output(&out);
        (code, out, err)
    }

    #[track_caller]
    fn good(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
        out
    }

    #[track_caller]
    fn bad(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        err
    }

    /// The parameters as JSON.
    fn parameters(&self, args: &[&str]) -> Value {
        let out = self.good(&[&["cc", "-j", "-d", "fr0"], args].concat());
        let mut rows: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(rows["devices"][0]["device"], "fr0");
        rows["devices"][0]["parameters"].take()
    }
}

#[test]
fn settings_are_shown_in_every_vocabulary() {
    let devices = Devices::new();
    devices.good(&["cc", "set", "-d", "fr0", "rpg_ai_rate=20", "CNP_DSCP_P1=46"]);
    assert_eq!(devices.parameters(&[])["rpg_ai_rate"], 20);
    for (whose, name) in [
        ("sysfs", "rpg_ai_rate"),
        ("debugfs", "rp_ai_rate"),
        ("mlxconfig", "RPG_AI_RATE"),
        ("winof", "DcQcnAIRate"),
    ] {
        let shown = devices.parameters(&["show", "--names", whose]);
        assert_eq!(shown[name], 20, "{whose}");
        // What is printed can be set.
        let lines = devices.good(&["cc", "show", "-d", "fr0", "--names", whose]);
        let assignments: Vec<&str> = lines.lines().skip(1).map(str::trim).collect();
        assert!(assignments.len() > 15, "{lines}");
        devices.good(&["cc", "reset", "-d", "fr0"]);
        assert_eq!(devices.parameters(&[])["cnp_dscp"], 48);
        devices.good(&[&["cc", "set", "-d", "fr0"], assignments.as_slice()].concat());
        assert_eq!(devices.parameters(&[])["cnp_dscp"], 46, "{whose}");
    }
}

#[test]
fn a_priority_is_switched_alone() {
    let devices = Devices::new();
    devices.good(&["cc", "set", "-d", "fr0", "--prio", "3", "enable=0"]);
    let masks = |devices: &Devices| {
        let all = devices.parameters(&[]);
        ["roce_rp/enable", "roce_np/enable"].map(|mask| all[mask].as_u64().unwrap())
    };
    assert_eq!(masks(&devices), [0b1111_0111; 2]);
    let both = |prio: &str, on: u8| json!({ format!("roce_rp/enable/{prio}"): on, format!("roce_np/enable/{prio}"): on });
    assert_eq!(devices.parameters(&["--prio", "3"]), both("3", 0));
    assert_eq!(devices.parameters(&["--prio", "4"]), both("4", 1));
    devices.good(&["cc", "set", "-d", "fr0", "--prio", "3", "roce_rp/enable=1"]);
    assert_eq!(masks(&devices), [0b1111_1111, 0b1111_0111]);
    devices.good(&["cc", "reset", "-d", "fr0", "--prio", "3"]);
    assert_eq!(masks(&devices), [255; 2]);
}

#[test]
fn a_preset_is_the_ground_for_what_else_is_set() {
    let devices = Devices::new();
    let barre = devices.good(&["cc", "preset", "show", "barre"]);
    assert!(
        barre.starts_with("barre: Barre, USENIX ATC 2025"),
        "{barre}"
    );
    devices.good(&["cc", "set", "-d", "fr0", "rpg_hai_rate=77"]);
    devices.good(&[
        "cc",
        "set",
        "-d",
        "fr0",
        "--preset",
        "barre",
        "rpg_ai_rate=9",
    ]);
    let now = devices.parameters(&[]);
    let values = ["rpg_min_dec_fac", "rpg_ai_rate", "rpg_hai_rate"].map(|name| &now[name]);
    assert_eq!(values, [89, 9, 50]);
    let error = devices.bad(&["cc", "set", "-d", "fr0", "--preset", "bare"]);
    assert!(error.contains("available: firmware, paper"), "{error}");
}

#[test]
fn a_shown_device_can_be_loaded_by_another() {
    let devices = Devices::new();
    let file = devices.0.path().join("shown");
    let path = file.to_str().unwrap();
    devices.good(&[
        "cc",
        "set",
        "-d",
        "fr0",
        "rpg_ai_rate=20",
        "roce_np/enable/3=0",
    ]);
    fs::write(&file, devices.good(&["cc", "show", "-d", "fr0"])).unwrap();
    let set = devices.parameters(&[]);
    devices.good(&["cc", "reset", "-d", "fr0"]);
    devices.good(&["cc", "set", "-d", "fr0", "--from", path]);
    assert_eq!(devices.parameters(&[]), set);
    fs::write(&file, "# of a card\n\nRPG_GD_P1 = 10\nRPG_GD_P1 = 9\n").unwrap();
    let error = devices.bad(&["cc", "set", "-d", "fr0", "--from", path]);
    assert!(
        error.contains(&format!("{path}:4: invalid rpg_gd 9")),
        "{error}"
    );
    // Those of all devices are not for one.
    fs::write(&file, "dev fr0\nrpg_gd=10\ndev fr1\nrpg_gd=11\n").unwrap();
    let error = devices.bad(&["cc", "set", "-d", "fr0", "--from", path]);
    assert!(
        error.contains(&format!("{path}:3: parameters of another device")),
        "{error}"
    );
    assert_eq!(devices.parameters(&[]), set);
}

#[test]
fn options_without_effect_are_refused() {
    let devices = Devices::new();
    for args in [
        &["cc", "explain", "-d", "fr0"][..],
        &["cc", "preset", "--prio", "3"],
        &["cc", "emit", "-d", "fr0", "--tool", "sysfs", "--prio", "3"],
    ] {
        let error = devices.bad(args);
        assert!(error.contains("leave it out"), "{args:?}: {error}");
    }
    devices.bad(&["cc", "show", "--prio", "3", "--names", "sysfs"]);
}

#[test]
fn misleading_settings_are_reported() {
    let devices = Devices::new();
    for (assignment, warning) in [
        (
            "rpg_ai_rate=100001",
            "above the port's speed and acts as 100000",
        ),
        ("ROCE_CC_ALGORITHM=1", "changes nothing: there is no QCN"),
    ] {
        let (code, out, err) = devices.run(&["cc", "set", "-d", "fr0", assignment]);
        assert_eq!((code, out.as_str()), (Some(0), ""));
        assert!(err.contains(warning), "{err}");
        // Only of what this command has changed.
        devices.good(&["cc", "set", "-d", "fr0", assignment]);
    }
    devices.good(&["dev", "set", "fr0", "speed", "25G"]);
    let (_, _, err) = devices.run(&["cc", "set", "-d", "fr0", "rpg_hai_rate=25001"]);
    assert!(err.contains("and acts as 25000"), "{err}");
}

#[test]
fn every_parameter_is_explained_by_any_of_its_names() {
    let devices = Devices::new();
    let explain = |names: &[&str]| -> Value {
        let out = devices.good(&[&["cc", "-j", "explain"], names].concat());
        let mut explained: Value = serde_json::from_str(&out).unwrap();
        explained["parameters"].take()
    };
    let all = explain(&[]);
    assert!(all.as_array().unwrap().len() > 20);
    for row in all.as_array().unwrap() {
        assert!(row["min"].as_u64() <= row["default"].as_u64(), "{row}");
        for key in ["meaning", "source", "other_values"] {
            assert!(row[key].as_str().unwrap().len() > 10, "{row}");
        }
        for name in row["names"].as_object().unwrap().values() {
            let name = name.as_str().unwrap().replace("0..7", "3");
            let explained = &explain(&[&name])[0];
            let is_for_both = matches!(name.as_str(), "ROCE_CC_PRIO_MASK" | "DcQcnEnablePrio3");
            assert!(
                explained["meaning"] == row["meaning"] || is_for_both,
                "{name}"
            );
        }
    }
    assert!(
        devices
            .bad(&["cc", "explain", "rpg_ai"])
            .contains("did you mean")
    );
}

#[test]
fn commands_for_a_card_undo_themselves() {
    let devices = Devices::new();
    devices.good(&[
        "cc",
        "set",
        "-d",
        "fr0",
        "rpg_ai_rate=20",
        "roce_np/enable/3=0",
    ]);
    let emit = |more: &[&str]| {
        let args = ["cc", "emit", "-d", "fr0", "--tool", "sysfs", "--on", "eth0"];
        devices.good(&[&args, more].concat())
    };
    let root = "/sys/class/net/eth0/ecn";
    let lines = |np: u32, ai: u32| {
        format!("echo {np} > {root}/roce_np/enable/3\necho {ai} > {root}/roce_rp/rpg_ai_rate\n")
    };
    assert_eq!(emit(&[]), lines(0, 20));
    assert_eq!(emit(&["--undo"]), lines(1, 5));
    let all = [
        "cc", "emit", "--preset", "firmware", "--all", "--tool", "sysfs",
    ];
    let (_, out, err) = devices.run(&all);
    assert_eq!(out.lines().count(), 16 + 19, "{out}");
    assert!(
        err.lines().all(|line| line.contains("does not have")),
        "{err}"
    );
}

#[test]
fn nobody_to_watch_is_said() {
    let devices = Devices::new();
    let out = devices.good(&["cc", "rates", "fr0"]);
    assert_eq!(out, "no queue pair has received a CNP\n");
    assert_eq!(
        devices.good(&["cc", "rates", "-j", "--count", "2", "--watch", "0.01"]),
        "{\"schema\":\"ferroce.cc.watch\",\"version\":1,\"queue_pairs\":[],\"silent\":[]}\n"
            .repeat(2)
    );
}

#[test]
fn bad_input_changes_nothing_and_says_why() {
    let devices = Devices::new();
    let before = devices.parameters(&[]);
    for (args, reason) in [
        (
            &["-d", "fr0", "rpg_ai_rate=20", "rpg_gd=9"][..],
            "invalid rpg_gd 9: must be 10 to 11",
        ),
        (&["-d", "fr0", "rpg_ai=1"], "did you mean rpg_ai_rate?"),
        (&["-d", "fr0", "rpg_ai_rate"], "write rpg_ai_rate VALUE"),
        (&["-d", "fr9", "rpg_ai_rate=1"], "available: fr0"),
        (&["-d", "fr0", "--prio", "3", "rpg_gd=10"], "whole port"),
        (&["-d", "fr0", "--prio", "8", "enable=1"], "must be 0 to 7"),
        (&["-d", "fr0"], "write KEY VALUE"),
    ] {
        let error = devices.bad(&[&["cc", "set"], args].concat());
        assert!(error.contains(reason), "{args:?}: {error}");
        assert_eq!(devices.parameters(&[]), before, "{args:?}");
    }
}
