//! Events of a device on their way to the program.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ferroce_device::{Event, Hca};

use super::EventSink;
use crate::links::Engine;

/// Asynchronous events kept for a program that does not ask for them. The oldest go first.
const EVENTS_MAX: usize = 1 << 16;

/// What has happened on the device, for threads that ask or wait, or for a sink.
#[derive(Default)]
pub(super) struct EventQueue {
    events: Mutex<Events>,
    sink: OnceLock<EventSink>,
    announced: Condvar,
}

#[derive(Debug, Default)]
struct Events {
    queue: VecDeque<Event>,
    /// Completion announcements so far.
    announcements: u64,
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands all events to `sink` from now on. The first sink stays.
    pub(super) fn set_sink(&self, sink: EventSink) {
        // A second one has no one to report to.
        let _ = self.sink.set(sink);
    }

    /// The next asynchronous event.
    pub(super) fn pop(&self) -> Option<Event> {
        self.lock().queue.pop_front()
    }

    /// Completion announcements so far.
    pub(super) fn announcements(&self) -> u64 {
        self.lock().announcements
    }

    /// Waits until there are other announcements than those, or events, or the time has passed.
    pub(super) fn wait_for_other_than(&self, seen: u64, left: Duration) {
        let unchanged = |events: &mut Events| events.announcements == seen;
        drop(
            self.announced
                .wait_timeout_while(self.lock(), left, unchanged),
        );
    }

    /// Takes over the events of a device. Returns whether one says that the device is removed.
    pub(super) fn take(&self, engine: &mut Engine) -> bool {
        let Some(first) = engine.poll_event() else {
            return false;
        };
        let mut events = self.lock();
        let mut next = Some(first);
        let mut is_removed = false;
        while let Some(event) = next {
            // Both ports of a device hear of it.
            let is_known = event == Event::DeviceRemoved && mem::replace(&mut is_removed, true);
            if let Some(sink) = self.sink.get().filter(|_| !is_known) {
                sink(&mut engine.hca, event);
            }
            match event {
                Event::Completion(_) => events.announcements += 1,
                other if self.sink.get().is_none() && !is_known => events.push(other),
                _ => {}
            }
            next = engine.poll_event();
        }
        drop(events);
        self.announced.notify_all();
        is_removed
    }

    /// Reports the end of the device. A sink is given the device that `with_device` has.
    pub(super) fn tell_fatal(&self, with_device: impl FnOnce(&dyn Fn(&mut Hca))) {
        match self.sink.get() {
            Some(sink) => with_device(&|hca| sink(hca, Event::DeviceFatal)),
            None => self.lock().push(Event::DeviceFatal),
        }
        self.announced.notify_all();
    }
}

impl Events {
    fn push(&mut self, event: Event) {
        if self.queue.len() == EVENTS_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(event);
    }
}
