//! Refusals: an error number for the program and a line on stderr for its author (`FERROCE_LOG`).

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferroce_abi::log::{Level, log};
use ferroce_abi::pointer::Null;
use ferroce_device::{PostError, VerbsError};
use ferroce_fault::Errno;
use ferroce_registry::{FaultError, RegistryError};
use ferroce_runtime::OpenError;
use thiserror::Error;

/// Why a call was refused.
#[derive(Debug, Error)]
pub enum Error {
    /// Not a live object of its kind (`EINVAL`).
    #[error("{0} is not a handle of this library, or was destroyed")]
    Handle(&'static str),
    /// An object of another context, or of another device (`EINVAL`).
    #[error("the {0} belongs to another context; objects work together that one context has made")]
    OtherContext(&'static str),
    /// A null pointer (`EINVAL`).
    #[error("{0} is a null pointer")]
    Null(&'static str),
    /// A value outside its range (`EINVAL`).
    #[error("{field} is {value}; allowed: {allowed}", value = number_or_bits(*value))]
    Invalid {
        /// Name of the argument or field.
        field: &'static str,
        /// Value given.
        value: i128,
        /// What would do.
        allowed: &'static str,
    },
    /// Nothing this device has (`EOPNOTSUPP`).
    #[error("{0} is not supported by this device")]
    Unsupported(&'static str),
    /// Memory that cannot be used as asked (`EFAULT`).
    #[error("the memory at {addr:#x} of {length} bytes is not mapped as the access asks for")]
    Fault {
        /// Address of the memory.
        addr: u64,
        /// Bytes.
        length: u64,
    },
    /// No memory region of this name (`ENOENT`).
    #[error("no memory region has the lkey {lkey:#x}")]
    NoKey {
        /// The name given.
        lkey: u32,
    },
    /// A memory region of another protection domain (`EPERM`).
    #[error("the memory region of lkey {lkey:#x} belongs to another protection domain")]
    OtherDomain {
        /// Its name.
        lkey: u32,
    },
    /// An address handle of another protection domain than the queue pair's (`EINVAL`).
    #[error("the address handle belongs to another protection domain than the queue pair")]
    OtherDomainsHandle,
    /// Nothing that a child of `fork` has (`ENODEV`).
    #[error("the device belongs to the parent of this process: open it again here")]
    Orphaned,
    /// Nothing that a device has after a panic (`EIO`).
    #[error("the device has failed, see above: start the program again")]
    Failed,
    /// A call in a call, which would wait for itself (`EDEADLK`).
    #[error(
        "this thread is in a call on the device already: a signal handler must not make one, nor \
         jump out of one"
    )]
    InCall,
    /// Something else needs it (`EBUSY`).
    #[error("still in use: {0}")]
    Busy(&'static str),
    /// The device refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The device cannot be attached to.
    #[error("cannot open the device: {0}")]
    Open(#[from] OpenError),
    /// The user's devices cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The operating system refused.
    #[error("{0}")]
    Os(#[from] io::Error),
    /// What programs try on purpose, to find out what there is.
    #[error("{what}")]
    Probed {
        /// The error number.
        errno: c_int,
        /// The reason.
        what: String,
    },
    /// A fault rule.
    #[error("a fault rule makes the call fail with {}", .0.name())]
    Injected(Errno),
    /// The fault rules cannot be read.
    #[error(transparent)]
    Faults(#[from] FaultError),
    /// Another reason, in words, and its error number.
    #[error("{what}")]
    Refused {
        /// The error number.
        errno: c_int,
        /// The reason.
        what: String,
    },
    /// A call within the call failed, and said why.
    #[error("see above")]
    Reported(c_int),
}

impl From<Null> for Error {
    fn from(Null(argument): Null) -> Self {
        Self::Null(argument)
    }
}

// On the path of the data, where a result must be small.

impl From<VerbsError> for Box<Error> {
    #[cold]
    fn from(error: VerbsError) -> Self {
        Self::new(error.into())
    }
}

impl From<PostError> for Box<Error> {
    #[cold]
    fn from(error: PostError) -> Self {
        VerbsError::from(error).into()
    }
}

impl Error {
    /// A value outside its range.
    pub fn invalid(field: &'static str, value: impl TryInto<i128>, allowed: &'static str) -> Self {
        Self::Invalid {
            field,
            value: value.try_into().unwrap_or(i128::MAX), // all that C has fit
            allowed,
        }
    }

    /// Another reason, in words.
    pub fn refused(errno: c_int, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Refused { errno, what }
    }

    /// That of a call of this library which has just failed, and has said why.
    pub fn reported() -> Self {
        let errno = io::Error::last_os_error().raw_os_error();
        Self::Reported(errno.unwrap_or(libc::EIO))
    }

    /// The error number that the man pages give.
    pub fn errno(&self) -> c_int {
        match self {
            Self::Handle(_)
            | Self::OtherContext(_)
            | Self::Null(_)
            | Self::Invalid { .. }
            | Self::OtherDomainsHandle => libc::EINVAL,
            Self::Unsupported(_) => libc::EOPNOTSUPP,
            Self::Fault { .. } => libc::EFAULT,
            Self::NoKey { .. } => libc::ENOENT,
            Self::OtherDomain { .. } => libc::EPERM,
            Self::Orphaned => libc::ENODEV,
            Self::Failed => libc::EIO,
            Self::Injected(errno) => errno.number(),
            Self::Faults(FaultError::File { source, .. }) => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Self::Faults(_) => libc::EINVAL,
            Self::InCall => libc::EDEADLK,
            Self::Busy(_) => libc::EBUSY,
            Self::Verbs(error) => error.errno(),
            Self::Probed { errno, .. } | Self::Refused { errno, .. } | Self::Reported(errno) => {
                *errno
            }
            Self::Open(OpenError::CardProcess(error))
                if error.kind() == io::ErrorKind::Unsupported =>
            {
                libc::EOPNOTSUPP
            }
            Self::Open(OpenError::Helper(error) | OpenError::CardProcess(error))
            | Self::Os(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Open(OpenError::Registry(error)) | Self::Registry(error) => registry_errno(error),
            Self::Open(OpenError::Full { .. }) => libc::EUSERS,
            Self::Open(_) => libc::EADDRINUSE,
        }
    }

    /// What a program does on purpose is logged only on request.
    fn level(&self) -> Level {
        match self {
            Self::Verbs(VerbsError::Post(PostError::QueueFull { .. })) => Level::Debug,
            Self::Os(error) if error.kind() == io::ErrorKind::WouldBlock => Level::Debug,
            Self::Os(error) if error.kind() == io::ErrorKind::Interrupted => Level::Debug,
            Self::Os(error) if error.raw_os_error() == Some(libc::ENODATA) => Level::Debug,
            Self::Unsupported(_) | Self::Verbs(VerbsError::NotSupported { .. }) => Level::Info,
            Self::Probed { .. } | Self::Injected(_) => Level::Info,
            // Programs clean up in whichever order, and again.
            Self::Busy(_) | Self::Verbs(VerbsError::Busy { .. }) => Level::Info,
            // No query tells the limit, so programs search for it.
            Self::Verbs(VerbsError::OutOfRange {
                field: "max_inline_data",
                ..
            }) => Level::Info,
            // Reported once, when it happened.
            Self::Reported(_) | Self::Failed => Level::Debug,
            _ => Level::Error,
        }
    }
}

/// A number, followed by its hexadecimal digits if it is likely to be known as a mask or key.
fn number_or_bits(value: i128) -> String {
    if value < 10 {
        value.to_string()
    } else {
        format!("{value} ({value:#x})")
    }
}

fn registry_errno(error: &RegistryError) -> c_int {
    match error {
        RegistryError::Directory { source, .. } | RegistryError::File { source, .. } => {
            source.raw_os_error().unwrap_or(libc::EACCES)
        }
        RegistryError::NoSuchDevice { .. } => libc::ENODEV,
        _ => libc::EINVAL,
    }
}

/// Sets `errno` and says on stderr what was refused: once, unless all is to be said.
pub fn tell(call: &str, error: &Error) -> c_int {
    static TOLD: Told<256> = Told::new();
    let level = error.level();
    if level.is_wanted() {
        let text = format!("{call}: {error}");
        match TOLD.note(&text) {
            _ if Level::Debug.is_wanted() => log(level, &text),
            News::New => log(level, &text),
            News::Full => log(
                level,
                "no further refusals are shown; FERROCE_LOG=debug shows all",
            ),
            News::Old => {}
        }
    }
    let errno = error.errno();
    set_errno(errno);
    errno
}

/// Says on stderr what a device could not do that no call waits for.
pub(crate) fn report(text: &str) {
    log(Level::Error, text);
}

/// What was said, by its hash. Without a lock, which a thread may hold that a child of `fork` does not
/// have.
struct Told<const N: usize> {
    /// 0 for a free place.
    hashes: [AtomicU64; N],
    is_full: AtomicBool,
}

#[derive(PartialEq, Eq, Debug)]
enum News {
    New,
    Old,
    /// There is no room for it, for the first time.
    Full,
}

impl<const N: usize> Told<N> {
    const fn new() -> Self {
        Self {
            hashes: [const { AtomicU64::new(0) }; N],
            is_full: AtomicBool::new(false),
        }
    }

    fn note(&self, text: &str) -> News {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let own = hasher.finish().max(1);
        for place in &self.hashes {
            match place.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return News::New,
                Err(other) if other == own => return News::Old,
                Err(_) => {}
            }
        }
        match self.is_full.swap(true, Ordering::Relaxed) {
            false => News::Full,
            true => News::Old,
        }
    }
}

/// Sets this thread's `errno`.
pub fn set_errno(errno: c_int) {
    // SAFETY: the location of this thread's own variable, which lives as long as the thread.
    unsafe { *libc::__errno_location() = errno }
}

/// The result of a call that returns 0 or an error number.
pub fn status(call: &str, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => tell(call, &error),
    }
}

/// The result of a call that returns a number, or -1 and sets `errno`.
pub fn number<T: From<i8>>(call: &str, result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| {
        tell(call, &error);
        T::from(-1)
    })
}

/// The result of a call that returns a pointer, or null and sets `errno`.
pub fn pointer<T>(call: &str, result: Result<*mut T, Error>) -> *mut T {
    result.unwrap_or_else(|error| {
        tell(call, &error);
        null_mut()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_news_once_and_there_is_room_for_so_many() {
        let told = Told::<4>::new();
        assert_eq!(told.note("a"), News::New);
        assert_eq!(told.note("a"), News::Old);
        for text in ["b", "c", "d"] {
            assert_eq!(told.note(text), News::New);
        }
        assert_eq!(told.note("e"), News::Full);
        assert_eq!(told.note("f"), News::Old);
        assert_eq!(told.note("d"), News::Old);
    }

    #[test]
    fn deliberate_attempts_are_not_logged_by_default() {
        let out_of_range = |field| {
            Error::Verbs(VerbsError::OutOfRange {
                field,
                value: 9,
                min: 0,
                max: 8,
            })
        };
        assert_eq!(out_of_range("max_inline_data").level(), Level::Info);
        assert_eq!(out_of_range("max_send_wr").level(), Level::Error);
        assert_eq!(Error::Busy("memory regions").level(), Level::Info);
        let (errno, what) = (libc::ENODEV, String::new());
        let probed = Error::Probed { errno, what };
        assert_eq!(
            (probed.level(), probed.errno()),
            (Level::Info, libc::ENODEV)
        );
    }
}
