//! Frames of segmentation offload, in which several packets share one IP and one UDP header.

use std::net::IpAddr;

use ferroce_capture::{Analysis, Conversations, Datagram, analyse};
use ferroce_wire::pcapng::{UdpMeta, Writer};
use ferroce_wire::{
    Aeth, Connection, Headers, Hello, IcrcFlow, IpPair, Place, Psn, Qpn, Reth, STEERING_PROBE,
    fill_trailer,
};
use proptest::prelude::*;

const PORT: u16 = 50_000;

#[derive(Clone, Copy, Debug)]
struct Flow {
    src: IpAddr,
    dst: IpAddr,
    /// Identification of the frame.
    ip_id: u16,
}

impl Flow {
    fn new(is_v6: bool, ip_id: u16) -> Self {
        let texts = match is_v6 {
            false => ["10.0.0.1", "10.0.0.2"],
            true => ["2001:db8::1", "2001:db8::2"],
        };
        let [src, dst] = texts.map(|text| text.parse().unwrap());
        let ip_id = if is_v6 { 0 } else { ip_id };
        Self { src, dst, ip_id }
    }

    /// A packet as it is on the wire.
    fn packet(self, headers: Headers, payload: &[u8], index: u16) -> Vec<u8> {
        let flow = IcrcFlow::new(IpPair::new(self.src, self.dst).unwrap(), PORT, 4791);
        let mut bytes = vec![0; payload.len() + 64];
        let id = self.ip_id.wrapping_add(index);
        let len = headers.emit_packet(payload, &flow, id, &mut bytes);
        bytes.truncate(len.unwrap());
        bytes
    }

    fn datagram(self, bytes: &[u8], len: usize) -> Datagram<'_> {
        Datagram {
            at_ns: 0,
            src: self.src,
            dst: self.dst,
            src_port: PORT,
            ip_id: self.ip_id,
            ecn: 0,
            bytes,
            len,
        }
    }
}

/// A WRITE of several packets with equal payloads; the last one may be shorter.
fn write(flow: Flow, mtu: usize, count: u32, last: usize) -> Vec<Vec<u8>> {
    let packet = |index: u32| {
        let (place, len) = match index {
            _ if index + 1 == count => (Place::Last, last),
            _ => (Place::Middle, mtu),
        };
        let headers = Headers::write(Connection::Rc, place, Reth::default(), None);
        let headers = headers.to(Qpn::new(0x11), Psn::new(100 + index));
        // Bytes that look like headers: opcode 0, and the partition of all packets.
        let payload: Vec<u8> = [0, 0, 0xff, 0xff].into_iter().cycle().take(len).collect();
        flow.packet(headers, &payload, index as u16)
    };
    (0..count).map(packet).collect()
}

fn read(flow: Flow, frame: &[u8], captured: usize) -> Conversations {
    let mut said = Conversations::default();
    said.add(&flow.datagram(&frame[..captured.min(frame.len())], frame.len()));
    said
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_packet_of_a_frame_is_found(
        is_v6: bool,
        ip_id: u16,
        mtu in prop::sample::select(vec![256usize, 512, 1024, 2048, 4096]),
        count in 2u32..=15,
        last in 0usize..=4096,
    ) {
        let flow = Flow::new(is_v6, ip_id);
        let packets = write(flow, mtu, count, last % (mtu + 1));
        let said = read(flow, &packets.concat(), usize::MAX);
        prop_assert_eq!(said.icrc_right, u64::from(count));
        prop_assert_eq!((said.icrc_wrong, said.malformed), (0, 0));
        prop_assert_eq!((said.offloaded, said.offloaded_packets), (1, count.into()));
        let requests = &said.ways[0].requests;
        prop_assert_eq!((requests.packets, requests.missing), (count.into(), 0));
        let payload = (count as usize - 1) * mtu + last % (mtu + 1);
        prop_assert_eq!(said.ways[0].bytes, payload as u64);
    }

    /// Packets that a link between two Ferroces has made equally long, in one frame and one by one.
    #[test]
    fn packets_with_trailers_are_found(
        is_v6: bool,
        mtu in prop::sample::select(vec![256usize, 1024, 4096]),
        count in 2u32..=15,
        longer in prop::sample::select(vec![4usize, 16, 32]),
        captured in 12usize..200,
    ) {
        let flow = Flow::new(is_v6, 0);
        let mut packets = write(flow, mtu, count, mtu);
        let len = packets[0].len() + longer;
        for packet in &mut packets {
            let own = packet.len();
            packet.resize(len, 0);
            fill_trailer(&mut packet[own..]);
        }
        let frame = read(flow, &packets.concat(), usize::MAX);
        prop_assert_eq!((frame.icrc_right, frame.icrc_wrong), (count.into(), 0));
        prop_assert_eq!(frame.ways[0].bytes, u64::from(count) * mtu as u64);
        let whole = read(flow, &packets[0], usize::MAX);
        prop_assert_eq!((whole.icrc_right, whole.ways[0].bytes), (1, mtu as u64));
        let cut = read(flow, &packets[0], captured);
        prop_assert_eq!((cut.offloaded_cut, cut.icrc_wrong), (1, 0));
    }

    /// A damaged packet is wrong, and no other.
    #[test]
    fn a_damaged_packet_is_the_only_one_with_a_wrong_icrc(
        count in 3u32..=15,
        which in 0usize..15,
        at in 0usize..1000,
        value in 1u8..,
    ) {
        // Over IPv4 one in 32,768 would pass, as if it had another Identification.
        let flow = Flow::new(true, 0);
        let mut packets = write(flow, 1024, count, 1024);
        let which = which % packets.len();
        // Behind the headers, or the length is not known to be that of a packet.
        packets[which][28 + at] ^= value;
        let said = read(flow, &packets.concat(), usize::MAX);
        prop_assert_eq!((said.icrc_right, said.icrc_wrong), (u64::from(count) - 1, 1));
    }

    /// Wherever a capture cuts a frame, it is never taken for whole, and what is read of it is true.
    #[test]
    fn a_frame_cut_anywhere_is_said_to_be_cut(
        mtu in prop::sample::select(vec![256usize, 1024, 4096]),
        count in 2u32..=15,
        captured in 0usize..65_000,
    ) {
        let flow = Flow::new(false, 7);
        let packets = write(flow, mtu, count, mtu);
        let frame = packets.concat();
        let captured = captured % frame.len();
        let said = read(flow, &frame, captured);
        let whole = captured / packets[0].len();
        prop_assert!(said.icrc_right <= whole as u64);
        prop_assert_eq!((said.icrc_wrong, said.malformed), (0, 0));
        let knows = captured >= 12;
        prop_assert!(said.offloaded_cut == 1 || !knows, "{:?}", said);
        prop_assert!(said.packets <= whole as u64 + 1);
    }

    #[test]
    fn any_bytes_are_split_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
        more in 0usize..70_000,
    ) {
        let flow = Flow::new(false, 0);
        let mut said = Conversations::default();
        said.add(&flow.datagram(&bytes, bytes.len() + more));
    }
}

/// Packets of several queue pairs, all of the length of an acknowledgement.
#[test]
fn acknowledgements_of_several_queue_pairs_are_found() {
    let flow = Flow::new(false, 0);
    let ack = |index: u16| {
        let headers = Headers::acknowledge(Aeth::default());
        let headers = headers.to(Qpn::new(0x20 + u32::from(index)), Psn::new(5));
        flow.packet(headers, &[], index)
    };
    let frame: Vec<u8> = (0..40).flat_map(ack).collect();
    let said = read(flow, &frame, usize::MAX);
    assert_eq!((said.ways.len(), said.icrc_right), (40, 40));
}

/// A sender whose Identification does not count, over a receiver that merges packets.
#[test]
fn packets_are_found_with_any_identification_field() {
    let flow = Flow::new(false, 0);
    let ids = [0, 0, 900, 17];
    let packets = ids.iter().zip(0u32..).map(|(id, index)| {
        let headers = Headers::write(Connection::Rc, Place::Middle, Reth::default(), None);
        let headers = headers.to(Qpn::new(0x11), Psn::new(index));
        flow.packet(headers, &[1; 1024], *id)
    });
    let frame: Vec<u8> = packets.flatten().collect();
    assert_eq!(read(flow, &frame, usize::MAX).icrc_right, 4);
}

fn capture(packets: &[Vec<u8>]) -> Analysis {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    let meta = UdpMeta::new(
        "10.0.0.1:50000".parse().unwrap(),
        "10.0.0.2:4791".parse().unwrap(),
    );
    for packet in packets {
        writer.write_packet(1, &meta, packet).unwrap();
    }
    drop(writer);
    analyse(&file[..]).unwrap()
}

#[test]
fn probes_and_greetings_are_not_packets() {
    let mut probe = vec![0; 16];
    probe[0] = STEERING_PROBE;
    let hello = Hello {
        is_answer: false,
        to: Qpn::new(0x11),
        from: Qpn::new(0x12),
        nonce: 1,
    };
    let packet = write(Flow::new(false, 0), 256, 1, 8).remove(0);
    let said = capture(&[probe, hello.bytes().to_vec(), packet]).conversations;
    assert_eq!((said.probes, said.packets, said.malformed), (2, 1, 0));
    assert_eq!((said.icrc_right, said.icrc_wrong), (1, 0));
}
