//! Leaving the group of sockets that share a port without losing a packet.
//!
//! When a socket is closed, the packets that the kernel has put there since it was last read are
//! lost, and so are those that the kernel was about to put there. The socket therefore leaves
//! first. Binding it to a network interface that does not exist (SO_BINDTOIFINDEX, which any
//! process may set once) removes it from the group and from the lookup by address, while it stays
//! open: from then on, no packet is for it. Packets whose lookup was in progress arrive within one
//! grace period of RCU, the lock under which the kernel delivers; `membarrier(2)` waits for one.
//! After that, no further packets arrive.
//!
//! If that would move the sockets of others, another process keeps it in its position instead
//! (`kept.rs`).

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{Socket, set};

/// From the kernel's asm-generic/socket.h, which the architectures that Rust has follow.
const SO_BINDTOIFINDEX: libc::c_int = 62;
/// No interface has this number: they count from 1.
const NOWHERE: libc::c_int = libc::c_int::MAX;
/// From the kernel's linux/membarrier.h.
const MEMBARRIER_CMD_GLOBAL: libc::c_long = 1;
/// Longer than delivering a packet takes, where the kernel does not wait for that: with
/// `nohz_full`, or in a sandbox.
const DELIVERY_MAX: Duration = Duration::from_millis(50);

impl Socket {
    /// Lets no further packet come to this socket, permanently; those for its port go to the other
    /// sockets that share it. What has come can still be read. Nothing can be sent any more.
    ///
    /// # Errors
    /// Returns an error on kernels before 5.7, which require a privilege for it.
    pub fn leave(&self) -> io::Result<()> {
        self.is_in.store(false, Ordering::Relaxed);
        set(&self.inner, libc::SOL_SOCKET, SO_BINDTOIFINDEX, NOWHERE)
    }

    /// Notes that another process has the socket from now on, with all that is in it.
    pub fn give_away(&self) {
        self.is_in.store(false, Ordering::Relaxed);
    }

    /// Whether it does not share its port yet, or no more: it has left or was given away. What is
    /// sent from it now is not sent.
    #[inline]
    pub fn is_out(&self) -> bool {
        !self.is_in.load(Ordering::Relaxed)
    }

    /// Waits until the packets are there that were on their way to a socket that has left. Takes
    /// some milliseconds.
    pub fn wait_for_delivery() {
        // SAFETY: takes three integers and touches no memory.
        let outcome = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
        if outcome != 0 {
            thread::sleep(DELIVERY_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

    use ferroce_testing::skip;

    use super::super::{Options, RecvBuffers};
    use super::*;

    fn read(socket: &Socket) -> usize {
        let mut buffers = RecvBuffers::new(1);
        let mut count = 0;
        while socket.recv(&mut buffers).unwrap() > 0 {
            count += buffers.messages().count();
        }
        count
    }

    const TEST: &str = "a_socket_that_leaves_costs_no_packet";

    #[test]
    fn a_socket_that_leaves_costs_no_packet() {
        costs_no_packet(Ipv4Addr::LOCALHOST.into());
        let v6 = Ipv6Addr::LOCALHOST;
        match UdpSocket::bind((v6, 0)) {
            Ok(_) => costs_no_packet(v6.into()),
            Err(error) => skip(TEST, &format!("no IPv6 here ({error})")),
        }
    }

    fn costs_no_packet(address: IpAddr) {
        let options = Options {
            share_port: true,
            coalescing: false,
            ..Options::default()
        };
        let any = SocketAddr::new(address, 0);
        let stays = Socket::bind(any, &options).unwrap();
        let leaves = Socket::bind(stays.address(), &options).unwrap();
        // The kernel picks a socket by the sender's port, too.
        let senders: Vec<_> = (0..64).map(|_| UdpSocket::bind(any).unwrap()).collect();
        let send = || {
            for sender in &senders {
                sender.send_to(&[0; 20], stays.address()).unwrap();
            }
        };
        send();
        if let Err(error) = leaves.leave() {
            let reason = format!("this kernel does not let a socket leave ({error})");
            return skip(TEST, &reason);
        }
        Socket::wait_for_delivery();
        let (here, there) = (read(&stays), read(&leaves));
        assert_eq!(here + there, senders.len());
        assert!(there > 0, "the kernel spreads packets over the sockets");
        send();
        assert_eq!((read(&stays), read(&leaves)), (senders.len(), 0));
    }
}
