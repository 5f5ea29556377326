//! A stream socket over a connection.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::flow::Sizes;
use super::link::Link;
use super::maps::Window;
use super::result::{Result, set_nonblocking};
use super::source::Source;
use super::state::{Phase, State};
use super::wait::{readable, rest, sleep};
use super::wire::{Hello, Message};
use crate::abi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_PS_TCP, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};
use crate::connect::{self, rdma_accept, rdma_connect, rdma_reject};
use crate::id::{self, Id};
use crate::listen::rdma_listen;
use crate::{channel, life, resolve, wait};

pub(super) struct Stream {
    id: Arc<Id>,
    /// Its descriptor is the socket's.
    channel: *mut rdma_event_channel,
    state: Mutex<State>,
    /// Threads wait for another that sleeps.
    pub(super) changed: Condvar,
}

// SAFETY: the pointer is a handle that any thread may use.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// An event of the connection, taken and acknowledged.
struct Event {
    kind: c_int,
    status: c_int,
    id: *mut rdma_cm_id,
    private: Vec<u8>,
}

impl Stream {
    pub(super) fn new() -> Result<Self> {
        let channel = channel::create().map_err(|error| error.errno())?;
        let qp_type = ferroce_ibverbs::abi::IBV_QPT_RC;
        let made = life::create(channel, std::ptr::null_mut(), RDMA_PS_TCP, qp_type);
        let id = made.map_err(|error| {
            channel::destroy(channel);
            error.errno()
        })?;
        Ok(Self::of(id, channel, State::new(Sizes::default())))
    }

    fn of(id: Arc<Id>, channel: *mut rdma_event_channel, state: State) -> Self {
        let stream = Self {
            id,
            channel,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        // Waiting is done in `poll`.
        set_nonblocking(stream.descriptor());
        stream
    }

    /// The number by which the program knows it.
    pub(super) fn descriptor(&self) -> c_int {
        // SAFETY: a live channel.
        unsafe { (*self.channel).fd }
    }

    pub(super) fn id(&self) -> &Arc<Id> {
        &self.id
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bind(&self, address: SocketAddr) -> Result<()> {
        resolve::bind(&self.id, address).map_err(|error| error.errno())?;
        self.state().phase = Phase::Bound;
        Ok(())
    }

    pub(super) fn listen(&self, backlog: c_int) -> Result<()> {
        let mut state = self.state();
        if state.phase == Phase::Listening {
            return Ok(());
        }
        // SAFETY: the memory of an object is never freed.
        called(unsafe { rdma_listen(self.id.abi(), backlog) })?;
        state.phase = Phase::Listening;
        Ok(())
    }

    /// Takes the next connection.
    pub(super) fn accept(&self) -> Result<Self> {
        loop {
            if self.state().phase != Phase::Listening {
                return Err(libc::EINVAL);
            }
            match self.next_event()? {
                Some(event) if event.kind == RDMA_CM_EVENT_CONNECT_REQUEST => {
                    // One that fails concerns its peer.
                    if let Ok(stream) = self.answer(&event) {
                        return Ok(stream);
                    }
                }
                Some(_) => {}
                None if self.state().is_nonblocking => return Err(libc::EAGAIN),
                None => {
                    rest();
                    sleep(&mut [readable(self.descriptor())], -1)?;
                }
            }
        }
    }

    fn answer(&self, event: &Event) -> Result<Self> {
        let child = id::find(event.id).map_err(|error| error.errno())?;
        let made = self.answer_on(&child, event);
        if made.is_err() {
            // SAFETY: the memory of an object is never freed.
            unsafe { rdma_reject(event.id, std::ptr::null(), 0) };
            life::destroy(&child);
        }
        made
    }

    fn answer_on(&self, child: &Arc<Id>, event: &Event) -> Result<Self> {
        let hello = Hello::decode(&event.private).ok_or(libc::EPROTO)?;
        let (sizes, options, is_nonblocking) = {
            let state = self.state();
            (state.sizes, state.options.clone(), state.is_nonblocking)
        };
        let mut link = Link::new(child, sizes)?;
        link.flow.meet(&hello);
        let own = link.hello().encode();
        let mut param = parameters(&own);
        let channel = channel::create().map_err(|error| error.errno())?;
        let moved = life::migrate(child, channel).map_err(|error| error.errno());
        // SAFETY: a live object and a local structure.
        let accepted = moved.and_then(|_| called(unsafe { rdma_accept(child.abi(), &mut param) }));
        if let Err(errno) = accepted {
            drop(link);
            // The identifier lets go of the channel before it goes.
            channel::destroy(channel);
            return Err(errno);
        }
        let state = State {
            phase: Phase::Connected,
            link: Some(link),
            is_nonblocking,
            options,
            ..State::new(sizes)
        };
        Ok(Self::of(Arc::clone(child), channel, state))
    }

    pub(super) fn connect(&self, address: SocketAddr) -> Result<()> {
        let mut state = self.state();
        match state.phase {
            Phase::Idle | Phase::Bound => self.begin(&mut state, address)?,
            Phase::Connecting => {}
            Phase::Connected => return Err(libc::EISCONN),
            Phase::Failed if state.error != 0 => return Err(state.take_error()),
            _ => return Err(libc::EINVAL),
        }
        let is_nonblocking = state.is_nonblocking;
        match self.wait(state, is_nonblocking, State::is_not_connecting) {
            Ok(mut state) if state.phase == Phase::Failed => Err(state.take_error()),
            Ok(_) => Ok(()),
            Err(libc::EAGAIN) => Err(libc::EINPROGRESS),
            Err(errno) => Err(errno),
        }
    }

    /// Asks the peer for a connection.
    fn begin(&self, state: &mut State, address: SocketAddr) -> Result<()> {
        resolve::resolve(&self.id, None, address).map_err(|error| error.errno())?;
        self.resolved()?;
        resolve::resolve_route(&self.id).map_err(|error| error.errno())?;
        self.resolved()?;
        let link = Link::new(&self.id, state.sizes)?;
        let own = link.hello().encode();
        let mut param = parameters(&own);
        // SAFETY: a live object and a local structure.
        called(unsafe { rdma_connect(self.id.abi(), &mut param) })?;
        state.link = Some(link);
        state.phase = Phase::Connecting;
        Ok(())
    }

    /// Takes the event of a step that needs no answer from the peer.
    fn resolved(&self) -> Result<()> {
        match self.next_event()? {
            Some(event) if event.status == 0 => Ok(()),
            Some(event) => Err(event.status.abs()),
            None => Err(libc::EHOSTUNREACH),
        }
    }

    /// Takes what has happened: to the connection, and on it.
    pub(super) fn progress(&self, state: &mut State) {
        if [Phase::Connecting, Phase::Connected].contains(&state.phase) && self.has_events() {
            self.take_events(state);
        }
        state.progress();
    }

    /// Whether there are events of the connection. This is asked at every poll, so that it makes no
    /// system call, and does not have the device think that the program rests.
    pub(super) fn has_events(&self) -> bool {
        !self.id.queue().is_empty()
    }

    fn take_events(&self, state: &mut State) {
        while let Ok(Some(event)) = self.next_event() {
            match event.kind {
                RDMA_CM_EVENT_ESTABLISHED | RDMA_CM_EVENT_CONNECT_RESPONSE
                    if state.phase == Phase::Connecting =>
                {
                    match (Hello::decode(&event.private), &mut state.link) {
                        (Some(hello), Some(link)) => {
                            link.flow.meet(&hello);
                            state.phase = Phase::Connected;
                        }
                        _ => state.fail(libc::EPROTO),
                    }
                }
                RDMA_CM_EVENT_ESTABLISHED => {}
                // What it has sent has arrived before.
                RDMA_CM_EVENT_DISCONNECTED => {
                    state.progress();
                    if state.phase == Phase::Connected {
                        state.phase = Phase::Disconnected;
                    }
                }
                RDMA_CM_EVENT_REJECTED => state.fail(libc::ECONNREFUSED),
                _ => state.fail(match event.status.abs() {
                    0 => libc::ECONNABORTED,
                    errno => errno,
                }),
            }
        }
    }

    fn next_event(&self) -> Result<Option<Event>> {
        let event = match wait::next(self.channel) {
            Ok(event) => event,
            Err(error) => {
                return match error.errno() {
                    libc::EAGAIN => Ok(None),
                    errno => Err(errno),
                };
            }
        };
        // SAFETY: a live event until it is acknowledged; both kinds of parameters begin alike.
        let taken = unsafe {
            let param = &(*event).param.ud;
            let private = match param.private_data.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(
                    param.private_data.cast::<u8>(),
                    param.private_data_len.into(),
                ),
            };
            Event {
                kind: (*event).event,
                status: (*event).status,
                id: (*event).id,
                private: private.to_vec(),
            }
        };
        channel::acknowledge(event).map_err(|error| error.errno())?;
        Ok(Some(taken))
    }

    /// Sends bytes; answers how many.
    ///
    /// # Safety
    /// The source's pieces are there.
    pub(super) unsafe fn send(&self, mut source: Source<'_>, flags: c_int) -> Result<usize> {
        let all = source.left();
        // SAFETY: as the caller promises.
        let step = |link: &mut Link| unsafe { link.send(&mut source) };
        self.send_with(flags, all, step)
    }

    /// Writes to memory that the peer has mapped; answers how many bytes.
    ///
    /// # Safety
    /// The source's pieces are there.
    pub(super) unsafe fn write_mapped(
        &self,
        mut source: Source<'_>,
        offset: u64,
        flags: c_int,
    ) -> Result<usize> {
        let all = source.left();
        let mut at = offset;
        let step = |link: &mut Link| {
            // SAFETY: as the caller promises.
            let written = unsafe { link.write_mapped(&mut source, at) }?;
            at = at.wrapping_add(written as u64);
            Ok(written)
        };
        self.send_with(flags, all, step)
    }

    /// Sends step by step, each when there is room, until all is sent. Answers how much was; that
    /// counts more than an error after it.
    fn send_with(
        &self,
        flags: c_int,
        all: usize,
        mut step: impl FnMut(&mut Link) -> Result<usize>,
    ) -> Result<usize> {
        let mut sent = 0;
        let finish = |sent: usize, errno| if sent > 0 { Ok(sent) } else { Err(errno) };
        let mut state = self.connected()?;
        let is_nonblocking = state.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
        while sent < all {
            if !state.can_send() {
                match self.wait(state, is_nonblocking, State::sends_or_ended) {
                    Ok(again) => state = again,
                    Err(errno) => return finish(sent, errno),
                }
            }
            let can_write = state.writes && state.phase == Phase::Connected;
            let Some(link) = state.link.as_mut().filter(|_| can_write) else {
                return finish(sent, libc::EPIPE);
            };
            let done = match link.has_maps_to_tell() {
                true => link.tell_map().map(|()| 0),
                false => step(link),
            };
            match done {
                Ok(bytes) => sent += bytes,
                Err(errno) => return finish(sent, errno),
            }
        }
        self.progress(&mut state);
        Ok(sent)
    }

    /// Receives bytes; answers how many, 0 at the end.
    ///
    /// # Safety
    /// There is room for `room` bytes at `to`.
    pub(super) unsafe fn receive(&self, to: *mut u8, room: usize, flags: c_int) -> Result<usize> {
        let mut state = self.connected()?;
        let is_nonblocking = state.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let keep = flags & libc::MSG_PEEK != 0;
        let mut got = 0;
        while got < room {
            if !state.has_data() {
                match self.wait(state, is_nonblocking, State::has_data_or_ended) {
                    Ok(again) => state = again,
                    Err(_) if got > 0 => return Ok(got),
                    Err(errno) => return Err(errno),
                }
            }
            let Some(link) = state.link.as_mut().filter(|link| link.flow.has_data()) else {
                return match state.phase {
                    Phase::Failed if got == 0 && state.error != 0 => Err(state.take_error()),
                    _ => Ok(got),
                };
            };
            // SAFETY: as the caller promises.
            got += unsafe { link.receive(to.wrapping_add(got), room - got, keep) };
            if keep || flags & libc::MSG_WAITALL == 0 {
                break;
            }
        }
        self.progress(&mut state);
        Ok(got)
    }

    /// The state of a socket that is or was connected.
    fn connected(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        match state.phase {
            Phase::Idle | Phase::Bound | Phase::Listening => Err(libc::ENOTCONN),
            Phase::Connecting => {
                let is_nonblocking = state.is_nonblocking;
                self.wait(state, is_nonblocking, State::is_not_connecting)
            }
            _ => Ok(state),
        }
    }

    pub(super) fn map(&self, window: Window) -> Result<()> {
        let mut state = self.connected()?;
        let link = state.link.as_mut().ok_or(libc::EINVAL)?;
        link.map(window)
    }

    pub(super) fn unmap(&self, start: *mut c_void, length: usize) -> Result<()> {
        let mut state = self.state();
        let link = state.link.as_mut().ok_or(libc::EINVAL)?;
        link.unmap(start, length)
    }

    /// Shuts a half, or both, and waits until the peer has it: a live one soon does, and a dead one is
    /// given up.
    pub(super) fn shutdown(&self, how: c_int) -> Result<()> {
        let mut state = self.state();
        if state.phase != Phase::Connected {
            return match state.phase {
                Phase::Disconnected | Phase::Failed => Ok(()),
                _ => Err(libc::ENOTCONN),
            };
        }
        match how {
            libc::SHUT_RD => state.reads = false,
            libc::SHUT_WR => state.writes = false,
            libc::SHUT_RDWR => (state.reads, state.writes) = (false, false),
            _ => return Err(libc::EINVAL),
        }
        let message = match (state.reads, state.writes) {
            (_, true) => return Ok(()),
            (true, false) => Message::Shutdown,
            (false, false) => Message::Disconnect,
        };
        state = self.wait(state, false, State::has_control_or_ended)?;
        if state.phase == Phase::Connected
            && let Some(link) = &mut state.link
        {
            link.tell(message)?;
            state = self.wait(state, false, State::is_sent_or_ended)?;
        }
        if !state.reads && state.phase == Phase::Connected {
            state.phase = Phase::Disconnected;
        }
        Ok(())
    }

    /// Ends it. Other threads that still use it find it closed.
    pub(super) fn close(&self) {
        // A peer that does not answer is left alone.
        let _ = self.shutdown(libc::SHUT_RDWR);
        let link = {
            let mut state = self.state();
            state.phase = Phase::Failed;
            state.error = libc::EBADF;
            state.link.take()
        };
        if link.is_some() {
            // It may not have come so far, or the peer have been faster.
            let _ = connect::disconnect(&self.id);
        }
        drop(link);
        life::destroy(&self.id);
        channel::destroy(self.channel);
        self.changed.notify_all();
    }
}

fn parameters(private: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private.as_ptr().cast(),
        private_data_len: private.len() as u8,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

fn called(result: c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(super::result::last_errno()),
    }
}
