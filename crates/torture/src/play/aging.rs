//! Connections that grow old: as if they had exchanged many messages, up to some laps of their sequence numbers.

use ferroce_device::Qpn;

use super::Play;
use crate::network::{Flight, host_at};
use crate::rules::has_two_ends;
use crate::seen::Seen;

impl Play {
    /// Makes a connection older by a number of messages of one packet from one queue pair to its peer, if nothing of it
    /// is under way.
    pub(super) fn age(&mut self, host: usize, qp: u64, messages: u64) {
        let messages = messages as u32;
        let Some((connection, [own, peer])) = self.ends_of(host, qp) else {
            return;
        };
        if !self.is_idle(own) || !self.is_idle(peer) || !self.has_arrived(own, peer) {
            return;
        }
        for ((host, qpn), sent, received) in [(own, messages, 0), (peer, 0, messages)] {
            self.host(host).hca.age(qpn, sent, received);
        }
        // PSNs from before say nothing about those that come.
        for end in &mut self.connections[connection].ends {
            end.seen = Seen::default();
        }
        self.coverage.outcome("aged");
    }

    /// The connection of a queue pair, and the hosts and numbers of it and of the peer, if it is still connected.
    fn ends_of(&self, host: usize, qp: u64) -> Option<(usize, [(usize, Qpn); 2])> {
        let it = self.hosts[host].as_ref()?;
        let own = &it.qps[it.qp(qp)?];
        let (connection, end) = own.connection.filter(|_| has_two_ends(own.kind))?;
        let other = &self.connections[connection].ends[1 - end];
        let peer_host = self.hosts[other.host].as_ref().filter(|it| !it.stopped)?;
        let peer = peer_host.qps.get(other.qp)?;
        let is_current = peer.connection == Some((connection, 1 - end)) && !peer.gone;
        is_current.then_some((connection, [(host, own.qpn), (other.host, peer.qpn)]))
    }

    /// Whether nothing of a queue pair is under way.
    fn is_idle(&mut self, (host, qpn): (usize, Qpn)) -> bool {
        let is_for = |flight: &Flight| host_at(flight.dest) == Some(host);
        let is_coming = self.events.flights().any(is_for);
        let it = self.host(host);
        let is_silent = it
            .hca
            .qp(qpn)
            .is_some_and(|qp| !qp.has_answers() && qp.takes_packets());
        !is_coming && is_silent && it.hca.age(qpn, 0, 0)
    }

    /// Whether the peer has what a queue pair has sent.
    fn has_arrived(&self, (host, qpn): (usize, Qpn), peer: (usize, Qpn)) -> bool {
        let qp = |(host, qpn): (usize, Qpn)| self.hosts[host].as_ref()?.hca.qp(qpn);
        let (own, peer) = (qp((host, qpn)), qp(peer));
        own.map(|it| it.next_psn()) == peer.map(|it| it.expected_psn())
    }
}
