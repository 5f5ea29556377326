//! How a ring gets to its reader: a frame in that one's mailbox, with the ring's memory and one end of
//! its line.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// What the frame begins with. No question is that long, and no packet comes with descriptors.
const RING: [u8; 4] = *b"ring";
/// Bytes of a frame: that, and the sender's address and port.
const LEN: usize = 4 + 16 + 2;

/// A ring that a process has made to send to this one.
#[derive(Debug)]
pub struct Offer {
    /// The address of the sender's device.
    pub(super) source: SocketAddr,
    pub(super) memory: OwnedFd,
    pub(super) line: OwnedFd,
}

impl Offer {
    /// The frame of a device's offers.
    pub(super) fn frame(source: SocketAddr) -> [u8; LEN] {
        let ip = match source.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut frame = [0; LEN];
        frame[..4].copy_from_slice(&RING);
        frame[4..20].copy_from_slice(&ip.octets());
        frame[20..].copy_from_slice(&source.port().to_ne_bytes());
        frame
    }

    /// The offer in a frame; or its descriptors, if it is none.
    pub fn parse(frame: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, Vec<OwnedFd>> {
        let Some(source) = Self::source(frame) else {
            return Err(descriptors);
        };
        let [memory, line] = <[OwnedFd; 2]>::try_from(descriptors)?;
        Ok(Self {
            source,
            memory,
            line,
        })
    }

    fn source(frame: &[u8]) -> Option<SocketAddr> {
        let (RING, rest) = frame.split_first_chunk::<4>().map(|(a, b)| (*a, b))? else {
            return None;
        };
        let (ip, port) = rest.split_first_chunk::<16>()?;
        let port = u16::from_ne_bytes(port.try_into().ok()?);
        Some(SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_names_its_sender() {
        for source in ["127.0.0.7:4791", "[fd00::1]:4000"] {
            let source: SocketAddr = source.parse().unwrap();
            let frame = Offer::frame(source);
            assert_eq!(Offer::source(&frame), Some(source));
            assert!((0..LEN).all(|len| Offer::source(&frame[..len]).is_none()));
            assert!(Offer::parse(&frame, Vec::new()).is_err());
        }
        assert_eq!(Offer::source(&[0; LEN]), None);
    }
}
