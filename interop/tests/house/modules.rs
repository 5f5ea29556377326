//! The files of a crate, and which of them use which.
//!
//! A file uses another one if it names something that is defined there, by any path and through any
//! number of re-exports. Declaring a module and re-exporting what is below it do not count.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use syn::Item;

use crate::syntax::{Kind, Mention, mentions, without_tests};

/// A crate's files and their uses of each other.
#[derive(Default)]
pub(crate) struct Crate {
    pub(crate) files: Vec<File>,
    /// First one is the root.
    modules: Vec<Module>,
    /// What names mean in modules; empty while that is being resolved.
    known: RefCell<HashMap<(usize, String, bool), Option<Found>>>,
}

/// A file of a crate.
pub(crate) struct File {
    /// As the caller knows it.
    pub(crate) path: String,
    /// The path of the module that it holds: empty at the root.
    pub(crate) module: Vec<String>,
    mentions: Vec<Mention>,
}

/// A file's use of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
}

#[derive(Default)]
struct Module {
    file: usize,
    path: Vec<String>,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Found {
    Module(usize),
    /// An item of this module.
    Item(usize),
}

impl Crate {
    /// Reads a crate from its root file; `read` has the text of each file, if there is such a file.
    pub(crate) fn read(root: &str, read: &impl Fn(&str) -> Option<String>) -> Self {
        let mut it = Self::default();
        it.modules.push(Module::default());
        it.add_file(root, 0, read);
        it
    }

    fn add_file(&mut self, path: &str, module: usize, read: &impl Fn(&str) -> Option<String>) {
        let text = read(path).unwrap_or_else(|| panic!("{path}: no such file"));
        let items = without_tests(&text).items;
        let file = self.files.len();
        self.files.push(File {
            path: path.to_owned(),
            module: self.modules[module].path.clone(),
            mentions: mentions(&items),
        });
        self.add_items(&items, file, module, read);
        for mention in &self.files[file].mentions {
            let here = self.modules[module].at(&self.modules, &mention.scope, module);
            let here = &mut self.modules[here];
            match &mention.kind {
                Kind::Code => {}
                Kind::Name { name, .. } => {
                    here.imports
                        .entry(name.clone())
                        .or_insert_with(|| mention.path.clone());
                }
                Kind::Glob { .. } => here.globs.push(mention.path.clone()),
            }
        }
    }

    fn add_items(
        &mut self,
        items: &[Item],
        file: usize,
        module: usize,
        read: &impl Fn(&str) -> Option<String>,
    ) {
        self.modules[module].file = file;
        for item in items {
            if let Some(name) = name_of(item) {
                self.modules[module].items.insert(name);
            }
            let Item::Mod(declared) = item else { continue };
            let name = declared.ident.to_string();
            if name == "tests" {
                continue;
            }
            let child = self.modules.len();
            let path = [&self.modules[module].path[..], std::slice::from_ref(&name)].concat();
            self.modules.push(Module {
                path,
                parent: Some(module),
                ..Module::default()
            });
            self.modules[module].children.insert(name.clone(), child);
            match &declared.content {
                Some((_, items)) => self.add_items(items, file, child, read),
                None => {
                    let path = self.path_of(declared, file, child, read);
                    self.add_file(&path, child, read);
                }
            }
        }
    }

    /// The path of the file that holds a declared module.
    fn path_of(
        &self,
        declared: &syn::ItemMod,
        file: usize,
        child: usize,
        read: &impl Fn(&str) -> Option<String>,
    ) -> String {
        let File { path, module, .. } = &self.files[file];
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some(given) = given_path(declared) {
            return normal(&format!("{directory}/{given}"));
        }
        let stem = name.trim_end_matches(".rs");
        let mut directory = directory.to_owned();
        if !module.is_empty() && stem != "mod" {
            directory = format!("{directory}/{stem}");
        }
        let below = self.modules[child].path[module.len()..].join("/");
        let direct = format!("{directory}/{below}.rs");
        match read(&direct) {
            Some(_) => direct,
            None => format!("{directory}/{below}/mod.rs"),
        }
    }

    /// Which file uses which, once for each pair and line.
    pub(crate) fn uses(&self) -> BTreeSet<Use> {
        let mut uses = BTreeSet::new();
        for (from, file) in self.files.iter().enumerate() {
            let top = self.module_at(&file.module);
            for mention in &file.mentions {
                let here = self.modules[top].at(&self.modules, &mention.scope, top);
                let Some(to) = self.used(here, mention) else {
                    continue;
                };
                let to = self.modules[to].file;
                if to != from {
                    let line = mention.line;
                    uses.insert(Use { from, to, line });
                }
            }
        }
        uses
    }

    /// The module whose content a mention uses.
    fn used(&self, here: usize, mention: &Mention) -> Option<usize> {
        let public = match &mention.kind {
            Kind::Code => false,
            Kind::Name { public, .. } | Kind::Glob { public } => *public,
        };
        let to = match (self.find(here, &mention.path)?, &mention.kind) {
            (Found::Item(module), _) | (Found::Module(module), Kind::Glob { .. }) => module,
            // The paths of a module's items show what is used of it.
            (Found::Module(_), _) => return None,
        };
        let is_below = self.modules[to].path.starts_with(&self.modules[here].path);
        (!public || !is_below).then_some(to)
    }

    fn find(&self, here: usize, path: &[String]) -> Option<Found> {
        let mut at = here;
        for (index, name) in path.iter().enumerate() {
            let is_last = index + 1 == path.len();
            match name.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = self.modules[at].parent?,
                _ => match self.named(at, name, is_last) {
                    Some(Found::Module(module)) => at = module,
                    Some(item) => return Some(item),
                    // An item of another crate, or a name without a module, such as a variable.
                    None if index == 0 => return None,
                    // Generated by a macro.
                    None => return Some(Found::Item(at)),
                },
            }
        }
        Some(Found::Module(at))
    }

    /// What a name means in a module.
    fn named(&self, at: usize, name: &str, is_last: bool) -> Option<Found> {
        let key = (at, name.to_owned(), is_last);
        if let Some(&known) = self.known.borrow().get(&key) {
            return known;
        }
        self.known.borrow_mut().insert(key.clone(), None);
        let found = self.look_up(at, name, is_last);
        self.known.borrow_mut().insert(key, found);
        found
    }

    fn look_up(&self, at: usize, name: &str, is_last: bool) -> Option<Found> {
        let module = &self.modules[at];
        let child = module.children.get(name).copied().map(Found::Module);
        let item = module.items.contains(name).then_some(Found::Item(at));
        let own = if is_last {
            item.or(child)
        } else {
            child.or(item)
        };
        let by_glob = |glob: &Vec<String>| match self.find(at, glob)? {
            Found::Module(all) if all != at => self.named(all, name, is_last),
            _ => None,
        };
        own.or_else(|| self.find(at, module.imports.get(name)?))
            .or_else(|| module.globs.iter().find_map(by_glob))
    }

    fn module_at(&self, path: &[String]) -> usize {
        self.modules[0].at(&self.modules, path, 0)
    }

    /// The groups of files that all use each other, directly or not, of more than one file.
    pub(crate) fn knots(&self) -> Vec<Vec<usize>> {
        let mut arrows = vec![BTreeSet::new(); self.files.len()];
        for used in self.uses() {
            arrows[used.from].insert(used.to);
        }
        let reach = |from: usize| {
            let mut reached = BTreeSet::new();
            let mut pending = vec![from];
            while let Some(at) = pending.pop() {
                pending.extend(arrows[at].iter().filter(|&&to| reached.insert(to)));
            }
            reached
        };
        let reached: Vec<BTreeSet<_>> = (0..self.files.len()).map(reach).collect();
        let mut knots: Vec<Vec<usize>> = Vec::new();
        for (file, others) in reached.iter().enumerate() {
            let knot: Vec<_> = others
                .iter()
                .copied()
                .filter(|&other| reached[other].contains(&file))
                .collect();
            if knot.len() > 1 && knot[0] == file {
                knots.push(knot);
            }
        }
        knots.sort_by_key(Vec::len);
        knots
    }
}

impl Module {
    /// The module at a path below this one.
    fn at(&self, modules: &[Self], path: &[String], own: usize) -> usize {
        let Some((first, rest)) = path.split_first() else {
            return own;
        };
        match self.children.get(first) {
            Some(&child) => modules[child].at(modules, rest, child),
            None => own,
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The value of a module's `path` attribute.
fn given_path(declared: &syn::ItemMod) -> Option<String> {
    declared.attrs.iter().find_map(|attribute| {
        let pair = attribute.meta.require_name_value().ok()?;
        let syn::Expr::Lit(value) = &pair.value else {
            return None;
        };
        let syn::Lit::Str(value) = &value.lit else {
            return None;
        };
        pair.path.is_ident("path").then(|| value.value())
    })
}

/// The path without `..`.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The uses in a crate of these files, as `from -> to`.
    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let it = read(files);
        let name = |file: usize| it.files[file].path.trim_end_matches(".rs").to_owned();
        let uses = it.uses();
        let uses = uses
            .iter()
            .map(|it| format!("{} -> {}", name(it.from), name(it.to)));
        let uses: BTreeSet<_> = uses.collect();
        uses.into_iter().collect()
    }

    fn read(files: &[(&str, &str)]) -> Crate {
        let text = |path: &str| {
            let file = files
                .iter()
                .find(|(name, _)| *name == path.trim_start_matches('/'));
            file.map(|(_, text)| (*text).to_owned())
        };
        let mut it = Crate::read("lib.rs", &text);
        for file in &mut it.files {
            file.path = file.path.trim_start_matches('/').to_owned();
        }
        it
    }

    #[test]
    fn paths_are_followed_from_any_depth() {
        let found = uses(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            (
                "a.rs",
                "pub(crate) struct A; mod deep; pub(crate) fn f() {}",
            ),
            (
                "a/deep.rs",
                "use super::A; mod inner { use super::super::super::b::B; }",
            ),
            ("b.rs", "pub(crate) struct B;"),
            (
                "c.rs",
                "fn g() { crate::a::f(); let _ = vec![crate::b::B]; }",
            ),
        ]);
        assert_eq!(found, ["a/deep -> a", "a/deep -> b", "c -> a", "c -> b"]);
    }

    #[test]
    fn a_re_export_is_a_use_of_what_it_stands_for() {
        let found = uses(&[
            (
                "lib.rs",
                "mod a; mod b; mod c; pub use a::{A, Other as Renamed}; pub use b::*;",
            ),
            ("a.rs", "pub struct A; pub struct Other;"),
            ("b.rs", "pub struct B; use crate::Renamed;"),
            ("c.rs", "use crate::{A, B}; use std::fmt;"),
        ]);
        assert_eq!(found, ["b -> a", "c -> a", "c -> b"]);
    }

    #[test]
    fn names_reach_through_globs_and_imported_modules() {
        let found = uses(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "pub(crate) fn f() {}"),
            ("b.rs", "pub(crate) use crate::a::*;"),
            ("c.rs", "use crate::b; fn g() { b::f() }"),
            ("d.rs", "use crate::b::*; fn g(x: u8) { f(); self::g(x) }"),
        ]);
        assert_eq!(found, ["b -> a", "c -> a", "d -> a", "d -> b"]);
    }

    #[test]
    fn a_parent_that_declares_and_re_exports_uses_nothing() {
        let found = uses(&[
            ("lib.rs", "mod a;"),
            (
                "a.rs",
                "mod x; mod y; pub(crate) use x::X; pub(crate) struct A;",
            ),
            ("a/x.rs", "use super::A; pub(crate) struct X;"),
            ("a/y.rs", "use super::X;"),
        ]);
        assert_eq!(found, ["a/x -> a", "a/y -> a/x"]);
    }

    #[test]
    fn tests_are_left_out() {
        let found = uses(&[
            (
                "lib.rs",
                "mod a; mod b; #[cfg(test)] mod testing; mod tests;",
            ),
            (
                "a.rs",
                "pub fn f() {} #[cfg(test)] mod checks { use crate::b::g; }",
            ),
            (
                "b.rs",
                "pub fn g() {} #[cfg(all(test, unix))] use crate::a::f; struct B;
                      impl B { #[cfg(test)] fn h() { crate::a::f() } }",
            ),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_knot_is_found_whatever_its_length() {
        let it = read(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "pub const A: u8 = crate::b::B;"),
            ("b.rs", "pub const B: u8 = super::c::C;"),
            ("c.rs", "pub const C: u8 = crate::a::A;"),
            ("d.rs", "use crate::a::A;"),
        ]);
        let names = |knot: &Vec<usize>| {
            knot.iter()
                .map(|&at| it.files[at].module.join("/"))
                .collect::<Vec<_>>()
        };
        let knots: Vec<_> = it.knots().iter().map(names).collect();
        assert_eq!(knots, [["a", "b", "c"]]);
    }
}
