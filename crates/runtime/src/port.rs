//! Decides when a process shares the device's port: from its first object that can receive packets
//! until it exits. A process that only observes the device never does, and so does not affect
//! others.
//!
//! The kernel distributes packets for all processes of the device over the sockets that share the
//! port. No socket may therefore be closed before its packets have been passed on; see
//! [`Socket::leave`]. Nor may the others change their positions; see [`KeptPlaces`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_registry::{Membership, Presence, RegistryError, SharedFile};
use ferroce_sockets::{BindError, Options, Socket};

use crate::kept::KeptPlaces;
use crate::open_error::OpenError;

/// How long a socket that this process has closed may still be there: another thread may be
/// starting a program, which has copies of all descriptors until it runs.
const EXEC_MAX: Duration = Duration::from_secs(2);
/// The same of a process that has just died: others see that first.
const DEATH_MAX: Duration = Duration::from_millis(100);

/// A process's share in the port of a device.
#[derive(Debug)]
pub(crate) struct Port {
    shared: Arc<SharedFile>,
    slot: u8,
    is_out: AtomicBool,
    has_left: AtomicBool,
}

impl Port {
    /// For the owner of a slot, who does not share the port yet.
    pub(crate) fn new(shared: Arc<SharedFile>, slot: u8) -> Self {
        Self {
            shared,
            slot,
            is_out: AtomicBool::new(true),
            has_left: AtomicBool::new(false),
        }
    }

    /// What the processes share.
    pub(crate) fn shared(&self) -> &SharedFile {
        &self.shared
    }

    /// Whether this process does not share the port yet.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    /// Makes sure that this user can bind the device's port, and that none of the user's sockets has it
    /// but those of the device's processes: the kernel would spread the packets over all of them.
    /// To be called by the process that holds the membership.
    pub(crate) fn check(shared: &SharedFile, address: SocketAddr) -> Result<(), OpenError> {
        let bound = [Presence::In, Presence::Left];
        let others = shared.other_slots(&bound);
        let others = others.map_err(|source| RegistryError::state(shared.path(), source))?;
        if others.is_empty() {
            while_in_use(DEATH_MAX, || Socket::bind(address, &Options::default()))?;
        }
        Ok(())
    }

    /// Shares the port by this socket.
    pub(crate) fn join(&self, socket: &Socket) -> Result<(), OpenError> {
        let failed = |source| RegistryError::state(self.shared.path(), source);
        let _held = self.shared.membership().map_err(failed)?;
        if !self.is_out() {
            return Ok(());
        }
        Self::check(&self.shared, socket.address())?;
        while_in_use(EXEC_MAX, || socket.enter())?;
        self.shared.set_presence(self.slot, Presence::In);
        self.is_out.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Begins to share it no more, unless this process does not anyway.
    pub(crate) fn begin_leaving(&self) -> Option<Leaving<'_>> {
        let leaves = !self.is_out() && !self.has_left.swap(true, Ordering::Relaxed);
        leaves.then(|| Leaving {
            port: self,
            // Who cannot wait for that goes all the same.
            held: self.shared.membership().ok(),
        })
    }
}

/// How a process has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// No other process shares the port.
    Alone,
    /// There may be packets for others in its socket, or on their way there.
    Detached,
    /// Another process has its socket now.
    Replaced,
}

/// A process that is about to leave. Until this is dropped no other process joins or leaves, and none
/// gives this process a place to keep.
#[derive(Debug)]
pub(crate) struct Leaving<'a> {
    port: &'a Port,
    held: Option<Membership<'a>>,
}

impl Leaving<'_> {
    /// Gives this process's socket, and those that it keeps, to others that are awake, as far as that
    /// keeps other sockets from moving. False: its own it has still.
    pub(crate) fn hand_over(&self, socket: &Socket, kept: &mut KeptPlaces) -> bool {
        let Port { shared, slot, .. } = self.port;
        let (Some(held), Ok(others)) = (&self.held, shared.other_slots(&[Presence::In])) else {
            return false;
        };
        let keepers = shared.awake(&others);
        let give = |socket: &Socket, index| {
            let give = |keeper: &u8| shared.give(held, *keeper, socket, index).is_ok();
            shared.is_place_needed(held, index, &others) && keepers.iter().any(give)
        };
        kept.give_all(give);
        give(socket, shared.index(*slot))
    }

    /// Shares the port no more, by a socket that another process may have been `given`.
    pub(crate) fn end(self, socket: &Socket, given: bool) -> Left {
        let Port { shared, slot, .. } = self.port;
        let left = match given {
            true => Left::Replaced,
            // Where the kernel does not let it go, it is in the group until it is closed.
            false => match socket.leave() {
                Ok(()) => Left::Detached,
                Err(_) => Left::Alone,
            },
        };
        shared.set_presence(*slot, Presence::Left);
        match shared.other_slots(&[Presence::In]) {
            Ok(others) if !others.is_empty() => left,
            _ => Left::Alone,
        }
    }
}

/// Tries to bind for a while if the port is in use.
fn while_in_use<T>(
    patience: Duration,
    bind: impl Fn() -> Result<T, BindError>,
) -> Result<T, BindError> {
    let started = Instant::now();
    loop {
        match bind() {
            Err(BindError::AddressInUse { .. }) if started.elapsed() < patience => {
                thread::sleep(EXEC_MAX / 1000);
            }
            outcome => return outcome,
        }
    }
}
