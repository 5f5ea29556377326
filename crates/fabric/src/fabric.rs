//! Hosts, switches and lines, and what happens next among them.

use ferroce_dcqcn::Rate;
use ferroce_hca::{
    Attr, Completion, Counter, Data, Event, Hca, QpAttr, QpModify, QpState, Received, VerbsError,
};
use ferroce_time::{Span, Time};
use ferroce_transport::Qp;
use rand::Rng;

use crate::events::EventQueue;
use crate::host::{Host, address, host_of};
use crate::line::{AROUND_FRAME, Ecn, Frame, Item, Line, LineCounters, Loss, Way};
use crate::packets::{PacketId, Packets};
use crate::route::{Routes, flow_hash, pick};
use crate::seed::sub_seed;
use crate::switch::{Switch, SwitchConfig, SwitchCounters};
use crate::topology::{NodeId, Topology};

/// ECN bits of a traffic class; both of them set say "congestion experienced".
const CE: u8 = 0b11;
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

/// A fabric: what is connected, and what is under way.
///
/// [`Fabric::run`] lives through what happens next. What comes out of the devices gathers in
/// [`Fabric::completions`] and [`Fabric::told`], for whoever drives the fabric to take.
#[derive(Debug)]
pub struct Fabric {
    now: Time,
    /// Those of the hosts, then those of the ports that lines leave by, then those of the lines' ends.
    events: EventQueue,
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    /// Two for each cable: from its first end, and from its second.
    lines: Vec<Line>,
    /// The line that leaves each host.
    host_lines: Vec<u32>,
    packets: Packets,
    topology: Topology,
    routes: Routes,
    /// Of each cable.
    is_up: Vec<bool>,
    events_at_once: u32,
    hops: u64,
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
        let FabricConfig {
            topology,
            switch,
            seed,
        } = config;
        let hosts: Result<Vec<_>, _> = devices.into_iter().map(Host::new).collect();
        let hosts = hosts?;
        assert_eq!(hosts.len(), topology.hosts as usize, "devices and hosts");
        let (mut lines, leaving) = make_lines(&topology, seed);
        let (of_hosts, of_switches) = leaving.split_at(hosts.len());
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
        Ok(Self {
            now: Time::ZERO,
            events: EventQueue::new(hosts.len() + 2 * lines.len(), horizon(&lines)),
            switches: switches.collect(),
            hosts,
            lines,
            host_lines,
            packets: Packets::default(),
            routes: Routes::new(&topology, |_| true),
            is_up: vec![true; topology.cables.len()],
            topology,
            events_at_once: 0,
            hops: 0,
            completions: Vec::new(),
            told: Vec::new(),
        })
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// When something happens next.
    pub fn next_event(&mut self) -> Option<Time> {
        self.events.peek().map(|(at, _)| at)
    }

    /// Lives through what happens before `limit`, until something comes out of a device or so many
    /// events are over; these are taken off `events`.
    pub fn run(&mut self, limit: Time, events: &mut u64) {
        let (hosts, lines) = (self.hosts.len() as u32, self.lines.len() as u32);
        while *events > 0
            && let Some((at, source)) = self.events.peek()
            && at < limit
        {
            *events -= 1;
            self.advance(at);
            if source < hosts {
                self.wake(source);
            } else if source < hosts + lines {
                self.depart(source - hosts);
            } else {
                self.arrive(source - hosts - lines);
            }
            if self.has_output() {
                break;
            }
        }
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
        debug_assert!(
            self.next_event().is_none_or(|next| to <= next),
            "events are left out"
        );
        if to > self.now {
            self.now = to;
            self.events.advance(to);
            self.events_at_once = 0;
        }
        self.events_at_once += 1;
        assert!(
            self.events_at_once < EVENTS_AT_ONCE_MAX,
            "time stands still at {:?}",
            self.now
        );
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
    pub fn set_up(&mut self, cable: usize, is_up: bool) {
        if std::mem::replace(&mut self.is_up[cable], is_up) == is_up {
            return;
        }
        for index in [2 * cable, 2 * cable + 1] {
            if is_up {
                self.lines[index].mend();
            } else {
                let lost: Vec<_> = self.lines[index].cut().collect();
                lost.into_iter()
                    .for_each(|packet| self.packets.give_back(packet));
                self.events.set(self.arrival(index as u32), None);
            }
            self.restart_port(index as u32, is_up);
        }
    }

    /// Has a line's port begin anew. While the line is down nobody pauses it; from the moment that it
    /// is up the port knows what the other end wants, whose buffer may still be full of what came before.
    fn restart_port(&mut self, line: u32, is_up: bool) {
        let Way { from, to } = self.lines[line as usize].way;
        let paused = match is_up {
            true => self.pausing(to),
            false => 0,
        };
        let (node, port) = from;
        if self.topology.is_host(NodeId(node)) {
            self.hosts[node as usize].hca.set_paused(self.now, paused);
            self.kick(node);
            return;
        }
        let switch = self.switch_index(NodeId(node));
        if !is_up {
            for (frame, resumes) in self.switches[switch].flush(port) {
                self.lines[line as usize].count_flushed(1);
                self.packets.give_back(frame.packet);
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
        let is_up = &self.is_up;
        self.routes = Routes::new(&self.topology, |cable| is_up[cable]);
    }

    /// Changes the rate of a cable both ways, for what is sent from now on.
    pub fn set_rate(&mut self, cable: usize, rate: Rate) {
        for line in &mut self.lines[2 * cable..][..2] {
            line.set_rate(rate);
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

    /// A host has been given something to do: takes what its device has to tell, and has it send.
    pub fn kick(&mut self, host: u32) {
        self.transmit(host);
        self.collect(host);
        let it = &self.hosts[host as usize];
        let line = &self.lines[self.host_lines[host as usize] as usize];
        let mut next = it.hca.poll_timeout();
        // A cable that has lost some of its rate is slower than the device's port.
        if it.hca.wants_transmit() {
            next = Some(next.map_or(line.free_at, |next| next.min(line.free_at)));
        }
        self.events.set(host, next);
    }

    /// Gives back memory that traffic has taken and that hosts at rest do not need.
    pub fn rest(&mut self) {
        for host in &mut self.hosts {
            host.hca.rest();
        }
        self.lines.iter_mut().for_each(Line::rest);
        self.switches.iter_mut().for_each(Switch::rest);
    }

    /// Takes what a device has to tell.
    fn collect(&mut self, host: u32) {
        let it = &mut self.hosts[host as usize];
        while let Ok(Some(completion)) = it.hca.poll_completion(it.cq) {
            self.completions.push((host, completion));
        }
        while let Some(event) = it.hca.poll_event() {
            self.told.push((host, event));
        }
    }

    /// Puts a packet on a host's line, if the line is free and the device has one.
    fn transmit(&mut self, host: u32) {
        let line = self.host_lines[host as usize];
        let it = &mut self.hosts[host as usize];
        if self.lines[line as usize].free_at > self.now {
            return;
        }
        let id = self.packets.take();
        if !it
            .hca
            .poll_transmit_into(self.now, self.packets.get_mut(id))
        {
            self.packets.give_back(id);
            return;
        }
        match frame(it, host, id, &self.packets) {
            Some(frame) if !it.is_silent => self.send(line, frame),
            _ => self.packets.give_back(id),
        }
    }

    /// Puts a frame on a line that is free.
    #[inline]
    fn send(&mut self, line: u32, frame: Frame) {
        let it = &mut self.lines[line as usize];
        if let Some(bit) = it.flips() {
            self.packets.get_mut(frame.packet).corrupt(bit);
        }
        match it.send(self.now, frame) {
            Some(lost) => self.packets.give_back(lost),
            None => {
                let next = it.next();
                self.events.set(self.arrival(line), next);
            }
        }
    }

    /// A host's timers run out, or its line is free.
    fn wake(&mut self, host: u32) {
        let hca = &mut self.hosts[host as usize].hca;
        if hca.poll_timeout().is_some_and(|at| at <= self.now) {
            hca.handle_timeout(self.now);
        }
        self.kick(host);
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
    fn arrive(&mut self, line: u32) {
        let it = &mut self.lines[line as usize];
        let item = it.take_due(self.now);
        let (next, (node, port)) = (it.next(), it.way.to);
        self.events.set(self.arrival(line), next);
        let is_host = self.topology.is_host(NodeId(node));
        match item {
            Some(Item::Frame(frame)) if is_host => self.deliver(node, &frame),
            Some(Item::Frame(frame)) => self.forward(node, frame),
            Some(Item::Pause(priorities)) if is_host => {
                let now = self.now;
                self.hosts[node as usize].hca.set_paused(now, priorities);
                self.kick(node);
            }
            Some(Item::Pause(priorities)) => {
                let switch = self.switch_index(NodeId(node));
                self.switches[switch].set_paused(port, priorities);
                self.serve(switch, port);
            }
            None => {}
        }
    }

    /// Gives a host a frame.
    fn deliver(&mut self, host: u32, frame: &Frame) {
        self.hops += 1;
        let it = &mut self.hosts[host as usize];
        let packet = self.packets.get(frame.packet);
        if it.is_silent {
        } else if packet.corrupt_bit().is_some() {
            it.hca.count(Counter::RxIcrcEncapsulated, 1);
        } else {
            let mark = if frame.ecn == Ecn::Marked { CE } else { 0 };
            let received = Received {
                source: address(frame.source),
                dest: packet.path.dest,
                traffic_class: packet.path.traffic_class | mark,
                headers: &packet.headers,
                data: Data::Length(packet.payload_len),
            };
            it.hca.handle_packet(self.now, &received);
        }
        self.packets.give_back(frame.packet);
        self.kick(host);
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
            self.packets.give_back(frame.packet);
            return;
        };
        let line = switch.ports[usize::from(egress)].line;
        if self.lines[line as usize].free_at <= self.now && switch.passes(egress, frame.priority) {
            return self.send(line, frame);
        }
        match switch.enqueue(egress, frame) {
            Err(_) => return self.packets.give_back(frame.packet),
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
        self.hosts.len() as u32 + line
    }

    /// Where the event queue keeps when something arrives at a line's end.
    fn arrival(&self, line: u32) -> u32 {
        (self.hosts.len() + self.lines.len()) as u32 + line
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
        self.hosts.iter().for_each(|host| host.hca.audit());
    }
}

/// The frame of a packet that a host sends, if there is a host that it goes to.
#[inline]
fn frame(host: &Host, source: u32, id: PacketId, packets: &Packets) -> Option<Frame> {
    let packet = packets.get(id);
    let dest = host_of(packet.path.dest)?;
    let port = host.source_port(dest, packet.headers.dest_qp);
    let ecn = match packet.path.traffic_class & CE {
        0 => Ecn::NotCapable,
        CE => Ecn::Marked,
        _ => Ecn::Capable,
    };
    Some(Frame {
        packet: id,
        bytes: (packet.wire_bytes() - AROUND_FRAME) as u16, // an MTU, and headers
        source,
        dest,
        flow: flow_hash(source, dest, port),
        priority: packet.path.traffic_class >> 5,
        ecn,
        ingress: 0,
    })
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
