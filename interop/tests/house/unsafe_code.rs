//! Where `unsafe` may occur, and that each use has a reason.

use proc_macro2::{Delimiter, TokenTree};

use crate::syntax::{each_token, is_word, line, tokens};
use crate::workspace::{all_sources, read, report};

/// Crates without any.
const FORBIDDEN: &[&str] = &[
    "base",
    "wire",
    "prm",
    "adp",
    "dcqcn",
    "transport",
    "driver",
    "fabric",
    "testing",
    "testkit",
    "designer",
    "sweep",
    "torture",
    "trial",
    "sysfs",
    "nldev",
];

/// Crates with some modules that allow it.
const DENIED: &[&str] = &[
    "device", "registry", "sockets", "runtime", "fwctl", "dynlib", "nccl", "ucx",
];

/// Where `unsafe` may be.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/device/src/memory.rs",
    "crates/device/src/memory/",
    "crates/os/src/",
    "crates/registry/src/shared/map.rs",
    "crates/sockets/src/socket.rs",
    "crates/sockets/src/socket/",
    "crates/runtime/src/sys/",
    "crates/runtime/tests/",
    "crates/fwctl/src/ioctl.rs",
    "crates/dynlib/src/library.rs",
    "crates/dynlib/src/memory.rs",
    "crates/nccl/src/library.rs",
    "crates/nccl/src/net.rs",
    "crates/nccl/src/table.rs",
    "crates/ucx/src/abi.rs",
    "crates/ucx/src/library.rs",
    "crates/ucx/src/worker.rs",
    "capi/",
    "fuzz/src/qp_pair/side.rs",
];

/// Lines before `unsafe` in which its reason must be.
const REASON_WITHIN: usize = 6;
/// The same for the `# Safety` section of a function.
const SECTION_WITHIN: usize = 20;
#[test]
fn unsafe_code_is_confined_and_justified() {
    let mut violations = Vec::new();
    let forbidden = FORBIDDEN
        .iter()
        .map(|name| (name, "#![forbid(unsafe_code)]"));
    let denied = DENIED.iter().map(|name| (name, "#![deny(unsafe_code)]"));
    for (name, fence) in forbidden.chain(denied) {
        let path = format!("crates/{name}/src/lib.rs");
        if !read(&path).lines().any(|line| line == fence) {
            violations.push(format!("{path} lacks {fence}"));
        }
    }
    for source in all_sources() {
        let lines: Vec<_> = source.text.lines().collect();
        each_token(tokens(&source.text), &mut |tokens, index| {
            // The functions of capi that C calls share one contract, the header's, stated by the
            // crate's page.
            let from_c = source.path.starts_with("capi/");
            let is_function = match unsafety(&tokens[index..]) {
                Some(Unsafety::Extern) if from_c => return,
                Some(Unsafety::Function | Unsafety::Extern) => true,
                Some(Unsafety::Block) => false,
                None => return,
            };
            let number = line(&tokens[index]);
            let place = format!("{}:{number}", source.path);
            if !UNSAFE_ALLOWED
                .iter()
                .any(|allowed| place.starts_with(allowed))
            {
                violations.push(format!("{place}: unsafe in a crate without"));
            }
            let has_before = |within: usize, word: &str| {
                let lines = &lines[(number - 1).saturating_sub(within)..number];
                lines.iter().any(|line| line.contains(word))
            };
            if !(has_before(REASON_WITHIN, "SAFETY:")
                || is_function && has_before(SECTION_WITHIN, "# Safety"))
            {
                violations.push(format!("{place}: no SAFETY comment says why it is sound"));
            }
        });
    }
    report("unsafe", &violations);
}

/// The kinds of `unsafe`.
enum Unsafety {
    /// A block, or an implementation.
    Block,
    Function,
    /// A function with a calling convention, or a block of them.
    Extern,
}

/// What the tokens say is unsafe; a function's type says nothing.
fn unsafety(tokens: &[TokenTree]) -> Option<Unsafety> {
    let is_group = |at: usize, delimiter| matches!(tokens.get(at), Some(TokenTree::Group(group)) if group.delimiter() == delimiter);
    let is_type = |function: usize| is_group(function + 1, Delimiter::Parenthesis);
    if !is_word(tokens.first(), "unsafe") {
        None
    } else if is_group(1, Delimiter::Brace) || is_word(tokens.get(1), "impl") {
        Some(Unsafety::Block)
    } else if is_word(tokens.get(1), "fn") {
        (!is_type(1)).then_some(Unsafety::Function)
    } else if is_word(tokens.get(1), "extern") {
        (!is_type(3)).then_some(Unsafety::Extern)
    } else {
        None
    }
}
