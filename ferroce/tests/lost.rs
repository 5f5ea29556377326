//! What a device forgets when its firmware restarts, and when the machine does.
//!
//! A machine's restart empties the memory of cards and keeps their flash. For a device, the file that
//! its processes share is the memory, and the file that describes it the flash: these tests remove the
//! one and keep the other.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Place;

/// What the firmware starts anew with.
#[derive(Clone, Copy, Debug)]
enum Restart {
    /// `mstfwreset` on a card, MFRL.
    Firmware,
    /// A reboot.
    Machine,
}

/// Checks that what a command shows is another after these changes, and the first again after a restart
/// of either kind.
#[track_caller]
fn loses(changes: &[&str], shown_by: &str) {
    for restart in [Restart::Firmware, Restart::Machine] {
        let place = Place::with("a", "127.63.1.90");
        let after_power_on = place.good(shown_by);
        for change in changes {
            assert_eq!(place.run(change).0, 0, "{change}");
        }
        assert_ne!(place.good(shown_by), after_power_on, "{changes:?}");
        happens(restart, &place);
        let shown = place.good(shown_by);
        assert_eq!(shown, after_power_on, "{changes:?}, {restart:?}");
    }
}

fn happens(restart: Restart, place: &Place) {
    match restart {
        Restart::Firmware => drop(place.good("dev reset a")),
        Restart::Machine => {
            let mut files = walk(&place.path().join("registry"));
            files.retain(|path| path.extension().is_some_and(|it| it == "state"));
            assert!(!files.is_empty(), "no memory to lose");
            files.iter().for_each(|path| fs::remove_file(path).unwrap());
        }
    }
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|it| it.unwrap());
    let inside = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => walk(&entry.path()),
        false => vec![entry.path()],
    };
    entries.flat_map(inside).collect()
}

#[test]
fn a_profile_is_lost() {
    loses(&["adp apply link-flap a"], "adp show a");
}

#[test]
fn the_number_of_the_profile_in_force_is_lost() {
    loses(
        &["adp apply link-flap a"],
        "mlxreg -d a --reg_name ROCE_ACCL --get",
    );
    let place = Place::with("a", "127.63.1.91");
    let number = || {
        let shown = place.good("mlxreg -d a --reg_name ROCE_ACCL --get");
        let line = shown
            .lines()
            .find(|it| it.starts_with("adp_retx_profile_id "));
        line.unwrap().split("| ").nth(1).unwrap().trim().to_owned()
    };
    assert_eq!(number(), "0x00000000");
    place.good("adp apply link-flap a");
    assert_eq!(number(), "0x00000001");
    place.good("dev reset a");
    assert_eq!(number(), "0x00000000");
}

#[test]
fn the_configuration_of_the_histogram_is_lost() {
    loses(
        &["stat hist set a -n 3 -b0 7 -t 0"],
        "reg get a ADP_RETX_HISTOGRAM_CONFIG",
    );
}

#[test]
fn roce_accl_is_lost() {
    loses(
        &["reg set a ROCE_ACCL roce_adp_retrans_en=0"],
        "reg get a ROCE_ACCL",
    );
    loses(
        &["reg set a ROCE_ACCL min_ack_timeout_limit_disabled=1"],
        "reg get a ROCE_ACCL",
    );
}

#[test]
fn congestion_parameters_set_while_the_firmware_runs_are_lost() {
    loses(
        &["cc set a rpg_ai_rate=20", "cc set a roce_np/enable/3=0"],
        "cc show a",
    );
}

/// As mlxconfig's on a card: they act from the next start of the firmware on, and survive it.
#[test]
fn persistent_congestion_parameters_survive() {
    for restart in [Restart::Firmware, Restart::Machine] {
        let place = Place::with("a", "127.63.1.92");
        place.good("cc show a"); // the firmware starts
        place.good("dev set a nvconfig.RPG_AI_RATE 20 nvconfig.ROCE_CC_PRIO_MASK 8");
        let ai_rate = || {
            let shown = place.good("cc show a");
            let line = shown
                .lines()
                .find(|it| it.contains("rpg_ai_rate="))
                .unwrap();
            line.trim().to_owned()
        };
        assert_eq!(ai_rate(), "rpg_ai_rate=5", "the firmware has not restarted");
        happens(restart, &place);
        assert_eq!(ai_rate(), "rpg_ai_rate=20");
        let shown = place.good("cc show a --prio 3");
        assert!(shown.contains("roce_np/enable/3=1"), "{shown}");
        let shown = place.good("cc show a --prio 0");
        assert!(shown.contains("roce_np/enable/0=0"), "{shown}");

        place.good("cc set a rpg_ai_rate=30 enable=255");
        happens(restart, &place);
        assert_eq!(ai_rate(), "rpg_ai_rate=20", "{restart:?}");
        place.good("cc set a rpg_ai_rate=30 enable=255");
        place.good("cc reset a --prio 0");
        let shown = place.good("cc show a --prio 0");
        assert!(shown.contains("roce_rp/enable/0=0"), "{shown}");
        assert_eq!(ai_rate(), "rpg_ai_rate=30");
        place.good("cc reset a");
        assert_eq!(ai_rate(), "rpg_ai_rate=20");
    }
}

#[test]
fn a_card_has_no_other_persistent_parameters() {
    let place = Place::with("a", "127.63.1.93");
    for (setting, told) in [
        ("nvconfig.RPG_GD 9", "invalid rpg_gd 9: must be 10 to 11"),
        (
            "nvconfig.rpg_gd 10",
            "mlxconfig has no parameter rpg_gd; write RPG_GD",
        ),
        ("nvconfig.RPG_AI_RATE_P1 9", "write RPG_AI_RATE"),
        ("nvconfig.RPG_AI_RATE fast", "expected a number"),
        ("pci.RPG_GD 9", "only personality and nvconfig have parts"),
    ] {
        let (code, _, err) = place.run(format!("dev set a {setting}"));
        assert_eq!(code, 2, "{setting}");
        assert!(err.contains(told), "{setting}: {err}");
    }
}
