//! The links of a host: how many it has, and the outages that they had.

use ferroce_device::{Hca, Pairing, Span, Time};

/// What is known of a host's links.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) pairing: Option<Pairing>,
    pub(super) outages: Vec<Outage>,
    /// Ports that the program takes for down.
    pub(super) down: [bool; 2],
}

#[derive(Debug)]
pub(super) struct Outage {
    /// From 1.
    link: u8,
    from: Time,
    /// It may have ended before.
    until: Time,
}

impl Links {
    /// Links of a host as a script asks for them: 1 for two ports, 2 for a bond.
    pub(crate) fn of(links: u64, hca: Hca) -> (Self, Hca) {
        let pairing = match links {
            1 => Some(Pairing::Ports),
            2 => Some(Pairing::Bond),
            _ => None,
        };
        let hca = match pairing {
            Some(pairing) => {
                let state = hca.state().twin();
                hca.with_second_link(pairing, state)
            }
            None => hca,
        };
        let links = Self {
            pairing,
            ..Self::default()
        };
        (links, hca)
    }

    pub(super) fn is_bond(&self) -> bool {
        self.pairing == Some(Pairing::Bond)
    }

    pub(crate) fn note_outage(&mut self, link: u8, from: Time, length: Span) {
        let until = from.after(length);
        self.outages.push(Outage { link, from, until });
    }

    /// Outages that a queue pair of a port has met.
    pub(super) fn outages_of(&self, port: u8) -> usize {
        let meets = |it: &&Outage| self.is_bond() || it.link == port;
        self.outages.iter().filter(meets).count()
    }

    /// Whether the port was down, which a bond is only while both links are.
    pub(super) fn has_been_down(&self, port: u8) -> bool {
        match self.is_bond() {
            false => self.outages_of(port) > 0,
            true => self.outages.iter().any(|one| {
                let overlaps = |other: &Outage| {
                    other.link != one.link && other.from <= one.until && one.from <= other.until
                };
                self.outages.iter().any(overlaps)
            }),
        }
    }
}
