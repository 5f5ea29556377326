//! Lines on standard error (`FERROCE_LOG`).

use std::fmt;
use std::sync::OnceLock;

/// How much `FERROCE_LOG` lets through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing.
    Off,
    /// What went wrong, which is the default.
    Error,
    /// What may be wrong.
    Warn,
    /// Also refusals that programs provoke on purpose.
    Info,
    /// Everything, each time.
    Debug,
}

impl Level {
    fn from_env() -> Self {
        match std::env::var("FERROCE_LOG").as_deref() {
            Ok("off") => Self::Off,
            Ok("warn") => Self::Warn,
            Ok("info") => Self::Info,
            Ok("debug") => Self::Debug,
            _ => Self::Error,
        }
    }

    /// Whether lines of this level are printed.
    #[must_use]
    pub fn is_wanted(self) -> bool {
        static MOST: OnceLock<Level> = OnceLock::new();
        self <= *MOST.get_or_init(Self::from_env)
    }
}

/// Prints a line if its level is wanted: at once, as a whole, and without the standard library's lock,
/// which in a child of `fork` may be held by a thread that does not exist there.
pub fn log(level: Level, text: impl fmt::Display) {
    if !level.is_wanted() {
        return;
    }
    let line = format!("ferroce: {text}\n");
    // SAFETY: the pointer and the length are those of a string that lives until the end of the call.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
