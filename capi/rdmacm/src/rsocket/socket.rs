//! Sockets and their descriptors.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use libc::{sockaddr, socklen_t};

use super::datagram::Datagram;
use super::result::Result;
use super::stream::Stream;
use crate::process::PerProcess;
use crate::{address, resolve};

/// A socket of either kind.
pub(super) enum Socket {
    Stream(Box<Stream>),
    Datagram(Box<Datagram>),
}

impl Socket {
    /// The stream, for calls that datagrams have not.
    pub(super) fn stream(&self) -> Result<&Stream> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::Datagram(_) => Err(libc::EOPNOTSUPP),
        }
    }

    pub(super) fn descriptor(&self) -> c_int {
        match self {
            Self::Stream(stream) => stream.descriptor(),
            Self::Datagram(datagram) => datagram.descriptor(),
        }
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Stream(stream) => resolve::peer(stream.id()),
            Self::Datagram(datagram) => datagram.peer(),
        }
    }

    pub(super) fn own_address(&self) -> Result<SocketAddr> {
        match self {
            Self::Stream(stream) => {
                let own = resolve::source(stream.id());
                Ok(own.unwrap_or_else(|| resolve::anywhere(false)))
            }
            Self::Datagram(datagram) => datagram.own_address(),
        }
    }
}

static SOCKETS: PerProcess<Sockets> = PerProcess::new();

/// Sockets by their descriptors.
#[derive(Default)]
struct Sockets(RwLock<HashMap<c_int, Arc<Socket>>>);

impl Sockets {
    fn get(&self, socket: c_int) -> Option<Arc<Socket>> {
        let sockets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sockets.get(&socket).cloned()
    }

    fn all(&self) -> RwLockWriteGuard<'_, HashMap<c_int, Arc<Socket>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn find(socket: c_int) -> Option<Arc<Socket>> {
    SOCKETS.get().get(socket)
}

pub(super) fn find_or_bad(socket: c_int) -> Result<Arc<Socket>> {
    find(socket).ok_or(libc::EBADF)
}

pub(super) fn keep(socket: Socket) -> c_int {
    let descriptor = socket.descriptor();
    SOCKETS.get().all().insert(descriptor, Arc::new(socket));
    descriptor
}

/// Forgets a socket.
pub(super) fn take(socket: c_int) -> Option<Arc<Socket>> {
    SOCKETS.get().all().remove(&socket)
}

/// # Safety
/// `addr` is null or points to a socket address of the family it names.
pub(super) unsafe fn address_of(addr: *const sockaddr) -> Result<SocketAddr> {
    // SAFETY: as the caller promises.
    unsafe { address::read("addr", addr) }.map_err(|error| error.errno())
}

/// Writes an address where the program wants it, as much as there is room for.
///
/// # Safety
/// The pointers are null or lead to the program's variables.
pub(super) unsafe fn show(of: Option<SocketAddr>, to: *mut sockaddr, length: *mut socklen_t) {
    let Some(of) = of.filter(|_| !to.is_null() && !length.is_null()) else {
        return;
    };
    let storage = address::storage(of);
    let size = address::length(of);
    // SAFETY: as the caller promises.
    unsafe {
        let room = (*length).min(size) as usize;
        to.cast::<u8>()
            .copy_from_nonoverlapping((&raw const storage).cast(), room);
        *length = size;
    }
}
