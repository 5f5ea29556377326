//! The links of a device. A card with one port has one; one with two ports has two, and so has one
//! whose two ports are bonded, which programs see as one port.

use std::sync::Arc;

use ferroce_transport::{Counter, Outgoing, Time};

use super::Hca;
use super::carrier::Carrier;
use crate::impair::Direction;
use crate::impairer::{Impairer, Origin};
use crate::packet::{Held, Received};
use crate::pairing::{LinkNumber, Pairing, spread};
use crate::queue_pair::earlier;
use crate::serializer::Serializer;
use crate::settings::Settings;
use crate::state::DeviceState;

/// The impairments of a link, and the state of its carrier.
#[derive(Debug)]
pub(super) struct Link {
    seed: u64,
    pub(super) egress: Impairer<Outgoing>,
    pub(super) ingress: Impairer<Held>,
    /// Made when first needed: most ports never go down.
    pub(super) carrier: Option<Box<Carrier>>,
}

impl Link {
    pub(super) fn new(seed: u64, carrier: Option<Box<Carrier>>) -> Self {
        Self {
            seed,
            egress: Impairer::clear(),
            ingress: Impairer::clear(),
            carrier,
        }
    }

    fn origins(&self) -> [Origin; 2] {
        let of = |direction, constant| Origin {
            direction,
            seed: self.seed ^ constant,
        };
        [
            of(Direction::Egress, 0x9e37_79b9_7f4a_7c15),
            of(Direction::Ingress, 0xd1b5_4a32_d192_ed03),
        ]
    }

    /// Puts its settings in force.
    pub(super) fn set(&mut self, settings: &Settings, now: Time, state: &DeviceState) {
        let [egress, ingress] = self.origins();
        let of = |direction| settings.impairment(direction);
        self.egress.set(egress, of(Direction::Egress), now, state);
        self.ingress
            .set(ingress, of(Direction::Ingress), now, state);
    }

    /// Loses everything in both directions, or does so no more.
    fn set_dark(&mut self, is_dark: bool) {
        let [egress, ingress] = self.origins();
        self.egress.set_dark(egress, is_dark);
        self.ingress.set_dark(ingress, is_dark);
    }

    /// When it releases a packet.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        earlier(self.egress.next(), self.ingress.next())
    }

    /// Packets that it holds back.
    pub(super) fn held(&self) -> [usize; 2] {
        [self.egress.len(), self.ingress.len()]
    }

    pub(super) fn shrink(&mut self) {
        self.egress.shrink();
        self.ingress.shrink();
    }
}

/// The second link of a device, with settings of its own; registers are the card's, and in those of the
/// first. Its state is [`Common::second`](crate::services::Common::second).
#[derive(Debug)]
pub(super) struct Second {
    pub(super) link: Link,
    pub(super) serializer: Serializer,
    pub(super) generation: u64,
    pub(super) settings: Arc<Settings>,
}

impl Hca {
    /// Gives a device without queue pairs a second link, whose impairments, outages and counters are in
    /// `state`.
    #[must_use]
    pub fn with_second_link(mut self, pairing: Pairing, state: DeviceState) -> Self {
        debug_assert_eq!(self.qps.len(), 0, "queue pairs of a device with one link");
        let (generation, settings) = state.load();
        let carrier = settings.has_outages().then(|| Carrier::unseen(&state));
        self.second = Some(Box::new(Second {
            serializer: self.common.serializer,
            link: Link::new(self.config.seed.rotate_left(32), carrier),
            generation,
            settings: Arc::clone(&settings),
        }));
        self.common.second = Some(state);
        self.scheduler.port.links.pairing = Some(pairing);
        self.enforce_second(settings);
        self
    }

    /// How many ports programs see.
    pub fn ports(&self) -> u8 {
        match self.scheduler.port.links.pairing {
            Some(Pairing::Ports) => 2,
            Some(Pairing::Bond) | None => 1,
        }
    }

    /// Registers, impairments, outages and counters of a link, from 1.
    pub fn link_state(&self, number: u8) -> Option<&DeviceState> {
        match number {
            1 => Some(&self.common.state),
            2 => self.common.second.as_ref(),
            _ => None,
        }
    }

    /// The value of a counter, summed over all links.
    pub fn counter(&self, counter: Counter) -> u64 {
        let states = self.link_numbers().filter_map(|link| self.link_state(link));
        states.map(|state| state.counter(counter)).sum()
    }

    pub(crate) fn link_numbers(&self) -> std::ops::RangeInclusive<LinkNumber> {
        1..=if self.second.is_some() { 2 } else { 1 }
    }

    /// A link and what is set for it. Numbers beyond the last mean the first.
    pub(super) fn link(&self, number: LinkNumber) -> (&Link, &DeviceState) {
        match (&self.second, &self.common.second) {
            (Some(second), Some(state)) if number == 2 => (&second.link, state),
            _ => (&self.first, &self.common.state),
        }
    }

    pub(super) fn link_mut(&mut self, number: LinkNumber) -> (&mut Link, &DeviceState) {
        match (&mut self.second, &self.common.second) {
            (Some(second), Some(state)) if number == 2 => (&mut second.link, state),
            _ => (&mut self.first, &self.common.state),
        }
    }

    pub(super) fn set_dark(&mut self, number: LinkNumber, is_dark: bool) {
        self.link_mut(number).0.set_dark(is_dark);
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        let second = self.second.as_ref().map(|second| &second.link);
        [&self.first].into_iter().chain(second)
    }

    pub(super) fn serializer(&self, number: LinkNumber) -> &Serializer {
        match &self.second {
            Some(second) if number == 2 => &second.serializer,
            _ => &self.common.serializer,
        }
    }

    pub(super) fn serializer_mut(&mut self, number: LinkNumber) -> &mut Serializer {
        match &mut self.second {
            Some(second) if number == 2 => &mut second.serializer,
            _ => &mut self.common.serializer,
        }
    }

    /// The link that a packet has come by. A switch spreads the flows of a bond by a hash.
    pub(super) fn came_by(&self, packet: &Received<'_>) -> LinkNumber {
        let links = &self.scheduler.port.links;
        match links.is_bond() {
            true => links.carrying(spread(packet.headers.dest_qp.value())),
            false => packet.port,
        }
    }
}
