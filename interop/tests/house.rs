//! Rules of the house that no compiler checks; ARCHITECTURE.md and CONTRIBUTING.md give the
//! reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// Every crate and its level, also of rooms that are planned.
///
/// Arrows point down only: a crate may use those of a lower level.
const LEVELS: &[(&str, u8)] = &[
    ("ferroce-abi-macros", 0),
    ("ferroce-abi", 1),
    ("ferroce-time", 0),
    ("ferroce-units", 0),
    ("ferroce-wire", 0),
    ("ferroce-prm", 0),
    ("ferroce-adp", 1),
    ("ferroce-dcqcn", 1),
    ("ferroce-designer", 2),
    ("ferroce-designer-module", 3),
    ("ferroce-transport", 2),
    ("ferroce-capture", 2),
    ("ferroce-fwctl", 2),
    ("ferroce-hca", 3),
    ("ferroce-driver", 4),
    ("ferroce-fabric", 4),
    ("ferroce-udp", 5),
    ("ferroce-sweep", 5),
    ("ferroce-trial", 5),
    ("ferroce-testing", 5),
    ("ferroce-sysfs", 6),
    ("ferroce-nldev", 6),
    ("ferroce-ibverbs", 7),
    ("ferroce-rdmacm", 8),
    ("ferroce-libibverbs", 9),
    ("ferroce-librdmacm", 9),
    ("ferroce-doca", 7),
    ("ferroce-libdoca-argp", 9),
    ("ferroce-libdoca-common", 9),
    ("ferroce-libdoca-telemetry", 9),
    ("ferroce-fwctl-preload", 7),
    ("ferroce-sysfs-preload", 7),
    ("ferroce", 10),
    ("ferroce-benches", 11),
    ("ferroce-interop", 11),
];

/// Arrows that would point down and are forbidden all the same: real cards' registers have
/// nothing to do with queue pairs.
const NOT_EVEN_DOWN: &[(&str, &str)] = &[
    ("ferroce-fwctl", "ferroce-adp"),
    ("ferroce-fwctl", "ferroce-dcqcn"),
    ("ferroce-fwctl", "ferroce-wire"),
    ("ferroce-hca", "ferroce-fwctl"),
    // Two hosts of the same device.
    ("ferroce-udp", "ferroce-fabric"),
];

/// Crates that know no others of the project than this one: what drives a device sees what the device
/// shows.
const KNOWS_ONLY: &[(&str, &str)] = &[("ferroce-driver", "ferroce-hca")];

/// The modules of the largest crates, in layers from the lowest to the highest: a module may use
/// those of lower layers, and none of its own.
const LAYERS: &[(&str, &[&[&str]])] = &[
    (
        "hca",
        &[
            &[
                "carrier",
                "counters",
                "cq",
                "error",
                "error_log",
                "function",
                "histogram",
                "host_profile",
                "identity",
                "ids",
                "impair",
                "memory",
                "port_attr",
                "port_counter",
                "posted",
                "secret",
                "serializer",
                "table",
            ],
            &["credit", "numbers", "settings", "srq"],
            &["limits", "mr", "state"],
            &["group", "link", "register"],
            &["packet"],
            &["cm", "congestion", "grh"],
            &["event"],
            &["host"],
            &["device"],
            &["verbs"],
        ],
    ),
    (
        "udp",
        &[
            &["flow", "gids", "impairment", "resource", "shape", "sys"],
            &["foreign", "netlink", "ring", "socket", "wait", "wall_clock"],
            &["fault", "groups", "overflow", "spec", "tap"],
            &["shared", "stage"],
            &["attachment", "kept", "near", "question", "registry"],
            &["steering"],
            &["neighbours", "observer", "open_error"],
            &["inquiry", "intake", "port"],
            &["link"],
            &["engine"],
            &["device"],
            &["attach", "connect"],
        ],
    ),
];

/// Crates that know no clock, socket, thread, file or global random source.
const SANS_IO: &[&str] = &[
    "time",
    "wire",
    "prm",
    "adp",
    "dcqcn",
    "transport",
    "hca",
    "driver",
    "designer",
    "fabric",
];

/// What they must not mention.
const IMPURE: &[&str] = &[
    "Instant",
    "SystemTime",
    "std::thread",
    "std::fs",
    "std::env",
    "std::process",
    "std::os",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixDatagram",
    "UnixStream",
    "OsRng",
    "thread_rng",
    "rand::rng",
    "rand::random",
];

/// File, word and reason.
const PURE_ENOUGH: &[(&str, &str, &str)] = &[(
    "crates/wire/src/pcapng.rs",
    "std::env",
    "env::consts::OS, a constant, names the system in a capture's header",
)];

/// First lines that keep `unsafe` out.
const FENCES: &[(&str, &str)] = &[
    ("time", "#![forbid(unsafe_code)]"),
    ("wire", "#![forbid(unsafe_code)]"),
    ("prm", "#![forbid(unsafe_code)]"),
    ("adp", "#![forbid(unsafe_code)]"),
    ("dcqcn", "#![forbid(unsafe_code)]"),
    ("transport", "#![forbid(unsafe_code)]"),
    ("driver", "#![forbid(unsafe_code)]"),
    ("fabric", "#![forbid(unsafe_code)]"),
    ("testing", "#![forbid(unsafe_code)]"),
    ("designer", "#![forbid(unsafe_code)]"),
    ("sweep", "#![forbid(unsafe_code)]"),
    ("trial", "#![forbid(unsafe_code)]"),
    ("sysfs", "#![forbid(unsafe_code)]"),
    ("nldev", "#![forbid(unsafe_code)]"),
    ("hca", "#![deny(unsafe_code)]"),
    ("udp", "#![deny(unsafe_code)]"),
    ("fwctl", "#![deny(unsafe_code)]"),
];

/// Where `unsafe` may be.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/hca/src/memory.rs",
    "crates/hca/src/memory/",
    "crates/udp/src/socket.rs",
    "crates/udp/src/socket/",
    "crates/udp/src/sys/",
    "crates/udp/tests/",
    "crates/fwctl/src/ioctl.rs",
    "capi/",
    "fuzz/src/qp_pair/side.rs",
];

/// Lines before `unsafe` in which its reason is looked for.
const REASON_WITHIN: usize = 6;
/// The same for the `# Safety` section of a function.
const SECTION_WITHIN: usize = 20;
/// From here on a file deserves a hard look.
const LONG_FILE: usize = 1000;

fn root() -> PathBuf {
    let interop = Path::new(env!("CARGO_MANIFEST_DIR"));
    interop
        .parent()
        .expect("interop lies in the workspace")
        .to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn metadata(arguments: &[&str]) -> Value {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// A source file of the project: its path from the root, and its lines.
struct Source {
    path: String,
    lines: Vec<String>,
}

impl Source {
    /// Number and text of each line that is code; comments and the tests at the end of the file
    /// are left out.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self
            .lines
            .windows(2)
            .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests"))
            .unwrap_or(self.lines.len());
        self.lines[..tests]
            .iter()
            .enumerate()
            .map(|(index, line)| (index + 1, line.as_str()))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

fn sources_under(directories: &[&str]) -> Vec<Source> {
    let root = root();
    let mut pending: Vec<_> = directories.iter().map(|name| root.join(name)).collect();
    let mut sources = Vec::new();
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue; // a room that is not built yet
        };
        for entry in entries {
            let path = entry.expect("a directory can be listed").path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    pending.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let lines = fs::read_to_string(&path).expect("a source is UTF-8");
                let path = path.strip_prefix(&root).expect("found under the root");
                sources.push(Source {
                    path: path.display().to_string(),
                    lines: lines.lines().map(str::to_owned).collect(),
                });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn all_sources() -> Vec<Source> {
    sources_under(&["crates", "capi", "ferroce", "benches", "interop", "fuzz"])
}

/// Whether `word` stands in `line` as a word of its own.
fn mentions(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

/// The line without what stands between quotes.
fn without_literals(line: &str) -> String {
    line.split('"').step_by(2).collect()
}

fn report(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n{}", violations.join("\n"));
}

#[test]
fn arrows_point_down_only() {
    let levels: BTreeMap<_, _> = LEVELS.iter().copied().collect();
    let mut violations = Vec::new();
    for package in items(&metadata(&["--no-deps"]), "packages") {
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
                // Knows devices, and helps to test what they are made of.
                if text(dependency, "kind") != "dev" {
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

/// The modules at the root of the crate that a line of code names: by `crate::`, or by as many
/// `super::` as lead there from a module `depth` below it.
fn root_modules(line: &str, depth: usize) -> impl Iterator<Item = &str> {
    let climb = "super::".repeat(depth);
    let at_root = |path: &str| {
        line.match_indices(path)
            .map(|(at, _)| at + path.len())
            .collect()
    };
    let mut ends: Vec<usize> = at_root("crate::");
    if depth > 0 {
        ends.extend::<Vec<usize>>(at_root(&climb));
    }
    ends.into_iter().map(|end| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        line[end..].split(|c| !is_part(c)).next().unwrap_or("")
    })
}

#[test]
fn arrows_between_modules_point_down_only() {
    let mut violations = Vec::new();
    for (name, layers) in LAYERS {
        let source = format!("crates/{name}/src/");
        let layer_of = |module: &str| layers.iter().position(|layer| layer.contains(&module));
        for file in &sources_under(&[&source]) {
            let path = &file.path;
            let module = path[source.len()..].trim_end_matches(".rs");
            let (depth, module) = (module.split('/').count(), module.split('/').next());
            let module = module.unwrap_or("");
            if module == "lib" || path.contains("/tests") {
                continue;
            }
            let Some(own) = layer_of(module) else {
                violations.push(format!("{path}: {module} has no layer; add it to LAYERS"));
                continue;
            };
            for (number, line) in file.code() {
                for used in root_modules(line, depth).filter(|used| *used != module) {
                    match layer_of(used) {
                        Some(layer) if layer < own => {}
                        Some(_) => violations.push(format!(
                            "{path}:{number}: {module} uses {used}, which is not below it"
                        )),
                        // In a module within the file, `super` leads no further than to the file.
                        None if line.contains("super::") => {}
                        None => violations.push(format!(
                            "{path}:{number}: {used:?} is no module with a layer; name the module"
                        )),
                    }
                }
            }
        }
    }
    report("architecture", &violations);
}

#[test]
fn the_way_to_the_root_is_found_from_any_depth() {
    let found = |line, depth| root_modules(line, depth).collect::<Vec<_>>();
    assert_eq!(found("use crate::device::Hca;", 3), ["device"]);
    assert_eq!(found("use super::mr::{Entry};", 1), ["mr"]);
    assert_eq!(found("use super::mr::{Entry};", 2), [""; 0]);
    assert_eq!(
        found("a(super::super::cq::x, crate::table::y)", 2),
        ["table", "cq"]
    );
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    let mut violations = Vec::new();
    for package in items(&metadata(&["--no-deps"]), "packages") {
        let path = text(package, "manifest_path");
        let manifest: toml::Table = fs::read_to_string(path)
            .expect("cargo names manifests that exist")
            .parse()
            .expect("cargo has parsed it before");
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        if lints.and_then(toml::Value::as_bool) != Some(true) {
            violations.push(format!("{path} lacks [lints] workspace = true"));
        }
    }
    report("lints", &violations);
}

#[test]
fn the_core_knows_no_clock_socket_thread_or_file() {
    let mut violations = Vec::new();
    let mut excused = BTreeSet::new();
    for name in SANS_IO {
        for source in sources_under(&[&format!("crates/{name}/src")]) {
            if ["/testing.rs", "/tests.rs"]
                .iter()
                .any(|name| source.path.ends_with(name))
            {
                continue; // compiled for tests only
            }
            for (number, line) in source.code() {
                for word in IMPURE.iter().filter(|word| mentions(line, word)) {
                    let excuse = PURE_ENOUGH
                        .iter()
                        .position(|(path, allowed, _)| source.path == *path && allowed == word);
                    match excuse {
                        Some(index) => drop(excused.insert(index)),
                        None => violations.push(format!("{}:{number}: {word}", source.path)),
                    }
                }
            }
        }
    }
    for (index, (path, word, _)) in PURE_ENOUGH.iter().enumerate() {
        if !excused.contains(&index) {
            violations.push(format!("{path} needs no exception for {word} any more"));
        }
    }
    report("time and randomness come in as arguments", &violations);
}

#[test]
fn every_environment_variable_is_in_the_manual() {
    let page = read("docs/environment.md");
    let mut violations = Vec::new();
    let is_test = |source: &Source| {
        source.path.contains("/tests/") || source.path.starts_with("crates/testing/")
    };
    for source in all_sources().iter().filter(|source| !is_test(source)) {
        for line in &source.lines {
            // As a whole text, as it is when a variable is read or set.
            for text in line.split('"').filter(|text| is_variable(text)) {
                if !page.contains(&format!("`{text}`")) {
                    violations.push(format!("{}: {text} is not there", source.path));
                }
            }
        }
    }
    report("docs/environment.md lists every variable", &violations);
}

fn is_variable(text: &str) -> bool {
    let is_name = |rest: &str| rest.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let rest = text.strip_prefix("FERROCE_");
    rest.is_some_and(|rest| !rest.is_empty() && is_name(rest))
}

#[test]
fn unsafe_code_is_fenced_in() {
    let mut violations = Vec::new();
    for (name, fence) in FENCES {
        let path = format!("crates/{name}/src/lib.rs");
        if root().join(&path).exists() && !read(&path).lines().any(|line| line == *fence) {
            violations.push(format!("{path} lacks {fence}"));
        }
    }
    for source in all_sources() {
        for (index, line) in source.lines.iter().enumerate() {
            let line = without_literals(line.trim_start());
            // What C calls in capi has one contract, the header's, which the crate's page states; and
            // the type of a function is no function.
            let from_c = source.path.starts_with("capi/") || line.contains("fn(");
            let function =
                mentions(&line, "unsafe fn") || mentions(&line, "unsafe extern") && !from_c;
            let block = line.contains("unsafe {") || mentions(&line, "unsafe impl");
            if line.starts_with("//") || !(function || block) {
                continue;
            }
            let place = format!("{}:{}", source.path, index + 1);
            if !UNSAFE_ALLOWED
                .iter()
                .any(|allowed| place.starts_with(allowed))
            {
                violations.push(format!("{place}: unsafe in a room without"));
            }
            let before = |lines| &source.lines[index.saturating_sub(lines)..=index];
            let reason = before(REASON_WITHIN)
                .iter()
                .any(|line| line.contains("SAFETY:"));
            let section = before(SECTION_WITHIN)
                .iter()
                .any(|line| line.contains("# Safety"));
            if !(reason || (function && section)) {
                violations.push(format!("{place}: no SAFETY comment says why it is sound"));
            }
        }
    }
    report("unsafe", &violations);
}

/// Functions of capi that have C's calling convention and no `#[border]`, and why.
const NO_BORDER: &[(&str, &str, &str)] = &[
    ("libdoca_common/src/log.rs", "doca_log", "a jump into C"),
    ("libibverbs/src/lib.rs", "eopnotsupp", "a constant"),
    ("libibverbs/src/lib.rs", "null", "no_object has it"),
    ("libibverbs/src/lib.rs", "minus_one", "no_object has it"),
    ("libibverbs/src/lib.rs", "zero", "a constant"),
    (
        "librdmacm/src/lib.rs",
        "find_targets",
        "the loader calls it",
    ),
    ("librdmacm/src/lib.rs", "error", "sets errno"),
    ("librdmacm/src/lib.rs", "null_pointer", "sets errno"),
    ("librdmacm/src/lib.rs", "zero", "sets errno"),
    ("librdmacm/src/lib.rs", "text", "a constant"),
    ("sysfs/src/parameter.rs", "begin", "the loader calls it"),
    ("sysfs/src/parameter.rs", "end", "exit calls it"),
];

/// Whatever a C program calls stands at the border, or leaves the library to wait. What a preloaded
/// library passes on is `extern "C-unwind"`, and cancelled in the C library.
#[test]
fn nothing_that_c_calls_lets_a_panic_or_a_cancellation_pass() {
    let mut violations = Vec::new();
    let mut seen = 0;
    let mut excused = BTreeSet::new();
    let sources = sources_under(&["capi"]);
    let is_library = |source: &&Source| source.path.contains("/src/");
    for source in sources.iter().filter(is_library) {
        let code: Vec<_> = source.code().collect();
        for (index, (number, line)) in code.iter().enumerate() {
            let Some((_, rest)) = line.split_once("extern \"C\" fn ") else {
                continue;
            };
            seen += 1;
            if index > 0 && code[index - 1].1.contains("border(") {
                continue;
            }
            let name = rest.split('(').next().unwrap_or_default();
            let is_here = |(path, known, _): &(&str, &str, &str)| {
                source.path.ends_with(path) && *known == name
            };
            match NO_BORDER.iter().position(is_here) {
                Some(index) => drop(excused.insert(index)),
                None => violations.push(format!("{}:{number}: no #[border]", source.path)),
            }
        }
    }
    for (index, (path, name, _)) in NO_BORDER.iter().enumerate() {
        if !excused.contains(&index) {
            violations.push(format!("{path} needs no exception for {name} any more"));
        }
    }
    assert!(seen > 200, "{seen} functions");
    report("docs/design/the-programs-process.md", &violations);
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together here, so that this file does not find itself.
    let macros = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let mut violations = Vec::new();
    for source in all_sources() {
        for (index, line) in source.lines.iter().enumerate() {
            let place = format!("{}:{}", source.path, index + 1);
            if macros.iter().any(|name| line.contains(name)) {
                violations.push(format!("{place}: {}", line.trim()));
            }
            if line.trim() == "#[ignore]" {
                violations.push(format!("{place}: an ignored test without a reason"));
            }
        }
        if source.lines.len() > LONG_FILE {
            println!(
                "{} has {} lines; look whether two rooms live in it",
                source.path,
                source.lines.len()
            );
        }
    }
    report("unfinished", &violations);
}

/// Whether an SPDX expression can be met with the allowed licences. Reads the old `/` as OR.
fn is_covered(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let covered = any_of(&mut words, allowed);
    covered && words.peek().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    let mut covered = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        covered |= all_of(words, allowed);
    }
    covered
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    let mut covered = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        covered &= one(words, allowed);
    }
    covered
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let covered = any_of(words, allowed);
        return words.next() == Some(")") && covered;
    }
    let Some(licence) = words.next() else {
        return false;
    };
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next().unwrap_or_default();
        return allowed.contains(format!("{licence} WITH {exception}").as_str());
    }
    allowed.contains(licence)
}

#[test]
fn licence_expressions_are_read_as_spdx_defines_them() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
    for good in [
        "MIT",
        "MIT/GPL-3.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Apache-2.0",
        "GPL-3.0 AND BSL-1.0 OR MIT",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_covered(good, &allowed), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MIT AND (GPL-3.0 OR BSL-1.0)",
        "Apache-2.0 WITH GCC-exception-3.1",
        "(MIT",
        "MIT MIT",
    ] {
        assert!(!is_covered(bad, &allowed), "{bad}");
    }
}

fn host() -> String {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .expect("rustc runs");
    let text = String::from_utf8(output.stdout).expect("rustc prints UTF-8");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

#[test]
fn every_dependency_has_a_licence_that_deny_toml_allows() {
    let deny: toml::Table = read("deny.toml").parse().expect("deny.toml is TOML");
    let allow = deny["licenses"]["allow"].as_array().expect("a list");
    let allowed: BTreeSet<_> = allow.iter().filter_map(toml::Value::as_str).collect();
    let mut violations = Vec::new();
    for package in items(&metadata(&["--filter-platform", &host()]), "packages") {
        let licence = text(package, "license");
        if !is_covered(licence, &allowed) {
            let (name, version) = (text(package, "name"), text(package, "version"));
            violations.push(format!("{name} {version}: {licence:?}"));
        }
    }
    report("licences that deny.toml does not allow", &violations);
}

#[test]
fn licences_and_version_are_those_of_the_manifest() {
    assert!(read("LICENSE-MIT").contains("The Ferroce authors"));
    assert!(read("LICENSE-APACHE").contains("Version 2.0, January 2004"));
    let manifest: toml::Table = read("Cargo.toml").parse().expect("Cargo.toml is TOML");
    let package = &manifest["workspace"]["package"];
    assert_eq!(package["license"].as_str(), Some("MIT OR Apache-2.0"));
    let clippy: toml::Table = read("clippy.toml").parse().expect("clippy.toml is TOML");
    assert_eq!(clippy["msrv"], package["rust-version"]);
}

/// What installs a release names the one that this will be.
#[test]
fn packages_and_recipes_have_the_version_of_the_manifest() {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("Cargo.toml is TOML");
    let version = &manifest["workspace"]["package"]["version"];
    let version = version.as_str().expect("a version");
    let mut violations = Vec::new();
    for (path, line) in [
        ("action.yml", format!("    default: {version}")),
        (
            "packaging/devcontainer/devcontainer-feature.json",
            format!("\"default\": \"{version}\""),
        ),
        (
            "packaging/devcontainer/install.sh",
            format!("version=${{VERSION:-{version}}}"),
        ),
        ("CITATION.cff", format!("version: {version}")),
        ("docs/ci.md", format!("ferroce_{version}_amd64.deb")),
        ("docs/ci.md", format!("uses: ferroce/ferroce@v{version}")),
    ] {
        if !read(path).contains(&line) {
            violations.push(format!("{path}: {line}"));
        }
    }
    report("versions that are not the manifest's", &violations);
}

#[test]
fn the_changelog_has_room_for_what_comes_next() {
    let changelog = read("CHANGELOG.md");
    assert!(changelog.lines().any(|line| line == "## [Unreleased]"));
}

#[test]
fn the_readme_names_the_commands_and_ci_runs_the_same() {
    let readme = read("README.md");
    for command in ["./test", "cargo run --release -- demo"] {
        assert!(
            readme.lines().any(|line| line.trim() == command),
            "README.md gives `{command}` no line of its own"
        );
    }
    let ci = read(".ci/run");
    let last = ci.lines().rfind(|line| !line.trim().is_empty());
    assert_eq!(last, Some("exec ./test"));
}

/// Targets of the links in a Markdown text.
fn links(markdown: &str) -> impl Iterator<Item = &str> {
    markdown
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#', ' ']).next())
        .filter(|target| !target.is_empty() && !target.contains("://"))
}

/// In the first line of its file.
#[test]
fn modules_say_what_lives_in_them() {
    let sources = all_sources();
    let modules = sources
        .iter()
        .filter(|source| source.path.contains("/src/"));
    let silent = modules.filter(|module| !module.lines[0].starts_with("//! "));
    let silent: Vec<_> = silent.map(|module| module.path.clone()).collect();
    report("modules without a sentence", &silent);
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    let root = root();
    let pages = ["", "docs", "docs/design", "interop", "benches", "profiles"]
        .iter()
        .filter_map(|directory| fs::read_dir(root.join(directory)).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("a directory can be listed").path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut violations = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page is UTF-8");
        let directory = page.parent().expect("a page lies in a directory");
        for target in links(&text) {
            if !directory.join(target).exists() {
                violations.push(format!("{}: {target}", page.display()));
            }
        }
    }
    report("dead links", &violations);
}

/// Names of the tests of a source: functions with the attribute, and rows of a macro that makes
/// them.
fn tests_of(source: &Source) -> BTreeSet<&str> {
    let lines = || source.lines.iter().map(|line| line.trim());
    let after_attribute = lines()
        .scan(false, |is_test, line| {
            let was_test = *is_test;
            *is_test = line == "#[test]" || *is_test && line.starts_with("#[");
            Some((was_test, line))
        })
        .filter_map(|(is_test, line)| line.strip_prefix("fn ").filter(|_| is_test))
        .filter_map(|rest| rest.split('(').next());
    let by_macro = lines().any(|line| line.contains("#[test] fn $name"));
    let rows = lines()
        .filter(move |line| by_macro && line.ends_with("\";"))
        .filter_map(|line| line.split(':').next());
    after_attribute.chain(rows).collect()
}

/// The identifiers in a piece of a page that are written as code, each with the target of its link.
fn named_tests(markdown: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let pieces: Vec<&str> = markdown.split('`').collect();
    let count = (pieces.len() - 1) / 2;
    (0..count).filter_map(move |n| {
        let (name, rest) = (pieces[2 * n + 1], pieces[2 * n + 2]);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let target = rest
            .strip_prefix("](")
            .and_then(|rest| rest.split(')').next());
        (name.contains('_') && name.chars().all(is_name)).then_some((name, target))
    })
}

/// What the page on security promises is tested: the last cell of each row of its tables names the
/// tests, and each test that the page names is there.
#[test]
fn what_the_page_on_security_promises_has_a_test() {
    let page = read("docs/security.md");
    let sources = all_sources();
    let is_there = |name: &str, target: Option<&str>| {
        let path = target.map(|target| target.trim_start_matches("../"));
        let mut sources = sources
            .iter()
            .filter(|source| path.is_none_or(|path| source.path == path));
        sources.any(|source| tests_of(source).contains(name))
    };
    let lines: Vec<&str> = page.lines().collect();
    let is_row = |line: &str| line.starts_with("| ");
    let rows = lines.windows(2).map(|pair| (pair[0], pair[1]));
    let rows = rows.filter(|(row, next)| is_row(row) && !next.starts_with("|---"));
    let mut named: Vec<_> = named_tests(&page)
        .filter(|(_, target)| target.is_some_and(is_source))
        .collect();
    let mut violations = Vec::new();
    for (row, _) in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next();
        let of_row: Vec<_> = cell.into_iter().flat_map(named_tests).collect();
        if of_row.is_empty() {
            violations.push(format!("a row without a test: {row}"));
        }
        named.extend(of_row);
    }
    let missing = named
        .iter()
        .filter(|(name, target)| !is_there(name, *target));
    violations.extend(missing.map(|(name, _)| format!("no test is called {name}")));
    report("docs/security.md", &violations);
}

fn is_source(target: &str) -> bool {
    Path::new(target).extension().is_some_and(|it| it == "rs")
}
