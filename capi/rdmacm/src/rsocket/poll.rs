//! Waiting for sockets and ordinary descriptors together.

use std::ffi::c_int;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_abi::border;
use libc::{fd_set, nfds_t, pollfd, timeval};

use super::result::{Result, answer};
use super::socket::{Socket, find};
use super::wait::{SPIN, rest, sleep};

/// How long it sleeps at most: another thread may take what it is woken by.
const SLEEP_MAX_MS: u128 = 100;

/// Waits on descriptors (poll(2)).
#[border(number)]
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let fds = match fds.is_null() {
        true => &mut [],
        // SAFETY: an array of `count` elements that nothing else accesses during the call.
        false => unsafe { slice::from_raw_parts_mut(fds, count as usize) },
    };
    let ready = poll(fds, timeout_ms);
    answer(ready.map(|ready| c_int::try_from(ready).unwrap_or(c_int::MAX)))
}

fn poll(fds: &mut [pollfd], timeout_ms: c_int) -> Result<usize> {
    let sockets: Vec<Option<Arc<Socket>>> = fds.iter().map(|fd| find(fd.fd)).collect();
    if sockets.iter().all(Option::is_none) {
        return sleep(fds, timeout_ms);
    }
    let started = Instant::now();
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    loop {
        let ready = look(fds, &sockets)?;
        let is_over = limit.is_some_and(|limit| started.elapsed() >= limit);
        if ready > 0 || is_over {
            return Ok(ready);
        }
        if started.elapsed() < SPIN {
            std::thread::yield_now();
            continue;
        }
        let left = limit.map_or(SLEEP_MAX_MS, |limit| {
            let left = limit.saturating_sub(started.elapsed());
            left.as_millis().saturating_add(1).min(SLEEP_MAX_MS)
        });
        await_any(fds, &sockets, left as c_int)?;
    }
}

/// What there is at once.
fn look(fds: &mut [pollfd], sockets: &[Option<Arc<Socket>>]) -> Result<usize> {
    let mut ordinary = Vec::new();
    for (fd, socket) in fds.iter_mut().zip(sockets) {
        fd.revents = 0;
        match socket {
            Some(socket) => fd.revents = socket.events(fd.events),
            None => ordinary.push(*fd),
        }
    }
    if !ordinary.is_empty() {
        sleep(&mut ordinary, 0)?;
        let others = fds.iter_mut().zip(sockets).filter(|(_, it)| it.is_none());
        for ((fd, _), seen) in others.zip(&ordinary) {
            fd.revents = seen.revents;
        }
    }
    Ok(fds.iter().filter(|fd| fd.revents != 0).count())
}

/// Sleeps until something may be there.
fn await_any(fds: &[pollfd], sockets: &[Option<Arc<Socket>>], timeout_ms: c_int) -> Result<()> {
    let mut all = Vec::new();
    let mut ranges = Vec::new();
    for (fd, socket) in fds.iter().zip(sockets) {
        let first = all.len();
        match socket {
            Some(socket) => match socket.arm(fd.events) {
                Some(descriptors) => all.extend(descriptors),
                None => return Ok(()),
            },
            None => all.push(*fd),
        }
        ranges.push(first..all.len());
    }
    rest();
    sleep(&mut all, timeout_ms)?;
    for (socket, range) in sockets.iter().zip(ranges) {
        let woken = &all[range];
        if let Some(socket) = socket
            .as_ref()
            .filter(|_| woken.iter().any(|it| it.revents != 0))
        {
            socket.woken(woken);
        }
    }
    Ok(())
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
    if !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
        return answer(Err(libc::EINVAL));
    }
    let sets = [
        (
            read,
            libc::POLLIN,
            libc::POLLIN | libc::POLLHUP | libc::POLLERR,
        ),
        (write, libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
        (except, libc::POLLPRI, libc::POLLPRI),
    ];
    // SAFETY: null or sets and a structure that nothing else accesses during the call.
    unsafe {
        let timeout_ms = timeout.as_ref().map_or(-1, |timeout| {
            let ms = timeout.tv_sec * 1000 + (timeout.tv_usec + 999) / 1000;
            c_int::try_from(ms).unwrap_or(c_int::MAX)
        });
        let mut fds: Vec<pollfd> = (0..count)
            .map(|fd| pollfd {
                fd,
                events: sets
                    .iter()
                    .filter(|(set, ..)| !set.is_null() && libc::FD_ISSET(fd, *set))
                    .fold(0, |events, (_, event, _)| events | event),
                revents: 0,
            })
            .filter(|fd| fd.events != 0)
            .collect();
        let ready = match poll(&mut fds, timeout_ms) {
            Ok(_) if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) => Err(libc::EBADF),
            ready => ready,
        };
        answer(ready.map(|_| {
            let mut total = 0;
            for (set, event, seen) in sets {
                if set.is_null() {
                    continue;
                }
                libc::FD_ZERO(set);
                for fd in fds
                    .iter()
                    .filter(|fd| fd.events & event != 0 && fd.revents & seen != 0)
                {
                    libc::FD_SET(fd.fd, set);
                    total += 1;
                }
            }
            total
        }))
    }
}

impl Socket {
    fn events(&self, wanted: i16) -> i16 {
        match self {
            Self::Stream(stream) => stream.events(wanted),
            Self::Datagram(datagram) => datagram.events(wanted),
        }
    }

    /// Prepares to sleep until there is one of these events. `None` if there is one.
    fn arm(&self, events: i16) -> Option<Vec<pollfd>> {
        match self {
            Self::Stream(stream) => stream.arm(events),
            Self::Datagram(datagram) => datagram.arm(events),
        }
    }

    fn woken(&self, descriptors: &[pollfd]) {
        match self {
            Self::Stream(stream) => stream.woken(descriptors),
            Self::Datagram(datagram) => datagram.woken(descriptors),
        }
    }
}
