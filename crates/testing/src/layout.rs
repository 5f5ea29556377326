//! Layouts of structures, compared with those of installed C headers.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::skip;

/// An integer expression in C, and the value that it must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact(pub String, pub usize);

/// Sizes of structures and offsets of their fields, as [`Fact`]s; `name => "path"` is a field that has
/// another name in C.
#[macro_export]
macro_rules! layout_facts {
    ($($tag:ident $kind:ident { $($field:ident $(=> $c:literal)?),* $(,)? })*) => {
        vec![$(
            $crate::layout::Fact(
                format!("sizeof({} {})", stringify!($tag), stringify!($kind)),
                ::std::mem::size_of::<$kind>(),
            ),
            $($crate::layout::Fact(
                format!(
                    "offsetof({} {}, {})",
                    stringify!($tag),
                    stringify!($kind),
                    [$($c,)? stringify!($field).trim_start_matches("r#")][0]
                ),
                ::std::mem::offset_of!($kind, $field),
            ),)*
        )*]
    };
}

/// Has a C compiler check the facts against `header`, which a package installs in `/usr/include`. Skips
/// `test` if it does not exist.
///
/// # Panics
///
/// If a fact is wrong.
pub fn check_layout(test: &str, header: &str, package: &str, facts: &[Fact]) {
    if !fs::exists(format!("/usr/include/{header}")).unwrap_or(false) {
        skip(test, &format!("{header} is missing; install {package}"));
        return;
    }
    let mut source = format!("#include <stddef.h>\n#include <{header}>\n");
    for Fact(name, value) in facts {
        let _ = writeln!(
            source,
            "_Static_assert({name} == {value}, \"{name} is not {value}\");"
        );
    }
    let directory = tempfile::tempdir().expect("temporary files can be made");
    let file = directory.path().join("layout.c");
    fs::write(&file, source).expect("temporary files can be written");
    let output = Command::new("cc").arg("-fsyntax-only").arg(&file).output();
    let output = output.expect("there is a C compiler, as for any linking");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
