//! What the core must not depend on.

use std::collections::BTreeSet;

use crate::syntax::{mentions, without_tests};
use crate::workspace::{report, sources_under};

/// Crates that use no clock, socket, thread, file or global random source.
const SANS_IO: &[&str] = &[
    "base",
    "wire",
    "prm",
    "adp",
    "dcqcn",
    "transport",
    "device",
    "driver",
    "designer",
    "fabric",
    "scenario",
];

/// What they must not mention.
const IMPURE: &[&str] = &[
    "Instant",
    "SystemTime",
    "std::thread",
    "ThreadPoolBuilder",
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
            let code = without_tests(&source.text);
            for mention in mentions(&code.items) {
                for word in IMPURE.iter().filter(|word| names(&mention.path, word)) {
                    let excuse = PURE_ENOUGH
                        .iter()
                        .position(|(path, allowed, _)| source.path == *path && allowed == word);
                    match excuse {
                        Some(index) => drop(excused.insert(index)),
                        None => {
                            violations.push(format!("{}:{}: {word}", source.path, mention.line));
                        }
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

/// Whether the words of a path follow each other in a longer one.
fn names(path: &[String], words: &str) -> bool {
    let words: Vec<_> = words.split("::").collect();
    path.windows(words.len()).any(|part| part == words)
}
