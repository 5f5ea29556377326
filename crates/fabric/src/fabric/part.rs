//! A part of a fabric: a network with a device at each end.

use std::sync::Arc;

use ferroce_base::time::Time;
use ferroce_device::{Completion, Counter, Data, Event, Outgoing, Payload, Qos, Received, Trust};

use super::answers::Answers;
use crate::frame::Frame;
use crate::host::{Host, address, number_of};
use crate::network::{Network, Stations};
use crate::route::flow_hash;
use crate::topology::{Division, NodeId};

/// A part of a fabric, or all of it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) net: Network<Outgoing>,
    /// Its hosts, in order.
    pub(super) hosts: Vec<Host>,
    /// The trust of switches.
    pub(super) trust: Trust,
    /// How many hosts the fabric has.
    pub(super) count: u32,
    pub(super) division: Arc<Division>,
    pub(super) answers: Answers,
    /// Packets that hosts here were given and did not get, and the numbers of their senders' addresses.
    pub(super) lost: Vec<(u32, Outgoing)>,
    /// Completions, with their hosts.
    pub(crate) completions: Vec<(u32, Completion)>,
    /// Other events of devices, with their hosts.
    pub(crate) told: Vec<(u32, Event)>,
}

impl Part {
    pub(super) fn split(&mut self) -> (&mut Network<Outgoing>, Cards<'_>) {
        let Self {
            net,
            hosts,
            trust,
            count,
            division: _,
            answers,
            lost,
            completions,
            told,
        } = self;
        let cards = Cards {
            trust: *trust,
            count: *count,
            hosts,
            answers,
            lost,
            completions,
            told,
        };
        (net, cards)
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Time {
        self.net.now()
    }

    /// Processes events before `limit`, until a device has output or the given number of events is
    /// used up. Subtracts the processed ones from `events`.
    pub(crate) fn run(&mut self, limit: Time, events: &mut u64) {
        let (net, mut cards) = self.split();
        net.run(&mut cards, limit, events);
    }

    /// Returns whether a device has output that was not taken.
    pub(crate) fn has_output(&self) -> bool {
        !self.completions.is_empty() || !self.told.is_empty()
    }

    fn number(&self, host: u32) -> u32 {
        self.division.home(NodeId(host)).number
    }

    /// Returns a host that is here.
    pub(crate) fn host(&self, host: u32) -> &Host {
        &self.hosts[self.number(host) as usize]
    }

    /// Returns a host that is here for calling verbs of its device; call [`Self::kick`] afterwards.
    pub(crate) fn host_mut(&mut self, host: u32) -> &mut Host {
        let number = self.number(host);
        &mut self.hosts[number as usize]
    }

    /// Makes a host that is here send after verbs were called, and collects its device's outputs.
    pub(crate) fn kick(&mut self, host: u32) {
        let number = self.number(host);
        let (net, mut cards) = self.split();
        net.kick(&mut cards, number);
    }
}

/// The hosts of a part, and what has come out of them.
pub(super) struct Cards<'a> {
    trust: Trust,
    count: u32,
    hosts: &'a mut [Host],
    answers: &'a mut Answers,
    lost: &'a mut Vec<(u32, Outgoing)>,
    completions: &'a mut Vec<(u32, Completion)>,
    told: &'a mut Vec<(u32, Event)>,
}

impl Stations<Outgoing> for Cards<'_> {
    #[inline]
    fn transmit(&mut self, now: Time, host: u32, link: u8, packet: &mut Outgoing) -> Option<Frame> {
        let it = &mut self.hosts[host as usize];
        while it.hca.poll_link_into(link, now, packet) {
            let source = match it.hca.ports() {
                2 if link == 2 => self.count + it.number,
                _ => it.number,
            };
            if !it.is_silent
                && let Some(frame) = frame(it, source, packet, self.trust)
            {
                return Some(frame);
            }
            self.lost.push((source, packet.clone()));
        }
        None
    }

    #[inline]
    fn receive(&mut self, now: Time, host: u32, frame: &Frame, packet: &Outgoing) {
        let it = &mut self.hosts[host as usize];
        if it.is_silent {
            self.lost.push((frame.source, packet.clone()));
        } else if packet.corrupt_bit().is_some() {
            it.hca.count(Counter::RxIcrcEncapsulated, 1);
            self.lost.push((frame.source, packet.clone()));
        } else {
            self.answers.arrive(&it.hca, frame, packet);
            let received = Received {
                source: address(frame.source),
                dest: packet.path.dest,
                traffic_class: frame.ecn.on(packet.path.traffic_class),
                sl: packet.path.sl,
                headers: &packet.headers,
                data: match &packet.payload {
                    Payload::Carried(bytes) => Data::Bytes(bytes),
                    _ => Data::Length(packet.payload_len.into()),
                },
                port: if frame.dest == it.number { 1 } else { 2 },
            };
            it.hca.handle_packet(now, &received);
        }
    }

    #[inline]
    fn expire(&mut self, now: Time, host: u32) {
        let hca = &mut self.hosts[host as usize].hca;
        if hca.poll_timeout().is_some_and(|at| at <= now) {
            hca.handle_timeout(now);
        }
    }

    fn set_paused(&mut self, now: Time, host: u32, link: u8, priorities: u8) {
        let hca = &mut self.hosts[host as usize].hca;
        hca.set_paused(now, link, priorities);
    }

    fn set_carrier(&mut self, now: Time, host: u32, link: u8, is_up: bool) {
        let hca = &mut self.hosts[host as usize].hca;
        hca.set_host_carrier(now, link, is_up);
    }

    #[inline]
    fn collect(&mut self, _now: Time, host: u32) {
        let it = &mut self.hosts[host as usize];
        while let Ok(Some(completion)) = it.hca.poll_completion(it.cq) {
            self.completions.push((it.number, completion));
        }
        while let Some(event) = it.hca.poll_event() {
            self.told.push((it.number, event));
        }
    }

    #[inline]
    fn next(&self, _now: Time, host: u32) -> Option<Time> {
        self.hosts[host as usize].hca.poll_timeout()
    }

    #[inline]
    fn wants_transmit(&self, host: u32, link: u8) -> bool {
        self.hosts[host as usize].hca.link_wants_transmit(link)
    }

    #[inline]
    fn has_news(&self) -> bool {
        !self.completions.is_empty() || !self.told.is_empty()
    }
}

/// The frame of a packet that a host sends from an address to switches with this trust, if there is a
/// host that it goes to.
#[inline]
fn frame(host: &Host, source: u32, packet: &Outgoing, trust: Trust) -> Option<Frame> {
    let dest = number_of(packet.path.dest)?;
    let port = host.source_port(dest, packet);
    Some(Frame {
        flow: flow_hash(source, dest, port),
        ..Frame::of(
            source,
            dest,
            packet,
            Qos {
                trust,
                ..host.hca.qos()
            },
        )
    })
}
