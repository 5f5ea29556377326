//! Libraries that are used from Python: their hosts are a Python program of ours.

use std::env;
use std::path::Path;
use std::process::Command;

use ferroce_dynlib::find_symbols;

use crate::output::Failure;

/// The part of the program that is the same for all libraries. It comes last, because it runs.
macro_rules! program {
    ($library:literal) => {
        concat!(
            include_str!(concat!("python/", $library)),
            "\n\n",
            include_str!("python/ring.py")
        )
    };
}
pub(super) use program;

/// The command that runs a program with the package of this library, which has this symbol.
pub(super) fn command(program: &str, symbol: &str, library: &Path) -> Result<Command, Failure> {
    find_symbols(library, &[symbol])
        .map_err(|error| Failure::input(format_args!("{}: {error}", library.display())))?;
    // The library is a module of the package, which is in the directory of packages.
    let packages = library.parent().and_then(Path::parent);
    let others = env::var_os("PYTHONPATH").filter(|it| !it.is_empty());
    let others = others.iter().flat_map(env::split_paths);
    let path = env::join_paths(packages.map(Path::to_owned).into_iter().chain(others));
    let path = path.map_err(|_| {
        Failure::input(format_args!(
            "{}: a directory of Python packages must not have a colon in its path",
            library.display()
        ))
    })?;
    let mut command = Command::new("python3");
    command.arg("-c").arg(program).env("PYTHONPATH", path);
    Ok(command)
}
