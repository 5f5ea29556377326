//! Answers for the nodes of Ferroce's devices in `/dev/fwctl`, inside a program that preloads it.
//!
//! `ferroce run --fwctl` names this library in `LD_PRELOAD`, together with the one that shows the
//! files of the devices. Tools open a node as they would open a card's, and get a file that
//! identifies the device. Their `ioctl` calls on such a file are answered here, from the device's
//! registers; all other calls are passed through unchanged.
//!
//! | module | purpose |
//! |---|---|
//! | `answer` | an ioctl of fwctl on the node of a device |
//! | `memory` | the program's memory, at addresses that may be invalid |
//! | `next` | the C library's function behind this one |

mod answer;
mod memory;
// The same few lines as in the other library that is preloaded; neither can depend on the other.
#[path = "../../sysfs/src/next.rs"]
mod next;

use std::ffi::{c_int, c_ulong, c_void};
use std::mem;

use ferroce_abi::border::cross;
use nix::errno::Errno;

use crate::next::next;

/// The answer to an ioctl of fwctl, if it is on a node of ours.
fn answer(fd: c_int, request: c_ulong, argument: u64) -> Option<Result<(), Errno>> {
    // There is nothing that a panic could leave half-done.
    let answer = cross(|| answer::answer(fd, request, argument));
    answer.unwrap_or(Some(Err(Errno::EIO)))
}

/// Takes its last argument always, although it is not always given: on the systems this runs on,
/// such an argument comes in the same register, and is passed on unread.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, c_ulong, *mut c_void) -> c_int;
    let next = next!(ioctl);
    if answer::is_fwctl(request)
        && let Some(result) = answer(fd, request, argument as u64)
    {
        return match result {
            Ok(()) => 0,
            Err(errno) => {
                errno.set();
                -1
            }
        };
    }
    // SAFETY: the C library's function of this name has this type; the arguments are the caller's,
    // who vouches for them.
    unsafe {
        let next: Function = mem::transmute(next);
        next(fd, request, argument)
    }
}
