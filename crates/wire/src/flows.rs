//! The ICRC state of each peer address.

use std::net::SocketAddr;

use crate::icrc::{IcrcFlow, IpPair};

/// Peers remembered. More than that share places, and pay for it with one short CRC.
const PLACES: usize = 256;

/// The ICRC state towards and from one peer.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    peer: SocketAddr,
    /// Something has come from there.
    is_heard: bool,
    /// For packets to the peer.
    pub to_peer: IcrcFlow,
    /// For packets from the peer.
    pub from_peer: IcrcFlow,
}

/// The flows of one socket, by the peer's address. Unsolicited packets cannot make it grow.
#[derive(Debug)]
pub struct Flows {
    own: SocketAddr,
    places: Box<[Option<Flow>; PLACES]>,
}

impl Flows {
    /// No peers yet, for the socket with this address.
    pub fn new(own: SocketAddr) -> Self {
        Self {
            own,
            places: Box::new([None; PLACES]),
        }
    }

    /// The flow to and from `peer`; `None` if it is of another address family than the socket.
    #[inline]
    pub fn get(&mut self, peer: SocketAddr) -> Option<Flow> {
        let place = &mut self.places[place_of(peer)];
        if let Some(flow) = place
            && flow.peer == peer
        {
            return Some(*flow);
        }
        let flow = Flow::between(self.own, peer)?;
        *place = Some(flow);
        Some(flow)
    }

    /// The same for something that has come from `peer`.
    #[inline]
    pub fn hear(&mut self, peer: SocketAddr) -> Option<Flow> {
        let flow = self.get(peer)?;
        if let Some(flow) = &mut self.places[place_of(peer)] {
            flow.is_heard = true;
        }
        Some(flow)
    }

    /// Whether something has come from `peer`, as far as it is remembered.
    pub fn has_heard(&self, peer: SocketAddr) -> bool {
        let flow = self.places[place_of(peer)].as_ref();
        flow.is_some_and(|flow| flow.peer == peer && flow.is_heard)
    }
}

impl Flow {
    /// The flow between two addresses; `None` if they differ in family.
    pub fn between(own: SocketAddr, peer: SocketAddr) -> Option<Self> {
        Some(Self {
            peer,
            is_heard: false,
            to_peer: IcrcFlow::new(IpPair::new(own.ip(), peer.ip())?, own.port(), peer.port()),
            from_peer: IcrcFlow::new(IpPair::new(peer.ip(), own.ip())?, peer.port(), own.port()),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "folding drops bits")]
fn place_of(peer: SocketAddr) -> usize {
    let address = match peer {
        SocketAddr::V4(v4) => v4.ip().to_bits(),
        SocketAddr::V6(v6) => {
            let bits = v6.ip().to_bits();
            (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) as u32
        }
    };
    let mixed = (address ^ u32::from(peer.port()) << 16).wrapping_mul(0x9e37_79b1);
    mixed as usize >> 24 & (PLACES - 1)
}
