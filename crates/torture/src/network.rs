//! What happens to packets between hosts.

use std::net::{IpAddr, Ipv4Addr};

use ferroce_base::random::Dice;
use ferroce_device::{Counter, Outgoing, Span};
use ferroce_wire::{
    HEADERS_LEN_MAX, Headers, ICRC_LEN, IcrcFlow, IcrcVerifier, IdPolicy, IpPair, Packet,
    ROCE_V2_PORT,
};

/// One way, for a packet to which nothing else happens.
pub(crate) const LATENCY: Span = Span::from_nanos(1_000);
/// How much later a packet arrives that others overtake.
const OVERTAKEN_BY: u64 = 20_000;
/// In which probabilities are given.
const MILLION: u64 = 1_000_000;

/// What the network does to the packets of a host. Shares are in millionths.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) reorder: u64,
    pub(crate) corrupt: u64,
    /// Nanoseconds.
    pub(crate) delay: u64,
    /// Nanoseconds.
    pub(crate) jitter: u64,
}

impl Weather {
    /// How much later than at once each copy of a packet arrives.
    pub(crate) fn copies(&self, dice: &mut Dice) -> impl Iterator<Item = Span> + use<> {
        let mut late = self.delay;
        if self.jitter > 0 {
            late += dice.below(self.jitter);
        }
        if hits(self.reorder, dice) {
            late += dice.below(OVERTAKEN_BY);
        }
        let first = (!hits(self.loss, dice)).then_some(late);
        let second = hits(self.duplicate, dice).then(|| late + dice.below(OVERTAKEN_BY));
        let copies = [first, second].into_iter().flatten();
        copies.map(|late| LATENCY + Span::from_nanos(late))
    }

    /// Which bit of a packet is flipped, if one is.
    pub(crate) fn flip(&self, dice: &mut Dice) -> Option<u32> {
        hits(self.corrupt, dice).then(|| dice.next() as u32)
    }
}

fn hits(share: u64, dice: &mut Dice) -> bool {
    share > 0 && dice.below(MILLION) < share
}

/// A packet under way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) source: IpAddr,
    pub(crate) dest: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) sl: u8,
    pub(crate) content: Content,
}

/// What a packet consists of.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Values.
    Whole(Headers, Vec<u8>),
    /// Bytes with an ICRC, one bit of which is wrong.
    Damaged(Vec<u8>),
}

impl Flight {
    /// A packet from the address `source`, with a bit flipped if one is given.
    pub(crate) fn new(
        source: IpAddr,
        packet: &Outgoing,
        payload: Vec<u8>,
        flip: Option<u32>,
    ) -> Self {
        let path = packet.path;
        let content = match flip {
            None => Content::Whole(packet.headers, payload),
            Some(bit) => Content::Damaged(damaged(
                &packet.headers,
                &payload,
                &flow(source, path.dest),
                bit,
            )),
        };
        Self {
            source,
            dest: path.dest,
            traffic_class: path.traffic_class,
            sl: path.sl,
            content,
        }
    }

    /// What a host gives its device, or the counter for why it does not.
    pub(crate) fn read(&self) -> Result<(Headers, &[u8]), Counter> {
        let bytes = match &self.content {
            Content::Whole(headers, payload) => return Ok((*headers, payload)),
            Content::Damaged(bytes) => bytes,
        };
        let packet = Packet::new_checked(bytes).map_err(|_| Counter::RxMalformed)?;
        let verdict =
            IcrcVerifier::new(IdPolicy::Exact).verify(&flow(self.source, self.dest), 0, bytes);
        match verdict.is_ok() {
            // The bit is one that may change on the way.
            true => Ok((*packet.headers(), packet.payload())),
            false => Err(Counter::RxIcrcEncapsulated),
        }
    }
}

/// The bytes of a packet with a flipped bit.
fn damaged(headers: &Headers, payload: &[u8], flow: &IcrcFlow, bit: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADERS_LEN_MAX + payload.len() + 3 + ICRC_LEN];
    let len = headers
        .emit_packet(payload, flow, 0, &mut bytes)
        .expect("a device makes packets that can be written");
    bytes.truncate(len);
    let bit = bit as usize % (8 * len);
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

fn flow(source: IpAddr, dest: IpAddr) -> IcrcFlow {
    let ip = IpPair::new(source, dest).expect("of one family");
    IcrcFlow::new(ip, 0xc000, ROCE_V2_PORT)
}

/// The address of a host.
pub(crate) fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1).into()
}

/// The address of a host's second port.
pub(crate) fn second_address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, host as u8 + 1).into()
}

/// The address of a multicast group.
pub(crate) fn group(number: u64) -> IpAddr {
    Ipv4Addr::new(239, 1, 2, number as u8).into()
}

/// The host with an address.
pub(crate) fn host_at(address: IpAddr) -> Option<usize> {
    match address {
        IpAddr::V4(v4) if matches!(v4.octets()[..3], [10, 0, 0 | 1]) => {
            (v4.octets()[3] as usize).checked_sub(1)
        }
        _ => None,
    }
}
