//! A device behind its lock, and the threads that drive it.

mod events;
mod helper;
mod host;
mod idle_window;
mod lock;
mod progress;
mod stoppable;
mod tandem;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferroce_admission::{Bounds, Shares};
use ferroce_device::{
    Completion, CqId, DeviceState, Event, Hca, HcaConfig, Notify, RecvWr, SendWr, SrqId, Time,
    VerbsError,
};
use ferroce_driver::{Ring, patience::WAIT_SPIN};
use ferroce_os::{Clock, Tap, Waiter, Waker, run_as_companion};
use ferroce_registry::{
    DeviceSpec, GidTable, Query, Resource, ServiceClaim, ServiceError, ServiceScope, rows,
};
use ferroce_sockets::{Options, Socket};
use ferroce_wire::{Qpn, ROCE_V2_PORT, cm::PortSpace};

use self::events::EventQueue;
use self::host::HostView;
use self::lock::{EngineGuard, EngineLock};
use self::progress::{HelperThread, Shared};
pub use self::tandem::{Spent, Tandem};
use crate::attachment::{Attachment, random_secret};
use crate::berth::{Berth, Mooring, Moorings, SecondBerth};
use crate::links::{Engine, HostClock, Links};
use crate::open_error::OpenError;

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
    /// The device itself.
    pub hca: HcaConfig,
    /// How much it may have in flight to each peer. That is lowered to half of the receive buffer that
    /// the kernel grants, since the peers' sockets are likely no larger, and responses to a quarter.
    pub bounds: Bounds,
    /// Records packets.
    pub tap: Option<Tap>,
    /// Socket options.
    pub socket: Options,
    /// Whether a thread of the device's own serves it while the program does not poll. Without one the
    /// program drives it all the time, best with [`Tandem`], and [`Device::wait`] is of no use.
    pub helper: bool,
}

impl DeviceConfig {
    /// A device at `address` with everything else at its default.
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            port: ROCE_V2_PORT,
            hca: HcaConfig::default(),
            bounds: Bounds::default(),
            tap: None,
            socket: Options::default(),
            helper: true,
        }
    }
}

/// Lowers what may be on the wire to what the socket takes, and with it those of the peers. A quarter
/// of the buffer is left for acknowledgements, and for what the kernel is slow to give back.
fn fit(bounds: &mut Bounds, socket: &Socket) {
    // Packets that leave one by one take twice the room of those that leave in batches.
    let copies = if socket.segmentation() { 1 } else { 2 };
    let buffer = socket.granted().receive_buffer_bytes / copies;
    let at_most = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    bounds.peer_bytes = bounds.peer_bytes.min(at_most(buffer / 2));
    bounds.response_bytes = bounds.response_bytes.min(at_most(buffer / 4));
}

/// A device on a real socket.
///
/// All methods take `&self`; several threads may use one device. Dropping it closes the socket and
/// ends the helper thread.
#[derive(Debug)]
pub struct Device {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
    /// The threads that hear of the host's interfaces, and how to end them.
    watchers: Vec<(JoinHandle<()>, Waker)>,
    attachment: Attachment,
}

impl Device {
    /// Opens a device for this process alone: binds its socket and starts its helper thread.
    pub fn open(config: DeviceConfig) -> Result<Self, OpenError> {
        let socket = Socket::bind(SocketAddr::new(config.address, config.port), &config.socket)?;
        let attachment = Attachment::alone(config.address, config.port);
        let (mut device, waiter) = Self::build(
            (Mooring::alone(socket), None),
            config.hca,
            config.bounds,
            Hca::new,
            config.tap,
            attachment,
        )?;
        if config.helper {
            device.start_helper(waiter)?;
        }
        Ok(device)
    }

    /// Starts the threads that serve a device which several processes may have open.
    pub(crate) fn serve(&mut self, waiter: Waiter, card_process: bool) -> Result<(), OpenError> {
        self.start_watchers()?;
        match card_process {
            true => self.start_card_process(waiter),
            false => self.start_helper(waiter),
        }
    }

    /// A device without its helper thread, and what that one will wait by.
    pub(crate) fn build(
        moorings: Moorings,
        mut config: HcaConfig,
        mut bounds: Bounds,
        hca: impl FnOnce(HcaConfig) -> Hca,
        tap: Option<Tap>,
        attachment: Attachment,
    ) -> Result<(Self, Waiter), OpenError> {
        let (first, second) = moorings;
        config.secret.get_or_insert_with(random_secret);
        for mooring in [&first].into_iter().chain(&second) {
            fit(&mut bounds, &mooring.socket);
        }
        let leases = first.shared.as_ref().map(|(_, it)| it.leases());
        let hca = hca(config).with_admission(Box::new(Shares::new(bounds, leases)));
        let tap = tap.map(|tap| tap.in_vlan(hca.qos().vlan));
        let state = hca.state().clone();
        let (first, link) = Berth::new(first, 1, &attachment, tap.clone())?;
        let second = second.map(|it| Berth::new(it, 2, &attachment, tap));
        let (second, second_link) = second.transpose()?.unzip();
        let second = second.map(SecondBerth::new).transpose();
        let engine = Engine::new(hca, Links::new(link, second_link), HostClock);
        let waiter = Waiter::new().map_err(OpenError::Helper)?;
        let parts = (Arc::clone(&first.socket), Arc::clone(&first.groups));
        let empty = move || Shared::empty(&parts.0, &parts.1);
        let shared = Arc::new(Shared {
            first,
            second: second.map_err(OpenError::Helper)?,
            state,
            engine: EngineLock::new(engine, empty),
            events: EventQueue::default(),
            helper: HelperThread::new(waiter.waker()),
            is_crowded: AtomicBool::new(false),
        });
        let device = Self {
            shared,
            helper: None,
            watchers: Vec::new(),
            attachment,
        };
        Ok((device, waiter))
    }

    fn start_helper(&mut self, waiter: Waiter) -> Result<(), OpenError> {
        self.spawn_helper(move |shared| shared.help(waiter, None))
    }

    /// The same for a helper that is a process of its own. It begins as a thread.
    fn start_card_process(&mut self, waiter: Waiter) -> Result<(), OpenError> {
        let (tell, told) = mpsc::channel();
        self.spawn_helper(move |shared| {
            let started = run_as_companion(|program| {
                let _ = tell.send(Ok(()));
                shared.help(waiter, Some(program));
            });
            if let Err(error) = started {
                let _ = tell.send(Err(error));
            }
        })?;
        let started = told.recv().expect("it tells before it ends");
        started.map_err(OpenError::CardProcess)
    }

    fn spawn_helper(
        &mut self,
        help: impl FnOnce(&Shared) + Send + 'static,
    ) -> Result<(), OpenError> {
        let shared = Arc::clone(&self.shared);
        let name = format!("ferroce-{}", shared.first.socket.address().ip());
        let helper = ferroce_os::spawn(name, move || help(&shared));
        self.helper = Some(helper.map_err(OpenError::Helper)?);
        Ok(())
    }

    /// Has a thread for each link hear of the host's interfaces, where the kernel tells.
    fn start_watchers(&mut self) -> Result<(), OpenError> {
        for (number, own, file) in self.attachment.links() {
            let shared = Arc::clone(&self.shared);
            let view = HostView::begin(number, own, &file, &mut shared.lock().hca);
            let Some(view) = view else {
                return Ok(());
            };
            let waiter = Waiter::new().map_err(OpenError::Helper)?;
            let waker = waiter.waker();
            let name = "ferroce-host".to_owned();
            let watcher = ferroce_os::spawn(name, move || shared.watch_host(view, &file, waiter));
            let watcher = watcher.map_err(OpenError::Helper)?;
            self.watchers.push((watcher, waker));
        }
        Ok(())
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
    /// Returns an error if the device was opened without a registry: it belongs to one process,
    /// which tracks its ports itself.
    pub fn claim_service(
        &self,
        space: PortSpace,
        port: u16,
        scope: ServiceScope,
    ) -> Result<ServiceClaim, ServiceError> {
        match &self.attachment.shared {
            _ if self.is_orphaned() => Err(ServiceError::Orphaned),
            Some(shared) => shared.claim_service(self.slot(), space, port, scope),
            None => Err(ServiceError::NotShared),
        }
    }

    /// Has requests for the services that this process has [published](ServiceClaim::publish) come
    /// straight here. They come anyway, but by way of another process, which may be stopped.
    pub fn expect_requests(&self) {
        let mut engine = self.shared.lock();
        engine.link.listens();
        self.shared.rouse_helper(&engine);
    }

    /// The socket's address.
    pub fn address(&self) -> SocketAddr {
        self.shared.first.socket.address()
    }

    /// Whether another process opened the device, of which this one is a child by `fork`: here it
    /// has no objects and no link, and is good for nothing but to be dropped. Only known after
    /// [`ferroce_os::after_fork_in_child`].
    #[inline]
    pub fn is_orphaned(&self) -> bool {
        self.shared.engine.is_orphaned()
    }

    /// Whether a panic has ended the device's life, which [`Event::DeviceFatal`] told of: it has no
    /// objects and no link any more. A panic while the device is driven does that by itself.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.shared.engine.has_failed()
    }

    /// Whether this thread is in a call on the device already, whose lock it would never get: in a
    /// signal handler that has interrupted the call, or after it has jumped out of one.
    #[inline]
    pub fn is_in_call(&self) -> bool {
        self.shared.engine.is_in_call()
    }

    /// Does what a panic does to it, for one beside the device that leaves it in doubt.
    pub fn fail(&self) {
        self.shared.fail();
    }

    /// The device's clock.
    pub fn now(&self) -> Time {
        Clock.now()
    }

    /// Registers, personality, impairments, histogram and counters.
    pub fn state(&self) -> &DeviceState {
        &self.shared.state
    }

    /// What this process has made on the device.
    pub fn resources(&self, query: Query) -> Vec<Resource> {
        let engine = self.shared.lock();
        let links = || engine.link.peer_links();
        rows(&engine.hca, self.addresses(), self.now(), query, links)
    }

    /// How many ports programs see.
    pub fn ports(&self) -> u8 {
        self.attachment.spec.ports()
    }

    /// The address of a port, from 1; `None` if there is no such port.
    pub fn address_at(&self, port: u8) -> Option<IpAddr> {
        match port {
            1 => Some(self.address().ip()),
            _ if port > self.ports() => None,
            _ => self.attachment.spec.address_at(port),
        }
    }

    /// The addresses of both ports; of a device with one, twice the same.
    fn addresses(&self) -> [IpAddr; 2] {
        let first = self.address().ip();
        [first, self.address_at(2).unwrap_or(first)]
    }

    /// The port with this address.
    pub fn port_at(&self, address: IpAddr) -> Option<u8> {
        (1..=self.ports()).find(|port| self.address_at(*port) == Some(address))
    }

    /// The GIDs of a port, from 1; of one that is not there, those of the first. Of a device that was
    /// opened without a registry, its own address.
    pub fn gids(&self, port: u8) -> GidTable {
        let Attachment { shared, second, .. } = &self.attachment;
        match (shared, second) {
            (_, Some(second)) if port == 2 && self.ports() == 2 => second.gids(),
            (Some(file), _) => file.gids(),
            (None, _) => GidTable::alone(self.address().ip()),
        }
    }

    /// Datagrams the kernel dropped because the receive buffer was full, if it tells.
    pub fn receive_drops(&self) -> Option<u32> {
        self.shared.first.socket.receive_drops().ok()
    }

    /// Shares the device's port with its other processes, so that packets arrive. The first object
    /// that packets could be for has that done, see [`Hca::wants_link`]; its maker calls
    /// this first to learn if it cannot be. A device that was opened without a registry has its
    /// port from the start.
    pub fn join(&self) -> Result<(), OpenError> {
        let mut engine = self.shared.lock();
        let joined = self.shared.join(&mut engine);
        // What joining has left to do has a deadline.
        self.shared.rouse_helper(&engine);
        joined
    }

    /// Runs verbs on the device, then sends what they caused.
    pub fn with<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> R {
        self.run(&mut self.shared.lock(), f)
    }

    fn run<R>(&self, engine: &mut Engine, f: impl FnOnce(&mut Hca) -> R) -> R {
        // The acknowledgement of a message that has completed must leave before `f` can destroy the
        // queue pair that owes it.
        self.shared.send_deferred(engine);
        let result = f(&mut engine.hca);
        self.shared.join_if_wanted(engine);
        self.shared.send(engine);
        result
    }

    /// As [`Self::with`], for what other processes on the device must get even if this one ends
    /// right away and without notice: what was sent to the device's own address may have come back
    /// here, and is passed on.
    pub fn with_pass_on<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> R {
        let mut engine = self.shared.lock();
        let result = self.run(&mut engine, f);
        // An error comes up again where it is looked for.
        if engine.receive().is_ok_and(|packets| packets > 0) {
            self.shared.send(&mut engine);
        }
        result
    }

    /// Posts send requests and rings the doorbell once for all of them: they leave, or wait for the next
    /// ones or the next poll, at most for some microseconds. On error those before the
    /// refused one are posted.
    pub fn post_send(
        &self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = SendWr>,
    ) -> Result<(), VerbsError> {
        self.post(|hca| hca.post_sends(qpn, requests))
    }

    /// [`Self::with`] for verbs that post: what the last poll left leaves together with what they
    /// cause, and that may wait for more.
    #[inline]
    pub fn post<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> R {
        let (result, departure) = self.post_first(f);
        drop(departure);
        result
    }

    /// [`Self::post`] without what takes system calls, if anything leaves at once.
    #[inline]
    pub fn post_first<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> (R, Option<Departure<'_>>) {
        let mut engine = self.shared.lock();
        let result = f(&mut engine.hca);
        let ring = self.shared.ring(&mut engine);
        let departure = (ring != Ring::Waits).then(|| Departure {
            shared: &self.shared,
            engine,
            ring,
        });
        (result, departure)
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
        self.post_each(requests, |hca, wr| hca.post_recv(qpn, wr))
    }

    /// The same to a shared receive queue.
    pub fn post_srq_recvs(
        &self,
        srq: SrqId,
        requests: impl IntoIterator<Item = RecvWr>,
    ) -> Result<(), VerbsError> {
        self.post_each(requests, |hca, wr| hca.post_srq_recv(srq, wr))
    }

    fn post_each(
        &self,
        requests: impl IntoIterator<Item = RecvWr>,
        post: impl Fn(&mut Hca, RecvWr) -> Result<(), VerbsError>,
    ) -> Result<(), VerbsError> {
        let mut engine = self.shared.lock();
        let mut requests = requests.into_iter();
        let result = requests.try_for_each(|wr| post(&mut engine.hca, wr));
        // A queue pair in error completes it at once.
        self.shared.publish(&mut engine);
        result
    }

    /// Takes everything that has arrived, and answers it: to be called before a verb that ends what a
    /// queue pair has under way, as a move to the error state does. A card has taken it by then, and
    /// does not flush what was acknowledged.
    pub fn catch_up(&self) {
        let mut engine = self.shared.lock();
        engine.catch_up();
        self.shared.publish(&mut engine);
        self.shared.rouse_helper(&engine);
    }

    /// Drives the device once: sends what waits, takes what has arrived. Does nothing if another
    /// thread is at it.
    pub fn progress(&self) {
        let now = self.shared.note_poll();
        self.shared.engine.give_way();
        if let Some(mut engine) = self.shared.try_lock() {
            self.shared.poll_once(now, &mut engine);
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
        let empty = self.shared.engine.idle.empty();
        if empty == Some(cq) {
            return Ok(0);
        }
        let now = self.shared.note_poll();
        self.shared.engine.give_way();
        let Some(mut engine) = self.shared.try_lock() else {
            // Another thread drives the device, but what has completed must be seen: a program may
            // go to sleep on the word that there is nothing.
            return take(&mut self.shared.lock().hca, cq, max, &mut each);
        };
        let taken = take(&mut engine.hca, cq, max, &mut each)?;
        if taken > 0 && engine.is_fresh(now) && !engine.awaits_reply() {
            return Ok(taken);
        }
        if taken == 0 && empty.is_some() {
            self.shared.engine.idle.go_on(cq);
            return Ok(0);
        }
        self.shared.poll_once(now, &mut engine);
        if taken > 0 {
            return Ok(taken);
        }
        let taken = take(&mut engine.hca, cq, max, &mut each)?;
        if taken == 0 && engine.is_idle(now) {
            self.shared.engine.idle.begin(cq);
        }
        if taken == 0 && self.shared.is_crowded() && engine.is_waiting(now) {
            drop(engine);
            thread::yield_now();
            // That was no pause of the program.
            self.shared.engine.handshake.note_end(|| Clock.now());
        }
        Ok(taken)
    }

    /// Whether nothing has happened on the device for a while, and a thread has looked just now and found
    /// this completion queue empty: a poll would find nothing, and makes no system call.
    #[inline]
    pub fn is_idle(&self, cq: CqId) -> bool {
        self.shared.engine.idle.empty() == Some(cq)
    }

    /// Whether more processes share the device than there are cores, as the helper has found lately: polls that
    /// find nothing for a while then give their core away.
    pub fn is_crowded(&self) -> bool {
        self.shared.is_crowded()
    }

    /// Answers what has arrived, ends connections, gives the device's port up, and passes on what
    /// has arrived for other processes on the device: to be called before a program ends without
    /// dropping it. Nothing is sent any more.
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
        let waited = |limit: Duration| self.now().since(started) >= limit.into();
        loop {
            let taken = self.poll(cq, max, out)?;
            if taken > 0 || waited(timeout) {
                return Ok(taken);
            }
            if waited(WAIT_SPIN.into()) {
                break;
            }
            thread::yield_now();
        }
        self.shared.step_back();
        loop {
            let seen = self.shared.events.announcements();
            let taken = {
                let mut engine = self.shared.lock();
                let hca = &mut engine.hca;
                let taken = take(hca, cq, max, &mut |completion| out.push(completion))?;
                if taken == 0 {
                    hca.req_notify_cq(cq, Notify::Any)?;
                }
                taken
            };
            if taken > 0 || waited(timeout) {
                return Ok(taken);
            }
            let left = timeout.saturating_sub(self.now().since(started).into());
            self.shared.events.wait_for_other_than(seen, left);
        }
    }

    /// Hands all events to `sink` from now on. The first sink stays.
    pub fn set_event_sink(&self, sink: EventSink) {
        self.shared.events.set_sink(sink);
    }

    /// The next asynchronous event. Of those not asked for the last 65536 are kept.
    pub fn poll_event(&self) -> Option<Event> {
        if self.is_orphaned() {
            return None;
        }
        self.shared.events.pop()
    }
}

/// What a program has posted and does not wait for more: it leaves when this is dropped. Until then the
/// device is locked.
#[must_use = "it leaves when it is dropped"]
#[derive(Debug)]
pub struct Departure<'a> {
    shared: &'a Shared,
    engine: EngineGuard<'a>,
    ring: Ring,
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.shared.answer(&mut self.engine, self.ring);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_orphaned() || self.is_in_call() {
            // The thread is the parent's, or waits for what this one does not give back.
            mem::forget((self.helper.take(), mem::take(&mut self.watchers)));
            return;
        }
        self.shared.helper.stop();
        if let Some(helper) = self.helper.take() {
            // A panic of the helper has been printed already.
            let _ = helper.join();
        }
        for (watcher, waker) in self.watchers.drain(..) {
            waker.wake();
            let _ = watcher.join();
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
