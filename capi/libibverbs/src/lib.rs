//! `libibverbs.so.1`: every symbol of `symbols.txt` under its version.
//!
//! rustc puts every symbol that it exports into its own version script, without a version. The
//! symbols are therefore defined without rustc's knowledge, by assembly that jumps to the
//! functions, and get their versions from the script that `build.rs` writes.
#![allow(
    clippy::missing_safety_doc,
    reason = "there is nothing to call from Rust"
)]

use std::ffi::{c_int, c_void};

/// The architecture's jump to a function.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b"
    };
}

/// Defines `$name` as a jump to a function; further names of it are bound to the nodes given.
macro_rules! export {
    ($name:literal, $target:path $(, $alias:literal => $node:literal)*) => {
        core::arch::global_asm!(
            concat!(
                ".text\n.globl ", $name, "\n.type ", $name, ",@function\n",
                $(".globl ", $alias, "\n.type ", $alias, ",@function\n",)*
                $name, ":\n",
                $($alias, ":\n",)*
                "\t", jump!(), " {target}\n.size ", $name, ", .-", $name, "\n",
                $(".size ", $alias, ", .-", $alias, "\n",
                  ".symver ", $alias, ", ", $name, "@", $node, ", remove\n",)*
            ),
            target = sym $target
        );
    };
}

/// Defines `$name` as eight zero bytes, and further names of them.
macro_rules! export_data {
    ($name:literal $(, $alias:literal => $node:literal)*) => {
        core::arch::global_asm!(concat!(
            ".bss\n.balign 8\n.globl ", $name, "\n.type ", $name, ",@object\n.size ", $name, ", 8\n",
            $(".globl ", $alias, "\n.type ", $alias, ",@object\n.size ", $alias, ", 8\n",)*
            $name, ":\n",
            $($alias, ":\n",)*
            "\t.zero 8\n",
            $(".symver ", $alias, ", ", $name, "@", $node, ", remove\n",)*
            ".text\n"
        ));
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

extern "C" fn eopnotsupp() -> c_int {
    95
}

extern "C" fn null() -> *const c_void {
    ferroce_ibverbs::no_object()
}

extern "C" fn minus_one() -> c_int {
    ferroce_ibverbs::no_object();
    -1
}

extern "C" fn zero() -> usize {
    0
}
