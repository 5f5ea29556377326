//! Datagram sockets.
//!
//! Each has a UDP socket, through which the ends learn each other's queue pairs: the first
//! datagrams to a peer use it, and carry the number of the sender's queue pair, until the peer has
//! answered with its own. After that, datagrams go from queue pair to queue pair.

mod header;
mod port;

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libc::pollfd;

use self::header::{Purpose, UdpHead};
use self::port::{DATAGRAM_MAX, Handle, Port, Way};
use super::result::{Result, last_errno};
use super::source::Source;
use super::wait::{LOOK_AGAIN_MS, SPIN, readable, rest, sleep};
use crate::{address, resolve};

/// Datagrams that wait for the program; more are lost, as with UDP.
const WAITING_MAX: usize = 384;
/// Peers whose queue pairs are known. With others everything goes over UDP.
const PEERS_MAX: usize = 1024;
/// Queue pairs of a socket: one for each device and address in use.
const PORTS_MAX: usize = 16;
/// A socket that is busy looks at UDP once in this number of times.
const UDP_EVERY: u32 = 64;

pub(super) struct Datagram {
    udp: OwnedFd,
    state: Mutex<State>,
}

struct State {
    is_nonblocking: bool,
    /// Where datagrams without an address go.
    connected: Option<SocketAddr>,
    /// One for each device and address in use.
    ports: Vec<Port>,
    peers: HashMap<SocketAddr, Peer>,
    inbox: Inbox,
    /// How often UDP was not looked at.
    passed: u32,
}

/// Datagrams that wait for the program, with the addresses of their senders.
#[derive(Default)]
struct Inbox(VecDeque<(SocketAddr, Vec<u8>)>);

impl Inbox {
    /// Keeps a datagram if there is room.
    fn keep(&mut self, from: SocketAddr, data: &[u8]) {
        if self.0.len() < WAITING_MAX {
            self.0.push_back((from, data.to_vec()));
        }
    }
}

/// The port from which a peer is reached, and its queue pair once that is known.
struct Peer {
    port: usize,
    handle: Option<Handle>,
}

impl State {
    fn can_send(&self) -> bool {
        self.ports.iter().all(Port::can_send)
    }

    fn has_data(&self) -> bool {
        !self.inbox.0.is_empty()
    }
}

impl Datagram {
    pub(super) fn new(domain: c_int, flags: c_int) -> Result<Self> {
        // SAFETY: numbers only; the result is checked.
        let fd = unsafe { libc::socket(domain, libc::SOCK_DGRAM | flags, 0) };
        if fd < 0 {
            return Err(last_errno());
        }
        Ok(Self {
            // SAFETY: fresh, and owned by this alone.
            udp: unsafe { OwnedFd::from_raw_fd(fd) },
            state: Mutex::new(State {
                is_nonblocking: flags & libc::SOCK_NONBLOCK != 0,
                connected: None,
                ports: Vec::new(),
                peers: HashMap::new(),
                inbox: Inbox::default(),
                passed: 0,
            }),
        })
    }

    /// The number by which the program knows it: UDP's.
    pub(super) fn descriptor(&self) -> c_int {
        self.udp.as_raw_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        self.state().is_nonblocking
    }

    pub(super) fn set_nonblocking(&self, is_set: bool) {
        self.state().is_nonblocking = is_set;
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.state().connected
    }

    pub(super) fn bind(&self, to: SocketAddr) -> Result<()> {
        self.with_address(to, |socket, address, length| {
            // SAFETY: a local structure of that length.
            unsafe { libc::bind(socket, address, length) }
        })
    }

    pub(super) fn connect(&self, to: SocketAddr) -> Result<()> {
        let mut state = self.state();
        self.with_address(to, |socket, address, length| {
            // SAFETY: a local structure of that length.
            unsafe { libc::connect(socket, address, length) }
        })?;
        self.meet(&mut state, to)?;
        state.connected = Some(to);
        Ok(())
    }

    fn with_address(
        &self,
        address: SocketAddr,
        call: impl Fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int,
    ) -> Result<()> {
        let storage = address::storage(address);
        let length = address::length(address);
        match call(self.descriptor(), (&raw const storage).cast(), length) {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// Its address in UDP.
    pub(super) fn own_address(&self) -> Result<SocketAddr> {
        let mut storage = address::none();
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let at = (&raw mut storage).cast();
        // SAFETY: local variables.
        let got = unsafe { libc::getsockname(self.descriptor(), at, &raw mut length) };
        if got < 0 {
            return Err(last_errno());
        }
        // SAFETY: a structure that the kernel has filled in.
        unsafe { address::read("addr", at) }.map_err(|error| error.errno())
    }

    /// Knows a peer, and the port from which it is reached, from now on.
    fn meet(&self, state: &mut State, peer: SocketAddr) -> Result<()> {
        if state.peers.contains_key(&peer) || state.peers.len() >= PEERS_MAX {
            return Ok(());
        }
        let device = Way::to(peer)?.source()?;
        let port = self.port(state, device, self.source_towards(peer)?)?;
        state.peers.insert(peer, Peer { port, handle: None });
        Ok(())
    }

    /// The address that UDP has towards a peer, by which the peer knows this end.
    fn source_towards(&self, peer: SocketAddr) -> Result<SocketAddr> {
        let mut own = self.own_address()?;
        if own.port() == 0 {
            // Peers answer to a port.
            self.bind(own)?;
            own = self.own_address()?;
        }
        if own.ip().is_unspecified() {
            let probe = UdpSocket::bind(resolve::anywhere(peer.is_ipv6()));
            let source = probe.and_then(|probe| {
                probe.connect(peer)?;
                probe.local_addr()
            });
            let source = source.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            own.set_ip(source.ip());
        }
        Ok(own)
    }

    /// The port on a device for datagrams from an address.
    fn port(&self, state: &mut State, device: IpAddr, source: SocketAddr) -> Result<usize> {
        let is_it = |port: &Port| (port.device, port.source) == (device, source);
        if let Some(index) = state.ports.iter().position(is_it) {
            return Ok(index);
        }
        if state.ports.len() >= PORTS_MAX {
            return Err(libc::ENOBUFS);
        }
        state.ports.push(Port::new(device, source)?);
        Ok(state.ports.len() - 1)
    }

    /// Sends a datagram: to `to`, or to the peer that it is connected to.
    ///
    /// # Safety
    /// The source's pieces are there.
    pub(super) unsafe fn send(
        &self,
        mut source: Source<'_>,
        to: Option<SocketAddr>,
        flags: c_int,
    ) -> Result<usize> {
        let length = source.left();
        let mut state = self.state();
        let to = to.or(state.connected).ok_or(libc::EDESTADDRREQ)?;
        self.meet(&mut state, to)?;
        if !state.can_send() {
            state = self.wait(state, flags, State::can_send)?;
        }
        let State { ports, peers, .. } = &mut *state;
        let peer = peers.get(&to);
        let known = peer.and_then(|peer| Some((peer.port, peer.handle.as_ref()?)));
        match known {
            // SAFETY: as the caller promises.
            Some((port, handle)) => unsafe { ports[port].send(handle, &mut source) }?,
            None => {
                let port = peer.map_or(0, |peer| peer.port);
                let port = ports.get(port).ok_or(libc::ENETUNREACH)?;
                // SAFETY: as the caller promises.
                let data = unsafe { source.to_vec() };
                self.send_udp(port, to, Purpose::Data, &data)?;
            }
        }
        self.progress(&mut state);
        Ok(length)
    }

    fn send_udp(&self, from: &Port, to: SocketAddr, purpose: Purpose, data: &[u8]) -> Result<()> {
        let head = UdpHead {
            purpose,
            qpn: from.qpn(),
            ip: from.device,
        };
        let bytes = [&head.encode(), data].concat();
        if bytes.len() > DATAGRAM_MAX as usize {
            return Err(libc::EMSGSIZE);
        }
        let storage = address::storage(to);
        // SAFETY: local bytes, and a local structure of that length.
        let sent = unsafe {
            libc::sendto(
                self.descriptor(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                (&raw const storage).cast(),
                address::length(to),
            )
        };
        if sent < 0 { Err(last_errno()) } else { Ok(()) }
    }

    /// Receives a datagram, as much of it as there is room for; answers how much, and from where.
    ///
    /// # Safety
    /// There is room for `room` bytes at `to`.
    pub(super) unsafe fn receive(
        &self,
        to: *mut u8,
        room: usize,
        flags: c_int,
    ) -> Result<(usize, SocketAddr)> {
        let mut state = self.state();
        if !state.has_data() {
            state = self.wait(state, flags, State::has_data)?;
        }
        let next = match flags & libc::MSG_PEEK {
            0 => state.inbox.0.pop_front(),
            _ => state.inbox.0.front().cloned(),
        };
        let (from, data) = next.ok_or(libc::EAGAIN)?;
        let length = data.len().min(room);
        // SAFETY: as the caller promises.
        unsafe { to.copy_from_nonoverlapping(data.as_ptr(), length) };
        Ok((length, from))
    }

    /// Takes what has arrived.
    fn progress(&self, state: &mut State) {
        let State { ports, inbox, .. } = &mut *state;
        let mut is_busy = false;
        for port in ports {
            // A port that is broken brings nothing any more.
            is_busy |= port.progress(|from, data| inbox.keep(from, data)) == Ok(true);
        }
        state.passed += 1;
        if !is_busy || state.passed >= UDP_EVERY {
            state.passed = 0;
            self.take_udp(state);
        }
    }

    /// Takes messages over UDP, and answers those that ask for the queue pair.
    fn take_udp(&self, state: &mut State) {
        let mut bytes = [0; DATAGRAM_MAX as usize];
        while let Some((length, from)) = self.receive_udp(&mut bytes) {
            let Some((head, data)) = UdpHead::decode(&bytes[..length]) else {
                continue;
            };
            // A peer that is not reached by a device is not answered.
            let _ = self.hear(state, from, head);
            if head.purpose == Purpose::Data {
                state.inbox.keep(from, data);
            }
        }
    }

    fn receive_udp(&self, bytes: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let mut storage = address::none();
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        // SAFETY: local variables.
        let got = unsafe {
            libc::recvfrom(
                self.descriptor(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                (&raw mut storage).cast(),
                &raw mut length,
            )
        };
        let got = usize::try_from(got).ok()?;
        // SAFETY: a structure that the kernel has filled in.
        let from = unsafe { address::read("addr", (&raw const storage).cast()) };
        Some((got, from.ok()?))
    }

    /// A peer has told its queue pair.
    fn hear(&self, state: &mut State, from: SocketAddr, head: UdpHead) -> Result<()> {
        self.meet(state, from)?;
        let State { ports, peers, .. } = &mut *state;
        let peer = peers.get_mut(&from).ok_or(libc::ENOBUFS)?;
        let port = &ports[peer.port];
        if head.purpose == Purpose::Data {
            self.send_udp(port, from, Purpose::Control, &[])?;
        }
        if peer.handle.as_ref().is_none_or(|it| it.qpn != head.qpn) {
            // On one host addresses of the loopback interface stand for any device of it.
            let ip = match from.ip().is_loopback() && is_of_this_host(head.ip) {
                true => head.ip,
                false => from.ip(),
            };
            let way = Way::to((ip, from.port()).into())?;
            peer.handle = Some(port.handle(&way, head.qpn)?);
        }
        Ok(())
    }

    /// Waits until `test` holds.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        flags: c_int,
        test: fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        let is_nonblocking = state.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let mut spun = Instant::now();
        loop {
            self.progress(&mut state);
            if test(&state) {
                return Ok(state);
            }
            if is_nonblocking {
                return Err(libc::EAGAIN);
            }
            if spun.elapsed() < SPIN {
                drop(state);
                std::thread::yield_now();
            } else if !arm(&mut state) {
                let mut descriptors = self.descriptors(&state);
                drop(state);
                rest();
                sleep(&mut descriptors, LOOK_AGAIN_MS)?;
                self.woken(&descriptors);
                spun = Instant::now();
            } else {
                continue; // there may have been something before that
            }
            state = self.state();
        }
    }

    /// UDP's, then those of the ports.
    fn descriptors(&self, state: &State) -> Vec<pollfd> {
        let of_port = |port: &Port| readable(port.completions.descriptor());
        let udp = [readable(self.descriptor())];
        udp.into_iter()
            .chain(state.ports.iter().map(of_port))
            .collect()
    }

    /// Prepares to sleep until there is one of these events. `None` if there is one.
    pub(super) fn arm(&self, events: i16) -> Option<Vec<pollfd>> {
        let mut state = self.state();
        loop {
            if self.events_of(&mut state, events) != 0 {
                return None;
            }
            if !arm(&mut state) {
                return Some(self.descriptors(&state));
            }
        }
    }

    /// A call has slept on these descriptors.
    pub(super) fn woken(&self, descriptors: &[pollfd]) {
        let mut state = self.state();
        for (port, descriptor) in state.ports.iter_mut().zip(descriptors.iter().skip(1)) {
            if descriptor.revents != 0 {
                port.completions.take_event();
            }
        }
    }

    /// The events that poll(2) reports of it.
    pub(super) fn events(&self, wanted: i16) -> i16 {
        self.events_of(&mut self.state(), wanted)
    }

    fn events_of(&self, state: &mut State, wanted: i16) -> i16 {
        self.progress(state);
        let if_ = |holds, event| if holds { wanted & event } else { 0 };
        if_(state.has_data(), libc::POLLIN) | if_(state.can_send(), libc::POLLOUT)
    }
}

/// Whether a peer on the loopback interface can have its device there. Another host's address would
/// have the datagrams go there.
fn is_of_this_host(address: IpAddr) -> bool {
    // A socket may have a group's address, too.
    let is_one_host = !address.is_multicast() && !address.is_unspecified();
    is_one_host && UdpSocket::bind((address, 0)).is_ok()
}

/// Has the next completion of each port wake a sleeper; false if that was so already.
fn arm(state: &mut State) -> bool {
    let arm = |armed, port: &mut Port| port.completions.arm() | armed;
    state.ports.iter_mut().fold(false, arm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_on_loopback_has_its_device_on_this_host() {
        for (address, expected) in [
            ("127.0.0.7", true),
            ("192.0.2.1", false),
            ("239.1.2.3", false),
            ("0.0.0.0", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(
                is_of_this_host(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn unread_datagrams_are_bounded() {
        let mut inbox = Inbox::default();
        for number in 0..=WAITING_MAX {
            inbox.keep(([10, 0, 0, 1], number as u16).into(), b"data");
        }
        assert_eq!(inbox.0.len(), WAITING_MAX);
        assert_eq!(inbox.0[0].0.port(), 0);
    }
}
