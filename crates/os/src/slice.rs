//! How long the scheduler lets a thread run at a time (sched_setattr(2)).

use std::io;
use std::mem;

/// The shortest that the kernel takes.
const SHORTEST_NS: u64 = 100_000;

/// Asks for the shortest time slices for the calling thread, if it is an ordinary one (`SCHED_OTHER`).
///
/// A thread that gives its core away gives what is left of its slice away, milliseconds by default, for which
/// others may then run before it gets the core back. Its share of the core does not change. Kernels before
/// 6.12 do not know slices of a thread, and ignore it.
///
/// # Errors
/// Where a sandbox forbids the calls.
pub fn shorten_slice() -> io::Result<()> {
    let mut attr = own()?;
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attr.sched_runtime = SHORTEST_NS;
    // SAFETY: the kernel reads as many bytes of `attr` as its first field says, which is its size.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn own() -> io::Result<libc::sched_attr> {
    // SAFETY: it is made of integers, for which all zeroes is a value.
    let mut attr: libc::sched_attr = unsafe { mem::zeroed() };
    let size = size_of_val(&attr) as u32;
    // SAFETY: `attr` is writable for the `size` bytes announced, and outlives the call.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    match outcome {
        0 => Ok(attr),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn the_slice_is_all_that_changes() {
        let checked = thread::spawn(|| {
            let before = own().unwrap();
            shorten_slice().unwrap();
            let after = own().unwrap();
            assert_eq!(
                (before.sched_policy, before.sched_nice, before.sched_flags),
                (after.sched_policy, after.sched_nice, after.sched_flags)
            );
            // Older kernels tell nothing.
            assert!([0, SHORTEST_NS].contains(&after.sched_runtime));
        });
        checked.join().unwrap();
    }
}
