//! What the invariant CRC relies on and no UDP socket can observe: "don't fragment" is set and the
//! IPv4 Identification is the datagram's index in its batch. The tests capture the loopback
//! interface, which requires the right to open packet sockets.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ferroce_sockets::{Options, RecvBuffers, Socket};
use ferroce_testing::skip;
use socket2::{Domain, Protocol, SockFilter, Type};

const ETHERNET_BYTES: usize = 14;

/// A capture for `test` of the IPv4 packets that arrive here from a UDP port, or `None` without the
/// right to open one. (A capture of all protocols would show each packet of the loopback interface
/// twice, out and in.)
fn capture(test: &str, from: SocketAddr) -> Option<socket2::Socket> {
    let ipv4 = i32::from((libc::ETH_P_IP as u16).to_be());
    match socket2::Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ipv4))) {
        Ok(socket) => {
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            socket.attach_filter(&packets_from(from.port())).unwrap();
            Some(socket)
        }
        Err(error) => {
            skip(test, &format!("capturing needs CAP_NET_RAW ({error})"));
            None
        }
    }
}

/// A kernel filter that passes packets with this source port after an IPv4 header without options:
/// the packets of all other tests would fill the socket's buffer.
fn packets_from(port: u16) -> [SockFilter; 4] {
    use libc::{BPF_ABS, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
    let at = (ETHERNET_BYTES + 20) as u32;
    let step = |code: u32, otherwise, value| SockFilter::new(code as u16, 0, otherwise, value);
    [
        step(BPF_LD | BPF_H | BPF_ABS, 0, at),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, port.into()),
        step(BPF_RET | BPF_K, 0, u32::MAX),
        step(BPF_RET | BPF_K, 0, 0),
    ]
}

/// IPv4 headers of captured packets from one UDP socket to another, with the length they came with.
fn captured(
    mut capture: &socket2::Socket,
    from: SocketAddr,
    to: SocketAddr,
    bytes: usize,
) -> Vec<(usize, Vec<u8>)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut headers = Vec::new();
    let mut buffer = vec![0; 1 << 17];
    let mut seen = 0;
    while seen < bytes {
        assert!(
            Instant::now() < deadline,
            "captured only {seen} of {bytes} bytes"
        );
        let len = match capture.read(&mut buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => panic!("{error}"),
        };
        let Some(ip) = buffer[..len].get(ETHERNET_BYTES..) else {
            continue;
        };
        if ip.len() < 28 || ip[0] != 0x45 || ip[9] != 17 {
            continue;
        }
        let port = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        if (port(20), port(22)) == (from.port(), to.port()) {
            seen += ip.len() - 28;
            headers.push((ip.len() - 28, ip[..20].to_vec()));
        }
    }
    headers
}

fn sockets(options: &Options) -> (Socket, Socket) {
    let bind = |host| {
        let address = (Ipv4Addr::new(127, 0, 0, host), 0).into();
        Socket::bind(address, options).unwrap()
    };
    (bind(1), bind(2))
}

/// Identification and "don't fragment" are right for the datagram at this index in its batch.
fn check(header: &[u8], expected: u16) {
    assert_eq!(u16::from_be_bytes([header[4], header[5]]), expected);
    assert!(header[6] & 0x40 != 0, "it may be fragmented");
}

#[test]
fn single_datagrams_have_identification_0_and_no_fragments() {
    let (a, b) = sockets(&Options::default());
    let test = "single_datagrams_have_identification_0_and_no_fragments";
    let Some(capture) = capture(test, a.address()) else {
        return;
    };
    for _ in 0..3 {
        assert_eq!(a.send(b.address(), 2, &[1; 280], 280).unwrap().datagrams, 1);
    }
    let headers = captured(&capture, a.address(), b.address(), 3 * 280);
    assert_eq!(headers.len(), 3);
    for (_, header) in &headers {
        assert_eq!(a.ip_id(0), 0);
        check(header, 0);
        assert_eq!(header[1], 2, "traffic class");
    }
}

/// Loopback carries a batch unsegmented, so only the header of datagram 0 can be seen. The others'
/// identifications are visible on interfaces that segment.
#[test]
fn a_batch_begins_with_identification_0() {
    let (a, b) = sockets(&Options::default());
    let test = "a_batch_begins_with_identification_0";
    let Some(capture) = capture(test, a.address()) else {
        return;
    };
    let sent = a.send(b.address(), 0, &[7; 1040 * 8], 1040).unwrap();
    assert_eq!(sent.datagrams, 8);
    let headers = captured(&capture, a.address(), b.address(), sent.bytes);
    let mut index = 0;
    for (payload, header) in &headers {
        check(header, a.ip_id(index));
        index += (payload / 1040) as u16;
    }
    if headers.len() == 1 {
        eprintln!("note: the interface carried the batch whole; only its first header was checked");
    }
    let mut buffers = RecvBuffers::new(1);
    assert_eq!(b.recv(&mut buffers).unwrap(), 1);
    assert_eq!(
        buffers
            .messages()
            .flat_map(|message| message.datagrams())
            .count(),
        8
    );
}

#[test]
fn datagrams_sent_one_by_one_all_have_identification_0() {
    let (a, b) = sockets(&Options {
        segmentation: false,
        ..Options::default()
    });
    let test = "datagrams_sent_one_by_one_all_have_identification_0";
    let Some(capture) = capture(test, a.address()) else {
        return;
    };
    assert_eq!(a.send(b.address(), 0, &[7; 250], 100).unwrap().datagrams, 3);
    let headers = captured(&capture, a.address(), b.address(), 250);
    assert_eq!(
        headers.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(),
        [100, 100, 50]
    );
    for (index, (_, header)) in headers.iter().enumerate() {
        assert_eq!(a.ip_id(index as u16), 0);
        check(header, 0);
    }
}
