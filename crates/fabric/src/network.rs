//! Lines and switches, what is under way on them, and what happens next.

mod watch;

use std::fmt;

use ferroce_dcqcn::Rate;
use ferroce_time::{Span, Time};
use rand::Rng;

pub(crate) use self::watch::Passed;
use self::watch::Watch;
use crate::events::EventQueue;
use crate::frame::{Frame, Parcel};
use crate::line::{Item, Line, LineCounters, Loss, Way};
use crate::packets::{PacketId, Packets};
use crate::route::{Routes, pick};
use crate::rules::Rules;
use crate::seed::sub_seed;
use crate::switch::{Switch, SwitchConfig, SwitchCounters};
use crate::topology::{CableSpec, NodeId, RATE_MIN, Topology};

/// Events at one moment before that is taken for a mistake of ours.
const EVENTS_AT_ONCE_MAX: u32 = 100_000_000;

/// What a fabric is made with.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// What is connected to what; it has been checked.
    pub topology: Topology,
    /// All switches.
    pub switch: SwitchConfig,
    /// Of everything random but in the devices.
    pub seed: u64,
}

/// What stands at the ends of a network: hosts, by their numbers.
///
/// A network calls them when something reaches them or their time has come. Whoever does something
/// with a host tells it to [`Network::kick`] that host afterwards.
pub trait Stations<P> {
    /// Takes the next packet that a host may send now.
    fn transmit(&mut self, now: Time, host: u32, packet: &mut P) -> Option<Frame>;

    /// How long the packet that a host has handed out last is still in its port: where that has a rate
    /// and its line none.
    fn until_departure(&self, _now: Time, _host: u32) -> Span {
        Span::ZERO
    }

    /// Gives a host a packet.
    fn receive(&mut self, now: Time, host: u32, frame: &Frame, packet: &P);

    /// A host's time has come.
    fn expire(&mut self, now: Time, host: u32);

    /// The other end of a host's cable wants no frames of these priorities, a bit each, and of all
    /// others.
    fn set_paused(&mut self, now: Time, host: u32, priorities: u8);

    /// Takes what a host has to tell. It has been given something, and has sent what it could.
    fn collect(&mut self, now: Time, host: u32);

    /// When a host's time comes next.
    fn next(&self, now: Time, host: u32) -> Option<Time>;

    /// Whether a host has something to send as soon as its line is free.
    fn wants_transmit(&self, host: u32) -> bool;

    /// Whether somebody is to look at what was told before anything else happens.
    fn has_news(&self) -> bool {
        false
    }
}

/// A network: what is connected, and what is under way.
///
/// [`Network::run`] lives through what happens next, to the network and to the stations at its ends.
pub struct Network<P> {
    /// What becomes of packets that leave hosts.
    pub rules: Rules<P>,
    pub(crate) watch: Watch<P>,
    now: Time,
    /// Those of the hosts, then those of the ports that lines leave by, then those of the lines' ends.
    events: EventQueue,
    switches: Vec<Switch>,
    /// Two for each cable: from its first end, and from its second.
    lines: Vec<Line>,
    /// The line that leaves each host.
    host_lines: Vec<u32>,
    packets: Packets<P>,
    topology: Topology,
    routes: Routes,
    /// Of each cable.
    is_up: Vec<bool>,
    /// The same as switches know it.
    is_routed: Vec<bool>,
    events_at_once: u32,
    hops: u64,
}

impl<P> fmt::Debug for Network<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("now", &self.now)
            .field("hosts", &self.host_lines.len())
            .field("under_way", &self.packets.len())
            .finish_non_exhaustive()
    }
}

impl<P: Parcel> Network<P> {
    /// A network on which nothing is under way.
    pub fn new(config: FabricConfig) -> Self {
        let FabricConfig {
            topology,
            switch,
            seed,
        } = config;
        let hosts = topology.hosts as usize;
        let (mut lines, leaving) = make_lines(&topology, seed);
        let (of_hosts, of_switches) = leaving.split_at(hosts);
        let host_lines = of_hosts.iter().map(|lines| lines[0]).collect();
        if switch.cuts_through {
            for leaving in of_switches {
                allow_cut_through(&mut lines, leaving);
            }
        }
        let switches = (0..).zip(of_switches).map(|(number, leaving)| {
            let own = sub_seed(sub_seed(seed, 1), number);
            Switch::new(leaving.iter().copied(), switch.clone(), own)
        });
        Self {
            rules: Rules::default(),
            watch: Watch::default(),
            now: Time::ZERO,
            events: EventQueue::new(hosts + 2 * lines.len(), horizon(&lines)),
            switches: switches.collect(),
            lines,
            host_lines,
            packets: Packets::default(),
            routes: Routes::new(&topology, |_| true),
            is_up: vec![true; topology.cables.len()],
            is_routed: vec![true; topology.cables.len()],
            topology,
            events_at_once: 0,
            hops: 0,
        }
    }

    /// A network that takes this time from any host to any, itself included, whatever is sent: a star
    /// whose lines have no end of bandwidth.
    ///
    /// # Panics
    /// If there are more hosts than a switch may have ports, or none.
    pub fn plain(hosts: u32, latency: Span) -> Self {
        let cable = CableSpec::new(RATE_MIN, Span::ZERO);
        let mut network = Self::new(FabricConfig {
            topology: Topology::star(hosts, cable).expect("no more than ports"),
            switch: SwitchConfig {
                cuts_through: false,
                ..SwitchConfig::default()
            },
            seed: 0,
        });
        for line in &mut network.lines {
            line.set_rate(None);
        }
        network.set_latency(latency);
        network
    }

    /// How long a [plain](Self::plain) network takes for what is sent from now on.
    pub fn set_latency(&mut self, latency: Span) {
        for line in &self.host_lines {
            self.lines[(line ^ 1) as usize].set_delay(latency);
        }
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// When something happens next.
    pub fn next_event(&mut self) -> Option<Time> {
        self.events.peek().map(|(at, _)| at)
    }

    /// Lives through what happens before `limit`, until there are news or so many events are over; these
    /// are taken off `events`.
    pub fn run(&mut self, ends: &mut impl Stations<P>, limit: Time, events: &mut u64) {
        let (hosts, lines) = (self.host_lines.len() as u32, self.lines.len() as u32);
        while *events > 0
            && let Some((at, source)) = self.events.peek()
            && at < limit
        {
            *events -= 1;
            self.advance(at);
            if source < hosts {
                ends.expire(self.now, source);
                self.kick(ends, source);
            } else if source < hosts + lines {
                self.depart(source - hosts);
            } else {
                self.arrive(ends, source - hosts - lines);
            }
            if ends.has_news() {
                break;
            }
        }
    }

    /// Lives through all that happens next at the same moment, if that comes by `until`; returns
    /// whether it did.
    pub fn step(&mut self, ends: &mut impl Stations<P>, until: Time) -> bool {
        let next = self.next_event().filter(|next| *next <= until);
        let mut events = u64::MAX;
        if let Some(next) = next {
            self.run(ends, next.after(Span::from_picos(1)), &mut events);
        }
        next.is_some()
    }

    /// Lets time pass in which nothing happens.
    ///
    /// # Panics
    /// If time stands still.
    pub fn advance(&mut self, to: Time) {
        debug_assert!(
            self.next_event().is_none_or(|next| to <= next),
            "events are left out"
        );
        if to > self.now {
            self.now = to;
            self.events.advance(to);
            self.events_at_once = 0;
        }
        self.count_event();
    }

    /// Lets time jump, if that is ahead. What was due meanwhile is late, and happens at the end of it.
    pub fn skip(&mut self, to: Time) {
        if to <= self.now {
            return;
        }
        let mut late = Vec::new();
        while let Some((at, source)) = self.events.peek()
            && at < to
        {
            self.events.set(source, None);
            late.push(source);
        }
        self.advance(to);
        for source in late {
            self.events.set(source, Some(to));
        }
    }

    #[inline]
    fn count_event(&mut self) {
        self.events_at_once += 1;
        assert!(
            self.events_at_once < EVENTS_AT_ONCE_MAX,
            "time stands still at {:?}",
            self.now
        );
    }

    /// What is connected to what.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Frames that have crossed a line, on their way from end to end.
    pub fn hops(&self) -> u64 {
        self.hops
    }

    /// What the line has counted that leaves a cable's first (0) or second (1) end.
    pub fn line(&self, cable: usize, end: usize) -> LineCounters {
        self.lines[2 * cable + end].counters()
    }

    /// What a switch has counted.
    pub fn switch(&self, switch: NodeId) -> &SwitchCounters {
        &self.switches[self.switch_index(switch)].counters
    }

    /// Bytes that wait at the end of a cable for the line that leaves it, and the most of one priority
    /// that ever have; none at a host, whose device waits.
    pub fn queue(&self, cable: usize, end: usize) -> (u64, u64) {
        let (node, port) = self.lines[2 * cable + end].way.from;
        if self.topology.is_host(NodeId(node)) {
            return (0, 0);
        }
        let port = &self.switches[self.switch_index(NodeId(node))].ports[usize::from(port)];
        (port.queue_bytes(), port.queue_max())
    }

    fn switch_index(&self, node: NodeId) -> usize {
        (node.0 - self.topology.hosts) as usize
    }

    /// Cuts a cable, or mends it. What is on it is lost, and what waits for it.
    pub fn set_up(&mut self, ends: &mut impl Stations<P>, cable: usize, is_up: bool) {
        if std::mem::replace(&mut self.is_up[cable], is_up) == is_up {
            return;
        }
        for index in [2 * cable, 2 * cable + 1] {
            if is_up {
                self.lines[index].mend();
            } else {
                let lost: Vec<_> = self.lines[index].cut().collect();
                lost.into_iter().for_each(|packet| self.lose(packet));
                self.events.set(self.arrival(index as u32), None);
            }
            self.restart_port(ends, index as u32, is_up);
        }
    }

    /// Has a line's port begin anew. While the line is down nobody pauses it; from the moment that it
    /// is up the port knows what the other end wants, whose buffer may still be full of what came before.
    fn restart_port(&mut self, ends: &mut impl Stations<P>, line: u32, is_up: bool) {
        let Way { from, to } = self.lines[line as usize].way;
        let paused = match is_up {
            true => self.pausing(to),
            false => 0,
        };
        let (node, port) = from;
        if self.topology.is_host(NodeId(node)) {
            ends.set_paused(self.now, node, paused);
            self.kick(ends, node);
            return;
        }
        let switch = self.switch_index(NodeId(node));
        if !is_up {
            for (frame, resumes) in self.switches[switch].flush(port) {
                self.lines[line as usize].count_flushed(1);
                self.lose(frame.packet);
                if resumes {
                    self.tell_pause(switch, frame.ingress);
                }
            }
            self.events.set(self.departure(line), None);
        }
        self.switches[switch].set_paused(port, paused);
        self.serve(switch, port);
    }

    /// Priorities that a port wants no frames of; a host's takes all.
    fn pausing(&self, (node, port): (u32, u16)) -> u8 {
        match self.topology.is_host(NodeId(node)) {
            true => 0,
            false => {
                let switch = &self.switches[self.switch_index(NodeId(node))];
                switch.ports[usize::from(port)].pausing
            }
        }
    }

    /// Switches find ways around cables that are down, and use those again that are up.
    pub fn reroute(&mut self) {
        for (cable, is_up) in self.is_up.iter().enumerate() {
            if std::mem::replace(&mut self.is_routed[cable], *is_up) != *is_up {
                self.routes.set_up(&self.topology, cable, *is_up);
            }
        }
    }

    /// Changes the rate of a cable both ways, for what is sent from now on.
    pub fn set_rate(&mut self, cable: usize, rate: Rate) {
        for line in &mut self.lines[2 * cable..][..2] {
            line.set_rate(Some(rate));
        }
        for node in self.topology.cables[cable].ends {
            if self.topology.is_host(node) {
                continue;
            }
            let switch = &self.switches[self.switch_index(node)];
            if switch.config.cuts_through {
                allow_cut_through(&mut self.lines, &switch.leaving());
            }
        }
    }

    /// Has a cable lose packets both ways.
    pub fn set_loss(&mut self, cable: usize, loss: Loss) {
        for line in &mut self.lines[2 * cable..][..2] {
            line.set_loss(loss);
        }
    }

    /// Has a cable flip a bit of so many packets of 2^32 both ways, which no switch notices.
    pub fn set_corruption(&mut self, cable: usize, share: u32) {
        for line in &mut self.lines[2 * cable..][..2] {
            line.set_corruption(share);
        }
    }

    /// A host has been given something to do: has it send, and takes what it has to tell.
    pub fn kick(&mut self, ends: &mut impl Stations<P>, host: u32) {
        self.transmit(ends, host);
        ends.collect(self.now, host);
        let mut next = ends.next(self.now, host);
        // A cable that has lost some of its rate is slower than the device's port.
        if ends.wants_transmit(host) {
            let free_at = self.lines[self.host_lines[host as usize] as usize].free_at;
            next = Some(next.map_or(free_at, |next| next.min(free_at)));
        }
        self.events.set(host, next);
    }

    /// Gives back memory that traffic has taken.
    pub fn rest(&mut self) {
        self.lines.iter_mut().for_each(Line::rest);
        self.switches.iter_mut().for_each(Switch::rest);
    }

    /// Puts on a host's line what it has to send, as long as the line is free.
    fn transmit(&mut self, ends: &mut impl Stations<P>, host: u32) {
        let line = self.host_lines[host as usize];
        while self.lines[line as usize].free_at <= self.now {
            let id = self.packets.take();
            let Some(mut frame) = ends.transmit(self.now, host, self.packets.get_mut(id)) else {
                self.packets.give_back(id);
                return;
            };
            frame.packet = id;
            self.count_event();
            let late = ends.until_departure(self.now, host);
            if self.rules.is_empty() {
                self.send_late(line, frame, late);
            } else {
                self.send_by_rules(line, frame, late);
            }
        }
    }

    /// Puts as many copies of a frame on a host's line as the rules say, none of them if it is lost.
    #[cold]
    fn send_by_rules(&mut self, line: u32, frame: Frame, leaves: Span) {
        let fate = self.rules.judge(self.packets.get(frame.packet));
        let mut sent = false;
        for late in fate.delays() {
            let packet = match std::mem::replace(&mut sent, true) {
                true => self.packets.copy(frame.packet),
                false => frame.packet,
            };
            self.send_late(line, Frame { packet, ..frame }, leaves + late);
        }
        if !sent {
            self.lines[line as usize].lose(self.now, &frame);
            self.lose(frame.packet);
        }
    }

    /// Puts a frame on a line that is free.
    #[inline]
    fn send(&mut self, line: u32, frame: Frame) {
        self.send_late(line, frame, Span::ZERO);
    }

    /// The same, and it takes so much longer than others.
    #[inline]
    fn send_late(&mut self, line: u32, frame: Frame, late: Span) {
        if !self.watch.is_idle() {
            self.watch.note(self.now, line, true, frame, &self.packets);
        }
        let it = &mut self.lines[line as usize];
        if let Some(bit) = it.flips() {
            self.packets.get_mut(frame.packet).corrupt(bit);
        }
        match it.send(self.now, frame, late) {
            Some(lost) => self.lose(lost),
            None => {
                let next = it.next();
                self.events.set(self.arrival(line), next);
            }
        }
    }

    /// A packet is lost.
    fn lose(&mut self, packet: PacketId) {
        self.watch.lose(packet, &self.packets);
        self.packets.give_back(packet);
    }

    /// A port of a switch sends what comes next, if its line is free.
    fn depart(&mut self, line: u32) {
        let it = &self.lines[line as usize];
        let (free_at, (node, port)) = (it.free_at, it.way.from);
        if free_at > self.now {
            self.events.set(self.departure(line), Some(free_at));
            return;
        }
        let switch = self.switch_index(NodeId(node));
        if let Some((frame, resumes)) = self.switches[switch].dequeue(port) {
            if resumes {
                self.tell_pause(switch, frame.ingress);
            }
            self.send(line, frame);
        }
        let is_ready = self.switches[switch].ports[usize::from(port)].is_ready();
        let next = is_ready.then_some(self.lines[line as usize].free_at);
        self.events.set(self.departure(line), next);
    }

    /// Tells the other end of a port which priorities it is not to send.
    fn tell_pause(&mut self, switch: usize, port: u16) {
        let port = &self.switches[switch].ports[usize::from(port)];
        let (index, priorities) = (port.line, port.pausing);
        let line = &mut self.lines[index as usize];
        line.send_pause(self.now, priorities);
        let next = line.next();
        self.events.set(self.arrival(index), next);
    }

    /// Something comes to the end of a line.
    fn arrive(&mut self, ends: &mut impl Stations<P>, line: u32) {
        let it = &mut self.lines[line as usize];
        let item = it.take_due(self.now);
        let (next, (node, port)) = (it.next(), it.way.to);
        self.events.set(self.arrival(line), next);
        let is_host = self.topology.is_host(NodeId(node));
        if let Some(Item::Frame(frame)) = item
            && !self.watch.is_idle()
        {
            self.watch.note(self.now, line, false, frame, &self.packets);
        }
        match item {
            Some(Item::Frame(frame)) if is_host => {
                self.hops += 1;
                ends.receive(self.now, node, &frame, self.packets.get(frame.packet));
                self.packets.give_back(frame.packet);
                // What comes at the same moment comes in one batch.
                if next.is_none_or(|next| next > self.now) {
                    self.kick(ends, node);
                }
            }
            Some(Item::Frame(frame)) => self.forward(node, frame),
            Some(Item::Pause(priorities)) if is_host => {
                ends.set_paused(self.now, node, priorities);
                self.kick(ends, node);
            }
            Some(Item::Pause(priorities)) => {
                let switch = self.switch_index(NodeId(node));
                self.switches[switch].set_paused(port, priorities);
                self.serve(switch, port);
            }
            None => {}
        }
    }

    /// Has a switch forward a frame.
    fn forward(&mut self, node: u32, frame: Frame) {
        self.hops += 1;
        let index = self.switch_index(NodeId(node));
        let switch = &mut self.switches[index];
        let ports = self.routes.ports(NodeId(node), frame.dest);
        let flow = match switch.config.sprays && ports.len() > 1 {
            true => switch.rng.next_u32(),
            false => frame.flow,
        };
        let Some(egress) = pick(ports, flow, switch.salt) else {
            switch.counters.unreachable += 1;
            self.lose(frame.packet);
            return;
        };
        let line = switch.ports[usize::from(egress)].line;
        if self.lines[line as usize].free_at <= self.now && switch.passes(egress, frame.priority) {
            return self.send(line, frame);
        }
        match switch.enqueue(egress, frame) {
            Err(_) => return self.lose(frame.packet),
            Ok(true) => self.tell_pause(index, frame.ingress),
            Ok(false) => {}
        }
        self.serve(index, egress);
    }

    /// Something has come to a port's queues, or is allowed to leave them.
    fn serve(&mut self, switch: usize, port: u16) {
        let port = &self.switches[switch].ports[usize::from(port)];
        if !port.is_ready() {
            return;
        }
        let line = port.line;
        let free_at = self.lines[line as usize].free_at;
        match free_at <= self.now {
            true => self.depart(line),
            false => self.events.set(self.departure(line), Some(free_at)),
        }
    }

    /// Where the event queue keeps when a line's port wants to send next.
    fn departure(&self, line: u32) -> u32 {
        self.host_lines.len() as u32 + line
    }

    /// Where the event queue keeps when something arrives at a line's end.
    fn arrival(&self, line: u32) -> u32 {
        (self.host_lines.len() + self.lines.len()) as u32 + line
    }

    /// Checks that nothing is lost but what is counted, and that the books of all parts agree.
    ///
    /// # Panics
    /// If something is wrong.
    pub fn audit(&self) {
        let in_lines: u64 = self.lines.iter().map(Line::frames).sum();
        let in_switches: u64 = self.switches.iter().map(Switch::frames).sum();
        assert_eq!(
            self.packets.len() as u64,
            in_lines + in_switches,
            "packets under way"
        );
        let arrived: u64 = self.lines.iter().map(Line::arrived).sum();
        assert_eq!(arrived, self.hops, "frames that have crossed a line");
        for switch in &self.switches {
            switch.audit();
            let leaving = switch.leaving();
            let came = leaving.iter().map(|line| &self.lines[(line ^ 1) as usize]);
            let flushed = leaving.iter().map(|line| &self.lines[*line as usize]);
            let flushed: u64 = flushed.map(|line| line.counters().flushed).sum();
            assert_eq!(
                came.map(Line::arrived).sum::<u64>(),
                switch.taken() + flushed,
                "frames that came, and what became of them: {:?}",
                switch.counters
            );
        }
    }
}

/// What is under way, for those who look at it or meddle with it.
impl<P: Parcel> Network<P> {
    /// Packets on lines, first those that have not crossed the first of theirs, each line's in the order
    /// in which they arrive.
    pub fn under_way(&self) -> impl Iterator<Item = (&Frame, &P)> {
        let frames = self.lines.iter().flat_map(Line::under_way);
        frames.map(|frame| (frame, self.packets.get(frame.packet)))
    }

    /// Packets that wait in switches.
    pub fn waiting(&self) -> impl Iterator<Item = (&Frame, &P)> {
        let frames = self.switches.iter().flat_map(Switch::waiting);
        frames.map(|frame| (frame, self.packets.get(frame.packet)))
    }

    /// The line that leaves the first (0) or second (1) end of a cable.
    pub(crate) fn leaving(cable: usize, end: usize) -> u32 {
        (2 * cable + end) as u32
    }

    /// Loses what is on lines and does not pass; `passes` is asked in the order of [`Self::under_way`].
    pub fn retain(&mut self, mut passes: impl FnMut(&Frame, &P) -> bool) {
        for line in 0..self.lines.len() {
            let (it, packets) = (&mut self.lines[line], &mut self.packets);
            it.retain(|frame| {
                let kept = passes(frame, packets.get(frame.packet));
                if !kept {
                    packets.give_back(frame.packet);
                }
                kept
            });
            let next = it.next();
            self.events.set(self.arrival(line as u32), next);
        }
    }

    /// Puts a packet on a host's line that the host has not sent, so much later than what it sends now.
    pub fn inject(&mut self, host: u32, mut frame: Frame, packet: P, late: Span) {
        let id = self.packets.take();
        *self.packets.get_mut(id) = packet;
        frame.packet = id;
        self.send_late(self.host_lines[host as usize], frame, late);
    }
}

/// The lines of all cables, and the numbers of those that leave each node, port by port.
fn make_lines(topology: &Topology, seed: u64) -> (Vec<Line>, Vec<Vec<u32>>) {
    let mut leaving = vec![Vec::new(); topology.nodes() as usize];
    let mut ports = Vec::new();
    for (cable, index) in topology.cables.iter().zip(0..) {
        ports.push(cable.ends.map(|NodeId(node)| {
            let port = leaving[node as usize].len() as u16;
            leaving[node as usize].push(0);
            (node, port)
        }));
        for (end, (node, port)) in (0..).zip(ports[index]) {
            leaving[node as usize][usize::from(port)] = 2 * index as u32 + end;
        }
    }
    let mut lines = Vec::with_capacity(2 * ports.len());
    for (cable, [first, second]) in topology.cables.iter().zip(ports) {
        for (from, to) in [(first, second), (second, first)] {
            let own = sub_seed(sub_seed(seed, 0), lines.len() as u64);
            let mut line = Line::new(Way { from, to }, cable.rate, cable.delay, own);
            line.set_loss(Loss::random(cable.loss_share()));
            lines.push(line);
        }
    }
    (lines, leaving)
}

/// Lets a switch forward what has begun to arrive, on lines as fast as any that leaves it: its own frame
/// would run dry otherwise.
fn allow_cut_through(lines: &mut [Line], leaving: &[u32]) {
    let rate = |line: &u32| lines[*line as usize].rate();
    let fastest = leaving.iter().map(rate).max();
    for line in leaving {
        // The way back of the same cable.
        let coming = &mut lines[(line ^ 1) as usize];
        coming.cuts_through = Some(coming.rate()) >= fastest;
    }
}

/// How far ahead most events lie: a frame that crosses a line.
fn horizon(lines: &[Line]) -> Span {
    let crossing = |line: &Line| line.crossing(4096 + 100);
    lines.iter().map(crossing).max().unwrap_or_default()
}

#[cfg(test)]
mod queue_models;
