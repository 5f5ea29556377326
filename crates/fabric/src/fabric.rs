//! Devices on a network.

mod answers;
mod capture;

use std::io;

use ferroce_dcqcn::Rate;
use ferroce_hca::{
    Attr, Completion, Counter, Data, Event, Hca, Outgoing, QpAttr, QpModify, QpState, Received,
    VerbsError,
};
use ferroce_time::Time;
use ferroce_transport::Qp;

use self::answers::Answers;
use self::capture::{Captures, Seen, Sink};
use crate::frame::Frame;
use crate::host::{Host, address, host_of};
use crate::line::{LineCounters, Loss};
use crate::network::{FabricConfig, Network, Stations};
use crate::route::flow_hash;
use crate::rules::Rules;
use crate::switch::SwitchCounters;
use crate::topology::{NodeId, Topology};

/// A fabric: a network with a device at each end.
///
/// [`Fabric::run`] lives through what happens next. What comes out of the devices gathers in
/// [`Fabric::completions`] and [`Fabric::told`], for whoever drives the fabric to take.
#[derive(Debug)]
pub struct Fabric {
    net: Network<Outgoing>,
    hosts: Vec<Host>,
    answers: Answers,
    captures: Captures,
    /// What hosts have completed.
    pub completions: Vec<(u32, Completion)>,
    /// What devices have told besides.
    pub told: Vec<(u32, Event)>,
}

impl Fabric {
    /// A fabric whose hosts have these devices, in order.
    ///
    /// # Errors
    /// If a device has no room for the objects that each host needs.
    ///
    /// # Panics
    /// If there are not as many devices as hosts.
    pub fn new(
        config: FabricConfig,
        devices: impl IntoIterator<Item = Hca>,
    ) -> Result<Self, VerbsError> {
        let hosts: Result<Vec<_>, _> = devices.into_iter().map(Host::new).collect();
        let hosts = hosts?;
        let expected = config.topology.hosts as usize;
        assert_eq!(hosts.len(), expected, "devices and hosts");
        let mut net = Network::new(config);
        net.watch.losses();
        Ok(Self {
            net,
            hosts,
            answers: Answers::default(),
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
            captures: _,
            completions,
            told,
        } = self;
        let cards = Cards {
            hosts,
            answers,
            completions,
            told,
        };
        (net, cards)
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.net.now()
    }

    /// When something happens next.
    pub fn next_event(&mut self) -> Option<Time> {
        self.net.next_event()
    }

    /// Lives through what happens before `limit`, until something comes out of a device or so many
    /// events are over; these are taken off `events`.
    pub fn run(&mut self, limit: Time, events: &mut u64) {
        let (net, mut cards) = self.parts();
        net.run(&mut cards, limit, events);
        self.take_seen();
    }

    /// Takes what was seen of packets. Nobody repeats what a timer found lost before somebody has been
    /// told of the timer.
    fn take_seen(&mut self) {
        for packet in self.net.watch.lost.drain(..) {
            self.answers.lose(&packet);
        }
        for it in self.net.watch.passed.drain(..) {
            let host = &self.hosts[it.frame.source as usize];
            self.captures.note(&Seen {
                source_port: host.source_port(it.frame.dest, it.packet.headers.dest_qp),
                passed: &it,
            });
        }
    }

    /// Records what passes the port at a cable's first (0) or second (1) end from now on, as pcapng.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn capture(&mut self, cable: usize, end: usize, to: Sink) -> io::Result<()> {
        let port = Network::<Outgoing>::leaving(cable, end);
        self.captures.begin(port, to)?;
        self.net.watch.port(port);
        Ok(())
    }

    /// Writes captures out.
    ///
    /// # Errors
    /// If one of them is not whole.
    pub fn finish_captures(&mut self) -> io::Result<()> {
        self.take_seen();
        self.captures.finish()
    }

    /// Requests that were sent again although their receivers have executed them, and although no answer
    /// was lost: those that have arrived or will, unless the queue pair there is gone by then.
    pub fn spurious(&self) -> u64 {
        let coming = self.net.under_way().chain(self.net.waiting());
        self.answers.spurious(&self.hosts, coming)
    }

    /// Whether something has come out of a device and was not taken.
    pub fn has_output(&self) -> bool {
        !self.completions.is_empty() || !self.told.is_empty()
    }

    /// Lets time pass in which nothing happens.
    ///
    /// # Panics
    /// If time stands still.
    pub fn advance(&mut self, to: Time) {
        self.net.advance(to);
    }

    /// A host.
    pub fn host(&self, host: u32) -> &Host {
        &self.hosts[host as usize]
    }

    /// A host, to call verbs of its device; [`Self::kick`] it afterwards.
    pub fn host_mut(&mut self, host: u32) -> &mut Host {
        &mut self.hosts[host as usize]
    }

    /// What is connected to what.
    pub fn topology(&self) -> &Topology {
        self.net.topology()
    }

    /// What becomes of packets that leave hosts, besides all that cables and switches do to them.
    pub fn rules(&mut self) -> &mut Rules<Outgoing> {
        &mut self.net.rules
    }

    /// Frames that have crossed a line, on their way from end to end.
    pub fn hops(&self) -> u64 {
        self.net.hops()
    }

    /// What the line has counted that leaves a cable's first (0) or second (1) end.
    pub fn line(&self, cable: usize, end: usize) -> LineCounters {
        self.net.line(cable, end)
    }

    /// What a switch has counted.
    pub fn switch(&self, switch: NodeId) -> &SwitchCounters {
        self.net.switch(switch)
    }

    /// Bytes that wait at the end of a cable for the line that leaves it, and the most of one priority
    /// that ever have; none at a host, whose device waits.
    pub fn queue(&self, cable: usize, end: usize) -> (u64, u64) {
        self.net.queue(cable, end)
    }

    /// Cuts a cable, or mends it. What is on it is lost, and what waits for it.
    pub fn set_up(&mut self, cable: usize, is_up: bool) {
        let (net, mut cards) = self.parts();
        net.set_up(&mut cards, cable, is_up);
    }

    /// Switches find ways around cables that are down, and use those again that are up.
    pub fn reroute(&mut self) {
        self.net.reroute();
    }

    /// Changes the rate of a cable both ways, for what is sent from now on.
    pub fn set_rate(&mut self, cable: usize, rate: Rate) {
        self.net.set_rate(cable, rate);
    }

    /// Has a cable lose packets both ways.
    pub fn set_loss(&mut self, cable: usize, loss: Loss) {
        self.net.set_loss(cable, loss);
    }

    /// Has a cable flip a bit of so many packets of 2^32 both ways, which no switch notices.
    pub fn set_corruption(&mut self, cable: usize, share: u32) {
        self.net.set_corruption(cable, share);
    }

    /// Has a host's device forget its queue pairs, as after a reset: what they had to do is flushed, and
    /// they answer nobody any more.
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

    /// A host neither sends nor hears anything, or does so again. Its device goes on.
    pub fn set_silent(&mut self, host: u32, is_silent: bool) {
        self.hosts[host as usize].is_silent = is_silent;
        self.kick(host);
    }

    /// A host has been given something to do: has it send, and takes what its device has to tell.
    pub fn kick(&mut self, host: u32) {
        let (net, mut cards) = self.parts();
        net.kick(&mut cards, host);
    }

    /// Gives back memory that traffic has taken and that hosts at rest do not need.
    pub fn rest(&mut self) {
        for host in &mut self.hosts {
            host.hca.rest();
        }
        self.net.rest();
    }

    /// Checks that nothing is lost but what is counted, and that the books of all parts agree.
    ///
    /// # Panics
    /// If something is wrong.
    pub fn audit(&self) {
        self.net.audit();
        self.hosts.iter().for_each(|host| host.hca.audit());
    }
}

/// The hosts of a fabric, and what has come out of them.
struct Cards<'a> {
    hosts: &'a mut [Host],
    answers: &'a mut Answers,
    completions: &'a mut Vec<(u32, Completion)>,
    told: &'a mut Vec<(u32, Event)>,
}

impl Stations<Outgoing> for Cards<'_> {
    #[inline]
    fn transmit(&mut self, now: Time, host: u32, packet: &mut Outgoing) -> Option<Frame> {
        let it = &mut self.hosts[host as usize];
        while it.hca.poll_transmit_into(now, packet) {
            if !it.is_silent
                && let Some(frame) = frame(it, host, packet)
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
                headers: &packet.headers,
                data: Data::Length(packet.payload_len),
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

    fn set_paused(&mut self, now: Time, host: u32, priorities: u8) {
        self.hosts[host as usize].hca.set_paused(now, priorities);
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
    fn wants_transmit(&self, host: u32) -> bool {
        self.hosts[host as usize].hca.wants_transmit()
    }

    #[inline]
    fn has_news(&self) -> bool {
        !self.completions.is_empty() || !self.told.is_empty()
    }
}

/// The frame of a packet that a host sends, if there is a host that it goes to.
#[inline]
fn frame(host: &Host, source: u32, packet: &Outgoing) -> Option<Frame> {
    let dest = host_of(packet.path.dest)?;
    let port = host.source_port(dest, packet.headers.dest_qp);
    Some(Frame {
        flow: flow_hash(source, dest, port),
        ..Frame::of(source, dest, packet)
    })
}
