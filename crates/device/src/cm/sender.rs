//! Who sent a message, and whether a request comes from where it says.
//!
//! A program connects its queue pair to the address that a request names. A peer that could name
//! another host's address would have the program send to that host, and would get around any list
//! of addresses that the program keeps. A packet's source is the only address that its receiver did
//! not read in the message itself.

use std::net::IpAddr;

use ferroce_transport::{Path, Time};
use ferroce_wire::cm::{AddressHeader, Mad, Req, ServiceId, SidrReq};

use crate::packet::{Received, is_unicast};

/// A message and the way it came.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) now: Time,
    pub(super) source: IpAddr,
    pub(super) dest: IpAddr,
    /// The path of an answer.
    pub(super) path: Path,
    pub(super) tid: u64,
}

impl Sender {
    pub(super) fn of(now: Time, packet: &Received<'_>, mad: &Mad) -> Self {
        Self {
            now,
            source: packet.source,
            dest: packet.dest,
            path: packet.way_back(),
            tid: mad.tid,
        }
    }

    /// Whether there is one host to answer.
    pub(super) fn is_a_host(self) -> bool {
        is_unicast(self.source)
    }

    /// Whether the request is one for a connection with its sender: by the GID, which the queue
    /// pair would get, and by the addresses that the program would be shown.
    pub(super) fn has_sent(self, req: &Req) -> bool {
        req.local_gid.ip() == self.source && self.fits(req.service_id, &req.private.0)
    }

    /// The same for a datagram service. The request has no GID: the answer goes to its source.
    pub(super) fn has_sent_lookup(self, req: &SidrReq) -> bool {
        self.fits(req.service_id, &req.private.0)
    }

    /// Services outside the port spaces have private data of their own, and data that are no header
    /// name no addresses.
    fn fits(self, service: ServiceId, private: &[u8]) -> bool {
        let header = service.space().and_then(|_| AddressHeader::parse(private));
        header.is_none_or(|header| header.fits(self.source, self.dest))
    }
}
