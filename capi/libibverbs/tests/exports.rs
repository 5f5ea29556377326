//! What the library exports is what `symbols.txt` lists, each name under each of its versions.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The library lies where cargo put this test, or one directory above.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a test knows its file");
    let name = "libferroce_libibverbs.so";
    let found = test
        .ancestors()
        .map(|directory| directory.join(name))
        .find(|path| path.exists());
    found.expect("cargo builds the library before its tests")
}

fn listed() -> BTreeSet<String> {
    let list = include_str!("../symbols.txt");
    let lines = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let mut words = line.split(' ');
            let (name, nodes) = (words.next().unwrap(), words.next().unwrap());
            nodes.split(',').enumerate().map(move |(index, node)| {
                let node = match node.strip_prefix('p') {
                    Some(number) => format!("IBVERBS_PRIVATE_{number}"),
                    None if node == "ferroce" => "FERROCE".to_owned(),
                    None => format!("IBVERBS_{node}"),
                };
                let at = if index == 0 { "@@" } else { "@" };
                format!("{name}{at}{node}")
            })
        })
        .collect()
}

#[test]
fn every_symbol_has_its_versions_and_no_other_is_there() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only"])
        .arg(library())
        .output()
        .expect("binutils are there, as for any linking");
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<_> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (kind, name) = (words.next()?, words.next()?);
            // The nodes themselves are absolute symbols.
            (kind != "A").then(|| name.to_owned())
        })
        .collect();
    let listed = listed();
    let missing: Vec<_> = listed.difference(&exported).collect();
    let unlisted: Vec<_> = exported.difference(&listed).collect();
    assert!(missing.is_empty(), "listed but not exported: {missing:?}");
    assert!(unlisted.is_empty(), "exported but not listed: {unlisted:?}");
    assert!(listed.contains("ibv_reg_mr_iova2@@IBVERBS_1.8"));
}
