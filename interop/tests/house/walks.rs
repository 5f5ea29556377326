//! The walks through the code that ARCHITECTURE.md lists: each step is a file that an earlier step
//! leads to, and no walk gets longer.

use std::collections::{BTreeMap, BTreeSet};

use crate::layers::own_crates;
use crate::workspace::{items, own_packages, read, report, root, text};

/// The headings of the walks, and the most files that each may have.
const WALKS: &[(&str, usize)] = &[
    ("### A WRITE that arrives", 28),
    ("### A WRITE that is posted", 32),
    ("### A register write", 9),
    ("### An ACK timeout", 12),
];

/// The steps below a heading, by path from the root.
fn steps(page: &str, heading: &str) -> Vec<String> {
    let (_, section) = page
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("ARCHITECTURE.md has no heading {heading:?}"));
    let section = section.split("\n#").next().unwrap_or(section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next())
        .filter(|cell| cell.ends_with(".rs"))
        .map(|path| match root().join(path).exists() {
            true => path.to_owned(),
            false => format!("crates/{path}"),
        })
        .collect()
}

/// Which file leads to which: by use, in either direction, because what a crate calls through a
/// trait uses the trait; between crates by their dependencies.
struct Arrows {
    /// Pairs of files of a crate.
    within: BTreeSet<(String, String)>,
    /// Pairs of directories of packages.
    between: BTreeSet<(String, String)>,
    packages: BTreeMap<String, String>,
}

impl Arrows {
    fn read() -> Self {
        let mut within = BTreeSet::new();
        for (_, crates) in own_crates() {
            for it in crates {
                let path = |file: usize| it.files[file].path.clone();
                let uses = it.uses();
                within.extend(uses.iter().map(|used| (path(used.from), path(used.to))));
            }
        }
        let from_root = format!("{}/", root().display());
        let packages: BTreeMap<_, _> = own_packages()
            .iter()
            .map(|package| {
                let directory = text(package, "manifest_path").trim_start_matches(&from_root);
                let directory = directory.trim_end_matches("/Cargo.toml");
                (text(package, "name").to_owned(), directory.to_owned())
            })
            .collect();
        let mut between = BTreeSet::new();
        for package in own_packages() {
            let own = &packages[text(&package, "name")];
            for dependency in items(&package, "dependencies") {
                if let Some(other) = packages.get(text(dependency, "name")) {
                    between.insert((own.clone(), other.clone()));
                }
            }
        }
        Self {
            within,
            between,
            packages,
        }
    }

    fn lead(&self, from: &str, to: &str) -> bool {
        let either = |pairs: &BTreeSet<(String, String)>, a: &str, b: &str| {
            pairs.contains(&(a.to_owned(), b.to_owned()))
                || pairs.contains(&(b.to_owned(), a.to_owned()))
        };
        let (own, other) = (self.package_of(from), self.package_of(to));
        either(&self.within, from, to) || (own != other && either(&self.between, own, other))
    }

    fn package_of<'a>(&'a self, file: &str) -> &'a str {
        let holds = |directory: &&String| file.starts_with(&format!("{directory}/src/"));
        let found = self.packages.values().find(holds);
        found.unwrap_or_else(|| panic!("{file} is of no package"))
    }
}

#[test]
fn walks_are_as_the_architecture_lists_them() {
    let page = read("ARCHITECTURE.md");
    let arrows = Arrows::read();
    let mut violations = Vec::new();
    for (heading, most) in WALKS {
        let steps = steps(&page, heading);
        if steps.len() > *most || steps.len() < 4 {
            violations.push(format!("{heading}: {} files, at most {most}", steps.len()));
        }
        let missing = steps.iter().filter(|step| !root().join(step).exists());
        violations.extend(missing.map(|step| format!("{heading}: {step} is not there")));
        for (index, step) in steps.iter().enumerate().skip(1) {
            if !steps[..index]
                .iter()
                .any(|before| arrows.lead(before, step))
            {
                violations.push(format!("{heading}: nothing before {step} leads to it"));
            }
        }
    }
    report("walks", &violations);
}
