//! Devices with one link or two: ports that go down and come up, and what is told of them.
//!
//! What is lost when a link of a bond goes down is sent again by the other. A queue pair fails only if both links are
//! down at a time, or if it may not retry often enough.

use ferroce_device::{Counter, Pairing, Span};

use super::Play;
use super::host::Host;
use crate::network::{address, second_address};
use crate::script::Step;

/// Outages of the links of two bonds that a queue pair with the largest `retry_cnt` survives: each costs two of its
/// retries at most.
const SURVIVED: usize = 3;
/// The largest `retry_cnt`.
const RETRIES_MAX: u64 = 7;

impl Host {
    /// What packets by a port have for a source, and what arrives there for a destination.
    pub(crate) fn address_at(&self, port: u8) -> std::net::IpAddr {
        match (self.links.pairing, port) {
            (Some(Pairing::Ports), 2) => second_address(self.number),
            _ => address(self.number),
        }
    }

    /// The port that has an address.
    pub(crate) fn port_at(&self, address: std::net::IpAddr) -> u8 {
        let is_second =
            self.links.pairing == Some(Pairing::Ports) && address == second_address(self.number);
        1 + u8::from(is_second)
    }

    /// The port that a queue pair can have which a script has put at this one.
    pub(crate) fn port_or_first(&self, port: u64) -> u8 {
        match (self.links.pairing, port) {
            (Some(Pairing::Ports), 2) => 2,
            _ => 1,
        }
    }
}

impl Play {
    /// Notes that a step takes a link down.
    pub(super) fn note_outage(&mut self, host: usize, step: &Step) {
        let now = self.now;
        let (link, length) = match *step {
            Step::Port { ns, link } => (1 + u8::from(link == 2), ns.max(1)),
            Step::Impair { dark, carrier, .. } if carrier != 0 && dark > 0 => (1, dark),
            _ => return,
        };
        let links = &mut self.host(host).links;
        links.note_outage(link, now, Span::from_nanos(length));
    }

    /// A port is down or up, as the program is told.
    pub(super) fn told_of_port(&mut self, host: usize, port: u8, is_up: bool) {
        let links = &mut self.host(host).links;
        let place = usize::from(port != 1);
        let is_news = links.down[place] == is_up;
        links.down[place] = !is_up;
        let can_be = links.has_been_down(port) && !(links.is_bond() && port != 1);
        if !is_news || !can_be {
            let what = format!("host {host}: port {port} is up: {is_up}, of {links:?}");
            self.found("port event", || what);
        }
    }

    /// All ports are up at the end, as the device says and as the program was told.
    pub(super) fn check_ports(&mut self, host: usize) {
        let now = self.now;
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        let are_up = (1..=it.hca.ports()).all(|port| it.hca.port_is_up(now, port));
        if !are_up || it.links.down != [false; 2] {
            let what = format!("host {host}: ports are up: {are_up}, told: {:?}", it.links);
            return self.found("port event", || what);
        }
        // Where nothing else happened, a bond has lost nothing while one of its links was up.
        let lost = it.hca.counter(Counter::ImpairBlackout);
        if self.quiet && it.links.is_bond() && !it.links.has_been_down(1) && lost > 0 {
            let what = format!(
                "host {host}: a bond has lost {lost} packets: {:?}",
                it.links
            );
            self.found("bond", || what);
        }
    }

    /// Whether a link of a connection has been down, so that packets may have been lost.
    pub(super) fn has_met_outages(&self, connection: usize) -> bool {
        self.outages(connection).any(|count| count > 0)
    }

    /// Whether a connection may have failed because links were down.
    pub(super) fn may_be_cut(&self, connection: usize) -> bool {
        let it = &self.connections[connection];
        let has_been_down = it.ends.iter().any(|end| {
            let host = self.hosts[end.host].as_ref();
            host.is_none_or(|host| host.links.has_been_down(end.port))
        });
        let survives =
            it.retry == RETRIES_MAX && self.outages(connection).sum::<usize>() <= SURVIVED;
        has_been_down || self.has_met_outages(connection) && !survives
    }

    fn outages(&self, connection: usize) -> impl Iterator<Item = usize> {
        let ends = self.connections[connection].ends.iter();
        ends.map(|end| {
            let host = self.hosts[end.host].as_ref();
            host.map_or(0, |host| host.links.outages_of(end.port))
        })
    }

    /// Whether a link of a host has been down.
    pub(super) fn has_had_outages(&self, host: usize) -> bool {
        let it = self.hosts[host].as_ref();
        it.is_none_or(|it| !it.links.outages.is_empty())
    }
}
