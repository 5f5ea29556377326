//! The `ferroce` program. Everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ferroce::main(std::env::args_os())
}
