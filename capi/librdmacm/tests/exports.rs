//! What the library exports is what `symbols.txt` lists, and without our libibverbs it says so.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The library lies where cargo put this test, or one directory above.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a test knows its file");
    let found = test
        .ancestors()
        .map(|directory| directory.join("libferroce_librdmacm.so"))
        .find(|path| path.exists());
    found.expect("cargo builds the library before its tests")
}

#[test]
fn every_symbol_has_its_version_and_no_other_is_there() {
    let list = include_str!("../symbols.txt");
    let lines = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let listed: BTreeSet<_> = lines
        .map(|line| {
            let mut words = line.split(' ');
            let (name, version) = (words.next().unwrap(), words.next().unwrap());
            format!("{name}@@RDMACM_{version}")
        })
        .collect();
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
    let missing: Vec<_> = listed.difference(&exported).collect();
    let unlisted: Vec<_> = exported.difference(&listed).collect();
    assert!(missing.is_empty(), "listed but not exported: {missing:?}");
    assert!(unlisted.is_empty(), "exported but not listed: {unlisted:?}");
    assert_eq!(listed.len(), 71);
    assert!(listed.contains("rdma_establish@@RDMACM_1.2"));
}
