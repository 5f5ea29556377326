//! Devices on a network.

mod answers;
mod capture;

use std::io;

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_device::{
    Attr, Completion, Counter, Data, Event, Hca, Outgoing, Payload, Qos, QpAttr, QpModify, QpState,
    Received, Trust, VerbsError,
};
use ferroce_transport::Qp;

use self::answers::Answers;
use self::capture::{Captures, Seen, Sink};
use crate::frame::Frame;
use crate::host::{Host, address, number_of};
use crate::line::{LineCounters, Loss};
use crate::network::{FabricConfig, Network, Stations};
use crate::route::flow_hash;
use crate::rules::Rules;
use crate::switch::SwitchCounters;
use crate::topology::{NodeId, Ports, Topology};

/// A fabric: a network with a device at each end.
///
/// [`Fabric::run`] processes the next events. The devices' outputs are collected in
/// [`Fabric::completions`] and [`Fabric::told`], for the caller to take.
#[derive(Debug)]
pub struct Fabric {
    net: Network<Outgoing>,
    hosts: Vec<Host>,
    answers: Answers,
    /// The trust of switches.
    trust: Trust,
    captures: Captures,
    /// Completions, with their hosts.
    pub completions: Vec<(u32, Completion)>,
    /// Other events of devices, with their hosts.
    pub told: Vec<(u32, Event)>,
}

impl Fabric {
    /// Creates a fabric whose hosts have these devices, in order.
    ///
    /// # Errors
    /// Returns an error if a device has no room for the objects that each host needs.
    ///
    /// # Panics
    /// Panics if there are not as many devices as hosts.
    pub fn new(
        config: FabricConfig,
        devices: impl IntoIterator<Item = Hca>,
    ) -> Result<Self, VerbsError> {
        let topology = &config.topology;
        let ports = Ports::of(topology);
        let links = |host| ports.at(NodeId(host)).len();
        let hosts = (0..).zip(devices).map(|(number, hca)| {
            Host::new(match topology.pairing.filter(|_| links(number) == 2) {
                Some(pairing) => {
                    let state = hca.state().twin();
                    hca.with_second_link(pairing, state)
                }
                None => hca,
            })
        });
        let hosts: Result<Vec<_>, _> = hosts.collect();
        let hosts = hosts?;
        let expected = config.topology.hosts as usize;
        assert_eq!(hosts.len(), expected, "devices and hosts");
        let trust = config.switch.trust;
        let mut net = Network::new(config);
        net.watch.losses();
        Ok(Self {
            net,
            hosts,
            answers: Answers::default(),
            trust,
            captures: Captures::default(),
            completions: Vec::new(),
            told: Vec::new(),
        })
    }

    fn parts(&mut self) -> (&mut Network<Outgoing>, Cards<'_>) {
        let Self {
            net,
            hosts,
            answers,
            trust,
            captures: _,
            completions,
            told,
        } = self;
        let cards = Cards {
            trust: *trust,
            count: hosts.len() as u32,
            hosts,
            answers,
            completions,
            told,
        };
        (net, cards)
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.net.now()
    }

    /// Returns the time of the next event.
    pub fn next_event(&mut self) -> Option<Time> {
        self.net.next_event()
    }

    /// Processes events before `limit`, until a device has output or the given number of events is
    /// used up. Subtracts the processed ones from `events`.
    pub fn run(&mut self, limit: Time, events: &mut u64) {
        let (net, mut cards) = self.parts();
        net.run(&mut cards, limit, events);
        self.take_seen();
    }

    /// Takes what was seen of packets. Nothing that a timer found lost is repeated before a host has been
    /// told of the timer.
    fn take_seen(&mut self) {
        for packet in self.net.watch.lost.drain(..) {
            self.answers.lose(&packet);
        }
        for it in std::mem::take(&mut self.net.watch.passed) {
            let source = self.net.topology().host_of(it.frame.source);
            let host = &self.hosts[source as usize];
            self.captures.note(&Seen {
                source_port: host.source_port(it.frame.dest, &it.packet),
                vlan: host.hca.qos().vlan,
                passed: &it,
            });
        }
    }

    /// Starts to record the packets that pass the port at a cable's first (0) or second (1) end, as
    /// pcapng.
    ///
    /// # Errors
    /// Returns an error if that cannot be written.
    pub fn capture(&mut self, cable: usize, end: usize, to: Sink) -> io::Result<()> {
        let port = Network::<Outgoing>::leaving(cable, end);
        self.captures.begin(port, to)?;
        self.net.watch.port(port);
        Ok(())
    }

    /// Completes the captures.
    ///
    /// # Errors
    /// Returns an error if one of them is not whole.
    pub fn finish_captures(&mut self) -> io::Result<()> {
        self.take_seen();
        self.captures.finish()
    }

    /// Returns the number of spurious retransmissions: requests retransmitted although their
    /// receivers have executed them, and although no answer was lost. Includes those that will
    /// arrive, unless the queue pair has been destroyed by then.
    pub fn spurious(&self) -> u64 {
        let coming = self.net.under_way().chain(self.net.waiting());
        let topology = self.net.topology();
        self.answers.spurious(&self.hosts, topology, coming)
    }

    /// Returns whether a device has output that was not taken.
    pub fn has_output(&self) -> bool {
        !self.completions.is_empty() || !self.told.is_empty()
    }

    /// Advances the time while there are no events.
    ///
    /// # Panics
    /// Panics if time stands still.
    pub fn advance(&mut self, to: Time) {
        self.net.advance(to);
    }

    /// Returns a host.
    pub fn host(&self, host: u32) -> &Host {
        &self.hosts[host as usize]
    }

    /// Returns a host for calling verbs of its device; call [`Self::kick`] afterwards.
    pub fn host_mut(&mut self, host: u32) -> &mut Host {
        &mut self.hosts[host as usize]
    }

    /// Returns the latency of its switches; zero if it has none.
    pub fn switch_latency(&self) -> Span {
        self.net.switch_latency()
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        self.net.topology()
    }

    /// Returns the rules for packets that leave hosts, which apply before cables and switches.
    pub fn rules(&mut self) -> &mut Rules<Outgoing> {
        &mut self.net.rules
    }

    /// Returns the number of line crossings by frames on their path from end to end.
    pub fn hops(&self) -> u64 {
        self.net.hops()
    }

    /// Returns the counters of the line that leaves a cable's first (0) or second (1) end.
    pub fn line(&self, cable: usize, end: usize) -> LineCounters {
        self.net.line(cable, end)
    }

    /// Returns the counters of a switch.
    pub fn switch(&self, switch: NodeId) -> &SwitchCounters {
        self.net.switch(switch)
    }

    /// Returns the bytes that wait at the end of a cable for the line that leaves it, and the
    /// maximum that one priority has had. Zero at a host, whose device does the waiting.
    pub fn queue(&self, cable: usize, end: usize) -> (u64, u64) {
        self.net.queue(cable, end)
    }

    /// Returns ports that wait for each other forever; see [`Network::deadlock`].
    pub fn deadlock(&self) -> Option<Vec<(usize, usize)>> {
        self.net.deadlock()
    }

    /// Cuts a cable, or repairs it. What is on it is lost, and so is what waits for it.
    pub fn set_up(&mut self, cable: usize, is_up: bool) {
        let (net, mut cards) = self.parts();
        net.set_up(&mut cards, cable, is_up);
    }

    /// Makes switches find paths around cables that are down, and use cables again that are up. So do
    /// hosts with two links.
    pub fn reroute(&mut self) {
        let (net, mut cards) = self.parts();
        net.reroute(&mut cards);
    }

    /// Changes the rate of a cable in both directions, for packets sent from now on.
    pub fn set_rate(&mut self, cable: usize, rate: Rate) {
        self.net.set_rate(cable, rate);
    }

    /// Makes a host take packets no faster than at a rate, or as fast as they arrive again; see
    /// [`Network::set_intake`].
    pub fn set_intake(&mut self, host: u32, rate: Option<Rate>) {
        let (net, mut cards) = self.parts();
        net.set_intake(&mut cards, host, rate);
    }

    /// Makes a cable lose packets in both directions.
    pub fn set_loss(&mut self, cable: usize, loss: Loss) {
        self.net.set_loss(cable, loss);
    }

    /// Makes a cable flip a bit in a share of packets, in units of 2^-32, in both directions, which
    /// no switch notices.
    pub fn set_corruption(&mut self, cable: usize, share: u32) {
        self.net.set_corruption(cable, share);
    }

    /// Makes a host's device forget its queue pairs, as after a reset: their work is flushed, and
    /// they do not answer any more.
    pub fn reset_nic(&mut self, host: u32) {
        let hca = &mut self.hosts[host as usize].hca;
        let qpns: Vec<_> = hca.qps().map(Qp::qpn).collect();
        for qpn in qpns {
            let change = QpModify::to(QpState::Err, Attr::empty(), QpAttr::default());
            if let Err(error) = hca.modify_qp(qpn, &change, None) {
                debug_assert!(false, "any state leads to ERR: {error}");
            }
        }
        self.kick(host);
    }

    /// Sets whether a host is cut off from the network. Its device keeps running.
    pub fn set_silent(&mut self, host: u32, is_silent: bool) {
        self.hosts[host as usize].is_silent = is_silent;
        self.kick(host);
    }

    /// Makes a host send after verbs were called, and collects its device's outputs.
    pub fn kick(&mut self, host: u32) {
        let (net, mut cards) = self.parts();
        net.kick(&mut cards, host);
    }

    /// Releases memory that traffic has used and idle hosts do not need.
    pub fn rest(&mut self) {
        for host in &mut self.hosts {
            host.hca.rest();
        }
        self.net.rest();
    }

    /// Checks that all losses are counted, and that all parts are consistent.
    ///
    /// # Panics
    /// Panics if something is wrong.
    pub fn audit(&self) {
        self.net.audit();
        self.hosts.iter().for_each(|host| host.hca.audit());
    }
}

/// The hosts of a fabric, and what has come out of them.
struct Cards<'a> {
    trust: Trust,
    /// Of the hosts.
    count: u32,
    hosts: &'a mut [Host],
    answers: &'a mut Answers,
    completions: &'a mut Vec<(u32, Completion)>,
    told: &'a mut Vec<(u32, Event)>,
}

impl Stations<Outgoing> for Cards<'_> {
    #[inline]
    fn transmit(&mut self, now: Time, host: u32, link: u8, packet: &mut Outgoing) -> Option<Frame> {
        let it = &mut self.hosts[host as usize];
        while it.hca.poll_link_into(link, now, packet) {
            let source = match it.hca.ports() {
                2 if link == 2 => self.count + host,
                _ => host,
            };
            if !it.is_silent
                && let Some(frame) = frame(it, source, packet, self.trust)
            {
                return Some(frame);
            }
            self.answers.lose(packet);
        }
        None
    }

    #[inline]
    fn receive(&mut self, now: Time, host: u32, frame: &Frame, packet: &Outgoing) {
        let it = &mut self.hosts[host as usize];
        if it.is_silent {
            self.answers.lose(packet);
        } else if packet.corrupt_bit().is_some() {
            it.hca.count(Counter::RxIcrcEncapsulated, 1);
            self.answers.lose(packet);
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
                port: if frame.dest == host { 1 } else { 2 },
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
            self.completions.push((host, completion));
        }
        while let Some(event) = it.hca.poll_event() {
            self.told.push((host, event));
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
