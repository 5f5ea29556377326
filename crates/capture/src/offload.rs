//! Packets in offloaded frames.
//!
//! With segmentation offload (GSO, GRO) a capture shows several packets as one frame with one IP and
//! one UDP header. All of them have the same length; only the last one may be shorter. The frame does
//! not state that length, but the ICRCs show it: each was computed for the headers that the packet has
//! on the wire, with its own length and, over IPv4, an Identification that counts up from the frame's.

use ferroce_wire::{
    BTH_LEN, HEADERS_LEN_MAX, Headers, ICRC_LEN, IcrcFlow, Opcode, Verdict, pad_len, strip_trailer,
};

use crate::datagram::Datagram;

/// The MTUs of queue pairs.
pub(crate) const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// No packet is longer, with the largest MTU.
const PACKET_MAX: usize = HEADERS_LEN_MAX + MTUS[4] as usize + ICRC_LEN;
const PACKET_MIN: usize = BTH_LEN + ICRC_LEN;
/// What a length must score: an ICRC that is right for the expected Identification, or two that are
/// right for any.
const SCORE_MIN: usize = 2;

/// The packets in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packets {
    /// It is one packet.
    One,
    /// Several of this length; the last one may be shorter.
    Each(usize),
    /// Several, and the capture cuts the first one, so that their length is not known.
    Cut,
}

/// Finds out which packets a datagram holds whose ICRC, as that of one packet, is wrong or unknown.
pub(crate) fn packets(flow: &IcrcFlow, datagram: &Datagram<'_>) -> Packets {
    let lengths = (PACKET_MIN..=PACKET_MAX.min(datagram.len.saturating_sub(PACKET_MIN))).step_by(4);
    let possible = lengths.filter(|length| {
        let next = [*length, 2 * length];
        next.iter().any(|at| begins_packet(datagram.bytes, *at))
    });
    // Most lengths are refuted by the first two packets, whatever the payload looks like.
    let scored = possible.filter_map(|length| match score(flow, datagram, length, 2) {
        0 => None,
        _ => Some((score(flow, datagram, length, usize::MAX), length)),
    });
    let best = scored.max();
    match best {
        Some((SCORE_MIN.., length)) => Packets::Each(length),
        _ if datagram.is_cut() && !may_be_one(datagram) => Packets::Cut,
        _ => Packets::One,
    }
}

/// The packets of a datagram, those of which nothing was captured included.
pub(crate) fn split<'a>(
    datagram: &Datagram<'a>,
    length: usize,
) -> impl Iterator<Item = Datagram<'a>> {
    let datagram = *datagram;
    (0..datagram.len)
        .step_by(length)
        .zip(0u16..)
        .map(move |(at, index)| {
            let len = length.min(datagram.len - at);
            let bytes = datagram.bytes.get(at..).unwrap_or_default();
            Datagram {
                ip_id: datagram.ip_id.wrapping_add(index),
                bytes: &bytes[..len.min(bytes.len())],
                len,
                ..datagram
            }
        })
}

/// A packet without the trailer that a link between two Ferroces has added, if it has one. The
/// beginning of a packet does not show that: one with a trailer could as well be two short ones, and is taken for
/// a cut frame.
pub(crate) fn without_trailer<'a>(flow: &IcrcFlow, packet: &Datagram<'a>) -> Datagram<'a> {
    let bytes = match packet.is_cut() {
        true => None,
        false => strip_trailer(packet.bytes),
    };
    match bytes.filter(|bytes| flow.verify(packet.ip_id, bytes).is_ok()) {
        Some(bytes) => Datagram {
            bytes,
            len: bytes.len(),
            ..*packet
        },
        None => *packet,
    }
}

/// The first packet of a datagram whose capture ends within it; its length is a guess.
pub(crate) fn first<'a>(datagram: &Datagram<'a>) -> Datagram<'a> {
    Datagram {
        len: datagram.len.min(PACKET_MAX),
        ..*datagram
    }
}

/// Whether a packet of the same partition as the first one seems to begin here.
fn begins_packet(bytes: &[u8], at: usize) -> bool {
    let (Some(first), Some(next)) = (bytes.get(..4), bytes.get(at..at + 4)) else {
        return false;
    };
    Opcode::from_u8(next[0]).is_some() && next[1] & 0x0f == 0 && next[2..] == first[2..]
}

/// How many ICRCs of the first packets are right if every packet has this length; those for the
/// expected Identification count twice.
fn score(flow: &IcrcFlow, datagram: &Datagram<'_>, length: usize, packets: usize) -> usize {
    let whole = split(datagram, length).filter(|packet| !packet.is_cut());
    let whole = whole
        .take(packets)
        .map(|packet| without_trailer(flow, &packet));
    let scores = whole.map(|packet| match flow.verify(packet.ip_id, packet.bytes) {
        Verdict::Ok { ip_id, .. } if [packet.ip_id, datagram.ip_id].contains(&ip_id) => SCORE_MIN,
        Verdict::Ok { .. } => 1,
        Verdict::Bad => 0,
    });
    scores.sum()
}

/// Whether the first headers allow for a single packet of the datagram's length.
fn may_be_one(datagram: &Datagram<'_>) -> bool {
    let Ok(headers) = Headers::read_prefix(datagram.bytes) else {
        return datagram.len <= PACKET_MAX;
    };
    let opcode = headers.opcode();
    let Some(payload) = datagram.len.checked_sub(headers.header_len() + ICRC_LEN) else {
        return true;
    };
    let is = |length: u32| payload == length as usize + usize::from(pad_len(length as usize));
    match headers.reth() {
        _ if !opcode.has_payload() => payload == 0,
        Some(reth) if opcode.ends_message() => is(reth.length),
        _ if !opcode.ends_message() => MTUS.into_iter().any(is),
        _ => datagram.len <= PACKET_MAX,
    }
}
