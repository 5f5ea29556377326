//! Which modules of a crate may use which.

use std::fs;

use crate::modules::{Crate, Use};
use crate::workspace::{items, own_packages, report, root, text};

/// The modules at the root of a crate in layers, from the second lowest to the highest; all others
/// are in the lowest one. A module may use those of lower layers, and none of its own.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "ferroce-adp",
        &[
            "violation",
            "profile",
            "policy",
            "state",
            "adaptive ib",
            "firmware",
            "retry",
            "endurance trace",
            "check demand",
            "file",
            "builtin",
        ],
    ),
    (
        "ferroce-wire",
        &[
            "aeth opcode pcapng trailer",
            "extension icrc",
            "flows headers",
            "cm packet",
            "cnp",
        ],
    ),
    (
        "ferroce-transport",
        &[
            "attr kept owed packet reorder resource",
            "config selective work",
            "dc services",
            "answers fault recv",
            "request",
            "requester responder",
            "completer unreliable window",
            "missing",
            "qp",
            "audit datagram shorten",
        ],
    ),
    (
        "ferroce-device",
        &[
            "error identity tx_window",
            "numbers settings srq",
            "limits mr state",
            "group impairer register",
            "packet",
            "cm congestion grh",
            "event",
            "services",
            "queue_pair",
            "scheduler",
            "device",
            "verbs",
        ],
    ),
    (
        "ferroce-registry",
        &[
            "netlink",
            "spec",
            "shared",
            "question registry",
            "observer",
            "inquiry",
        ],
    ),
    (
        "ferroce-sockets",
        &["exits fault groups overflow trailers", "stage"],
    ),
    ("ferroce-rings", &["near"]),
    (
        "ferroce-runtime",
        &[
            "steering",
            "neighbours",
            "intake port",
            "link",
            "berth links",
            "device",
            "attach connect",
        ],
    ),
    (
        "ferroce",
        &[
            "bins json naming page put spelling",
            "pcap policy registers sim",
            "adp device identify mlxreg reg sweep torture",
            "bench demo explain run",
            "drill install serve",
            "cli",
        ],
    ),
];

/// The most files of any crate that may all use each other.
const KNOT_MAX: usize = 4;

/// Larger knots that still exist. The numbers may only fall.
const KNOTS: &[(&str, &[usize])] = &[];

/// The packages of the workspace, each with its crates: the library and the programs.
pub(crate) fn own_crates() -> Vec<(String, Vec<Crate>)> {
    let root = root();
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let is_product = |kind| ["lib", "bin", "cdylib", "proc-macro"].contains(&kind);
    let crates_of = |package| {
        let targets = items(package, "targets").iter().filter(|target| {
            let mut kinds = items(target, "kind").iter();
            kinds.any(|kind| kind.as_str().is_some_and(is_product))
        });
        let from_root = format!("{}/", root.display());
        let paths = targets.map(|target| text(target, "src_path").trim_start_matches(&from_root));
        paths.map(|path| Crate::read(path, &read)).collect()
    };
    let packages = own_packages();
    packages
        .iter()
        .map(|package| (text(package, "name").to_owned(), crates_of(package)))
        .collect()
}

#[test]
fn arrows_between_modules_point_down_only() {
    let mut violations = Vec::new();
    for (name, crates) in own_crates() {
        let Some((_, layers)) = LAYERS.iter().find(|(layered, _)| *layered == name) else {
            continue;
        };
        let it = &crates[0];
        let layer_of = |module: &str| {
            let layer = layers
                .iter()
                .position(|layer| layer.split(' ').any(|it| it == module));
            layer.map_or(0, |above_lowest| above_lowest + 1)
        };
        for module in layers.iter().flat_map(|layer| layer.split(' ')) {
            if !it.files.iter().any(|file| file.module == [module]) {
                violations.push(format!("{name} has no module {module} any more"));
            }
        }
        for used in it.uses() {
            let (from, to) = (&it.files[used.from], &it.files[used.to]);
            let place = format!("{}:{}", from.path, used.line);
            match (from.module.first(), to.module.first()) {
                (None, _) => {}
                (Some(_), None) => violations.push(format!("{place}: uses the root of the crate")),
                (Some(own), Some(other)) if own == other || layer_of(other) < layer_of(own) => {}
                (Some(own), Some(other)) => violations.push(format!(
                    "{place}: {own} uses {other}, which is not below it"
                )),
            }
        }
    }
    report("architecture", &violations);
}

#[test]
fn no_crate_has_a_knot_of_many_files() {
    let mut violations = Vec::new();
    for (name, crates) in own_crates() {
        let allowed = KNOTS.iter().find(|(tied, _)| *tied == name);
        let allowed = allowed.map_or(&[][..], |(_, sizes)| sizes);
        let is_large = |knot: &Vec<usize>| knot.len() > KNOT_MAX;
        let large = |it: &Crate| it.knots().into_iter().filter(is_large);
        let sizes: Vec<_> = crates
            .iter()
            .flat_map(|it| large(it).map(|knot| knot.len()))
            .collect();
        if sizes == allowed {
            continue;
        }
        violations.push(format!("{name}: {sizes:?}, in KNOTS {allowed:?}"));
        for (it, knot) in crates
            .iter()
            .flat_map(|it| large(it).map(move |knot| (it, knot)))
        {
            let path = |file: usize| &it.files[file].path;
            let uses = it.uses();
            let is_within = |used: &&Use| knot.contains(&used.from) && knot.contains(&used.to);
            let mut within: Vec<_> = uses.iter().filter(is_within).collect();
            within.dedup_by_key(|used| (used.from, used.to));
            violations.extend(within.iter().map(|used| {
                format!(
                    "    {}:{}: uses {}",
                    path(used.from),
                    used.line,
                    path(used.to)
                )
            }));
        }
    }
    report("modules that all use each other", &violations);
}
