//! Limits of the process (getrlimit(2)), and how to resolve the errors they cause.

use std::io;

use rustix::process::{Resource, getrlimit};

/// What helps against an error of the system, if it is of the kind that more room helps against.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    // By its kind: where a path was added to the error, its number is not there any more.
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Some(
            "the file system is read-only: set FERROCE_DIR to a directory you own on another one",
        );
    }
    Some(match error.raw_os_error()? {
        libc::ENOSPC | libc::EDQUOT => {
            "the file system is full: delete files there, or set FERROCE_DIR to a directory on \
             another one"
        }
        libc::EFBIG => {
            "this process may not write such large files: raise RLIMIT_FSIZE (`ulimit -f`)"
        }
        libc::EMFILE => {
            "this process has no file descriptor left: raise RLIMIT_NOFILE (`ulimit -n`)"
        }
        libc::ENFILE => "the system has no file left: raise fs.file-max (`sysctl fs.file-max`)",
        libc::ENOMEM => "no memory: free some, or raise RLIMIT_AS (`ulimit -v`)",
        libc::EAGAIN => {
            "no further thread: raise RLIMIT_NPROC (`ulimit -u`), or pids.max of the cgroup"
        }
        libc::ETIMEDOUT => {
            "a process of the device is stopped while it opens or closes it: resume it (SIGCONT) or \
             end it"
        }
        _ => return None,
    })
}

/// What to do about an error, to be put behind it.
pub fn after(error: &io::Error) -> String {
    remedy(error).map_or_else(String::new, |remedy| format!("; {remedy}"))
}

/// Whether this process may write a file of this many bytes. One that does so anyway gets a signal
/// that ends the process.
pub(crate) fn may_write(bytes: u64) -> bool {
    let limit = getrlimit(Resource::Fsize).current;
    limit.is_none_or(|limit| bytes <= limit)
}
