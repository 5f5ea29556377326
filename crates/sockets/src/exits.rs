//! The sockets that packets of adaptive routing leave by.
//!
//! Routers and hosts choose among equal paths by a hash of addresses and ports (ECMP), and a socket has one
//! port. Packets that may take any path therefore leave by several sockets, each with a port that the kernel
//! has chosen. They are made when the first such packet leaves, and nothing is received on them.

use std::net::SocketAddr;

use ferroce_wire::Flows;

use crate::socket::{Options, Socket};

/// How many there are. As many paths can be in use at once.
const EXITS: u8 = 32;

/// The sockets beside the device's own.
#[derive(Debug)]
pub struct Exits {
    own: SocketAddr,
    /// Fewer than [`EXITS`] if there were no more descriptors; `None` before the first packet.
    sockets: Option<Vec<(Socket, Flows)>>,
}

/// Where a packet leaves.
#[derive(Debug)]
pub struct Exit<'a> {
    /// 0 stands for the device's own socket.
    pub number: u8,
    /// The socket.
    pub socket: &'a Socket,
    /// The flows of that socket.
    pub flows: &'a mut Flows,
}

impl Exits {
    /// For the device whose socket has this address.
    pub fn new(own: SocketAddr) -> Self {
        Self { own, sockets: None }
    }

    /// The one for a packet with this [entropy](ferroce_device::Outgoing::entropy); `None` if there are none.
    pub fn choose(&mut self, entropy: u16) -> Option<Exit<'_>> {
        let sockets = self.sockets.get_or_insert_with(|| open(self.own));
        let number = u8::try_from(usize::from(entropy).checked_rem(sockets.len())?).ok()?;
        let (socket, flows) = &mut sockets[usize::from(number)];
        Some(Exit {
            number: number + 1,
            socket,
            flows,
        })
    }

    /// The socket of [this number](Exit::number); `None` if it is the device's own.
    pub fn socket(&self, number: u8) -> Option<&Socket> {
        let at = usize::from(number).checked_sub(1)?;
        Some(&self.sockets.as_ref()?[at].0)
    }
}

fn open(own: SocketAddr) -> Vec<(Socket, Flows)> {
    // The kernel makes that as small as it allows: what arrives there is not for the device.
    let options = Options {
        receive_buffer_bytes: 0,
        coalescing: false,
        ..Options::default()
    };
    let any_port = SocketAddr::new(own.ip(), 0);
    (0..EXITS)
        .map_while(|_| Socket::bind(any_port, &options).ok())
        .map(|socket| {
            let flows = Flows::new(socket.address());
            (socket, flows)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn packets_leave_from_many_ports() {
        let mut exits = Exits::new("127.0.0.2:4791".parse().unwrap());
        assert!(exits.socket(0).is_none());
        let ports: BTreeSet<_> = (1..1000)
            .map(|entropy| {
                let exit = exits.choose(entropy).unwrap();
                let (number, address) = (exit.number, exit.socket.address());
                assert_eq!(exits.socket(number).unwrap().address(), address);
                assert_eq!(address.ip(), exits.own.ip());
                address.port()
            })
            .collect();
        assert_eq!(ports.len(), usize::from(EXITS));
        assert!(!ports.contains(&4791));
    }
}
