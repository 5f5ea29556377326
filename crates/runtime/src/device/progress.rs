//! The state that a program's threads and the device's helper share, and how they take turns.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::{self, Thread};

use ferroce_device::{DeviceState, Hca, HcaConfig, Limits, Span, Time};
use ferroce_os::{Clock, Epoll, Waker, thread_cpu_ns};
use ferroce_registry::Presence;
use ferroce_sockets::Socket;

use super::events::EventQueue;
use super::lock::{EngineGuard, EngineLock, Refused};
use crate::berth::{Berth, SecondBerth};
use crate::link::SocketLink;
use crate::links::{Engine, HostClock, Links};
use crate::open_error::OpenError;
use crate::port::{Leaving, Left, Port};

/// Cores that this process may use.
static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(usize::MAX, usize::from));
/// How long the end of a process waits for the link to take what is left.
const LAST_ROUNDS: Span = Span::from_millis(100);
/// How long it waits after that for other processes to take what has come here for them.
const HAND_ON: Span = Span::from_secs(1);
/// How long a process that joins waits until the kernel knows all sockets. It takes a few hundred
/// microseconds, but on busy machines.
const SETTLE: Span = Span::from_millis(100);
/// How often a process that leaves empties its mailbox, which others may go on filling.
const HURRIED_LOOKS: usize = 100;

pub(super) struct Shared {
    pub(super) first: Berth,
    /// At the second port, of a device that has one.
    pub(super) second: Option<SecondBerth>,
    pub(super) state: DeviceState,
    pub(super) engine: EngineLock,
    pub(super) events: EventQueue,
    pub(super) helper: HelperThread,
    /// More processes share the device than there are cores.
    pub(super) is_crowded: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

/// How other threads reach the helper.
pub(super) struct HelperThread {
    /// Ends its sleep on the socket.
    waker: Waker,
    /// Ends its sleep while it stands back.
    thread: OnceLock<Thread>,
    /// Has it end, and the thread that hears of the host's interfaces.
    stop: AtomicBool,
}

impl HelperThread {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            waker,
            thread: OnceLock::new(),
            stop: AtomicBool::new(false),
        }
    }

    /// The present thread is the helper.
    pub(super) fn begin(&self) {
        let _ = self.thread.set(thread::current());
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes it wherever it sleeps.
    pub(super) fn wake(&self) {
        self.waker.wake();
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The process shares the device's port from now on. Waits a little until packets for it come straight
/// to it, so that whatever it begins with depends on no other process.
fn settle(engine: &mut Engine) {
    let started = Clock.now();
    engine.link.joined();
    while engine.link.is_unsettled() && Clock.now().since(started) < SETTLE {
        let now = Clock.now();
        // What it does not find now it will not find later.
        let _ = engine.receive();
        engine.run_timers(now);
        thread::yield_now();
    }
}

/// The process leaves: gives its place among the sockets of the port to another process, if there is
/// reason to and one takes it. Nothing is received any more then.
fn hand_over(engine: &mut Engine, number: u8, leaving: &Leaving<'_>) -> bool {
    // With the mail come places that others have just given to this process.
    for _ in 0..HURRIED_LOOKS {
        if !engine.link.has_mail() {
            break;
        }
        engine.receive_aside();
    }
    engine.link.hand_over(number, leaving)
}

/// How long the present thread has had a core so far.
pub(super) fn ran() -> Span {
    Span::from_nanos(thread_cpu_ns())
}

impl Shared {
    /// A device without anything, to stand in for one that has ended.
    pub(super) fn empty(socket: &Arc<Socket>, groups: &Arc<Epoll>) -> Engine {
        let config = HcaConfig {
            limits: Limits {
                max_qp: 0,
                ..Limits::MAX
            },
            ..HcaConfig::default()
        };
        let (socket, watch) = (Arc::clone(socket), Arc::clone(groups));
        let own = socket.address().ip();
        let link = SocketLink::new(socket, (1, [own; 2]), None, None, None, watch);
        Engine::new(Hca::new(config), Links::new(link, None), HostClock)
    }

    /// Ends the device's life after a panic, which may have left anything half-done. From now on it has
    /// no objects and no link, and is not there for peers.
    #[cold]
    pub(super) fn fail(&self) {
        if self.engine.is_orphaned() || self.engine.mark_failed() {
            return;
        }
        self.helper.stop();
        for berth in self.berths() {
            if let Some(leaving) = berth.port.as_ref().and_then(Port::begin_leaving) {
                leaving.end(&berth.socket, false);
            }
        }
        self.events
            .tell_fatal(|tell| tell(&mut self.engine.lock_empty().hca));
    }

    /// Its places at the ports, by their numbers.
    #[inline]
    pub(super) fn berths(&self) -> impl Iterator<Item = &Berth> {
        let second = self.second.as_ref().map(|second| &second.berth);
        [&self.first].into_iter().chain(second)
    }

    #[inline]
    pub(super) fn lock(&self) -> EngineGuard<'_> {
        match self.try_lock() {
            Some(engine) => engine,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> EngineGuard<'_> {
        let engine = self.engine.wait().unwrap_or_else(|_| self.lock_failed());
        // A program that waits for the device does nothing else.
        self.engine.handshake.note_end(|| Clock.now());
        engine
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<EngineGuard<'_>> {
        self.unless_busy(self.engine.try_lock())
    }

    #[inline]
    pub(super) fn unless_busy<'a>(
        &'a self,
        engine: Result<EngineGuard<'a>, Refused>,
    ) -> Option<EngineGuard<'a>> {
        match engine {
            Ok(engine) => Some(engine),
            Err(Refused::Poisoned) => Some(self.lock_failed()),
            Err(Refused::Busy) => None,
        }
    }

    #[cold]
    fn lock_failed(&self) -> EngineGuard<'_> {
        self.fail();
        self.engine.lock_empty()
    }

    /// The program polls; returns the time.
    pub(super) fn note_poll(&self) -> Time {
        let now = Clock.now();
        self.engine.handshake.note_poll(now, ran);
        now
    }

    /// Whether more processes share the device than there are cores.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Counts the processes that share the device.
    pub(super) fn look_for_crowd(&self) {
        let port = self.first.port.as_ref().filter(|port| !port.is_out());
        let others = port.and_then(|port| port.shared().other_slots(&[Presence::In]).ok());
        let is_crowded = others.is_some_and(|others| others.len() + 1 > *CORES);
        self.is_crowded.store(is_crowded, Ordering::Relaxed);
    }

    /// The program stops polling: the helper takes over at once.
    pub(super) fn step_back(&self) {
        if self.engine.handshake.rest() {
            self.helper.waker.wake();
        }
        // If it sleeps on the socket, it knows how long it may; see `rouse_helper`.
        self.helper.unpark();
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

    /// Whether this process does not share all of the device's ports yet.
    #[inline]
    fn is_out(&self) -> bool {
        self.berths().any(Berth::is_out)
    }

    /// Shares the device's ports, unless this process does already.
    pub(super) fn join(&self, engine: &mut Engine) -> Result<(), OpenError> {
        if !self.is_out() || self.engine.is_orphaned() {
            return Ok(());
        }
        for berth in self.berths() {
            if let Some(port) = &berth.port {
                port.join(&berth.socket)?;
            }
        }
        settle(engine);
        Ok(())
    }

    /// Does so if there is something that packets could be for.
    #[inline]
    pub(super) fn join_if_wanted(&self, engine: &mut Engine) {
        if self.is_out() && engine.hca.wants_link() && self.join(engine).is_err() {
            engine.link.fatal();
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
        let started = Clock.now();
        let is_ours = !self.engine.is_orphaned() && !self.engine.has_failed();
        let mut has_repeated = false;
        while is_ours && Clock.now().since(started) < LAST_ROUNDS {
            // The thread that has the engine may be the one that now ends the process.
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

    /// Gives the device's ports up and passes on what has come there for others.
    fn leave(&self) {
        let shares = self.berths().any(|berth| berth.port.is_some());
        if !shares || self.engine.is_orphaned() {
            return;
        }
        let started = Clock.now();
        let in_time = |limit| Clock.now().since(started) < limit;
        // A thread that has the engine may send what is left; but it may be the one that now ends the
        // process.
        let mut engine = self.try_lock();
        while engine.is_none() && in_time(LAST_ROUNDS) {
            thread::yield_now();
            engine = self.try_lock();
        }
        if let Some(engine) = &mut engine {
            self.send(engine);
        }
        let mut has_others = false;
        for (number, berth) in (1..).zip(self.berths()) {
            has_others |= match Self::leave_port(number, berth, engine.as_deref_mut()) {
                Left::Alone => false,
                Left::Detached | Left::Replaced => true,
            };
        }
        drop(engine);
        while has_others && in_time(HAND_ON) {
            if let Some(mut engine) = self.try_lock() {
                let received = engine.receive().unwrap_or(0) + engine.receive_aside();
                if received == 0 && !engine.link.holds_mail() {
                    return;
                }
            }
            thread::yield_now();
        }
    }

    fn leave_port(number: u8, berth: &Berth, engine: Option<&mut Engine>) -> Left {
        let Some(leaving) = berth.port.as_ref().and_then(Port::begin_leaving) else {
            return Left::Alone;
        };
        let given = engine.is_some_and(|engine| hand_over(engine, number, &leaving));
        let left = leaving.end(&berth.socket, given);
        if left == Left::Detached {
            Socket::wait_for_delivery();
        }
        left
    }

    /// Wakes the helper if it means to sleep longer than the engine can wait. To be called after
    /// every change that the program might be the last to make for a while.
    pub(super) fn rouse_helper(&self, engine: &Engine) {
        if self.engine.handshake.sleeps_past(|| engine.wanted_at()) {
            self.helper.waker.wake();
        }
    }

    /// One round of a program that polls, as it has noted.
    pub(super) fn poll_once(&self, polled: Time, engine: &mut Engine) {
        if engine.poll(polled) {
            self.engine.handshake.note_end(|| Clock.now());
        }
        self.publish(engine);
        self.rouse_helper(engine);
    }

    /// Hands the device's events to threads that wait for them.
    pub(super) fn publish(&self, engine: &mut Engine) {
        if self.events.take(engine) {
            self.fail();
        }
    }
}
