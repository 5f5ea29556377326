//! Turns `symbols.txt` into the exports and the linker's version script.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

/// A line of the list.
struct Symbol {
    name: String,
    /// Version nodes; the first is the default.
    nodes: Vec<String>,
    kind: String,
}

fn node(short: &str) -> String {
    match short.strip_prefix('p') {
        Some(number) => format!("IBVERBS_PRIVATE_{number}"),
        None if short == "ferroce" => "FERROCE".to_owned(),
        None if short == "mlx5" => "MLX5_1.0".to_owned(),
        None => format!("IBVERBS_{short}"),
    }
}

fn symbols(list: &str) -> Vec<Symbol> {
    list.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let [name, nodes, kind] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("symbols.txt: a line has a name, nodes and a kind: {line:?}");
            };
            Symbol {
                name: name.to_owned(),
                nodes: nodes.split(',').map(node).collect(),
                kind: kind.to_owned(),
            }
        })
        .collect()
}

/// The macro call that defines a symbol.
fn export(symbol: &Symbol) -> String {
    let name = &symbol.name;
    let function = name.trim_start_matches("ferroce_");
    let aliases: String = symbol.nodes[1..]
        .iter()
        .map(|node| format!(", \"ferroce_{name}_{node}\" => \"{node}\""))
        .collect();
    let target = match symbol.kind.as_str() {
        "data" => return format!("export_data!(\"{name}\"{aliases});\n"),
        "verbs" => format!("ferroce_ibverbs::{function}"),
        "rdma" => format!("ferroce_rdmacm::{function}"),
        "eopnotsupp" | "null" | "zero" | "minus_one" => symbol.kind.clone(),
        other => panic!("symbols.txt: {name}: no kind is called {other:?}"),
    };
    format!("export!(\"{name}\", {target}{aliases});\n")
}

/// Private nodes come last.
type Order = (bool, Vec<u32>);

/// Versions in their order, `IBVERBS_1.9` before `IBVERBS_1.10`.
fn order(node: &str) -> Order {
    let number = node.trim_start_matches(|c: char| !c.is_ascii_digit());
    let parts = number.split('.').filter_map(|part| part.parse().ok());
    (!node.contains('.'), parts.collect())
}

/// The version script. Each public node inherits the one before it.
fn script(symbols: &[Symbol]) -> String {
    let mut nodes: BTreeMap<Order, (&str, Vec<&str>)> = BTreeMap::new();
    for symbol in symbols {
        for (index, node) in symbol.nodes.iter().enumerate() {
            let entry = nodes.entry(order(node)).or_insert((node, Vec::new()));
            // Further versions of a name are bound where it is defined.
            if index == 0 {
                entry.1.push(&symbol.name);
            }
        }
    }
    let mut script = String::new();
    let mut before = None;
    for (node, names) in nodes.values() {
        let public = node.starts_with("IBVERBS_1.");
        let _ = write!(script, "{node} {{");
        if !names.is_empty() {
            let _ = write!(script, " global: {};", names.join("; "));
        }
        // The first node hides everything else.
        let local = if *node == "IBVERBS_1.0" {
            " local: *;"
        } else {
            ""
        };
        let after = before
            .filter(|_| public)
            .map_or(String::new(), |b| format!(" {b}"));
        let _ = writeln!(script, "{local} }}{after};");
        before = public.then_some(*node).or(before);
    }
    script
}

fn main() {
    println!("cargo:rerun-if-changed=symbols.txt");
    let list = fs::read_to_string("symbols.txt").expect("symbols.txt lies beside build.rs");
    let symbols = symbols(&list);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let exports: String = symbols.iter().map(export).collect();
    fs::write(out.join("exports.rs"), exports).expect("OUT_DIR can be written to");
    let map = out.join("versions.map");
    fs::write(&map, script(&symbols)).expect("OUT_DIR can be written to");
    for argument in [
        "-soname,libibverbs.so.1".to_owned(),
        // The helper thread and exit handlers outlive a dlclose.
        "-z,nodelete".to_owned(),
        format!("--version-script={}", map.display()),
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
