//! The state that a program's threads and the device's helper share, and how they take turns.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::Duration;
use std::{fmt, ptr};

use ferroce_driver::Handshake;
use ferroce_hca::{DeviceState, Event, Hca, HcaConfig, Limits, Time};
use ferroce_os::{self as os, Clock, Epoll, Waker};
use ferroce_registry::{Mailbox, Reader};
use ferroce_sockets::Socket;

use super::EventSink;
use super::lull::Lull;
use crate::link::{Engine, HostClock, SocketLink};
use crate::open_error::OpenError;
use crate::port::{Leaving, Left, Port};

/// How often whoever drives the device in a loop yields to a thread that waits for it. A mutex is not
/// fair, and waking up takes longer than taking it again.
const GIVE_WAY: usize = 100;
/// How long the end of a process waits for the link to take what is left.
const LAST_ROUNDS: Duration = Duration::from_millis(100);
/// How long it waits after that for other processes to take what has come here for them.
const HAND_ON: Duration = Duration::from_secs(1);
/// How long a process that joins waits until the kernel knows all sockets. It takes some hundred
/// microseconds, but on busy machines.
const SETTLE_NS: u64 = 100_000_000;
/// How often a process that leaves empties its mailbox, which others may go on filling.
const HURRIED_LOOKS: usize = 100;
/// Asynchronous events kept for a program that does not ask for them. The oldest go first.
const EVENTS_MAX: usize = 1 << 16;

pub(super) struct Shared {
    pub(super) socket: Arc<Socket>,
    /// This process's share in its port, of a device that several may have open.
    pub(super) port: Option<Port>,
    pub(super) state: DeviceState,
    /// Where packets arrive that another process has received.
    pub(super) mailbox: Option<Arc<Mailbox>>,
    /// Tells peers on this host whether the helper sleeps, if it takes rings.
    pub(super) reader: Option<Reader>,
    /// Readable if something has arrived for a multicast group, or at a place that is kept.
    pub(super) groups: Arc<Epoll>,
    pub(super) engine: Apart<Mutex<Engine>>,
    /// The process that opened the device.
    pub(super) forks: u64,
    /// In the place of `engine` in a child of that process: a device without anything. A thread
    /// that the child does not have may hold the lock of the other one.
    pub(super) nothing: OnceLock<Mutex<Engine>>,
    /// Threads that wait for the engine.
    pub(super) wanted: AtomicUsize,
    pub(super) events: Mutex<Events>,
    pub(super) sink: OnceLock<EventSink>,
    pub(super) announced: Condvar,
    pub(super) lull: Lull,
    pub(super) handshake: Handshake,
    pub(super) stop: AtomicBool,
    /// The thread that has the engine, as [`this_thread`] names it; 0 if none has.
    pub(super) owner: Apart<AtomicUsize>,
    /// See [`Shared::fail`].
    pub(super) failed: AtomicBool,
    /// Ends the helper's sleep on the socket.
    pub(super) waker: Waker,
    /// Ends its sleep while it stands back.
    pub(super) helper: OnceLock<Thread>,
}

/// What changes all the time while another thread looks at what does not: in lines of the cache of its
/// own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// The engine in the hands of a thread.
#[derive(Debug)]
pub(super) struct Held<'a> {
    engine: MutexGuard<'a, Engine>,
    owner: &'a AtomicUsize,
    handshake: &'a Handshake,
}

impl Deref for Held<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // Before another thread can have it.
        self.handshake.tell(self.engine.waiting());
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// A number that no other thread has at this time, and not 0.
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.with(|own| ptr::from_ref(own) as usize)
}

/// The process shares the device's port from now on. Waits a little until packets for it come straight
/// to it, so that whatever it begins with depends on no other process.
fn settle(engine: &mut Engine) {
    let started = Clock.now_ns();
    engine.link.joined();
    while engine.link.is_unsettled() && Clock.now_ns() - started < SETTLE_NS {
        let now = Clock.now();
        // What it does not find now it will not find later.
        let _ = engine.receive();
        engine.run_timers(now);
        thread::yield_now();
    }
}

/// The process leaves: gives its place among the sockets of the port to another process, if there is
/// reason to and one takes it. Nothing is received any more then.
fn hand_over(engine: &mut Engine, leaving: &Leaving<'_>) -> bool {
    // With the mail come places that others have just given to this process.
    for _ in 0..HURRIED_LOOKS {
        if !engine.link.has_mail() {
            break;
        }
        engine.receive_aside();
    }
    engine.link.hand_over(leaving)
}

#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) queue: VecDeque<Event>,
    /// Completion announcements so far.
    pub(super) announcements: u64,
}

impl Shared {
    #[inline]
    pub(super) fn is_orphaned(&self) -> bool {
        self.forks != os::forks()
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn engine(&self) -> &Mutex<Engine> {
        if self.is_orphaned() || self.has_failed() {
            self.nothing()
        } else {
            &self.engine
        }
    }

    fn nothing(&self) -> &Mutex<Engine> {
        self.nothing.get_or_init(|| {
            let config = HcaConfig {
                limits: Limits {
                    max_qp: 0,
                    ..Limits::MAX
                },
                ..HcaConfig::default()
            };
            let (socket, watch) = (Arc::clone(&self.socket), Arc::clone(&self.groups));
            let link = SocketLink::new(socket, None, None, None, watch);
            Mutex::new(Engine::new(Hca::new(config), link, HostClock))
        })
    }

    fn lock_nothing(&self) -> Held<'_> {
        let nothing = self.nothing().lock();
        self.held(nothing.unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn held<'a>(&'a self, engine: MutexGuard<'a, Engine>) -> Held<'a> {
        self.owner.store(this_thread(), Ordering::Relaxed);
        self.lull.end();
        Held {
            engine,
            owner: &self.owner,
            handshake: &self.handshake,
        }
    }

    /// Whether this thread has the engine: it is in a handler that has interrupted a call, or has jumped
    /// out of one. It would wait for itself.
    #[inline]
    pub(super) fn is_in_call(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == this_thread()
    }

    /// Ends the device's life after a panic: nobody knows what it has left half-done. From now on it
    /// has no objects and no link, and peers find nobody there.
    #[cold]
    pub(super) fn fail(&self) {
        if self.is_orphaned() || self.failed.swap(true, Ordering::Relaxed) {
            return;
        }
        self.stop.store(true, Ordering::Release);
        self.wake_helper();
        if let Some(leaving) = self.port.as_ref().and_then(Port::begin_leaving) {
            leaving.end(&self.socket, false);
        }
        match self.sink.get() {
            Some(sink) => sink(&mut self.lock_nothing().hca, Event::DeviceFatal),
            None => self.events().push(Event::DeviceFatal),
        }
        self.announced.notify_all();
    }

    #[inline]
    pub(super) fn lock(&self) -> Held<'_> {
        match self.try_lock() {
            Some(engine) => engine,
            None => self.wait_for_lock(),
        }
    }

    #[cold]
    fn wait_for_lock(&self) -> Held<'_> {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let engine = match self.engine().lock() {
            Ok(engine) => self.held(engine),
            Err(poisoned) => {
                drop(poisoned);
                self.fail();
                self.lock_nothing()
            }
        };
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        engine
    }

    /// Lets those have the engine who wait for it. For loops, which would otherwise keep it.
    #[inline]
    pub(super) fn give_way(&self) {
        for _ in 0..GIVE_WAY {
            if self.wanted.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<Held<'_>> {
        match self.engine().try_lock() {
            Ok(engine) => Some(self.held(engine)),
            Err(TryLockError::Poisoned(poisoned)) => {
                drop(poisoned);
                self.fail();
                Some(self.lock_nothing())
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program polls; returns the time.
    pub(super) fn note_poll(&self) -> Time {
        let now = Clock.now();
        self.handshake.note_poll(now);
        now
    }

    /// The program stops polling: the helper takes over at once.
    pub(super) fn step_back(&self) {
        if self.handshake.rest() {
            self.waker.wake();
        }
        // If it sleeps on the socket, it knows how long it may; see `rouse_helper`.
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    pub(super) fn wake_helper(&self) {
        self.waker.wake();
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    /// Sends what the device has.
    pub(super) fn send(&self, engine: &mut Engine) {
        engine.send();
        self.publish(engine);
        self.rouse_helper(engine);
    }

    /// Sends what the last poll has left.
    pub(super) fn send_deferred(&self, engine: &mut Engine) {
        if engine.is_deferred() {
            self.send(engine);
        }
    }

    /// Shares the device's port, unless this process does already.
    pub(super) fn join(&self, engine: &mut Engine) -> Result<(), OpenError> {
        if let Some(port) = &self.port
            && port.is_out()
            && !self.is_orphaned()
        {
            port.join(&self.socket)?;
            settle(engine);
        }
        Ok(())
    }

    /// Does so if there is something that packets could be for.
    #[inline]
    pub(super) fn join_if_wanted(&self, engine: &mut Engine) {
        let is_out = self.port.as_ref().is_some_and(Port::is_out);
        if is_out && engine.hca.wants_link() && self.join(engine).is_err() {
            engine.link.faults.fatal();
        }
    }

    /// The end of a program: peers of its connections learn that they have ended, what has left may
    /// still be on a slow link of ours, and what has arrived may be for others. Memory of the program
    /// may be gone by now, or be something else's: nothing reaches it any more.
    pub(super) fn finish(&self) {
        self.finish_own();
        self.leave();
    }

    /// The last rounds, until nothing is left or the link does not take it.
    fn finish_own(&self) {
        let started = Clock.now_ns();
        let is_ours = !self.is_orphaned() && !self.has_failed();
        let mut has_repeated = false;
        while is_ours && Clock.now_ns() - started < LAST_ROUNDS.as_nanos() as u64 {
            // Whoever has the engine may be the thread that now ends the process.
            if let Some(mut engine) = self.try_lock() {
                engine.hca.revoke_memory();
                // What leaves in this round may come back in the next, to be passed on.
                let slow = engine.hca.holds_sent_packets();
                self.send_deferred(&mut engine);
                let received = engine.receive().unwrap_or(0) + engine.receive_aside();
                // Acknowledgements first: who hears of the end may destroy what waits for them.
                self.send(&mut engine);
                engine.hca.cm_mut().destroy_all(Clock.now());
                self.send(&mut engine);
                let held = slow || engine.hca.holds_sent_packets() || engine.link.holds_mail();
                let left = held || engine.is_blocked() || engine.is_deferred();
                if received == 0 && !left {
                    if has_repeated {
                        return;
                    }
                    engine.hca.cm_mut().repeat_last();
                    has_repeated = true;
                }
            }
            thread::yield_now();
        }
    }

    /// Gives the device's port up and passes on what has come there for others.
    fn leave(&self) {
        let Some(port) = self.port.as_ref().filter(|_| !self.is_orphaned()) else {
            return;
        };
        let started = Clock.now_ns();
        let in_time = |limit: Duration| Clock.now_ns() - started < limit.as_nanos() as u64;
        // Whoever has the engine may send what is left; but it may be the thread that now ends the
        // process.
        let mut engine = self.try_lock();
        while engine.is_none() && in_time(LAST_ROUNDS) {
            thread::yield_now();
            engine = self.try_lock();
        }
        if let Some(engine) = &mut engine {
            self.send(engine);
        }
        let Some(leaving) = port.begin_leaving() else {
            return;
        };
        let hand_over = |engine: &mut Held<'_>| hand_over(engine, &leaving);
        let given = engine.as_mut().is_some_and(hand_over);
        let left = leaving.end(&self.socket, given);
        drop(engine);
        match left {
            Left::Alone => return,
            Left::Detached => Socket::wait_for_delivery(),
            Left::Replaced => {}
        }
        while in_time(HAND_ON) {
            if let Some(mut engine) = self.try_lock() {
                let received = engine.receive().unwrap_or(0) + engine.receive_aside();
                if received == 0 && !engine.link.holds_mail() {
                    return;
                }
            }
            thread::yield_now();
        }
    }

    /// Wakes the helper if it means to sleep longer than the engine can wait. To be called after
    /// every change that the program might be the last to make for a while.
    pub(super) fn rouse_helper(&self, engine: &Engine) {
        if self.handshake.sleeps_past(|| engine.wanted_at()) {
            self.waker.wake();
        }
    }

    /// One round of a program that polls, as it has noted.
    pub(super) fn poll_once(&self, polled: Time, engine: &mut Engine) {
        engine.poll(polled);
        self.publish(engine);
        self.rouse_helper(engine);
    }

    /// Hands the device's events to whoever waits for them.
    pub(super) fn publish(&self, engine: &mut Engine) {
        let Some(first) = engine.poll_event() else {
            return;
        };
        let mut events = self.events();
        let mut next = Some(first);
        let mut is_removed = false;
        while let Some(event) = next {
            is_removed |= event == Event::DeviceRemoved;
            if let Some(sink) = self.sink.get() {
                sink(&mut engine.hca, event);
            }
            match event {
                Event::Completion(_) => events.announcements += 1,
                other if self.sink.get().is_none() => events.push(other),
                _ => {}
            }
            next = engine.poll_event();
        }
        drop(events);
        self.announced.notify_all();
        if is_removed {
            self.fail();
        }
    }
}

impl Events {
    pub(super) fn push(&mut self, event: Event) {
        if self.queue.len() == EVENTS_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(event);
    }
}
