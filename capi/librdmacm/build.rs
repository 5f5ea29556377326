//! Turns `symbols.txt` into the exports and the linker's version script.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

/// A line of the list.
struct Symbol<'a> {
    name: &'a str,
    version: &'a str,
    answer: &'a str,
}

fn symbols(list: &str) -> Vec<Symbol<'_>> {
    list.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let [name, version, answer] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("symbols.txt: a line has a name, a version and an answer: {line:?}");
            };
            Symbol {
                name,
                version,
                answer,
            }
        })
        .collect()
}

/// The table of targets and the macro calls that define the symbols.
fn exports(symbols: &[Symbol<'_>]) -> String {
    let mut code = format!(
        "const COUNT: usize = {};\nstatic NAMES: [&CStr; COUNT] = [\n",
        symbols.len()
    );
    for symbol in symbols {
        let _ = writeln!(code, "    c\"ferroce_{}\",", symbol.name);
    }
    code += "];\nstatic TARGETS: [AtomicPtr<c_void>; COUNT] = [\n";
    for symbol in symbols {
        let _ = writeln!(
            code,
            "    AtomicPtr::new({} as *mut c_void),",
            symbol.answer
        );
    }
    code += "];\n";
    for (index, symbol) in symbols.iter().enumerate() {
        let _ = writeln!(code, "export!(\"{}\", {index});", symbol.name);
    }
    code
}

/// The version script. Each node inherits the one before it, and the first hides everything else.
fn script(symbols: &[Symbol<'_>]) -> String {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for symbol in symbols {
        nodes.entry(symbol.version).or_default().push(symbol.name);
    }
    let mut script = String::new();
    let (mut local, mut after) = (" local: *;", String::new());
    for (version, names) in nodes {
        let names = names.join("; ");
        let _ = writeln!(
            script,
            "RDMACM_{version} {{ global: {names};{local} }}{after};"
        );
        (local, after) = ("", format!(" RDMACM_{version}"));
    }
    script
}

fn main() {
    println!("cargo:rerun-if-changed=symbols.txt");
    let list = fs::read_to_string("symbols.txt").expect("symbols.txt lies beside build.rs");
    let symbols = symbols(&list);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("exports.rs"), exports(&symbols)).expect("OUT_DIR can be written to");
    let map = out.join("versions.map");
    fs::write(&map, script(&symbols)).expect("OUT_DIR can be written to");
    for argument in [
        "-soname,librdmacm.so.1".to_owned(),
        // It jumps into a library that is never unloaded, and so stays itself.
        "-z,nodelete".to_owned(),
        format!("--version-script={}", map.display()),
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
