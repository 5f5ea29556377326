//! Rust code as tokens and as items, without the parts for tests.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, ImplItem, Item, Macro, Meta, UseTree};

/// Calls `see` at each token, including those in groups and in the arguments of macros, with the
/// tokens of its group and its index.
pub(crate) fn each_token(stream: TokenStream, see: &mut impl FnMut(&[TokenTree], usize)) {
    let tokens: Vec<_> = stream.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        see(&tokens, index);
        if let TokenTree::Group(group) = token {
            each_token(group.stream(), see);
        }
    }
}

/// The tokens of a source.
pub(crate) fn tokens(text: &str) -> TokenStream {
    text.parse().expect("a source is Rust")
}

/// Whether the token is the identifier.
pub(crate) fn is_word(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}

/// Whether the token is the punctuation mark.
pub(crate) fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// The line on which the token begins.
pub(crate) fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

/// A source as items, without tests.
pub(crate) fn without_tests(text: &str) -> File {
    let mut file = syn::parse_file(text).expect("a source is Rust");
    drop_tests(&mut file.items);
    file
}

fn drop_tests(items: &mut Vec<Item>) {
    items.retain(|item| !attributes(item).iter().any(is_for_tests));
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    drop_tests(items);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                ImplItem::Fn(item) => !item.attrs.iter().any(is_for_tests),
                ImplItem::Const(item) => !item.attrs.iter().any(is_for_tests),
                _ => true,
            }),
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]` and `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else {
        return false;
    };
    let tokens: Vec<_> = list.tokens.clone().into_iter().collect();
    list.path.is_ident("cfg")
        && match &tokens[..] {
            [TokenTree::Ident(all), TokenTree::Group(group)] if all == "all" => group
                .stream()
                .into_iter()
                .any(|token| is_word(Some(&token), "test")),
            [only] => is_word(Some(only), "test"),
            _ => false,
        }
}

/// A path that code names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) line: usize,
    /// The modules within the file that contain it.
    pub(crate) scope: Vec<String>,
    /// `["crate", "a", "B"]`.
    pub(crate) path: Vec<String>,
    pub(crate) kind: Kind,
}

/// The purpose of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To use the item.
    Code,
    /// To import it under a name.
    Name { name: String, public: bool },
    /// To import all names in it.
    Glob { public: bool },
}

/// All paths in the items.
pub(crate) fn mentions(items: &[Item]) -> Vec<Mention> {
    let mut mentions = Mentions {
        scope: Vec::new(),
        found: Vec::new(),
    };
    for item in items {
        mentions.visit_item(item);
    }
    mentions.found
}

struct Mentions {
    scope: Vec<String>,
    found: Vec<Mention>,
}

impl Mentions {
    fn add(&mut self, line: usize, path: Vec<String>, kind: Kind) {
        self.found.push(Mention {
            line,
            scope: self.scope.clone(),
            path,
            kind,
        });
    }

    fn imports(&mut self, tree: &UseTree, path: &[String], public: bool) {
        let with = |ident: &Ident| {
            // `a::{self}` is `a`.
            let last = (ident != "self" || path.is_empty()).then(|| ident.to_string());
            path.iter().cloned().chain(last).collect::<Vec<_>>()
        };
        match tree {
            UseTree::Path(tree) => self.imports(&tree.tree, &with(&tree.ident), public),
            UseTree::Name(tree) => {
                let path = with(&tree.ident);
                let name = path.last().cloned().unwrap_or_default();
                let line = tree.ident.span().start().line;
                self.add(line, path, Kind::Name { name, public });
            }
            UseTree::Rename(tree) => {
                let name = tree.rename.to_string();
                let line = tree.ident.span().start().line;
                self.add(line, with(&tree.ident), Kind::Name { name, public });
            }
            UseTree::Glob(tree) => {
                let line = tree.star_token.spans[0].start().line;
                self.add(line, path.to_vec(), Kind::Glob { public });
            }
            UseTree::Group(tree) => {
                for tree in &tree.items {
                    self.imports(tree, path, public);
                }
            }
        }
    }

    /// The paths of more than one name in what a macro or an attribute is given.
    fn scan(&mut self, stream: &TokenStream) {
        each_token(stream.clone(), &mut |tokens, index| {
            let follows =
                |at: usize| is_mark(tokens.get(at), ':') && is_mark(tokens.get(at + 1), ':');
            let TokenTree::Ident(first) = &tokens[index] else {
                return;
            };
            if index > 1 && follows(index - 2) || index > 0 && is_mark(tokens.get(index - 1), '.') {
                return;
            }
            let mut path = vec![first.to_string()];
            let mut at = index + 1;
            while follows(at) {
                let Some(TokenTree::Ident(next)) = tokens.get(at + 2) else {
                    break;
                };
                path.push(next.to_string());
                at += 3;
            }
            if path.len() > 1 {
                self.add(line(&tokens[index]), path, Kind::Code);
            }
        });
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.scope.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.scope.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.imports(&item.tree, &[], public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        let line = path.segments[0].ident.span().start().line;
        self.add(line, names.collect(), Kind::Code);
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.scan(&list.tokens);
        }
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        self.visit_path(&invoked.path);
        self.scan(&invoked.tokens);
    }
}
