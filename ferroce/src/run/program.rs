//! The program to run: its path, and whether it is supported.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access, getegid, geteuid};
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};

use super::valgrind;
use crate::output::Failure;

/// No such program, as a shell says it.
pub(crate) const NOT_FOUND: u8 = 127;
/// There is such a program, but it cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// Finds a program as a shell does, and makes sure that it will load Ferroce's libraries.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let program = locate(name, path)?;
    check(&program)?;
    valgrind::check(&program)?;
    Ok(program)
}

fn locate(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.as_encoded_bytes().contains(&b'/') {
        return executable(Path::new(name))?.ok_or_else(|| {
            not_found(format_args!(
                "{} does not exist; give the path of a program",
                name.display()
            ))
        });
    }
    let mut refusal = None;
    for directory in std::env::split_paths(path.unwrap_or_default()) {
        match executable(&directory.join(name)) {
            Ok(Some(program)) => return Ok(program),
            Ok(None) => {}
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    Err(refusal.unwrap_or_else(|| {
        not_found(format_args!(
            "{}: command not found in PATH; install it, or give its path",
            name.display()
        ))
    }))
}

/// The path if there is a program, `None` if there is nothing.
fn executable(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(None);
    };
    let shown = path.display();
    if metadata.is_dir() {
        return Err(refused(format_args!(
            "{shown} is a directory; give a program in it"
        )));
    }
    if access(path, AccessFlags::X_OK).is_err() {
        return Err(refused(format_args!(
            "{shown} is not executable; run `chmod +x {shown}`, or run it with its interpreter"
        )));
    }
    Ok(Some(path.to_owned()))
}

/// Refuses programs for which the dynamic linker ignores `LD_PRELOAD`, or that have none.
fn check(program: &Path) -> Result<(), Failure> {
    let shown = program.display();
    let Ok(metadata) = fs::metadata(program) else {
        return Ok(()); // gone since; the attempt to run it will tell
    };
    if changes_user(&metadata) {
        return Err(refused(format_args!(
            "{shown} runs as another user (set-user-ID or set-group-ID), and such programs ignore \
             LD_PRELOAD; run a copy of it without these bits, or run ferroce as that user"
        )));
    }
    match kind(program) {
        Some(Kind::Static) => Err(refused(format_args!(
            "{shown} is statically linked, it brings its own libibverbs; link it dynamically"
        ))),
        Some(Kind::Foreign) => Err(refused(format_args!(
            "{shown} is built for another machine than Ferroce ({}); build it for this one",
            std::env::consts::ARCH
        ))),
        Some(Kind::Dynamic) | None => Ok(()),
    }
}

fn changes_user(metadata: &Metadata) -> bool {
    let mode = metadata.mode();
    let user = mode & SET_USER != 0 && metadata.uid() != geteuid().as_raw();
    let group = mode & SET_GROUP != 0 && metadata.gid() != getegid().as_raw();
    user || group
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Dynamic,
    Static,
    Foreign,
}

/// What the file's headers say; `None` for what is no ELF file, such as scripts, and for what
/// cannot be read.
fn kind(program: &Path) -> Option<Kind> {
    let data = ReadCache::new(File::open(program).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => {}
        FileKind::Elf32 => return Some(Kind::Foreign),
        _ => return None,
    }
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let machine = match std::env::consts::ARCH {
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        _ => header.e_machine(endian),
    };
    if header.e_machine(endian) != machine {
        return Some(Kind::Foreign);
    }
    let segments = header.program_headers(endian, &data).ok()?;
    let has_interpreter = segments
        .iter()
        .any(|segment| segment.p_type(endian) == elf::PT_INTERP);
    Some(if has_interpreter {
        Kind::Dynamic
    } else {
        Kind::Static
    })
}

fn not_found(text: std::fmt::Arguments<'_>) -> Failure {
    Failure::Program(NOT_FOUND, format!("error: {text}\n"))
}

pub(super) fn refused(text: std::fmt::Arguments<'_>) -> Failure {
    Failure::Program(NOT_EXECUTABLE, format!("error: {text}\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn code(name: &Path, path: &Path) -> (u8, String) {
        let failure = find(name.as_os_str(), Some(path.as_os_str())).unwrap_err();
        (failure.exit_code(), failure.to_string())
    }

    fn write(path: &Path, mode: u32) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let directory = tempfile::tempdir().unwrap();
        let (tool, notes) = (
            directory.path().join("tool"),
            directory.path().join("notes"),
        );
        write(&tool, 0o755);
        write(&notes, 0o644);
        for name in [tool.as_path(), Path::new("tool")] {
            let found = find(name.as_os_str(), Some(directory.path().as_os_str()));
            assert_eq!(found.unwrap(), tool);
        }
        assert_eq!(code(Path::new("nothing"), directory.path()).0, NOT_FOUND);
        assert_eq!(
            code(&directory.path().join("nothing"), Path::new("")).0,
            NOT_FOUND
        );
        assert_eq!(code(Path::new("notes"), directory.path()).0, NOT_EXECUTABLE);
        assert_eq!(code(directory.path(), Path::new("")).0, NOT_EXECUTABLE);
    }

    #[test]
    fn a_program_that_would_not_load_the_libraries_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (directory.path().join("p.c"), directory.path().join("p"));
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        for (flags, expected) in [
            (&[][..], Kind::Dynamic),
            (&["-static"][..], Kind::Static),
            (&["-static-pie"][..], Kind::Static),
        ] {
            let mut compiler = Command::new("cc");
            compiler.arg(&source).args(flags).arg("-o").arg(&program);
            let status = compiler.status().unwrap();
            assert!(status.success());
            assert_eq!(kind(&program), Some(expected), "{flags:?}");
        }
        let (code, error) = code(&program, Path::new(""));
        assert_eq!(code, NOT_EXECUTABLE);
        assert!(error.contains("statically linked"), "{error}");
    }

    #[test]
    fn a_script_is_as_good_as_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        write(&script, 0o755);
        assert_eq!(kind(&script), None);
        assert_eq!(kind(&directory.path().join("nothing")), None);
    }
}
