//! What the libraries export: their lists, everything that the rdma-core of this machine exports,
//! and the names of its newest release, except for those that the manual lists as missing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ferroce_interop::lab::{Lab, library};

/// The versioned symbols that a shared object defines; old versions of a name have one `@`.
fn exported(path: &Path) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only"])
        .arg(path)
        .output()
        .expect("binutils are there, as for any linking");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (kind, name) = (words.next()?, words.next()?);
            // The nodes themselves are absolute symbols.
            (kind != "A").then(|| name.to_owned())
        })
        .collect()
}

/// The names of a list, each followed by its versions as `versions` spells them.
fn listed(list: &str, versions: impl Fn(&str) -> String) -> BTreeSet<String> {
    let lines = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let mut words = line.split(' ');
            let (name, nodes) = (words.next().unwrap(), words.next().unwrap());
            let symbol = |(index, node): (usize, &str)| {
                let at = if index == 0 { "@@" } else { "@" };
                format!("{name}{at}{}", versions(node))
            };
            nodes.split(',').enumerate().map(symbol).collect::<Vec<_>>()
        })
        .collect()
}

fn is_as_listed(name: &str, listed: &BTreeSet<String>, debian: &str) {
    let ours = exported(&library(name));
    let missing: Vec<_> = listed.difference(&ours).collect();
    let unlisted: Vec<_> = ours.difference(listed).collect();
    assert!(missing.is_empty(), "listed but not exported: {missing:?}");
    assert!(unlisted.is_empty(), "exported but not listed: {unlisted:?}");

    let theirs = exported(Path::new(debian));
    assert!(
        !theirs.is_empty(),
        "{debian}: apt-get install libibverbs1 librdmacm1 ibverbs-providers"
    );
    // Old versions of names are from before 2007, and no program uses them any more; a function
    // that registers drivers is not for programs.
    let lacking: Vec<_> = theirs
        .iter()
        .filter(|symbol| symbol.contains("@@"))
        .filter(|symbol| !ours.contains(*symbol) && !ours.contains(&symbol.replace("@@", "@")))
        .collect();
    assert!(lacking.is_empty(), "in {debian} but not ours: {lacking:?}");
}

#[test]
fn libibverbs() {
    let list = include_str!("../../capi/libibverbs/symbols.txt");
    let listed = listed(list, |node| match node.strip_prefix('p') {
        Some(number) => format!("IBVERBS_PRIVATE_{number}"),
        None if node == "ferroce" => "FERROCE".to_owned(),
        None if node == "mlx5" => "MLX5_1.0".to_owned(),
        None => format!("IBVERBS_{node}"),
    });
    is_as_listed(
        "libferroce_libibverbs.so",
        &listed,
        "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    );
}

#[test]
fn librdmacm() {
    let list = include_str!("../../capi/librdmacm/symbols.txt");
    let listed = listed(list, |version| format!("RDMACM_{version}"));
    is_as_listed(
        "libferroce_librdmacm.so",
        &listed,
        "/usr/lib/x86_64-linux-gnu/librdmacm.so.1",
    );
}

#[test]
fn libmlx5() {
    let list = include_str!("../../capi/libmlx5/symbols.txt");
    let listed = listed(list, |version| format!("MLX5_{version}"));
    is_as_listed(
        "libferroce_libmlx5.so",
        &listed,
        "/usr/lib/x86_64-linux-gnu/libmlx5.so.1",
    );
}

/// The names of a library in `rdma-core-65-symbols.txt`.
fn of_rdma_core(library: &str) -> BTreeSet<&'static str> {
    let list = include_str!("../rdma-core-65-symbols.txt");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some(library)).then(|| words.next().unwrap())
    });
    names.collect()
}

#[test]
fn every_symbol_of_rdma_core_is_exported_or_listed_as_missing() {
    let manual = include_str!("../../docs/calls.md");
    let (_, missing) = manual
        .split_once("## Missing symbols")
        .expect("a chapter of the manual");
    let mut lacking = 0;
    for name in ["libibverbs", "librdmacm"] {
        let ours = exported(&library(&format!("libferroce_{name}.so")));
        let known = of_rdma_core(name);
        assert!(known.len() > 70, "{name}");
        for symbol in known {
            let default = symbol.replace('@', "@@");
            if ours.contains(&default) || ours.contains(symbol) {
                continue;
            }
            let (word, version) = symbol.split_once('@').unwrap();
            assert_eq!(version, "IBVERBS_1.0", "{symbol} is missing");
            assert!(
                missing.contains(&format!("`{word}`")),
                "{symbol} in the manual"
            );
            lacking += 1;
        }
    }
    assert_eq!(lacking, 33, "the manual has others, too");
}

#[test]
fn a_missing_symbol_is_reported_by_the_loader() {
    let lab = Lab::new("old-symbol");
    let compiled = lab.compile("old_symbol");
    let finished = lab.run([compiled.to_str().unwrap()]).finish();
    assert_eq!(finished.status.code(), Some(127), "{finished}");
    assert!(
        finished.stderr.contains("symbol lookup error")
            && finished
                .stderr
                .contains("undefined symbol: ibv_get_device_list, version IBVERBS_1.0"),
        "{finished}"
    );
}
