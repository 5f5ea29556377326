//! The libraries that programs load: their paths, and a directory with the names under which
//! programs look for them.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use ferroce_doca::headers::{HEADERS, PKG_CONFIG};

use crate::output::Failure;
use crate::put;
use crate::put::record::Record;

/// A library, by the name under which it is loaded.
struct Library {
    name: &'static str,
    /// The name for linking, which some programs load as well.
    link: Option<&'static str>,
    /// What cargo calls it.
    built: &'static str,
    /// Whether programs that look for others' libraries first get it all the same.
    is_preloaded: bool,
}

const LIBRARIES: [Library; 8] = [
    Library {
        name: "libibverbs.so.1",
        link: Some("libibverbs.so"),
        built: "libferroce_libibverbs.so",
        is_preloaded: true,
    },
    Library {
        name: "librdmacm.so.1",
        link: Some("librdmacm.so"),
        built: "libferroce_librdmacm.so",
        is_preloaded: true,
    },
    Library {
        name: "libmlx5.so.1",
        link: Some("libmlx5.so"),
        built: "libferroce_libmlx5.so",
        is_preloaded: true,
    },
    Library {
        name: "libdoca_common.so.2",
        link: Some("libdoca_common.so"),
        built: "libferroce_libdoca_common.so",
        is_preloaded: false,
    },
    Library {
        name: "libdoca_argp.so.2",
        link: Some("libdoca_argp.so"),
        built: "libferroce_libdoca_argp.so",
        is_preloaded: false,
    },
    Library {
        name: "libdoca_telemetry.so.2",
        link: Some("libdoca_telemetry.so"),
        built: "libferroce_libdoca_telemetry.so",
        is_preloaded: false,
    },
    Library {
        name: FWCTL,
        link: None,
        built: "libferroce_fwctl_preload.so",
        is_preloaded: false,
    },
    Library {
        name: SYSFS,
        link: None,
        built: "libferroce_sysfs_preload.so",
        is_preloaded: true,
    },
];

/// The library that shows the view in `/sys`. No other package has one of this name, so it also
/// marks a directory as Ferroce's.
const SYSFS: &str = "libferroce_sysfs.so";

/// The library that answers for the nodes of fwctl. Only for programs that ask for it: others see
/// the nodes of real cards.
const FWCTL: &str = "libferroce_fwctl.so";

/// What debuggers report of the libraries although it is no error, beside them.
const SUPPRESSIONS: [(&str, &str); 2] = [
    (
        VALGRIND,
        include_str!("../../../packaging/suppressions/valgrind.supp"),
    ),
    (
        TSAN,
        include_str!("../../../packaging/suppressions/tsan.supp"),
    ),
];

/// Suppressions for valgrind.
pub(super) const VALGRIND: &str = "valgrind.supp";

/// Suppressions for ThreadSanitizer.
pub(super) const TSAN: &str = "tsan.supp";

/// Directories of the libraries, from that of the program: where `cargo build` puts them, where they
/// are built, where they are installed.
const PLACES: [&str; 3] = [".", "deps", "../lib/ferroce"];

/// Where this program and each of [`LIBRARIES`] are.
#[derive(Debug)]
pub(crate) struct Libraries {
    program: PathBuf,
    paths: Vec<PathBuf>,
}

impl Libraries {
    /// Looks for the libraries near this program.
    pub(crate) fn find() -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::broken(format_args!("cannot find out where ferroce is: {error}"))
        })?;
        Self::of(program)
    }

    fn of(program: PathBuf) -> Result<Self, Failure> {
        let home = program.parent().unwrap_or(&program);
        let paths = LIBRARIES.iter().map(|library| near(home, library));
        let paths = paths.collect::<Result<_, _>>()?;
        Ok(Self { program, paths })
    }

    /// A directory that has the libraries under the names by which programs look for them: where
    /// they are installed, or one below `cache` with links to where cargo has built them.
    pub(crate) fn directory(&self, cache: &Path) -> Result<PathBuf, Failure> {
        match self.installed() {
            Some(directory) if is_listable(directory) => Ok(directory.to_owned()),
            _ => self.linked(cache),
        }
    }

    fn installed(&self) -> Option<&Path> {
        let directory = self.paths[0].parent()?;
        let names = LIBRARIES.iter().map(|library| directory.join(library.name));
        // Some packages cannot hold links.
        let mut links = LIBRARIES.iter().filter_map(|library| library.link);
        let mut suppressions = SUPPRESSIONS.iter().map(|(name, _)| name);
        let is_whole = names.eq(self.paths.iter().cloned())
            && links.all(|link| directory.join(link).exists())
            && suppressions.all(|name| directory.join(name).exists());
        is_whole.then_some(directory)
    }

    fn linked(&self, cache: &Path) -> Result<PathBuf, Failure> {
        // Programs of another build may be running: each build has a directory of its own.
        let mut hasher = DefaultHasher::new();
        self.paths.hash(&mut hasher);
        let directory = cache.join(format!("lib-{:016x}", hasher.finish()));
        if !is_listable(&directory) {
            return Err(Failure::input(format_args!(
                "{} has a colon or a space in its name, which LD_PRELOAD cannot have; set \
                 FERROCE_DIR to a directory without",
                directory.display()
            )));
        }
        put::directory(&directory)?;
        for (library, path) in LIBRARIES.iter().zip(&self.paths) {
            put::link(&directory.join(library.name), path)?;
            if let Some(link) = library.link {
                put::link(&directory.join(link), Path::new(library.name))?;
            }
        }
        suppress(&directory)?;
        Ok(directory)
    }

    /// Copies the libraries into `lib/ferroce` and the program into `bin` of a directory, with the
    /// headers and pkg-config files of those that others do not have; what does not exist is made.
    pub(crate) fn install(&self, prefix: &Path, record: &mut Record) -> Result<(), Failure> {
        let (bin, lib) = (prefix.join("bin"), prefix.join("lib/ferroce"));
        let (include, pkg_config) = (prefix.join("include/ferroce"), lib.join("pkgconfig"));
        for directory in [&bin, &lib] {
            record.directory(directory)?;
        }
        let mut entries = fs::read_dir(&lib).map_err(|error| put::cannot_write(&lib, &error))?;
        if !lib.join(SYSFS).exists() && entries.next().is_some() {
            return Err(Failure::input(format_args!(
                "{} has other files in it, and Ferroce's libraries bear the names of others; name \
                 another directory, for example /usr/local",
                lib.display()
            )));
        }
        // The mark comes first, so that an installation that was cut short can be repeated.
        for (library, path) in LIBRARIES.iter().zip(&self.paths).rev() {
            record.copy(&lib.join(library.name), path)?;
            if let Some(link) = library.link {
                record.link(&lib.join(link), Path::new(library.name))?;
            }
        }
        for (name, text) in SUPPRESSIONS {
            record.file(&lib.join(name), text.as_bytes())?;
        }
        for (directory, files) in [(&include, HEADERS), (&pkg_config, PKG_CONFIG)] {
            record.directory(directory)?;
            for (name, text) in files {
                record.file(&directory.join(name), text.as_bytes())?;
            }
        }
        record.copy(&bin.join("ferroce"), &self.program)
    }
}

fn suppress(directory: &Path) -> Result<(), Failure> {
    for (name, text) in SUPPRESSIONS {
        put::file(&directory.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// `LD_PRELOAD` with the libraries of this directory behind those that are there already: some,
/// the sanitizers' for example, must be the first.
pub(crate) fn preload(directory: &Path, with_fwctl: bool) -> String {
    let is_wanted =
        |library: &&Library| library.is_preloaded || with_fwctl && library.name == FWCTL;
    let preloaded = LIBRARIES.iter().filter(is_wanted);
    let paths = preloaded.map(|library| directory.join(library.name).display().to_string());
    paths.collect::<Vec<_>>().join(":")
}

fn near(home: &Path, library: &Library) -> Result<PathBuf, Failure> {
    for place in PLACES {
        for name in [library.built, library.name] {
            let path = home.join(place).join(name);
            if let Ok(path) = path.canonicalize() {
                return Ok(path);
            }
        }
    }
    Err(Failure::broken(format_args!(
        "{} is missing, {} has it neither in {} nor in {}; build it with `cargo build --release`, \
         or install it with `ferroce install DIR`",
        library.name,
        home.display(),
        PLACES[..2].join(" nor in "),
        PLACES[2],
    )))
}

/// Whether a path can stand in a list that is separated by colons or spaces.
fn is_listable(path: &Path) -> bool {
    let separates = |c: char| c == ':' || c.is_whitespace();
    path.to_str().is_some_and(|path| !path.contains(separates))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as cargo leaves it.
    fn built() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for library in LIBRARIES {
            fs::write(home.path().join(library.built), library.name).unwrap();
        }
        home
    }

    fn find(home: &Path) -> Libraries {
        fs::write(home.join("ferroce"), "the program").unwrap();
        Libraries::of(home.join("ferroce")).unwrap()
    }

    #[test]
    fn built_libraries_are_linked_under_their_sonames() {
        let (home, cache) = (built(), tempfile::tempdir().unwrap());
        let libraries = find(home.path());
        for _ in 0..2 {
            let directory = libraries.directory(cache.path()).unwrap();
            assert!(directory.starts_with(cache.path()));
            for name in ["libibverbs.so.1", "libibverbs.so"] {
                let text = fs::read_to_string(directory.join(name)).unwrap();
                assert_eq!(text, "libibverbs.so.1");
            }
        }
    }

    #[test]
    fn an_installation_is_used_as_it_is_and_can_be_repeated() {
        let (home, cache) = (built(), tempfile::tempdir().unwrap());
        let prefix = home.path().join("prefix");
        for _ in 0..2 {
            find(home.path())
                .install(&prefix, &mut Record::begin(&prefix))
                .unwrap();
        }
        let libraries = find(&prefix.join("bin"));
        let directory = libraries.directory(cache.path()).unwrap();
        let lib = prefix.join("lib/ferroce").canonicalize().unwrap();
        assert_eq!(directory, lib);
        // Eight libraries, six names for linking, two files of suppressions, the directory of
        // pkg-config files.
        assert_eq!(fs::read_dir(&lib).unwrap().count(), 17);
        let argp = fs::read_to_string(lib.join("pkgconfig/doca-argp.pc")).unwrap();
        assert!(argp.contains("-ldoca_argp"), "{argp}");
        assert!(prefix.join("include/ferroce/doca_error.h").exists());
    }

    #[test]
    fn links_that_an_installation_lacks_are_made_elsewhere() {
        let (home, cache) = (built(), tempfile::tempdir().unwrap());
        let prefix = home.path().join("prefix");
        find(home.path())
            .install(&prefix, &mut Record::begin(&prefix))
            .unwrap();
        fs::remove_file(prefix.join("lib/ferroce/libibverbs.so")).unwrap();
        let directory = find(&prefix.join("bin")).directory(cache.path()).unwrap();
        assert!(directory.starts_with(cache.path()));
        let text = fs::read_to_string(directory.join("libibverbs.so")).unwrap();
        assert_eq!(text, "libibverbs.so.1");
    }

    #[test]
    fn other_peoples_libraries_are_left_alone() {
        let home = built();
        let lib = home.path().join("lib/ferroce");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("libibverbs.so.1"), "theirs").unwrap();
        let error = find(home.path())
            .install(home.path(), &mut Record::begin(home.path()))
            .unwrap_err();
        assert!(error.to_string().contains("has other files"), "{error}");
        let theirs = fs::read_to_string(lib.join("libibverbs.so.1")).unwrap();
        assert_eq!(theirs, "theirs");
    }

    #[test]
    fn a_library_that_is_missing_is_named_with_what_builds_it() {
        let home = tempfile::tempdir().unwrap();
        let error = near(home.path(), &LIBRARIES[0]).unwrap_err().to_string();
        assert!(error.contains("libibverbs.so.1 is missing"), "{error}");
        assert!(error.contains("cargo build"), "{error}");
    }
}
