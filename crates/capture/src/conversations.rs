//! The packets of a capture, sorted by queue pair and direction.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_wire::cm::{Mad, Message};
use ferroce_wire::{
    HELLO, Headers, IcrcFlow, IpPair, NakCode, Opcode, Packet, ParseError, Psn, Qpn, ROCE_V2_PORT,
    STEERING_PROBE, Service, Syndrome,
};

use crate::datagram::Datagram;
use crate::offload::{self, Packets};
use crate::requests::{Refusal, Requests};

/// The maximum number of directions that are followed; packets of others are only counted.
pub const WAYS_MAX: usize = 1 << 16;
/// Connection requests that wait for their answer.
const CONNECTING_MAX: usize = 1 << 14;
/// Acknowledgements by which the other direction is looked for. Each is compared with all directions
/// between the two hosts.
const LOOKS_MAX: u32 = 32;
/// Packets captured twice, by two interfaces or on both sides of one, follow so closely.
const TWICE_NS: u64 = 2_000;
/// The ECN bits of a packet that a switch has marked.
const CONGESTION_EXPERIENCED: u8 = 3;

/// A direction: from one host to a queue pair of another.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct WayKey {
    /// The host that sends.
    pub from: IpAddr,
    /// The host that receives.
    pub to: IpAddr,
    /// The queue pair that receives.
    pub dest_qp: Qpn,
}

/// The traffic of one direction.
#[derive(Clone, Debug)]
pub struct Way {
    /// The direction.
    pub key: WayKey,
    /// The sending queue pair, if the capture shows it: packets carry only their destination.
    pub src_qp: Option<Qpn>,
    /// The service of its first packet.
    pub service: Service,
    /// Packets.
    pub packets: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Packets captured twice; they are counted once.
    pub twice: u64,
    /// Packets whose ICRC is wrong; their contents are ignored.
    pub icrc_wrong: u64,
    /// Packets that a switch marked because of congestion.
    pub marked: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// When the first and the last packet were captured, in nanoseconds since the file's epoch.
    pub time: (u64, u64),
    /// Its requests.
    pub requests: Requests,
    /// Its responses.
    pub responses: Responses,
    /// The other direction of the connection.
    reverse: Reverse,
    looks: u32,
    last: Option<(Psn, Opcode, u64)>,
}

/// Responses to the requests of the other direction.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// Packets.
    pub packets: u64,
    /// Acknowledgements, those of READs and atomics included.
    pub acks: u64,
    /// NAKs: a packet was missing.
    pub sequence_naks: u64,
    /// NAKs: the receiver was not ready.
    pub rnr_naks: u64,
    /// NAKs that end the connection: the first reason and how many.
    pub fatal_naks: Option<(NakCode, u64)>,
}

/// The other direction of a connection. Packets do not say; the connection manager's messages do, or
/// PSNs that fit one direction only.
#[derive(Clone, Debug)]
enum Reverse {
    Unknown,
    /// These matched every acknowledgement so far.
    OneOf(Vec<usize>),
    /// Too many acknowledgements matched none or several; the search has ended.
    Undecidable,
    Known(usize),
}

/// Everything that a capture shows about queue pairs.
#[derive(Debug, Default)]
pub struct Conversations {
    /// Directions, in the order of their first packets.
    pub ways: Vec<Way>,
    /// Packets of directions beyond [`WAYS_MAX`].
    pub not_followed: u64,
    /// Packets whose ICRC is right.
    pub icrc_right: u64,
    /// Packets whose ICRC is wrong.
    pub icrc_wrong: u64,
    /// Packets truncated before their ICRC.
    pub icrc_unknown: u64,
    /// Packets, however many of them a frame holds.
    pub packets: u64,
    /// Packets truncated before the end of their headers.
    pub cut: u64,
    /// Steering probes and greetings of Ferroce's devices, which are not RoCEv2 packets.
    pub probes: u64,
    /// Frames of several packets: segmentation offload.
    pub offloaded: u64,
    /// The packets in them.
    pub offloaded_packets: u64,
    /// Those of the frames whose capture ends before their last packet: packets are not known.
    pub offloaded_cut: u64,
    /// Malformed RoCEv2 packets; [`Self::first_malformed`] describes the first one.
    pub malformed: u64,
    /// See [`Self::malformed`].
    pub first_malformed: Option<String>,
    /// The time of the first packet.
    begins: Option<u64>,
    index: HashMap<WayKey, usize>,
    /// Directions from one host to another.
    between: HashMap<(IpAddr, IpAddr), Vec<usize>>,
    flows: HashMap<(IpAddr, IpAddr, u16), IcrcFlow>,
    /// Queue pairs that asked for a connection, by address and communication ID.
    connecting: HashMap<(IpAddr, u32), Qpn>,
}

impl Conversations {
    /// Adds the next datagram of the capture, with one packet or several.
    pub fn add(&mut self, datagram: &Datagram<'_>) {
        if matches!(datagram.bytes.first(), Some(&(STEERING_PROBE | HELLO))) {
            self.probes += 1;
            return;
        }
        let Some(flow) = self.flow(datagram) else {
            return;
        };
        let one = offload::without_trailer(&flow, datagram);
        let whole = is_right(&flow, &one);
        let packets = match whole {
            Some(true) => Packets::One,
            _ => offload::packets(&flow, datagram),
        };
        let before = self.packets;
        match packets {
            Packets::One => return self.packet(&one, whole),
            Packets::Cut => {
                self.offloaded_cut += 1;
                self.packet(&offload::first(datagram), None);
            }
            Packets::Each(length) => {
                let captured = |packet: &Datagram<'_>| !packet.bytes.is_empty();
                let all = offload::split(datagram, length).take_while(captured);
                for packet in all.map(|packet| offload::without_trailer(&flow, &packet)) {
                    self.packet(&packet, is_right(&flow, &packet));
                }
                self.offloaded_cut += u64::from(datagram.is_cut());
            }
        }
        self.offloaded += 1;
        self.offloaded_packets += self.packets - before;
    }

    /// Adds the next packet; `is_right` says whether its ICRC is, if its end was captured.
    fn packet(&mut self, datagram: &Datagram<'_>, is_right: Option<bool>) {
        self.packets += 1;
        match is_right {
            Some(true) => self.icrc_right += 1,
            Some(false) => self.icrc_wrong += 1,
            None => self.icrc_unknown += 1,
        }
        let (headers, payload) = match read(datagram) {
            Ok(read) => read,
            Err(ParseError::Truncated { .. }) if datagram.is_cut() => {
                self.cut += 1;
                return;
            }
            Err(problem) => {
                self.malformed += 1;
                self.first_malformed
                    .get_or_insert_with(|| problem.to_string());
                return;
            }
        };
        let Some(at) = self.way(datagram, &headers) else {
            self.not_followed += 1;
            return;
        };
        let way = &mut self.ways[at];
        if way.packets == 0 {
            way.service = headers.opcode().service();
            way.time.0 = datagram.at_ns;
        }
        way.time.1 = datagram.at_ns;
        if is_right == Some(false) {
            way.icrc_wrong += 1;
            return;
        }
        let mark = (headers.psn, headers.opcode(), datagram.at_ns);
        if way
            .last
            .replace(mark)
            .is_some_and(|last| is_twice(last, mark))
        {
            way.twice += 1;
            return;
        }
        way.packets += 1;
        way.bytes += u64::from(payload);
        way.marked += u64::from(datagram.ecn == CONGESTION_EXPERIENCED);
        match headers.opcode().service() {
            Service::Cnp => way.cnps += 1,
            Service::Ud => self.connect(datagram, &headers),
            _ if headers.opcode().is_response() => self.responded(at, datagram.at_ns, &headers),
            _ => way.requests.sent(datagram.at_ns, &headers, payload),
        }
    }

    /// Ends the analysis; the last packet has this time.
    pub fn finish(&mut self, at: u64) {
        for at_way in 0..self.ways.len() {
            if let Reverse::Known(reverse) = self.ways[at_way].reverse {
                let sender = self.ways[reverse].key.dest_qp;
                self.ways[at_way].src_qp.get_or_insert(sender);
            }
            self.ways[at_way].requests.finish(at);
        }
    }

    /// What the ICRCs of a flow have in common.
    fn flow(&mut self, datagram: &Datagram<'_>) -> Option<IcrcFlow> {
        let key = (datagram.src, datagram.dst, datagram.src_port);
        if self.flows.len() >= WAYS_MAX && !self.flows.contains_key(&key) {
            self.flows.clear();
        }
        let pair = IpPair::new(datagram.src, datagram.dst)?;
        let flow = self.flows.entry(key);
        Some(*flow.or_insert_with(|| IcrcFlow::new(pair, datagram.src_port, ROCE_V2_PORT)))
    }

    fn way(&mut self, datagram: &Datagram<'_>, headers: &Headers) -> Option<usize> {
        let key = WayKey {
            from: datagram.src,
            to: datagram.dst,
            dest_qp: headers.dest_qp,
        };
        if let Some(at) = self.index.get(&key) {
            return Some(*at);
        }
        if self.ways.len() == WAYS_MAX {
            return None;
        }
        let at = self.ways.len();
        self.index.insert(key, at);
        self.between.entry((key.from, key.to)).or_default().push(at);
        self.ways.push(Way {
            key,
            src_qp: None,
            service: headers.opcode().service(),
            packets: 0,
            bytes: 0,
            twice: 0,
            icrc_wrong: 0,
            marked: 0,
            cnps: 0,
            time: (datagram.at_ns, datagram.at_ns),
            requests: Requests::new(*self.begins.get_or_insert(datagram.at_ns)),
            responses: Responses::default(),
            reverse: Reverse::Unknown,
            looks: 0,
            last: None,
        });
        Some(at)
    }

    fn responded(&mut self, at: usize, time: u64, headers: &Headers) {
        let responses = &mut self.ways[at].responses;
        responses.packets += 1;
        let mut refusal = None;
        // The middle of a READ's answer has no AETH.
        let includes = match headers.aeth().map(|aeth| aeth.syndrome) {
            None | Some(Syndrome::Ack { .. }) => {
                responses.acks += 1;
                true
            }
            Some(Syndrome::Rnr { .. }) => {
                responses.rnr_naks += 1;
                refusal = Some(Refusal::NotReady);
                false
            }
            Some(Syndrome::Nak(NakCode::SequenceError)) => {
                responses.sequence_naks += 1;
                refusal = Some(Refusal::Sequence);
                false
            }
            Some(Syndrome::Nak(code)) => {
                responses.fatal_naks.get_or_insert((code, 0)).1 += 1;
                false
            }
            Some(Syndrome::Reserved(_)) => false,
        };
        if let Some(reverse) = self.reverse(at, headers.psn) {
            let requests = &mut self.ways[reverse].requests;
            requests.answered(time, headers.psn, includes, refusal);
        }
    }

    /// The direction whose requests a response answers.
    fn reverse(&mut self, at: usize, psn: Psn) -> Option<usize> {
        let key = self.ways[at].key;
        let fits = |other: &usize| {
            let is_taken = matches!(self.ways[*other].reverse, Reverse::Known(it) if it != at);
            !is_taken && self.ways[*other].requests.is_outstanding(psn)
        };
        let fitting: Vec<usize> = match &self.ways[at].reverse {
            Reverse::Known(other) => return Some(*other),
            Reverse::Undecidable => return None,
            Reverse::OneOf(others) => others.iter().copied().filter(fits).collect(),
            Reverse::Unknown => {
                let others = self.between.get(&(key.to, key.from))?;
                others.iter().copied().filter(fits).collect()
            }
        };
        self.ways[at].looks += 1;
        self.ways[at].reverse = match fitting[..] {
            [only] => {
                self.ways[only].reverse = Reverse::Known(at);
                Reverse::Known(only)
            }
            _ if self.ways[at].looks >= LOOKS_MAX => Reverse::Undecidable,
            [] => Reverse::Unknown,
            _ => Reverse::OneOf(fitting),
        };
        match self.ways[at].reverse {
            Reverse::Known(other) => Some(other),
            _ => None,
        }
    }

    /// Notes what the connection manager says about queue pairs.
    fn connect(&mut self, datagram: &Datagram<'_>, headers: &Headers) {
        if headers.dest_qp != Qpn::GSI {
            return;
        }
        let Ok(packet) = Packet::new_checked(datagram.bytes) else {
            return;
        };
        match Mad::parse(packet.payload()).map(|mad| mad.message) {
            Ok(Message::Req(req)) if self.connecting.len() < CONNECTING_MAX => {
                let request = (datagram.src, req.local_comm_id);
                self.connecting.insert(request, req.qpn);
            }
            Ok(Message::Rep(rep)) => {
                let request = (datagram.dst, rep.remote_comm_id);
                if let Some(active) = self.connecting.remove(&request) {
                    self.pair(
                        (datagram.dst, active),
                        (datagram.src, rep.qpn),
                        datagram,
                        headers,
                    );
                }
            }
            _ => {}
        }
    }

    /// These two queue pairs are connected.
    fn pair(
        &mut self,
        active: (IpAddr, Qpn),
        passive: (IpAddr, Qpn),
        datagram: &Datagram<'_>,
        headers: &Headers,
    ) {
        let to = |from: (IpAddr, Qpn), to: (IpAddr, Qpn)| {
            let datagram = Datagram {
                src: from.0,
                dst: to.0,
                ..*datagram
            };
            let headers = headers.to(to.1, headers.psn);
            (datagram, headers)
        };
        let (there, back) = (to(active, passive), to(passive, active));
        let ways = (self.way(&there.0, &there.1), self.way(&back.0, &back.1));
        if let (Some(there), Some(back)) = ways {
            self.ways[there].reverse = Reverse::Known(back);
            self.ways[back].reverse = Reverse::Known(there);
        }
    }
}

/// Whether the packet's ICRC is right; `None` if its end was not captured.
fn is_right(flow: &IcrcFlow, datagram: &Datagram<'_>) -> Option<bool> {
    let is_whole = !datagram.is_cut();
    is_whole.then(|| flow.verify(datagram.ip_id, datagram.bytes).is_ok())
}

/// Headers, and how many bytes of payload the packet has on the link.
fn read(datagram: &Datagram<'_>) -> Result<(Headers, u32), ParseError> {
    let headers = match datagram.is_cut() {
        true => Headers::read_prefix(datagram.bytes)?,
        false => *Packet::new_checked(datagram.bytes)?.headers(),
    };
    let around = headers.header_len() + ferroce_wire::ICRC_LEN;
    let pad = datagram.bytes.get(1).map_or(0, |flags| flags >> 4 & 3);
    let payload = datagram.len.saturating_sub(around + usize::from(pad));
    Ok((headers, u32::try_from(payload).unwrap_or(u32::MAX)))
}

fn is_twice(last: (Psn, Opcode, u64), now: (Psn, Opcode, u64)) -> bool {
    (last.0, last.1) == (now.0, now.1)
        && last.1.is_request()
        && now.2.saturating_sub(last.2) < TWICE_NS
}
