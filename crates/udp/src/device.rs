use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;
use std::{fmt, io, mem};

use ferroce_hca::{
    Completion, CqId, DeviceState, Event, Hca, HcaConfig, Notify, RecvWr, SendWr, Time, VerbsError,
};
use ferroce_wire::Qpn;
use ferroce_wire::cm::PortSpace;
use thiserror::Error;

use crate::attach::Attachment;
use crate::engine::{Engine, Transmitted};
use crate::neighbours::Neighbours;
use crate::registry::RegistryError;
use crate::resource::{Query, Resource, rows};
use crate::shared::{Mailbox, ServiceClaim, ServiceError};
use crate::socket::{BindError, Options, ROCE_PORT, Socket};
use crate::spec::DeviceSpec;
use crate::sys::{self, Epoll, NoSignals};
use crate::tap::Tap;
use crate::wait::{Clock, Waiter, Waker, tighten_timer_slack};

/// A program that has polled within this time is at it: whoever spins polls far more often.
const POLLING: Duration = Duration::from_micros(20);
/// How long after the program's last poll the helper thread, once it stands back, stays out of its
/// way.
const STAND_BACK: Duration = Duration::from_micros(200);
/// A program that has polled within this time goes on soon, perhaps when it sees what arrives in
/// its memory: its core is better left to it.
const AROUND: Duration = Duration::from_millis(10);
/// How often it looks meanwhile: each look takes a core from a program that spins on it, and a
/// program that stops polling without a word leaves its peers waiting for the next look.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How often it offers packets to another process that has no room for them.
const TRY_AGAIN: Duration = Duration::from_micros(100);
/// So often in a row the helper must be woken for nothing, since the program polls, until it stands
/// back.
const SPARED_MAX: u32 = 4;
/// How long the helper leaves an acknowledgement to a program that is around: if the packet is what
/// the program waits for, both leave with its next request, as when the program had polled.
const LEAVE: Duration = Duration::from_micros(20);
/// How long the helper thread spins after a packet before it sleeps: waking up costs more.
const SPIN: Duration = Duration::from_micros(50);
/// How long a waiting program spins before it sleeps.
const WAIT_SPIN: Duration = Duration::from_micros(100);
/// With this many packets in one receive call the peer is streaming, and its window wants its
/// acknowledgements now.
const STREAM_PACKETS: usize = 4;
/// Packets taken in one round before what they ask for is answered: a quarter of a window.
const ROUND_PACKETS: usize = 32;
/// How often whoever drives the device in a loop yields to a thread that waits for it. A mutex is not
/// fair, and waking up takes longer than taking it again.
const GIVE_WAY: usize = 100;
/// How long the end of a process waits for the link to take what is left.
const LAST_ROUNDS: Duration = Duration::from_millis(100);
/// Asynchronous events kept for a program that does not ask for them. The oldest go first.
const EVENTS_MAX: usize = 1 << 16;
/// [`Shared::helper_until_ns`] of a helper that looks at the device by itself, and soon.
const SOON: u64 = 0;
/// The same of one that sleeps until somebody wakes it.
const WHENEVER: u64 = u64::MAX;

/// Takes the device's events in place of [`Device::poll_event`]. It is called while the device is
/// locked, by whatever thread drives it, and must not call the device.
pub type EventSink = Box<dyn Fn(&mut Hca, Event) + Send + Sync>;

/// What a device is opened with.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// The device's address.
    pub address: IpAddr,
    /// UDP port of this device and of its peers.
    pub port: u16,
    /// The device itself. Its total window is lowered to half of the receive buffer that the kernel
    /// grants: the peers' sockets are likely no larger, and a window that overruns them costs ten
    /// times what it gains.
    pub hca: HcaConfig,
    /// Records packets.
    pub tap: Option<Tap>,
    /// Socket options.
    pub socket: Options,
}

impl DeviceConfig {
    /// A device at `address` with everything else at its default.
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            port: ROCE_PORT,
            hca: HcaConfig::default(),
            tap: None,
            socket: Options::default(),
        }
    }
}

/// Why a device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// See [`BindError`].
    #[error(transparent)]
    Bind(#[from] BindError),
    /// See [`RegistryError`].
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// As many processes as a device takes have it open.
    #[error("{max} processes have the device open, which is as many as it takes")]
    Full {
        /// How many that are.
        max: u8,
    },
    /// No helper thread.
    #[error("cannot start the device's helper thread: {0}")]
    Helper(#[source] io::Error),
}

/// A device on a real socket.
///
/// All methods take `&self`; several threads may use one device. Dropping it closes the socket and
/// ends the helper thread.
#[derive(Debug)]
pub struct Device {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
    attachment: Attachment,
}

struct Shared {
    socket: Socket,
    state: DeviceState,
    /// Where packets arrive that another process has received.
    mailbox: Option<Arc<Mailbox>>,
    /// Readable if something has arrived for a multicast group.
    groups: Arc<Epoll>,
    engine: Mutex<Engine>,
    /// The process that opened the device.
    forks: u32,
    /// In the place of `engine` in a child of that process: a device without anything. A thread
    /// that the child does not have may hold the lock of the other one.
    nothing: OnceLock<Mutex<Engine>>,
    /// Threads that wait for the engine.
    wanted: AtomicUsize,
    events: Mutex<Events>,
    sink: OnceLock<EventSink>,
    announced: Condvar,
    /// When the program polled last, in the clock's nanoseconds.
    last_poll_ns: AtomicU64,
    /// The engine may have something to send that the last poll left for the next one. Changed
    /// only by whoever holds the engine.
    deferred: AtomicBool,
    /// Until when the helper sleeps if nothing arrives and nobody wakes it. It goes to sleep only
    /// by a value set while it holds the engine.
    helper_until_ns: AtomicU64,
    stop: AtomicBool,
    /// Ends the helper's sleep on the socket.
    waker: Waker,
    /// Ends its sleep while it stands back.
    helper: OnceLock<Thread>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Events {
    queue: VecDeque<Event>,
    /// Completion announcements so far.
    announcements: u64,
}

impl Device {
    /// Opens a device for this process alone: binds its socket and starts its helper thread.
    pub fn open(config: DeviceConfig) -> Result<Self, OpenError> {
        let socket = Socket::bind(SocketAddr::new(config.address, config.port), &config.socket)?;
        let attachment = Attachment::alone(config.address, config.port);
        Self::start(socket, config.hca, Hca::new, config.tap, attachment, None)
    }

    pub(crate) fn start(
        socket: Socket,
        mut config: HcaConfig,
        hca: impl FnOnce(HcaConfig) -> Hca,
        tap: Option<Tap>,
        attachment: Attachment,
        neighbours: Option<Neighbours>,
    ) -> Result<Self, OpenError> {
        let buffer = socket.granted().receive_buffer_bytes;
        // The kernel counts its own bookkeeping, too; that is as much again for small packets.
        let window = u32::try_from(buffer / 2).unwrap_or(u32::MAX);
        config.total_window_bytes = config.total_window_bytes.min(window);
        let hca = hca(config);
        let state = hca.state().clone();
        let mailbox = neighbours.as_ref().map(Neighbours::mailbox);
        let groups = Arc::new(Epoll::new().map_err(OpenError::Helper)?);
        let watch = Arc::clone(&groups);
        let engine = Engine::new(hca, socket.address(), tap, neighbours, watch);
        let waiter = Waiter::new().map_err(OpenError::Helper)?;
        let shared = Arc::new(Shared {
            socket,
            state,
            mailbox,
            groups,
            engine: Mutex::new(engine),
            forks: sys::forks(),
            nothing: OnceLock::new(),
            wanted: AtomicUsize::new(0),
            events: Mutex::default(),
            sink: OnceLock::new(),
            announced: Condvar::new(),
            last_poll_ns: AtomicU64::new(0),
            deferred: AtomicBool::new(false),
            helper_until_ns: AtomicU64::new(SOON),
            stop: AtomicBool::new(false),
            waker: waiter.waker(),
            helper: OnceLock::new(),
        });
        let helper = {
            let shared = Arc::clone(&shared);
            let name = format!("ferroce-{}", shared.socket.address().ip());
            let _no_signals = NoSignals::new();
            thread::Builder::new()
                .name(name)
                .spawn(move || shared.help(waiter))
        };
        let helper = helper.map_err(OpenError::Helper)?;
        Ok(Self {
            shared,
            helper: Some(helper),
            attachment,
        })
    }

    /// What the device is. Of one that was opened without a registry, the defaults and its address.
    pub fn spec(&self) -> &DeviceSpec {
        &self.attachment.spec
    }

    /// This process's slot, 1 to 254: the top byte of its queue pair numbers. 0 for a device that
    /// was opened without a registry, whose numbers are free.
    pub fn slot(&self) -> u8 {
        self.attachment.slot
    }

    /// Claims a port of the connection manager on the device, 0 for any that is free, so that
    /// requests for it come to this process.
    ///
    /// # Errors
    /// A device that was opened without a registry is one process's own: it knows its ports itself.
    pub fn claim_service(&self, space: PortSpace, port: u16) -> Result<ServiceClaim, ServiceError> {
        match &self.attachment.shared {
            _ if self.is_orphaned() => Err(ServiceError::Orphaned),
            Some(shared) => shared.claim_service(self.slot(), space, port),
            None => Err(ServiceError::NotShared),
        }
    }

    /// The socket's address.
    pub fn address(&self) -> SocketAddr {
        self.shared.socket.address()
    }

    /// Whether another process opened the device, of which this one is a child by `fork`: here it
    /// has no objects and no link, and is good for nothing but to be dropped. Only known after
    /// [`crate::after_fork_in_child`].
    #[inline]
    pub fn is_orphaned(&self) -> bool {
        self.shared.is_orphaned()
    }

    /// The device's clock.
    pub fn now(&self) -> Time {
        Time::from_nanos(Clock.now_ns())
    }

    /// Registers, personality, impairments, histogram and counters.
    pub fn state(&self) -> &DeviceState {
        &self.shared.state
    }

    /// What this process has made on the device.
    pub fn resources(&self, query: Query) -> Vec<Resource> {
        let engine = self.shared.lock();
        rows(&engine.hca, self.address().ip(), self.now(), query)
    }

    /// Datagrams the kernel dropped because the receive buffer was full, if it tells.
    pub fn receive_drops(&self) -> Option<u32> {
        self.shared.socket.receive_drops().ok()
    }

    /// Runs verbs on the device, then sends what they caused.
    pub fn with<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> R {
        let mut engine = self.shared.lock();
        // The acknowledgement of a message that has completed must leave before `f` can destroy the
        // queue pair that owes it.
        self.shared.send_deferred(&mut engine);
        let result = f(&mut engine.hca);
        self.shared.send(&mut engine);
        result
    }

    /// As [`Self::with`], for what other processes on the device must get even if this one ends
    /// right away and without notice: what was sent to the device's own address may have come back
    /// here, and is passed on.
    pub fn with_pass_on<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> R {
        let mut engine = self.shared.lock();
        self.shared.send_deferred(&mut engine);
        let result = f(&mut engine.hca);
        self.shared.send(&mut engine);
        // An error comes up again where it is looked for.
        if engine
            .receive(&self.shared.socket)
            .is_ok_and(|packets| packets > 0)
        {
            self.shared.send(&mut engine);
        }
        result
    }

    /// Posts send requests and rings the doorbell once for all of them. On error those before the
    /// refused one are posted.
    pub fn post_send(
        &self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = SendWr>,
    ) -> Result<(), VerbsError> {
        self.post(|hca| {
            requests
                .into_iter()
                .try_for_each(|wr| hca.post_send(qpn, wr))
        })
    }

    /// [`Self::with`] for verbs that post: what the last poll left leaves together with what they
    /// cause.
    pub fn post<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> R {
        self.shared.note_post();
        let mut engine = self.shared.lock();
        let result = f(&mut engine.hca);
        self.shared.send(&mut engine);
        result
    }

    /// Posts a receive request.
    pub fn post_recv(&self, qpn: Qpn, request: RecvWr) -> Result<(), VerbsError> {
        self.post_recvs(qpn, [request])
    }

    /// Posts receive requests. On error those before the refused one are posted.
    pub fn post_recvs(
        &self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = RecvWr>,
    ) -> Result<(), VerbsError> {
        let mut engine = self.shared.lock();
        let result = requests
            .into_iter()
            .try_for_each(|wr| engine.hca.post_recv(qpn, wr));
        // A queue pair in error completes it at once.
        self.shared.publish(&mut engine);
        result
    }

    /// Drives the device once: sends what waits, takes what has arrived. Does nothing if another
    /// thread is at it.
    pub fn progress(&self) {
        self.shared.note_poll();
        self.shared.give_way();
        if let Some(mut engine) = self.shared.try_lock() {
            self.shared.poll_once(&mut engine);
        }
    }

    /// Drives the device once and takes up to `max` completions of `cq` onto the end of `out`.
    /// Returns how many.
    pub fn poll(
        &self,
        cq: CqId,
        max: usize,
        out: &mut Vec<Completion>,
    ) -> Result<usize, VerbsError> {
        self.poll_each(cq, max, |completion| out.push(completion))
    }

    /// [`Self::poll`] that hands each completion to `each`, which must not call the device.
    pub fn poll_each(
        &self,
        cq: CqId,
        max: usize,
        mut each: impl FnMut(Completion),
    ) -> Result<usize, VerbsError> {
        self.shared.note_poll();
        self.shared.give_way();
        let Some(mut engine) = self.shared.try_lock() else {
            // Another thread drives the device, but what has completed must be seen: a program may
            // go to sleep on the word that there is nothing.
            return take(&mut self.shared.lock().hca, cq, max, &mut each);
        };
        let taken = take(&mut engine.hca, cq, max, &mut each)?;
        if taken > 0 {
            return Ok(taken);
        }
        self.shared.poll_once(&mut engine);
        take(&mut engine.hca, cq, max, &mut each)
    }

    /// Answers what has arrived, and passes on what has arrived for other processes on the device:
    /// to be called before a program ends without dropping it.
    pub fn finish(&self) {
        self.shared.finish();
    }

    /// The program stops polling, perhaps to wait for an event: the helper thread takes over at
    /// once.
    pub fn rest(&self) {
        self.shared.step_back();
    }

    /// Waits until `cq` has a completion or `timeout` has passed, and takes up to `max` of them.
    /// Spins a little, then sleeps while the helper thread drives the device.
    pub fn wait(
        &self,
        cq: CqId,
        max: usize,
        out: &mut Vec<Completion>,
        timeout: Duration,
    ) -> Result<usize, VerbsError> {
        let started = self.now();
        let waited = |limit: Duration| {
            self.now().since(started) >= u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
        };
        loop {
            let taken = self.poll(cq, max, out)?;
            if taken > 0 || waited(timeout) {
                return Ok(taken);
            }
            if waited(WAIT_SPIN) {
                break;
            }
            thread::yield_now();
        }
        self.shared.step_back();
        loop {
            let seen = self.shared.events().announcements;
            let taken = {
                let mut engine = self.shared.lock();
                engine.hca.req_notify_cq(cq, Notify::Any)?;
                // What came before the arming announces nothing.
                take(&mut engine.hca, cq, max, &mut |completion| {
                    out.push(completion)
                })?
            };
            if taken > 0 || waited(timeout) {
                return Ok(taken);
            }
            let left = timeout.saturating_sub(Duration::from_nanos(self.now().since(started)));
            let unchanged = |events: &mut Events| events.announcements == seen;
            let events = self.shared.events();
            drop(
                self.shared
                    .announced
                    .wait_timeout_while(events, left, unchanged),
            );
        }
    }

    /// Hands all events to `sink` from now on. The first sink stays.
    pub fn set_event_sink(&self, sink: EventSink) {
        // A second one has nobody to report to.
        let _ = self.shared.sink.set(sink);
    }

    /// The next asynchronous event. Of those that nobody asks for the last 65536 are kept.
    pub fn poll_event(&self) -> Option<Event> {
        if self.is_orphaned() {
            return None;
        }
        self.shared.events().queue.pop_front()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_orphaned() {
            // The thread is the parent's.
            mem::forget(self.helper.take());
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake_helper();
        if let Some(helper) = self.helper.take() {
            // A panic of the helper has been printed already.
            let _ = helper.join();
        }
        self.shared.finish();
    }
}

fn take(
    hca: &mut Hca,
    cq: CqId,
    max: usize,
    each: &mut impl FnMut(Completion),
) -> Result<usize, VerbsError> {
    let mut taken = 0;
    while taken < max {
        match hca.poll_completion(cq)? {
            Some(completion) => each(completion),
            None => break,
        }
        taken += 1;
    }
    Ok(taken)
}

impl Shared {
    #[inline]
    fn is_orphaned(&self) -> bool {
        self.forks != sys::forks()
    }

    #[inline]
    fn engine(&self) -> &Mutex<Engine> {
        if self.is_orphaned() {
            self.nothing.get_or_init(|| {
                let config = HcaConfig {
                    max_qp: 0,
                    ..HcaConfig::default()
                };
                let address = self.socket.address();
                let watch = Arc::clone(&self.groups);
                Mutex::new(Engine::new(Hca::new(config), address, None, None, watch))
            })
        } else {
            &self.engine
        }
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        if let Some(engine) = self.try_lock() {
            return engine;
        }
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let engine = self.engine().lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        engine
    }

    /// Lets those have the engine who wait for it. For loops, which would otherwise keep it.
    #[inline]
    fn give_way(&self) {
        for _ in 0..GIVE_WAY {
            if self.wanted.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    /// The engine for the helper, unless a program that is around has it. That counts as a poll,
    /// since it may last: a window takes hundreds of microseconds to send, and a helper that queues
    /// up for its lock costs such a program a system call each time.
    fn lock_for_helper(&self) -> Option<MutexGuard<'_, Engine>> {
        if self.since_poll() == Duration::MAX {
            return Some(self.lock());
        }
        let engine = self.try_lock();
        if engine.is_none() {
            self.note_poll();
        }
        engine
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine().try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_poll(&self) {
        self.last_poll_ns.store(Clock.now_ns(), Ordering::Relaxed);
    }

    /// A program that posts and has not come to rest goes on to poll.
    #[inline]
    fn note_post(&self) {
        if self.last_poll_ns.load(Ordering::Relaxed) != 0 {
            self.note_poll();
        }
    }

    /// The program stops polling: the helper takes over at once.
    fn step_back(&self) {
        self.last_poll_ns.store(0, Ordering::Relaxed);
        // If it sleeps on the socket, it knows how long it may; see `rouse_helper`.
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    fn wake_helper(&self) {
        self.waker.wake();
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    /// Sends what the device has.
    fn send(&self, engine: &mut Engine) {
        let more = engine.transmit(&self.socket) == Transmitted::More;
        self.deferred.store(more, Ordering::Relaxed);
        self.publish(engine);
        self.rouse_helper(engine);
    }

    /// Sends what the last poll has left.
    fn send_deferred(&self, engine: &mut Engine) {
        if self.deferred.load(Ordering::Relaxed) {
            self.send(engine);
        }
    }

    /// The last rounds of a program, until nothing is left or the link does not take it. What has
    /// arrived may be for others, and what has left may still be on a slow link of ours.
    fn finish(&self) {
        let started = Clock.now_ns();
        while !self.is_orphaned() && Clock.now_ns() - started < LAST_ROUNDS.as_nanos() as u64 {
            // Whoever has the engine may be the thread that now ends the process.
            if let Some(mut engine) = self.try_lock() {
                // What leaves in this round may come back in the next, to be passed on.
                let slow = engine.hca.holds_sent_packets();
                self.send_deferred(&mut engine);
                let received = engine.receive(&self.socket).unwrap_or(0)
                    + engine.receive_groups()
                    + engine.receive_mail(&self.socket);
                self.send(&mut engine);
                let held = slow || engine.holds_mail();
                let left = held || engine.is_blocked() || self.deferred.load(Ordering::Relaxed);
                if received == 0 && !left {
                    return;
                }
            }
            thread::yield_now();
        }
    }

    /// Wakes the helper if it means to sleep longer than the engine can wait. To be called after
    /// every change that the program might be the last to make for a while.
    fn rouse_helper(&self, engine: &Engine) {
        let until = self.helper_until_ns.load(Ordering::Relaxed);
        if until == SOON {
            return;
        }
        let at_once =
            self.deferred.load(Ordering::Relaxed) || engine.is_blocked() || engine.holds_mail();
        let needed = match engine.poll_timeout() {
            _ if at_once => SOON,
            Some(deadline) => deadline.as_nanos(),
            None => WHENEVER,
        };
        if needed < until {
            self.waker.wake();
        }
    }

    /// Takes what has arrived by any way. Of a stream, several batches: one acknowledgement for all
    /// of them, since sending costs more than receiving. An error means that the socket is gone.
    fn receive_round(&self, engine: &mut Engine) -> io::Result<usize> {
        let mut packets = engine.receive(&self.socket)? + engine.receive_groups();
        if engine.has_mail() {
            packets += engine.receive_mail(&self.socket);
        }
        if packets > STREAM_PACKETS {
            while packets < ROUND_PACKETS {
                match engine.receive(&self.socket) {
                    Ok(0) | Err(_) => break,
                    Ok(more) => packets += more,
                }
            }
        }
        Ok(packets)
    }

    /// One round of a polling program.
    ///
    /// What a packet or two make the device answer waits for the next round, or for the program's
    /// next request, with which it then leaves in one batch: a reply and an acknowledgement cost
    /// one system call.
    fn poll_once(&self, engine: &mut Engine) {
        let due = engine.run_timers(&self.socket);
        if due || self.deferred.load(Ordering::Relaxed) || engine.is_blocked() {
            engine.transmit(&self.socket);
        }
        let packets = self.receive_round(engine).unwrap_or(0);
        if packets > STREAM_PACKETS {
            engine.transmit(&self.socket);
        }
        let left = engine.hca.wants_transmit();
        self.deferred.store(left, Ordering::Relaxed);
        self.publish(engine);
        self.rouse_helper(engine);
    }

    /// Hands the device's events to whoever waits for them.
    fn publish(&self, engine: &mut Engine) {
        let Some(first) = engine.poll_event() else {
            return;
        };
        let mut events = self.events();
        let mut next = Some(first);
        while let Some(event) = next {
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
    }

    /// The time since the program's last poll; for ever if it rests.
    fn since_poll(&self) -> Duration {
        match self.last_poll_ns.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            last => Duration::from_nanos(Clock.now_ns().saturating_sub(last)),
        }
    }

    /// The helper thread: serves the device while the program does not.
    fn help(&self, mut waiter: Waiter) {
        let _obituary = Obituary(self);
        let _ = self.helper.set(thread::current());
        // Without it timers are up to 50 us late.
        let _ = tighten_timer_slack();
        let mut last_packet = Clock.now_ns();
        let mut stands_back = false;
        let mut spared = 0;
        while !self.stop.load(Ordering::Acquire) {
            let since_poll = self.since_poll();
            if stands_back && since_poll < STAND_BACK {
                thread::park_timeout(LOOK_AGAIN);
                continue;
            }
            stands_back = false;
            if since_poll < POLLING {
                spared += 1;
                stands_back = spared > SPARED_MAX || !self.await_absence(&mut waiter);
                continue;
            }
            let is_around = since_poll < AROUND;
            self.give_way();
            let Some(mut engine) = self.lock_for_helper() else {
                continue;
            };
            spared = 0;
            engine.run_timers(&self.socket);
            let mut received = self.receive_round(&mut engine);
            if let Ok(0) = received {
                // Before it rests, not only what is announced: whoever sent it may have died before
                // he could.
                received = Ok(engine.receive_mail(&self.socket));
            }
            let is_little = matches!(received, Ok(1..=STREAM_PACKETS));
            if is_around && is_little {
                let left = engine.hca.wants_transmit();
                self.deferred.store(left, Ordering::Relaxed);
                self.publish(&mut engine);
                drop(engine);
                thread::park_timeout(LEAVE);
                match self.lock_for_helper() {
                    Some(again) => engine = again,
                    None => continue,
                }
            }
            let sent = engine.transmit(&self.socket);
            let more = sent == Transmitted::More;
            self.deferred.store(more, Ordering::Relaxed);
            self.publish(&mut engine);
            let now = Clock.now_ns();
            let spun = now.saturating_sub(last_packet) >= SPIN.as_nanos() as u64;
            let deadline = engine.poll_timeout();
            let blocked = engine.is_blocked();
            let holds_mail = engine.holds_mail();
            let idle = matches!(received, Ok(0)) && !more && !holds_mail;
            let sleeps = idle && (spun || is_around);
            if sleeps {
                let until = deadline.map_or(WHENEVER, Time::as_nanos);
                self.helper_until_ns.store(until, Ordering::Relaxed);
            }
            drop(engine);

            match received {
                Ok(0) if sleeps => {
                    let left =
                        deadline.map(|at| Duration::from_nanos(at.as_nanos().saturating_sub(now)));
                    let woken = waiter.wait_also(&self.socket, self.besides(), left, blocked);
                    self.helper_until_ns.store(SOON, Ordering::Relaxed);
                    if woken.is_err() {
                        thread::park_timeout(LOOK_AGAIN);
                    }
                }
                // No system call waits until the receiver has room.
                Ok(0) if holds_mail => thread::park_timeout(TRY_AGAIN),
                Ok(0) => thread::yield_now(),
                Ok(_) => last_packet = now,
                // The socket is gone for good; timers still run, so that queue pairs fail in time.
                Err(_) => thread::park_timeout(LOOK_AGAIN),
            }
        }
    }

    /// Where packets arrive besides the device's own socket.
    fn besides(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let mailbox = self.mailbox.as_ref().map(|mailbox| mailbox.as_fd());
        [mailbox, Some(self.groups.as_fd())]
    }

    /// The helper, while the program polls: waits until something arrives that the program leaves
    /// lying, as one does that has turned to looking at its memory. False if nothing arrives for a
    /// while that stays longer than a program takes that polls.
    fn await_absence(&self, waiter: &mut Waiter) -> bool {
        match waiter.wait_also(&self.socket, self.besides(), Some(LOOK_AGAIN), false) {
            Ok(wake) if wake.readable => thread::park_timeout(POLLING),
            Ok(wake) if wake.woken => {}
            _ => return false,
        }
        true
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

/// Tells when the helper thread dies of a panic, which leaves a device that only works while the
/// program polls.
struct Obituary<'a>(&'a Shared);

impl Drop for Obituary<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.events().push(Event::DeviceFatal);
            self.0.announced.notify_all();
        }
    }
}
