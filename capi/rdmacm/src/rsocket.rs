//! Sockets over connections, which this library does not have. Programs call `rpoll` and `rselect`
//! for ordinary descriptors too, and those they get.

use std::ffi::c_int;

use ferroce_border::border;
use ferroce_ibverbs::error::set_errno;
use libc::{fd_set, nfds_t, pollfd, timeval};

/// Waits on descriptors (poll(2)).
#[border(number)]
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's arguments are those of `poll`.
    unsafe { libc::poll(fds, count, timeout_ms) }
}

/// Waits on descriptors (select(2)).
#[border(number)]
pub unsafe extern "C" fn rselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's arguments are those of `select`.
    unsafe { libc::select(count, read, write, except, timeout) }
}

/// Defines functions that answer -1 and `EOPNOTSUPP`, whatever their arguments: by the calling
/// convention of C nobody has to take those.
macro_rules! absent {
    ($($name:ident)*) => {
        $(
            /// Sockets over connections (rsocket(7)) are not there: -1 and `EOPNOTSUPP`.
            #[border(number)]
            pub extern "C" fn $name() -> isize {
                set_errno(libc::EOPNOTSUPP);
                -1
            }
        )*
    };
}

absent! {
    rsocket rbind rlisten raccept rconnect rshutdown rclose rrecv rrecvfrom rrecvmsg rsend rsendto
    rsendmsg rread rreadv rwrite rwritev rgetpeername rgetsockname rsetsockopt rgetsockopt rfcntl
    riomap riounmap riowrite repoll_create repoll_ctl repoll_wait
}
