//! Which crates may use which.

use std::collections::BTreeMap;

use crate::workspace::{items, own_packages, report, text};

/// Every crate and its level.
///
/// Arrows point down only: a crate may use those of a lower level.
const LEVELS: &[(&str, u8)] = &[
    ("ferroce-abi-macros", 0),
    ("ferroce-abi", 1),
    ("ferroce-base", 0),
    ("ferroce-wire", 0),
    ("ferroce-prm", 0),
    ("ferroce-picture", 0),
    ("ferroce-adp", 1),
    ("ferroce-dcqcn", 1),
    ("ferroce-designer", 2),
    ("ferroce-designer-module", 3),
    ("ferroce-transport", 2),
    ("ferroce-capture", 2),
    ("ferroce-fwctl", 2),
    ("ferroce-fault", 3),
    ("ferroce-device", 3),
    ("ferroce-admission", 4),
    ("ferroce-driver", 4),
    ("ferroce-fabric", 4),
    ("ferroce-os", 1),
    ("ferroce-registry", 5),
    ("ferroce-sockets", 5),
    ("ferroce-rings", 6),
    ("ferroce-runtime", 7),
    ("ferroce-bench", 8),
    ("ferroce-scenario", 5),
    ("ferroce-sweep", 6),
    ("ferroce-torture", 5),
    ("ferroce-trial", 6),
    ("ferroce-testing", 5),
    ("ferroce-testkit", 0),
    ("ferroce-sysfs", 6),
    ("ferroce-nldev", 6),
    ("ferroce-dynlib", 0),
    ("ferroce-nccl", 5),
    ("ferroce-ucx", 5),
    ("ferroce-ibverbs", 8),
    ("ferroce-rdmacm", 9),
    ("ferroce-libibverbs", 10),
    ("ferroce-librdmacm", 10),
    ("ferroce-libmlx5", 10),
    ("ferroce-doca", 8),
    ("ferroce-libdoca-argp", 9),
    ("ferroce-libdoca-common", 9),
    ("ferroce-libdoca-telemetry", 9),
    ("ferroce-fwctl-preload", 8),
    ("ferroce-sysfs-preload", 7),
    ("ferroce", 11),
    ("ferroce-benches", 12),
    ("ferroce-fuzz", 12),
    ("ferroce-interop", 12),
    ("ferroce-models", 12),
];

/// Arrows that would point down and are still forbidden: the registers of real cards have nothing
/// to do with queue pairs.
const NOT_EVEN_DOWN: &[(&str, &str)] = &[
    ("ferroce-fwctl", "ferroce-adp"),
    ("ferroce-fwctl", "ferroce-dcqcn"),
    ("ferroce-fwctl", "ferroce-wire"),
    ("ferroce-device", "ferroce-fwctl"),
    // Two hosts of the same device.
    ("ferroce-runtime", "ferroce-fabric"),
];

/// Crates that may use only this other one of the project: what drives a device sees only its
/// interface.
const KNOWS_ONLY: &[(&str, &str)] = &[("ferroce-driver", "ferroce-device")];

#[test]
fn arrows_point_down_only() {
    let levels: BTreeMap<_, _> = LEVELS.iter().copied().collect();
    let mut violations = Vec::new();
    for package in &own_packages() {
        let name = text(package, "name");
        let Some(level) = levels.get(name) else {
            violations.push(format!(
                "{name} is a room without a level; add it to LEVELS"
            ));
            continue;
        };
        for dependency in items(package, "dependencies") {
            let used = text(dependency, "name");
            if dependency["path"].is_null() {
                continue; // not ours
            }
            if used == "ferroce-testing" {
                // Uses devices, and helps to test what they are made of. Some crates are tests as a whole.
                let is_test = ["ferroce-fuzz", "ferroce-interop"].contains(&name);
                if text(dependency, "kind") != "dev" && !is_test {
                    violations.push(format!("{name} uses {used}, which is for tests"));
                }
                continue;
            }
            match levels.get(used) {
                None => violations.push(format!("{name} uses {used}, which has no level")),
                Some(below) if below >= level => violations.push(format!(
                    "{name} (level {level}) uses {used} (level {below}); arrows point down only"
                )),
                Some(_) if NOT_EVEN_DOWN.contains(&(name, used)) => {
                    violations.push(format!("{name} must not know {used}"));
                }
                Some(_)
                    if KNOWS_ONLY
                        .iter()
                        .any(|(it, only)| *it == name && *only != used) =>
                {
                    violations.push(format!("{name} must not know {used}"));
                }
                Some(_) => {}
            }
        }
    }
    report("architecture", &violations);
}
