//! One UDP socket for a RoCEv2 device.
//!
//! A device sends from one address and one port. Its socket stays *unconnected* and asks for path
//! MTU discovery, because that is the one combination in which Linux sends IPv4 packets with "don't
//! fragment" set and a predictable Identification: 0 for a single datagram, `i` for datagram `i` of
//! a segmented (GSO) batch. The invariant CRC covers that field and no socket call shows it to the
//! receiver, so it must be predictable. See [`Socket::ip_id`].
//!
//! The traffic class (DSCP and ECN bits) is passed with each call and returned with each message,
//! so both a NIC's ECT and a software switch's CE marks pass without privileges.
//!
//! Nothing here blocks; [`wait`](ferroce_os) sleeps.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_os::{NotInherited, after};
use ferroce_wire::ROCE_V2_PORT;
use socket2::{Domain, Protocol, Type};

mod address;
mod control;
mod group;
mod leave;
mod recv;
mod send;
mod steer;

pub use recv::{Datagram, Datagrams, Message, Messages, RecvBuffers};
pub use send::{SendError, Sent};
pub use steer::PROBE;
pub use steer::Routes;

/// The most bytes of UDP payload one call can send, segmented or not.
pub const PAYLOAD_BYTES_MAX: usize = 65_507;

/// The most datagrams one call can send on a current kernel; [`Socket::segments_max`] has the
/// figure of the running one.
pub const SEGMENTS_MAX: usize = 128;

/// The same on kernels that have segmentation but not the raised limit.
const SEGMENTS_MAX_OLD: usize = 64;

/// A non-blocking UDP socket bound to one address.
///
/// All methods take `&self`: several threads may send and receive at once, each with its own
/// [`RecvBuffers`].
pub struct Socket {
    inner: NotInherited<socket2::Socket>,
    address: SocketAddr,
    granted: Granted,
    segments_max: usize,
    /// Whether the kernel cuts batches for us. Goes to `false` once, never back.
    segmentation: AtomicBool,
    /// Whether it shares its port: from [`Socket::enter`] until [`Socket::leave`].
    is_in: AtomicBool,
}

impl Socket {
    /// Binds `address`; port 0 lets the kernel choose (tests only: RoCE peers expect
    /// [`ROCE_V2_PORT`]).
    ///
    /// # Errors
    /// Returns [`BindError`], which names the step that failed and what the user can do about it.
    pub fn bind(address: SocketAddr, options: &Options) -> Result<Self, BindError> {
        let mut socket = Self::unbound(address, options)?;
        socket.enter()?;
        let bound = socket.inner.local_addr().ok();
        socket.address =
            bound
                .and_then(|bound| bound.as_socket())
                .ok_or_else(|| BindError::Option {
                    name: "getsockname",
                    source: last_error(),
                })?;
        Ok(socket)
    }

    /// A socket for `address` that is not bound to it before [`Self::enter`]: nothing arrives, and
    /// it must not be sent from, or the kernel would bind it to a port of its choice.
    ///
    /// # Errors
    /// As for [`Self::bind`], except for errors in the address itself.
    pub fn unbound(address: SocketAddr, options: &Options) -> Result<Self, BindError> {
        if address.ip().is_unspecified() {
            return Err(BindError::Unspecified { address });
        }
        let inner = socket2::Socket::new(
            Domain::for_address(address),
            Type::DGRAM.nonblocking().cloexec(),
            Some(Protocol::UDP),
        )
        .map_err(|source| BindError::Create { address, source })?;
        configure(&inner, address, options)?;
        let granted = raise_buffers(&inner, options)?;
        group::send_from(&inner, address);
        let kernel = segments_max_of_kernel();
        Ok(Self {
            inner: NotInherited::new(inner),
            address,
            granted,
            segments_max: kernel.unwrap_or(SEGMENTS_MAX_OLD),
            segmentation: AtomicBool::new(options.segmentation && kernel.is_some()),
            is_in: AtomicBool::new(false),
        })
    }

    /// A socket that another process has made, if it is for the same address as `own`.
    pub fn received(socket: OwnedFd, own: &Self) -> Option<Self> {
        let inner = socket2::Socket::from(socket);
        let address = inner.local_addr().ok()?.as_socket()?;
        (address == own.address).then(|| Self {
            inner: NotInherited::new(inner),
            address,
            granted: own.granted,
            segments_max: own.segments_max,
            segmentation: AtomicBool::new(own.segmentation()),
            is_in: AtomicBool::new(true),
        })
    }

    /// Binds the socket to its address. From now on packets arrive.
    pub fn enter(&self) -> Result<(), BindError> {
        let address = self.address;
        self.inner
            .bind(&address.into())
            .map_err(|source| BindError::from_bind(address, source))?;
        self.is_in.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The address the socket is bound to, with the port the kernel chose if 0 was asked for.
    #[inline]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The buffer sizes the kernel granted.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// The most datagrams one call may carry: 128, or 64 on old kernels.
    pub fn segments_max(&self) -> usize {
        self.segments_max
    }

    /// Whether a batch leaves as one segmented (GSO) call. `false` means one datagram at a time:
    /// slower, and every datagram has IP Identification 0.
    ///
    /// May turn `false` during a [`send`](Self::send) that finds the route unable to segment; it
    /// does not turn back.
    #[inline]
    pub fn segmentation(&self) -> bool {
        self.segmentation.load(Ordering::Relaxed)
    }

    /// The IPv4 Identification that datagram `index` of the next batch will carry, for its
    /// invariant CRC. Meaningless for IPv6, which has no such field.
    pub fn ip_id(&self, index: u16) -> u16 {
        if self.segmentation() { index } else { 0 }
    }

    /// How many arrived datagrams the kernel has thrown away since the socket was made, almost
    /// always because the receive buffer was full.
    ///
    /// # Errors
    /// Returns an error on kernels before 4.12, which do not provide it.
    pub fn receive_drops(&self) -> io::Result<u32> {
        const WORDS: usize = libc::SK_MEMINFO_DROPS as usize + 1;
        let mut words = [0u32; WORDS];
        let mut len = size_of_val(&words) as libc::socklen_t;
        // SAFETY: `words` is writable for the `len` bytes announced and `len` outlives the call.
        let outcome = unsafe {
            libc::getsockopt(
                self.raw(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if outcome == 0 {
            Ok(words[WORDS - 1])
        } else {
            Err(last_error())
        }
    }

    fn raw(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("address", &self.address)
            .field("granted", &self.granted)
            .field("segments_max", &self.segments_max)
            .field("segmentation", &self.segmentation())
            .finish_non_exhaustive()
    }
}

/// How to make a [`Socket`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Receive buffer to ask for, in bytes. The kernel caps it at `net.core.rmem_max` and doubles
    /// it for its own bookkeeping. Default 4 MiB.
    pub receive_buffer_bytes: usize,
    /// Send buffer to ask for, in bytes, capped at `net.core.wmem_max`. Default 4 MiB.
    pub send_buffer_bytes: usize,
    /// Let other sockets of the same user bind the same address (`SO_REUSEPORT`), for a device
    /// that several processes share. Default off, so that a second device is an error.
    pub share_port: bool,
    /// Send batches with `UDP_SEGMENT` where the kernel can. Default on.
    pub segmentation: bool,
    /// Take coalesced batches with `UDP_GRO` where the kernel can. Default on.
    pub coalescing: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            share_port: false,
            segmentation: true,
            coalescing: true,
        }
    }
}

/// Buffer sizes as the kernel reports them, which is twice what it lets the socket use for payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Granted {
    /// `SO_RCVBUF` after the request. More bytes than this in flight towards the socket are lost.
    pub receive_buffer_bytes: usize,
    /// `SO_SNDBUF` after the request.
    pub send_buffer_bytes: usize,
}

/// Why a socket could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another program holds the port.
    #[error(
        "{address} is in use: another process, another user's device or the kernel's soft-RoCE \
         (rdma_rxe) holds this UDP port. Find it with `ss -ulnp sport = :{port}` (no process \
         shown: `rdma link`, then `rdma link delete NAME`). Programs share a device if their \
         FERROCE_DIR is the same. Or give this device another address, for example 127.0.0.2", port = address.port()
    )]
    AddressInUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// No interface of this machine has the address.
    #[error(
        "{address} belongs to no interface of this machine: pick one that `ip address` lists, or \
         any of 127.0.0.0/8"
    )]
    AddressNotAvailable {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The user may not bind the port.
    #[error(
        "not allowed to bind {address}: ports below {start} need CAP_NET_BIND_SERVICE, and a \
         sandbox may forbid others; RoCEv2 uses {ROCE_V2_PORT}",
        start = 1024
    )]
    PermissionDenied {
        /// The address asked for.
        address: SocketAddr,
    },
    /// A wildcard address, which leaves the invariant CRC without a source address.
    #[error("{address} stands for every interface, but a device has one address: name it")]
    Unspecified {
        /// The address asked for.
        address: SocketAddr,
    },
    /// No socket at all, for example IPv6 on a machine that has it switched off.
    #[error("cannot create a UDP socket for {address}: {source}{after}", after = after(source))]
    Create {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The bind failed for another reason.
    #[error("cannot bind {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused an option the device cannot do without.
    #[error("the kernel refused socket option {name}: {source}")]
    Option {
        /// The option's name in the manual pages.
        name: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl BindError {
    fn from_bind(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { address },
            io::ErrorKind::AddrNotAvailable => Self::AddressNotAvailable { address },
            io::ErrorKind::PermissionDenied => Self::PermissionDenied { address },
            _ => Self::Bind { address, source },
        }
    }

    /// What the kernel said.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Self::AddressInUse { .. } => libc::EADDRINUSE,
            Self::AddressNotAvailable { .. } | Self::Unspecified { .. } => libc::EADDRNOTAVAIL,
            Self::PermissionDenied { .. } => libc::EACCES,
            Self::Create { source, .. }
            | Self::Bind { source, .. }
            | Self::Option { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// Sets everything that must be in place before the first packet can arrive.
fn configure(
    socket: &socket2::Socket,
    address: SocketAddr,
    options: &Options,
) -> Result<(), BindError> {
    let named = |name| move |source| BindError::Option { name, source };
    if address.is_ipv4() {
        set(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )
        .map_err(named("IP_MTU_DISCOVER"))?;
        socket.set_recv_tos_v4(true).map_err(named("IP_RECVTOS"))?;
    } else {
        // Without this a device on :: addresses would also claim the IPv4 port.
        socket.set_only_v6(true).map_err(named("IPV6_V6ONLY"))?;
        set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        )
        .map_err(named("IPV6_MTU_DISCOVER"))?;
        socket
            .set_recv_tclass_v6(true)
            .map_err(named("IPV6_RECVTCLASS"))?;
    }
    if options.coalescing {
        // Kernels before 5.0 lack it; single datagrams then arrive one by one, which is all right.
        let _ = set(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    if address.ip().is_multicast() {
        // A group is for all processes, those of other users included.
        socket
            .set_reuse_address(true)
            .map_err(named("SO_REUSEADDR"))?;
    }
    if options.share_port {
        socket.set_reuse_port(true).map_err(named("SO_REUSEPORT"))?;
    }
    Ok(())
}

fn raise_buffers(socket: &socket2::Socket, options: &Options) -> Result<Granted, BindError> {
    let receive = |source| BindError::Option {
        name: "SO_RCVBUF",
        source,
    };
    let send = |source| BindError::Option {
        name: "SO_SNDBUF",
        source,
    };
    socket
        .set_recv_buffer_size(options.receive_buffer_bytes)
        .map_err(receive)?;
    socket
        .set_send_buffer_size(options.send_buffer_bytes)
        .map_err(send)?;
    Ok(Granted {
        receive_buffer_bytes: socket.recv_buffer_size().map_err(receive)?,
        send_buffer_bytes: socket.send_buffer_size().map_err(send)?,
    })
}

/// Finds how many segments the kernel accepts by sending that many one-byte datagrams to a
/// throw-away socket; `None` if it knows no segmentation. The limit was raised in a stable update,
/// so a version number would not tell.
fn segments_max_of_kernel() -> Option<usize> {
    static PROBED: OnceLock<Option<usize>> = OnceLock::new();
    *PROBED.get_or_init(|| {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let address = socket.local_addr().ok()?;
        let works = |count: usize| {
            let payload = [0; SEGMENTS_MAX];
            let outcome = send::segmented(
                socket.as_raw_fd(),
                address,
                0,
                &[io::IoSlice::new(&payload[..count])],
                1,
            );
            match outcome {
                Ok(_) => true,
                // A network namespace whose loopback is down proves nothing either way.
                Err(error) => {
                    !matches!(
                        error.raw_os_error(),
                        Some(libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP)
                    ) && count <= SEGMENTS_MAX_OLD
                }
            }
        };
        [SEGMENTS_MAX, SEGMENTS_MAX_OLD]
            .into_iter()
            .find(|&count| works(count))
    })
}

fn set(socket: &socket2::Socket, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option value is one `c_int` on this stack frame and its exact size is passed.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

fn last_error() -> io::Error {
    io::Error::last_os_error()
}
