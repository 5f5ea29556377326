//! Which of the sockets that share a port receives a packet.
//!
//! Alone in its program: where other threads start programs, a closed socket stays open in them for
//! a while, and receives packets.

mod common;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use common::{PATIENCE, address, port_v6, share};
use ferroce_os::Waiter;
use ferroce_sockets::{Options, RecvBuffers, Routes, Socket};
use ferroce_wire::ROCE_V2_PORT;
use ferroce_wire::cm::{PortSpace, ServiceId};

/// Which of the sockets gets the bytes.
fn receiver(sockets: &[Socket], bytes: &[u8]) -> usize {
    let sender = Socket::bind(
        SocketAddr::new(any(sockets[0].address().ip()), 0),
        &Options::default(),
    );
    let to = sockets[0].address();
    let sent = sender.unwrap().send(to, 0, bytes, 0).unwrap();
    assert_eq!(sent.bytes, bytes.len());
    let mut buffers = RecvBuffers::new(1);
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        for (index, socket) in sockets.iter().enumerate() {
            let pause = Some(Duration::from_millis(1));
            Waiter::new().unwrap().wait(socket, pause, false).unwrap();
            if socket.recv(&mut buffers).unwrap() > 0 {
                assert_eq!(buffers.messages().next().unwrap().bytes, bytes);
                return index;
            }
        }
    }
    panic!("nothing came");
}

/// An address of the same host and family.
fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => "127.0.0.1".parse().unwrap(),
        v6 @ IpAddr::V6(_) => v6,
    }
}

/// Only the part of a packet that the kernel reads.
fn packet(qpn: u32, at: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    // The byte before the number has another meaning.
    bytes[4..8].copy_from_slice(&(0xff << 24 | qpn).to_be_bytes());
    at.iter().for_each(|(at, value)| bytes[*at] = *value);
    bytes
}

#[test]
fn the_kernel_steers_packets_by_their_slot() {
    let v4 = SocketAddr::new(address(21, 0, 0), ROCE_V2_PORT);
    let v6 = port_v6("the_kernel_steers_packets_by_their_slot");
    let v6 = v6.map(|port| SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port));
    for address in [Some(v4), v6].into_iter().flatten() {
        let first = share(address);
        let address = first.address();
        let mut sockets = vec![first, share(address), share(address)];
        let goes = |sockets: &[Socket], qpn, at: &[_]| receiver(sockets, &packet(qpn, at));
        let service = |port| ServiceId::new(PortSpace::Tcp, port);
        let routes = Routes {
            slots: vec![(1, 2), (254, 0), (7, 1)],
            spread: vec![0, 1, 2],
            services: vec![(service(7471), 1), (service(18515), 2)],
        };
        sockets[1].steer(&routes).unwrap();
        assert_eq!(goes(&sockets, 0x01_0203, &[]), 2);
        assert_eq!(goes(&sockets, 0xfe_0001, &[]), 0);
        assert_eq!(goes(&sockets, 0x07_ffff, &[]), 1);
        // Messages of the connection manager.
        for attribute in 0x11..=0x18 {
            let (own, other) = if attribute == 0x18 {
                (44, 48)
            } else {
                (48, 44)
            };
            for (slot, socket) in [(1, 2), (254, 0), (7, 1)] {
                if attribute != 0x17 {
                    let at = [(37, attribute), (own, slot), (other, 99)];
                    assert_eq!(goes(&sockets, 1, &at), socket, "{attribute:#x}");
                }
            }
        }
        // Requests go to the process that listens.
        for attribute in [0x10, 0x17] {
            for (port, socket) in [(7471_u16, 1), (18515, 2)] {
                let [high, low] = port.to_be_bytes();
                let at = [(37, attribute), (56, 1), (57, 6), (58, high), (59, low)];
                assert_eq!(goes(&sockets, 1, &at), socket);
            }
        }
        // Requests for other services, and other messages, go to another process with each
        // repetition.
        for attribute in [0x10, 0x17, 0x01] {
            let psn = |psn| [(37, attribute), (56, 1), (57, 6), (11, psn)];
            let mut reached: Vec<_> = (0..3).map(|n| goes(&sockets, 1, &psn(n))).collect();
            reached.sort_unstable();
            assert_eq!(reached, [0, 1, 2]);
        }
        // Packets for a free slot always go to the same process.
        let always = goes(&sockets, 0x09_0001, &[]);
        for psn in 0..9 {
            assert_eq!(goes(&sockets, 0x09_0001, &[(11, psn)]), always);
        }
        // Probes.
        for index in 0..3 {
            let at = [(0, 0xfe), (1, index)];
            assert_eq!(goes(&sockets, 0x07_0001, &at), usize::from(index));
        }
        // The last one moves into the place of the first.
        drop(sockets.remove(0));
        assert_eq!(goes(&sockets, 0xfe_0001, &[]), 1);
        assert_eq!(goes(&sockets, 0x07_0001, &[]), 0);
    }
}
