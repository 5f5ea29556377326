// What the build scripts of the libraries that lead into libibverbs.so.1 share; they include it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

/// Answers of calls that have no function in libibverbs.so.1.
const HERE: [&str; 4] = ["eopnotsupp", "no_object", "minus_one", "nothing"];

/// A line of the list.
struct Symbol<'a> {
    name: &'a str,
    /// The first is the default.
    versions: Vec<&'a str>,
    answer: &'a str,
}

fn symbols(list: &str) -> Vec<Symbol<'_>> {
    list.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let [name, versions, answer] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("symbols.txt: a line has a name, versions and an answer: {line:?}");
            };
            Symbol {
                name,
                versions: versions.split(',').collect(),
                answer,
            }
        })
        .collect()
}

/// The name of the library, the table of targets and the macro calls that define the symbols, each
/// with its further names and their versions.
fn exports(soname: &str, prefix: &str, symbols: &[Symbol<'_>]) -> String {
    let mut code = format!("pub(crate) const SONAME: &str = {soname:?};\n");
    let count = symbols.len();
    let _ = writeln!(code, "pub(crate) static NAMES: [Option<&CStr>; {count}] = [");
    for symbol in symbols {
        let _ = match HERE.contains(&symbol.answer) {
            true => writeln!(code, "    None,"),
            false => writeln!(code, "    Some(c\"ferroce_{}\"),", symbol.name),
        };
    }
    let _ = writeln!(
        code,
        "];\npub(crate) static TARGETS: [AtomicPtr<c_void>; {count}] = ["
    );
    for symbol in symbols {
        let _ = writeln!(
            code,
            "    AtomicPtr::new({} as *mut c_void),",
            symbol.answer
        );
    }
    code += "];\n";
    for (index, Symbol { name, versions, .. }) in symbols.iter().enumerate() {
        let older = versions[1..].iter();
        let older: String = older
            .map(|it| format!(", \"ferroce_{name}_{it}\" => \"{prefix}{it}\""))
            .collect();
        let _ = writeln!(code, "export!(\"{name}\", {index}{older});");
    }
    code
}

/// Versions in their order, 1.9 before 1.10.
fn order(version: &str) -> Vec<u32> {
    version
        .split('.')
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// The version script. Each node inherits the one before it, and the last hides everything else: from
/// its own node, that would also hide the older version of a name.
fn script(prefix: &str, symbols: &[Symbol<'_>]) -> String {
    let mut nodes: BTreeMap<Vec<u32>, (&str, Vec<&str>)> = BTreeMap::new();
    for symbol in symbols {
        for (index, version) in symbol.versions.iter().enumerate() {
            let node = nodes.entry(order(version));
            let (_, names) = node.or_insert((version, Vec::new()));
            // Further versions of a name are bound where it is defined.
            if index == 0 {
                names.push(symbol.name);
            }
        }
    }
    let mut script = String::new();
    let mut after = String::new();
    let last = nodes.len() - 1;
    for (index, (version, names)) in nodes.values().enumerate() {
        let names = names.join("; ");
        let local = if index == last { " local: *;" } else { "" };
        let _ = writeln!(
            script,
            "{prefix}{version} {{ global: {names};{local} }}{after};"
        );
        after = format!(" {prefix}{version}");
    }
    script
}

/// Writes the exports of a library for its `lib.rs`, and has the linker give it its name and
/// versions.
fn facade(soname: &str, prefix: &str) {
    println!("cargo:rerun-if-changed=symbols.txt");
    println!("cargo:rerun-if-changed=../librdmacm/exports.rs");
    let list = fs::read_to_string("symbols.txt").expect("symbols.txt lies beside build.rs");
    let symbols = symbols(&list);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let code = exports(soname, prefix, &symbols);
    fs::write(out.join("exports.rs"), code).expect("OUT_DIR can be written to");
    let map = out.join("versions.map");
    fs::write(&map, script(prefix, &symbols)).expect("OUT_DIR can be written to");
    for argument in [
        format!("-soname,{soname}"),
        // It jumps into a library that is never unloaded, and so stays itself.
        "-z,nodelete".to_owned(),
        format!("--version-script={}", map.display()),
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
