//! `ferroce cc` on a device that nobody has open.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

/// A new directory of devices: there is fr0.
struct Devices(PathBuf);

impl Devices {
    fn new(test: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cc-{test}"));
        let _ = fs::remove_dir_all(&directory);
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .unwrap();
        Self(directory)
    }

    /// Exit code, standard output and standard error.
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command.args(args).env("FERROCE_DIR", &self.0);
        let output = command.env_remove("FERROCE_DEVICES").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
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
        assert_eq!(rows[0]["ifname"], "fr0");
        rows[0]["dcqcn"].take()
    }
}

#[test]
fn what_is_set_in_one_vocabulary_is_shown_in_all() {
    let devices = Devices::new("names");
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
    let devices = Devices::new("priority");
    devices.good(&["cc", "set", "-d", "fr0", "--prio", "3", "enable=0"]);
    assert_eq!(devices.parameters(&[])["enable"], 0b1111_0111);
    assert_eq!(devices.parameters(&["--prio", "3"]), json!({"enable/3": 0}));
    assert_eq!(devices.parameters(&["--prio", "4"]), json!({"enable/4": 1}));
    devices.good(&["cc", "reset", "-d", "fr0", "--prio", "3"]);
    assert_eq!(devices.parameters(&[])["enable"], 255);
}

#[test]
fn what_is_wrong_changes_nothing_and_says_why() {
    let devices = Devices::new("wrong");
    let before = devices.parameters(&[]);
    for (args, reason) in [
        (
            &["-d", "fr0", "rpg_ai_rate=20", "rpg_gd=9"][..],
            "rpg_gd: 9 is outside 10..=11",
        ),
        (&["-d", "fr0", "rpg_ai=1"], "did you mean rpg_ai_rate?"),
        (&["-d", "fr0", "rpg_ai_rate"], "write NAME=VALUE"),
        (&["-d", "fr9", "rpg_ai_rate=1"], "there are: fr0"),
        (&["rpg_ai_rate=1"], "write -d DEV"),
        (&["-d", "fr0", "--prio", "3", "rpg_gd=10"], "whole port"),
        (&["-d", "fr0", "--prio", "8", "enable=1"], "not in 0..=7"),
        (&["-d", "fr0"], "NAME=VALUE"),
    ] {
        let error = devices.bad(&[&["cc", "set"], args].concat());
        assert!(error.contains(reason), "{args:?}: {error}");
        assert_eq!(devices.parameters(&[]), before, "{args:?}");
    }
}
