//! A process's place at a port of a device: its socket, and what it shares there with other processes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ferroce_os::{Epoll, Tap};
use ferroce_registry::{Mailbox, Reader, SharedFile};
use ferroce_rings::Near;
use ferroce_sockets::Socket;

use crate::attachment::Attachment;
use crate::link::SocketLink;
use crate::neighbours::Neighbours;
use crate::open_error::OpenError;
use crate::port::Port;

/// What a place is made of.
#[derive(Debug)]
pub(crate) struct Mooring {
    pub(crate) socket: Socket,
    /// Of a device that several processes may have open.
    pub(crate) shared: Option<(Arc<SharedFile>, Neighbours)>,
}

/// Those at the ports of a device, of which there may be two.
pub(crate) type Moorings = (Mooring, Option<Mooring>);

impl Mooring {
    /// That of a process that has a device to itself.
    pub(crate) fn alone(socket: Socket) -> Self {
        Self {
            socket,
            shared: None,
        }
    }
}

/// A process's place at a port.
#[derive(Debug)]
pub(crate) struct Berth {
    pub(crate) socket: Arc<Socket>,
    /// This process's share in the UDP port, of a device that several may have open.
    pub(crate) port: Option<Port>,
    /// Where packets arrive that another process has received.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    /// Tells peers on this host whether the helper sleeps, if it takes rings.
    pub(crate) reader: Option<Reader>,
    /// Readable if something has arrived for a multicast group, or at a place that is kept.
    pub(crate) groups: Arc<Epoll>,
}

impl Berth {
    /// A process's place at the port of this number, and the link there.
    pub(crate) fn new(
        mooring: Mooring,
        number: u8,
        attachment: &Attachment,
        tap: Option<Tap>,
    ) -> Result<(Self, SocketLink), OpenError> {
        let Mooring { socket, shared } = mooring;
        let Attachment { slot, spec, .. } = attachment;
        let second = spec.address_at(spec.ports()).unwrap_or(spec.address);
        let (slot, addresses) = (*slot, [spec.address, second]);
        let groups = Arc::new(Epoll::new().map_err(OpenError::Helper)?);
        let socket = Arc::new(socket);
        let near = match &shared {
            Some((file, _)) => Near::new(file, slot, spec.link, socket.address(), &groups),
            None => Ok(None),
        };
        let near = near.map_err(OpenError::Helper)?;
        let mailbox = shared.as_ref().map(|(_, neighbours)| neighbours.mailbox());
        let (file, neighbours) = shared.unzip();
        let berth = Self {
            socket: Arc::clone(&socket),
            port: file.map(|file| Port::new(file, slot)),
            mailbox,
            reader: near.as_ref().map(|near| near.reader().clone()),
            groups: Arc::clone(&groups),
        };
        let link = SocketLink::new(socket, (number, addresses), tap, neighbours, near, groups);
        Ok((berth, link))
    }

    /// Where packets arrive besides the socket.
    pub(crate) fn besides(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let mailbox = self.mailbox.as_ref().map(|mailbox| mailbox.as_fd());
        [mailbox, Some(self.groups.as_fd())]
    }

    /// Whether the process does not share the UDP port yet.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        self.port.as_ref().is_some_and(Port::is_out)
    }
}

/// A place at a second port.
#[derive(Debug)]
pub(crate) struct SecondBerth {
    pub(crate) berth: Berth,
    /// Readable if something has arrived there in any way.
    pub(crate) watch: Epoll,
}

impl SecondBerth {
    pub(crate) fn new(berth: Berth) -> io::Result<Self> {
        let watch = Epoll::new()?;
        watch.add(&*berth.socket)?;
        for source in berth.besides().into_iter().flatten() {
            watch.add(&source)?;
        }
        Ok(Self { berth, watch })
    }
}
