//! Packets from an outsider, without a device.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use ferroce_wire::{Headers, IcrcFlow, IpPair};

use super::Node;

/// An attacker with a plain socket who can construct packets.
pub struct Stranger {
    pub socket: UdpSocket,
    flow: IcrcFlow,
    pub dest: SocketAddr,
}

impl Stranger {
    pub fn new(own: IpAddr, port: u16, victim: &Node) -> Self {
        let socket = UdpSocket::bind((own, port)).unwrap();
        let (source, dest) = (socket.local_addr().unwrap(), victim.device.address());
        let ip = IpPair::new(source.ip(), dest.ip()).unwrap();
        Self {
            socket,
            flow: IcrcFlow::new(ip, source.port(), dest.port()),
            dest,
        }
    }

    /// A packet with the right ICRC. The socket's "don't fragment" and Identification are the
    /// kernel's defaults for an unconnected socket; devices accept any.
    pub fn packet(&self, headers: Headers, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; payload.len() + 128];
        let len = headers
            .emit_packet(payload, &self.flow, 0, &mut packet)
            .unwrap();
        packet.truncate(len);
        packet
    }

    pub fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.dest).unwrap();
    }
}
