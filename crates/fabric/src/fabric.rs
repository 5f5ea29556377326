//! Devices on a network.

mod answers;
mod capture;
mod changes;
mod part;
mod stretch;

use std::io;
use std::sync::Arc;

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_device::{Completion, Event, Hca, Outgoing, VerbsError};
use rayon::prelude::*;

use self::answers::Answers;
use self::capture::{Captures, Seen, Sink};
pub(crate) use self::part::Part;
pub(crate) use self::stretch::Counts;
use self::stretch::LeftOut;
use crate::host::Host;
use crate::line::LineCounters;
use crate::network::{FabricConfig, Network, audit, deadlock};
use crate::rules::Rules;
use crate::switch::SwitchCounters;
use crate::topology::{Division, NodeId, Ports, Topology};

/// A fabric: a network with a device at each end.
///
/// It consists of parts that do without each other for as long as a frame takes between them
/// ([`Fabric::lookahead`]). [`Fabric::run`] processes the next events. The devices' outputs are collected for the
/// caller, who takes them by [`Fabric::take_completions`] and [`Fabric::take_told`].
#[derive(Debug)]
pub struct Fabric {
    topology: Topology,
    division: Arc<Division>,
    parts: Vec<Part>,
    /// Of each cable.
    is_up: Vec<bool>,
    /// The same as switches know it.
    is_routed: Vec<bool>,
    lookahead: Span,
    captures: Captures,
    left_out: LeftOut,
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
        Self::in_parts(config, devices, 1)
    }

    /// Creates a fabric of at most this many parts, for as many threads. What happens is the same for any number.
    ///
    /// # Errors
    /// Returns an error as [`Self::new`] does.
    ///
    /// # Panics
    /// Panics if there are not as many devices as hosts.
    pub fn in_parts(
        config: FabricConfig,
        devices: impl IntoIterator<Item = Hca>,
        most: usize,
    ) -> Result<Self, VerbsError> {
        let division = Arc::new(Division::of(&config.topology, most));
        let nets = Network::divided(&config, &division);
        let FabricConfig {
            topology, switch, ..
        } = config;
        let mut parts: Vec<_> = nets
            .into_iter()
            .map(|mut net| {
                net.watch.losses();
                Part {
                    net,
                    hosts: Vec::new(),
                    trust: switch.trust,
                    count: topology.hosts,
                    division: Arc::clone(&division),
                    answers: Answers::default(),
                    lost: Vec::new(),
                    completions: Vec::new(),
                    told: Vec::new(),
                }
            })
            .collect();
        let ports = Ports::of(&topology);
        let mut count = 0;
        for (number, hca) in (0..).zip(devices) {
            count += 1;
            let node = NodeId(number);
            let links = ports.at(node).len();
            let hca = match topology.pairing.filter(|_| links == 2) {
                Some(pairing) => {
                    let state = hca.state().twin();
                    hca.with_second_link(pairing, state)
                }
                None => hca,
            };
            let part = &mut parts[usize::from(division.home(node).part)];
            part.hosts.push(Host::new(number, hca)?);
        }
        assert_eq!(count, topology.hosts, "devices and hosts");
        let delays = topology.cables.iter().map(|cable| cable.delay);
        let shortest = delays.min().unwrap_or_default();
        Ok(Self {
            is_up: vec![true; topology.cables.len()],
            is_routed: vec![true; topology.cables.len()],
            topology,
            division,
            parts,
            lookahead: shortest.max(Span::from_picos(1)),
            captures: Captures::default(),
            left_out: LeftOut::default(),
        })
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        let times = self.parts.iter().map(Part::now);
        times.max().unwrap_or_default()
    }

    /// Returns how long nothing that a host does reaches another one: the delay of the shortest cable, and not
    /// less than a picosecond.
    pub fn lookahead(&self) -> Span {
        self.lookahead
    }

    /// Returns the time of the next event.
    pub fn next_event(&mut self) -> Option<Time> {
        let parts = self.parts.iter_mut();
        parts.filter_map(|part| part.net.next_event()).min()
    }

    /// Processes events before `limit`, until a device has output or the given number of events is
    /// used up. Subtracts the processed ones from `events`.
    pub fn run(&mut self, limit: Time, events: &mut u64) {
        while *events > 0 && !self.has_output() {
            let parts = self.parts.iter_mut().enumerate();
            let nexts = parts.filter_map(|(part, it)| Some((it.net.next_event()?, part)));
            let Some((next, part)) = nexts.min().filter(|(next, _)| *next < limit) else {
                return;
            };
            let part = &mut self.parts[part];
            // Up to then nothing comes from other parts.
            part.net.import();
            part.run(limit.min(next.after(self.lookahead)), events);
            self.exchange();
        }
    }

    /// Lets each part act, beside the others on the threads of the current pool or after them, and takes between
    /// them what they have sent to each other. Returns the sum of the results, or an error of a part.
    pub(crate) fn pass<T: Send>(
        &mut self,
        beside: bool,
        helpers: &mut [T],
        act: impl Fn(&mut Part, &mut T) -> Result<u64, VerbsError> + Sync,
    ) -> Result<u64, VerbsError> {
        let parts = &mut self.parts;
        let events = match beside {
            true => {
                let all = parts.par_iter_mut().zip(helpers);
                let results = all.map(|(part, helper)| act(part, helper));
                results.try_reduce(|| 0, |one, other| Ok(one + other))
            }
            false => {
                let all = parts.iter_mut().zip(helpers);
                all.map(|(part, helper)| act(part, helper)).sum()
            }
        };
        self.exchange();
        events
    }

    /// Takes to each part what has left others for it, and what was seen of packets. Nothing that a timer found
    /// lost is repeated before a host has been told of the timer.
    fn exchange(&mut self) {
        for from in 0..self.parts.len() {
            while let Some((to, batch)) = self.parts[from].net.border.hand_over() {
                self.parts[to].net.border.take(batch);
            }
            let part = &mut self.parts[from];
            let mut lost = std::mem::take(&mut part.lost);
            lost.append(&mut part.net.watch.lost);
            for (source, packet) in lost.drain(..) {
                let sender = self.topology.host_of(source);
                self.part_mut(sender).answers.lose(&packet);
            }
            self.parts[from].lost = lost; // its room
            for it in std::mem::take(&mut self.parts[from].net.watch.passed) {
                let host = self.host(self.topology.host_of(it.frame.source));
                let seen = Seen {
                    source_port: host.source_port(it.frame.dest, &it.packet),
                    vlan: host.hca.qos().vlan,
                    port: self.parts[from].net.number_of_line(it.port),
                    passed: &it,
                };
                self.captures.note(&seen);
            }
        }
    }

    /// Puts on lines what is between parts, so that it can be looked at or changed.
    fn settle(&mut self) {
        self.exchange();
        self.parts.iter_mut().for_each(|part| part.net.import());
    }

    /// Starts to record the packets that pass the port at a cable's first (0) or second (1) end, as
    /// pcapng.
    ///
    /// # Errors
    /// Returns an error if that cannot be written.
    pub fn capture(&mut self, cable: usize, end: usize, to: Sink) -> io::Result<()> {
        self.captures.begin((2 * cable + end) as u32, to)?;
        let home = self.division.home(self.topology.cables[cable].ends[end]);
        let line = 2 * self.division.cable(cable, end) + end;
        self.parts[usize::from(home.part)]
            .net
            .watch
            .port(line as u32);
        Ok(())
    }

    /// Completes the captures.
    ///
    /// # Errors
    /// Returns an error if one of them is not whole.
    pub fn finish_captures(&mut self) -> io::Result<()> {
        self.exchange();
        self.captures.finish()
    }

    /// Returns the number of spurious retransmissions: requests retransmitted although their
    /// receivers have executed them, and although no answer was lost. Includes those that will
    /// arrive, unless the queue pair has been destroyed by then.
    pub fn spurious(&self) -> u64 {
        let hosts = |part: &Part| part.answers.repeated(&part.hosts);
        let came = self.parts.iter().map(hosts);
        let nets = self.parts.iter().map(|part| &part.net);
        let coming =
            nets.flat_map(|net| net.under_way().chain(net.waiting()).chain(net.crossing()));
        let coming = coming.filter(|(frame, packet)| {
            let host = self.topology.host_of(frame.dest);
            let part = self.part(host);
            part.answers
                .is_spurious(&part.host(host).hca, frame, packet)
        });
        came.sum::<u64>() + coming.count() as u64
    }

    /// Returns whether a device has output that was not taken.
    pub fn has_output(&self) -> bool {
        self.parts.iter().any(Part::has_output)
    }

    /// Takes the completions of all devices, with their hosts.
    pub fn take_completions(&mut self) -> Vec<(u32, Completion)> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|part| part.completions.drain(..)).collect()
    }

    /// Takes other events of all devices, with their hosts.
    pub fn take_told(&mut self) -> Vec<(u32, Event)> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|part| part.told.drain(..)).collect()
    }

    /// Advances the time while there are no events.
    ///
    /// # Panics
    /// Panics if time stands still.
    pub fn advance(&mut self, to: Time) {
        self.parts.iter_mut().for_each(|part| part.net.advance(to));
    }

    fn part(&self, host: u32) -> &Part {
        &self.parts[self.part_of(host)]
    }

    fn part_mut(&mut self, host: u32) -> &mut Part {
        let part = self.part_of(host);
        &mut self.parts[part]
    }

    /// The part that a host is in.
    pub(crate) fn part_of(&self, host: u32) -> usize {
        self.division.home(NodeId(host)).part.into()
    }

    /// Returns the number of parts, which is that of threads that can work on it.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts
    }

    /// Returns a host.
    pub fn host(&self, host: u32) -> &Host {
        self.part(host).host(host)
    }

    /// Returns a host for calling verbs of its device; call [`Self::kick`] afterwards.
    pub fn host_mut(&mut self, host: u32) -> &mut Host {
        self.part_mut(host).host_mut(host)
    }

    /// Returns the latency of its switches; zero if it has none.
    pub fn switch_latency(&self) -> Span {
        let mut nets = self.parts.iter().map(|part| &part.net);
        nets.find_map(Network::switch_latency).unwrap_or_default()
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the rules for packets that leave a host and others in its part, which apply before cables and
    /// switches.
    pub fn rules(&mut self, host: u32) -> &mut Rules<Outgoing> {
        &mut self.part_mut(host).net.rules
    }

    /// Returns the number of line crossings by frames on their path from end to end.
    pub fn hops(&self) -> u64 {
        self.parts.iter().map(|part| part.net.hops()).sum()
    }

    /// Returns the counters of the line that leaves a cable's first (0) or second (1) end.
    pub fn line(&self, cable: usize, end: usize) -> LineCounters {
        let mut counters = self.own_line(cable, end);
        self.left_out.add_line(cable, end, &mut counters);
        counters
    }

    /// What a line has counted itself.
    fn own_line(&self, cable: usize, end: usize) -> LineCounters {
        let (sends, here) = self.at_end(cable, end);
        let (receives, there) = self.at_end(cable, 1 - end);
        let mut counters = sends.line(here, end);
        if !std::ptr::eq(sends, receives) {
            // What was on the line when it was cut was there.
            counters.dropped_down += receives.line(there, end).dropped_down;
        }
        counters
    }

    /// The network at the first (0) or second (1) end of a cable, and the cable's number there.
    fn at_end(&self, cable: usize, end: usize) -> (&Network<Outgoing>, usize) {
        let home = self.division.home(self.topology.cables[cable].ends[end]);
        let net = &self.parts[usize::from(home.part)].net;
        (net, self.division.cable(cable, end))
    }

    /// Returns the counters of a switch.
    pub fn switch(&self, switch: NodeId) -> SwitchCounters {
        let mut counters = *self.own_switch(switch);
        let number = switch.0 - self.topology.hosts;
        self.left_out.add_switch(number as usize, &mut counters);
        counters
    }

    /// What a switch has counted itself.
    fn own_switch(&self, switch: NodeId) -> &SwitchCounters {
        let home = self.division.home(switch);
        self.parts[usize::from(home.part)].net.switch(home.number)
    }

    /// Returns the bytes that wait at the end of a cable for the line that leaves it, and the
    /// maximum that one priority has had. Zero at a host, whose device does the waiting.
    pub fn queue(&self, cable: usize, end: usize) -> (u64, u64) {
        let (net, cable) = self.at_end(cable, end);
        net.queue(cable, end)
    }

    /// Returns the frames that a switch dropped at the end of a cable because they found no room to wait
    /// for the line that leaves it.
    pub fn dropped(&self, cable: usize, end: usize) -> u64 {
        let (net, cable) = self.at_end(cable, end);
        net.dropped(cable, end)
    }

    /// Returns the rate of each direction of a cable.
    pub fn rate(&self, cable: usize) -> Rate {
        let (net, cable) = self.at_end(cable, 0);
        net.rate(cable)
    }

    /// Returns the port that a switch takes for a flow by its hash, of those that lead to its destination.
    pub fn pick(&self, switch: NodeId, ports: &[u16], flow: u32) -> Option<u16> {
        let home = self.division.home(switch);
        self.parts[usize::from(home.part)]
            .net
            .pick(home.number, ports, flow)
    }

    /// Returns ports that wait for each other forever, as cables and their ends: the frames of one priority at each
    /// wait for the next one's, and those of the last for the first one's, unless a cable goes down. `None` if there
    /// is no such circle.
    pub fn deadlock(&self) -> Option<Vec<(usize, usize)>> {
        deadlock(&self.nets(), self.topology.cables.len())
    }

    /// Returns the storms of pauses of all queues that had some; none without a watchdog of the switches.
    pub fn storms(&self) -> Vec<crate::Storms> {
        let nets = self.parts.iter().map(|part| &part.net);
        let mut storms: Vec<_> = nets.flat_map(Network::storms).collect();
        storms.sort_by_key(|it| (it.port, it.priority));
        storms
    }

    fn nets(&self) -> Vec<&Network<Outgoing>> {
        self.parts.iter().map(|part| &part.net).collect()
    }

    /// Makes a host send after verbs were called, and collects its device's outputs.
    pub fn kick(&mut self, host: u32) {
        self.part_mut(host).kick(host);
    }

    /// Releases memory that traffic has used and idle hosts do not need.
    pub fn rest(&mut self) {
        for part in &mut self.parts {
            for host in &mut part.hosts {
                host.hca.rest();
            }
            part.net.rest();
        }
    }

    /// Checks that all losses are counted, and that all parts are consistent.
    ///
    /// # Panics
    /// Panics if something is wrong.
    pub fn audit(&mut self) {
        self.settle();
        audit(&self.nets());
        let hosts = self.parts.iter().flat_map(|part| &part.hosts);
        hosts.for_each(|host| host.hca.audit());
    }
}
