//! The `ferroce` program. All its code is in the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    ferroce::main(std::env::args_os())
}
