//! Datagrams between two sockets on the loopback interface.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ferroce_sockets::{
    BindError, Message, Options, PAYLOAD_BYTES_MAX, RecvBuffers, SendError, Socket,
};
use ferroce_testing::skip;

/// Port 0: tests run side by side.
fn any_port(ip: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(ip.into(), 0)
}

fn bind(host: u8, options: &Options) -> Socket {
    Socket::bind(any_port(Ipv4Addr::new(127, 0, 0, host)), options).unwrap()
}

fn pair() -> (Socket, Socket) {
    (bind(1, &Options::default()), bind(2, &Options::default()))
}

/// `None` where IPv6 is switched off, which skips `test` or its part with IPv6.
fn pair_v6(test: &str) -> Option<(Socket, Socket)> {
    let bind = || Socket::bind(any_port(Ipv6Addr::LOCALHOST), &Options::default());
    match (bind(), bind()) {
        (Ok(a), Ok(b)) => Some((a, b)),
        (Err(error), _) | (_, Err(error)) => {
            skip(test, &format!("no IPv6 here ({error})"));
            None
        }
    }
}

/// A message with its bytes copied out.
#[derive(Debug)]
struct Arrived {
    source: SocketAddr,
    tos: u8,
    segment: usize,
    datagrams: Vec<(u16, Vec<u8>)>,
}

impl Arrived {
    fn of(message: Message<'_>) -> Self {
        Self {
            source: message.source,
            tos: message.tos,
            segment: message.segment,
            datagrams: message
                .datagrams()
                .map(|d| (d.index, d.bytes.to_vec()))
                .collect(),
        }
    }
}

/// Receives until `datagrams` have arrived. Loopback delivers before the send returns, so the
/// generous limit only matters when something is lost.
fn receive(socket: &Socket, buffers: &mut RecvBuffers, datagrams: usize) -> Vec<Arrived> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut arrived: Vec<Arrived> = Vec::new();
    while arrived
        .iter()
        .map(|message| message.datagrams.len())
        .sum::<usize>()
        < datagrams
    {
        assert!(Instant::now() < deadline, "only {arrived:?} arrived");
        if socket.recv(buffers).unwrap() > 0 {
            arrived.extend(buffers.messages().map(Arrived::of));
        }
    }
    arrived
}

/// Makes `a` send bytes in datagrams of this length; returns what `b` receives.
fn exchange((a, b): &(Socket, Socket), tos: u8, bytes: &[u8], segment: usize) -> Vec<Arrived> {
    let sent = a.send(b.address(), tos, bytes, segment).unwrap();
    assert_eq!(sent.bytes, bytes.len());
    receive(b, &mut RecvBuffers::new(8), sent.datagrams)
}

fn payloads(arrived: &[Arrived]) -> Vec<Vec<u8>> {
    arrived
        .iter()
        .flat_map(|message| &message.datagrams)
        .map(|(_, bytes)| bytes.clone())
        .collect()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect()
}

#[test]
fn an_empty_socket_gives_nothing_at_once() {
    let (a, _) = pair();
    let mut buffers = RecvBuffers::new(4);
    assert_eq!(a.recv(&mut buffers).unwrap(), 0);
    assert_eq!(buffers.messages().count(), 0);
}

#[test]
fn a_datagram_arrives_with_its_source() {
    let pair = pair();
    for text in [&b"hello"[..], b""] {
        let [arrived] = &exchange(&pair, 0, text, text.len())[..] else {
            panic!("one message")
        };
        assert_eq!(arrived.source, pair.0.address());
        assert_eq!(arrived.tos, 0);
        assert_eq!(arrived.segment, text.len());
        assert_eq!(arrived.datagrams, [(0, text.to_vec())]);
    }
}

/// Every path through the kernel must deliver the same datagrams.
#[test]
fn a_batch_arrives_as_it_was_cut() {
    for segmentation in [true, false] {
        for coalescing in [true, false] {
            for slots in [1, 8] {
                let options = Options {
                    segmentation,
                    coalescing,
                    ..Options::default()
                };
                let (a, b) = (bind(1, &options), bind(2, &options));
                let mut buffers = RecvBuffers::new(slots);
                for (len, segment) in [(4112 * 15, 4112), (4112 * 3 + 20, 4112), (64, 1), (9, 0)] {
                    let bytes = pattern(len);
                    let sent = a.send(b.address(), 0, &bytes, segment).unwrap();
                    let expected: Vec<Vec<u8>> = bytes
                        .chunks(if segment == 0 { len } else { segment })
                        .map(<[u8]>::to_vec)
                        .collect();
                    assert_eq!((sent.bytes, sent.datagrams), (len, expected.len()));
                    let arrived = receive(&b, &mut buffers, expected.len());
                    assert_eq!(payloads(&arrived), expected, "{options:?} {len}/{segment}");
                }
            }
        }
    }
}

/// The invariant CRC depends on the index, so it must be the sender's.
#[test]
fn a_coalesced_batch_keeps_the_senders_indices() {
    let (a, b) = pair();
    if !a.segmentation() {
        let test = "a_coalesced_batch_keeps_the_senders_indices";
        return skip(test, "this kernel cannot segment");
    }
    let bytes = pattern(1040 * 60);
    let sent = a.send(b.address(), 0, &bytes, 1040).unwrap();
    assert_eq!(sent.datagrams, 60);
    let arrived = receive(&b, &mut RecvBuffers::new(4), 60);
    assert_eq!(arrived.len(), 1, "loopback hands over the whole batch");
    assert_eq!(arrived[0].segment, 1040);
    let indices: Vec<u16> = arrived[0]
        .datagrams
        .iter()
        .map(|&(index, _)| index)
        .collect();
    assert_eq!(indices, (0..60).collect::<Vec<u16>>());
    assert_eq!((a.ip_id(0), a.ip_id(59)), (0, 59));
}

#[test]
fn slices_are_gathered() {
    for segmentation in [true, false] {
        let options = Options {
            segmentation,
            ..Options::default()
        };
        let (a, b) = (bind(1, &options), bind(2, &options));
        let (payload, header) = (pattern(3000), [7; 12]);
        let slices: Vec<_> = payload
            .chunks(1000)
            .flat_map(|chunk| {
                [
                    IoSlice::new(&header),
                    IoSlice::new(chunk),
                    IoSlice::new(&[9; 4]),
                ]
            })
            .collect();
        let sent = a.send_slices(b.address(), 0, &slices, 1016).unwrap();
        assert_eq!((sent.bytes, sent.datagrams), (3048, 3));
        let expected: Vec<Vec<u8>> = payload
            .chunks(1000)
            .map(|chunk| [&header[..], chunk, &[9; 4]].concat())
            .collect();
        assert_eq!(
            payloads(&receive(&b, &mut RecvBuffers::new(8), 3)),
            expected
        );
    }
}

#[test]
fn without_segmentation_identifications_are_zero() {
    let a = bind(
        1,
        &Options {
            segmentation: false,
            ..Options::default()
        },
    );
    assert!(!a.segmentation());
    assert_eq!(a.ip_id(5), 0);
}

#[test]
fn the_traffic_class_arrives_congestion_mark_included() {
    let mut pairs = vec![pair()];
    let test = "the_traffic_class_arrives_congestion_mark_included";
    pairs.extend(pair_v6(test));
    for pair in pairs {
        // Not ECT, ECT(1), ECT(0) and CE, with and without a DSCP.
        for tos in [0, 1, 2, 3, 26 << 2 | 2, 48 << 2 | 3, 0xff] {
            for bytes in [&pattern(100)[..], &pattern(4 * 1040)] {
                for message in exchange(&pair, tos, bytes, 1040) {
                    assert_eq!(message.tos, tos, "from {}", pair.0.address());
                }
            }
        }
    }
}

#[test]
fn different_traffic_classes_are_not_merged() {
    let (a, b) = pair();
    for tos in [2, 3, 2] {
        assert_eq!(
            a.send(b.address(), tos, &[tos; 64], 64).unwrap().datagrams,
            1
        );
    }
    let classes: Vec<u8> = receive(&b, &mut RecvBuffers::new(8), 3)
        .iter()
        .map(|m| m.tos)
        .collect();
    assert_eq!(classes, [2, 3, 2]);
}

#[test]
fn version_6_carries_batches() {
    let Some(pair) = pair_v6("version_6_carries_batches") else {
        return;
    };
    let bytes = pattern(4112 * 15);
    let arrived = exchange(&pair, 2, &bytes, 4112);
    assert_eq!(arrived[0].source, pair.0.address());
    assert_eq!(payloads(&arrived).len(), 15);
    assert_eq!(payloads(&arrived).concat(), bytes);
}

#[test]
fn both_families_can_hold_one_port() {
    let v4 = bind(1, &Options::default());
    let address = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), v4.address().port());
    match Socket::bind(address, &Options::default()) {
        // Another program may have the port by chance; it must only not be ours.
        Ok(_) | Err(BindError::AddressInUse { .. }) => {}
        Err(error) => {
            let test = "both_families_can_hold_one_port";
            skip(test, &format!("no IPv6 here ({error})"));
        }
    }
}

#[test]
fn the_largest_batch_leaves_and_one_byte_more_does_not() {
    let pair = pair();
    let bytes = pattern(PAYLOAD_BYTES_MAX + 1);
    for segment in [4112, PAYLOAD_BYTES_MAX] {
        let arrived = exchange(&pair, 0, &bytes[..PAYLOAD_BYTES_MAX], segment);
        assert_eq!(payloads(&arrived).concat(), &bytes[..PAYLOAD_BYTES_MAX]);
        assert!(matches!(
            pair.0.send(pair.1.address(), 0, &bytes, segment),
            Err(SendError::Unsendable { bytes: 65_508, .. })
        ));
    }
}

#[test]
fn the_most_segments_leave_and_one_more_does_not() {
    let (a, b) = pair();
    let max = a.segments_max();
    assert!(max == 64 || max == 128);
    let bytes = pattern((max + 1) * 8);
    assert_eq!(
        a.send(b.address(), 0, &bytes[..max * 8], 8)
            .unwrap()
            .datagrams,
        max
    );
    assert_eq!(receive(&b, &mut RecvBuffers::new(1), max).len(), 1);
    assert!(matches!(
        a.send(b.address(), 0, &bytes, 8),
        Err(SendError::Unsendable { .. })
    ));
}

#[test]
fn the_other_family_is_unsendable() {
    let (a, _) = pair();
    let other = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 4791);
    assert!(matches!(
        a.send(other, 0, b"x", 1),
        Err(SendError::Unsendable { .. })
    ));
    assert!(
        a.segmentation(),
        "a mistake of the caller says nothing about the kernel"
    );
}

/// The kernel refuses port 0 with the same error as missing segmentation.
#[test]
fn a_bad_destination_does_not_switch_segmentation_off() {
    let (a, b) = pair();
    let nowhere = SocketAddr::new(b.address().ip(), 0);
    assert!(matches!(
        a.send(nowhere, 0, &[0; 64], 32),
        Err(SendError::Lost(_))
    ));
    assert_eq!(
        a.segmentation(),
        bind(3, &Options::default()).segmentation()
    );
}

#[test]
fn a_closed_port_harms_neither_sending_nor_receiving() {
    let a = bind(1, &Options::default());
    // An address of its own, so that no other test gets the port.
    let closed = bind(9, &Options::default()).address();
    let mut buffers = RecvBuffers::new(1);
    for _ in 0..10 {
        match a.send(closed, 0, b"anyone?", 7) {
            Ok(sent) => assert_eq!(sent.datagrams, 1),
            Err(SendError::Lost(_)) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(a.recv(&mut buffers).unwrap(), 0);
    }
}

#[test]
fn a_flood_is_dropped_and_counted() {
    let small = Options {
        receive_buffer_bytes: 1,
        ..Options::default()
    };
    let (a, b) = (bind(1, &Options::default()), bind(2, &small));
    assert_eq!(b.receive_drops().unwrap(), 0);
    for _ in 0..100 {
        let _ = a.send(b.address(), 0, &[0; 1000], 1000).unwrap();
    }
    assert!(b.receive_drops().unwrap() > 0);
}

#[test]
fn the_granted_buffers_are_reported() {
    let default = bind(1, &Options::default()).granted();
    let small = Options {
        receive_buffer_bytes: 8192,
        send_buffer_bytes: 8192,
        ..Options::default()
    };
    let granted = bind(1, &small).granted();
    assert!(granted.receive_buffer_bytes >= 8192 && granted.send_buffer_bytes >= 8192);
    assert!(default.receive_buffer_bytes > granted.receive_buffer_bytes);
    assert!(default.send_buffer_bytes > granted.send_buffer_bytes);
}

#[test]
fn a_taken_address_is_named_with_its_likely_holders() {
    let holder = bind(1, &Options::default());
    let error = Socket::bind(holder.address(), &Options::default()).unwrap_err();
    assert!(matches!(error, BindError::AddressInUse { address } if address == holder.address()));
    let text = error.to_string();
    for part in [
        &holder.address().to_string(),
        "another process",
        "rdma_rxe",
        "127.0.0.2",
    ] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

#[test]
fn a_shared_port_can_be_bound_again() {
    let shared = Options {
        share_port: true,
        ..Options::default()
    };
    let first = bind(1, &shared);
    let second = Socket::bind(first.address(), &shared).unwrap();
    assert_eq!(second.address(), first.address());
    assert!(matches!(
        Socket::bind(first.address(), &Options::default()),
        Err(BindError::AddressInUse { .. })
    ));
}

#[test]
fn a_foreign_address_is_not_available() {
    // From a range reserved for documentation.
    let error = Socket::bind(any_port(Ipv4Addr::new(192, 0, 2, 1)), &Options::default());
    assert!(
        matches!(error, Err(BindError::AddressNotAvailable { .. })),
        "{error:?}"
    );
}

#[test]
fn a_wildcard_is_not_a_device_address() {
    for ip in [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv6Addr::UNSPECIFIED.into(),
    ] {
        let error = Socket::bind(any_port(ip), &Options::default());
        assert!(matches!(error, Err(BindError::Unspecified { .. })));
    }
}
