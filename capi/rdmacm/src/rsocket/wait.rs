//! Waiting for a stream: in its own calls, and with others in rpoll.

use std::ffi::c_int;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::pollfd;

use super::result::Result;
use super::state::{Phase, State, Test};
use super::stream::Stream;
use crate::device::open_devices;

/// How long a call drives the device before it sleeps.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// Another thread may take the event that this one sleeps for, in a poll: then it looks again.
pub(super) const LOOK_AGAIN_MS: c_int = 20;

impl Stream {
    /// Waits until `test` holds. One thread at a time sleeps on the descriptors, and wakes the others.
    pub(super) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        is_nonblocking: bool,
        test: Test,
    ) -> Result<MutexGuard<'a, State>> {
        let mut spun = Instant::now();
        loop {
            self.progress(&mut state);
            if test(&state) {
                return Ok(state);
            }
            if is_nonblocking {
                drop(state);
                // The peer may be waiting for this processor.
                std::thread::yield_now();
                return Err(libc::EAGAIN);
            }
            if state.phase == Phase::Connected && spun.elapsed() < SPIN {
                drop(state);
                std::thread::yield_now();
                state = self.state();
                continue;
            }
            if state.is_awaited {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if state
                .link
                .as_mut()
                .is_some_and(|link| link.completions.arm())
            {
                continue; // there may have been something before that
            }
            state = self.sleep(state)?;
            spun = Instant::now();
        }
    }

    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        state.is_awaited = true;
        let mut descriptors = self.descriptors(&state);
        drop(state);
        rest();
        let slept = sleep(&mut descriptors, LOOK_AGAIN_MS);
        let mut state = self.state();
        state.is_awaited = false;
        self.has_slept(&mut state, &descriptors);
        slept.map(|_| state)
    }

    /// What becomes readable when something happens: the connection's descriptor, then the queue
    /// pair's.
    fn descriptors(&self, state: &State) -> Vec<pollfd> {
        let link = state
            .link
            .as_ref()
            .map(|link| readable(link.completions.descriptor()));
        [readable(self.descriptor())]
            .into_iter()
            .chain(link)
            .collect()
    }

    fn has_slept(&self, state: &mut State, descriptors: &[pollfd]) {
        if descriptors.get(1).is_some_and(|it| it.revents != 0)
            && let Some(link) = &mut state.link
        {
            link.completions.take_event();
        }
        self.changed.notify_all();
    }

    /// Prepares to sleep until there is one of these events. `None` if there is one.
    pub(super) fn arm(&self, events: i16) -> Option<Vec<pollfd>> {
        let mut state = self.state();
        loop {
            if self.events_of(&mut state, events) != 0 {
                return None;
            }
            if !state
                .link
                .as_mut()
                .is_some_and(|link| link.completions.arm())
            {
                return Some(self.descriptors(&state));
            }
        }
    }

    /// A poll has slept on what [`Stream::arm`] named.
    pub(super) fn woken(&self, descriptors: &[pollfd]) {
        self.has_slept(&mut self.state(), descriptors);
    }

    /// The events that poll(2) reports of it.
    pub(super) fn events(&self, wanted: i16) -> i16 {
        self.events_of(&mut self.state(), wanted)
    }

    fn events_of(&self, state: &mut State, wanted: i16) -> i16 {
        match state.phase {
            Phase::Idle | Phase::Bound => 0,
            Phase::Listening if self.has_events() => wanted & libc::POLLIN,
            Phase::Listening => 0,
            _ => {
                self.progress(state);
                match state.phase {
                    Phase::Connecting => 0,
                    _ => state.events(wanted),
                }
            }
        }
    }
}

/// The program goes to sleep, and its devices are driven by their helpers.
pub(super) fn rest() {
    for device in open_devices() {
        device.rest();
    }
}

pub(super) fn readable(fd: c_int) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Sleeps in poll(2).
pub(super) fn sleep(descriptors: &mut [pollfd], timeout_ms: c_int) -> Result<usize> {
    // SAFETY: a slice of `pollfd`, with its length.
    let ready = unsafe {
        libc::poll(
            descriptors.as_mut_ptr(),
            descriptors.len() as libc::nfds_t,
            timeout_ms,
        )
    };
    usize::try_from(ready).map_err(|_| super::result::last_errno())
}
