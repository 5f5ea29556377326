//! When a process shares the device's port: from its first object that packets could be for until
//! it ends. One that only looks at the device never does, and so is in nobody's way.
//!
//! The kernel puts packets for any process of the device into the sockets of all that share the
//! port, so none may go before what is in its own has been passed on; [`Socket::leave`] has more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::open_error::OpenError;
use crate::registry::RegistryError;
use crate::shared::{Presence, SharedFile};
use crate::socket::{BindError, Options, Socket};

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

    /// Whether this process does not share the port yet.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    /// Makes sure that this user can bind the device's port, and that none of his sockets has it
    /// but those of the device's processes: the kernel would spread the packets over all of them.
    /// To be called by whoever holds the membership.
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

    /// Shares it no more, and tells whether others do, for whom there may be packets in the socket.
    pub(crate) fn leave(&self, socket: &Socket) -> bool {
        if self.is_out() || self.has_left.swap(true, Ordering::Relaxed) {
            return false;
        }
        // Where the kernel does not let it go, it is in the group until it is closed.
        let left = socket.leave().is_ok();
        self.shared.set_presence(self.slot, Presence::Left);
        let others = self.shared.other_slots(&[Presence::In]);
        left && others.is_ok_and(|others| !others.is_empty())
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
