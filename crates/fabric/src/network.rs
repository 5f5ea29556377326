//! Lines and switches, the frames on them, and the next event.

mod adaptive;
mod border;
mod build;
mod cables;
mod deadlock;
mod inspect;
mod intake;
mod watch;
mod watchdog;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ferroce_base::time::{Span, Time};
use rand::Rng;

use self::border::Border;
pub(crate) use self::cables::update_cut_through;
pub(crate) use self::deadlock::deadlock;
pub(crate) use self::inspect::audit;
use self::intake::Intake;
pub(crate) use self::watch::Passed;
use self::watch::Watch;
use crate::events::EventQueue;
use crate::frame::{Frame, Parcel};
use crate::line::{Item, Line};
use crate::packets::Packets;
use crate::route::{Routes, pick};
use crate::rules::Rules;
use crate::switch::watchdog::Watchdog;
use crate::switch::{Routing, Switch, SwitchConfig};
use crate::topology::{NodeId, Topology};

/// In place of a line.
const NO_LINE: u32 = u32::MAX;
/// Events at one moment before that is taken for a mistake of ours.
const EVENTS_AT_ONCE_MAX: u32 = 100_000_000;

/// The configuration of a fabric.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// The topology, which must have been checked.
    pub topology: Topology,
    /// The configuration of all switches.
    pub switch: SwitchConfig,
    /// The seed of everything random, except in the devices.
    pub seed: u64,
}

/// The stations at the ends of a network: hosts, by their numbers in it.
///
/// A network calls them when something reaches them or their time has come. Code that makes a host
/// do something calls [`Network::kick`] afterwards.
pub trait Stations<P> {
    /// Takes the next packet that a host may send now by a link, from 1.
    fn transmit(&mut self, now: Time, host: u32, link: u8, packet: &mut P) -> Option<Frame>;

    /// How long the packet that a host has handed out last is still in its port: where that has a rate
    /// and its line none.
    fn until_departure(&self, _now: Time, _host: u32) -> Span {
        Span::ZERO
    }

    /// Gives a host a packet.
    fn receive(&mut self, now: Time, host: u32, frame: &Frame, packet: &P);

    /// A host's time has come.
    fn expire(&mut self, now: Time, host: u32);

    /// The other end of a host's cable, the link's, wants no frames of these priorities, a bit each, and
    /// of all others.
    fn set_paused(&mut self, now: Time, host: u32, link: u8, priorities: u8);

    /// A host learns that a link has a carrier again, or none.
    fn set_carrier(&mut self, _now: Time, _host: u32, _link: u8, _is_up: bool) {}

    /// Takes what a host has to tell. It has been given something, and has sent what it could.
    fn collect(&mut self, now: Time, host: u32);

    /// When a host's time comes next.
    fn next(&self, now: Time, host: u32) -> Option<Time>;

    /// Whether a host has something to send by a link as soon as its line is free.
    fn wants_transmit(&self, host: u32, link: u8) -> bool;

    /// Whether what was told must be looked at before anything else happens.
    fn has_news(&self) -> bool {
        false
    }
}

/// A network, or a part of one: lines and switches, and the frames in flight.
///
/// [`Network::run`] processes the next events of the network and of the stations at its ends. Hosts, switches and
/// cables of a part have numbers of their own, in the order of those of the whole; frames that cross its
/// border wait until they are taken to the other part.
pub struct Network<P> {
    /// The rules for packets that leave hosts.
    pub rules: Rules<P>,
    pub(crate) watch: Watch<P>,
    now: Time,
    /// Those of the hosts, then those of the ports that lines leave by, then those of the lines' ends, then that of
    /// the watchdog. At a host, a port's is that of its [`Intake`].
    events: EventQueue,
    switches: Vec<Switch>,
    watchdog: Option<Watchdog>,
    /// Two for each cable: from its first end, and from its second.
    lines: Vec<Line>,
    /// The lines that leave each host, by the numbers of its links; [`NO_LINE`] in place of the second
    /// if it has one.
    host_lines: Vec<[u32; 2]>,
    /// Of lines to hosts that take packets slowly.
    intakes: BTreeMap<u32, Intake>,
    /// Priorities that switches pause, and such hosts as well; a bit each.
    lossless: u8,
    packets: Packets<P>,
    pub(crate) border: Border<P>,
    pub(crate) routes: Arc<Routes>,
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
    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the time of the next event.
    pub fn next_event(&mut self) -> Option<Time> {
        let own = self.events.peek().map(|(at, _)| at);
        [own, self.border.next()].into_iter().flatten().min()
    }

    /// Processes events before `limit`, until there is news or the given number of events is used
    /// up. Subtracts the processed ones from `events`.
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
                let line = source - hosts;
                match self.intakes.contains_key(&(line ^ 1)) {
                    true => _ = self.take_waiting(ends, line ^ 1),
                    false => self.depart(line),
                }
            } else if source < hosts + 2 * lines {
                self.arrive(ends, source - hosts - lines);
            } else {
                self.run_watchdog();
            }
            if ends.has_news() {
                break;
            }
        }
    }

    /// Processes all events of the next time, if that is not after `until`. Returns whether it did.
    pub fn step(&mut self, ends: &mut impl Stations<P>, until: Time) -> bool {
        let next = self.next_event().filter(|next| *next <= until);
        let mut events = u64::MAX;
        if let Some(next) = next {
            self.run(ends, next.after(Span::from_picos(1)), &mut events);
        }
        next.is_some()
    }

    /// Advances the time while there are no events.
    ///
    /// # Panics
    /// Panics if time stands still.
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

    /// Jumps to a time, if that is ahead. Events due before are late, and happen at the end of the
    /// jump.
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

    /// Whether a node is a host of this network, and not a switch or elsewhere.
    #[inline]
    fn is_host(&self, node: u32) -> bool {
        (node as usize) < self.host_lines.len()
    }

    #[inline]
    fn switch_index(&self, node: u32) -> usize {
        node as usize - self.host_lines.len()
    }

    /// Makes a host send, and collects its outputs.
    pub fn kick(&mut self, ends: &mut impl Stations<P>, host: u32) {
        let lines = self.host_lines[host as usize];
        for (link, line) in links(lines) {
            self.transmit(ends, host, link, line);
        }
        ends.collect(self.now, host);
        let mut next = ends.next(self.now, host);
        for (link, line) in links(lines) {
            // A cable that has lost some of its rate is slower than the device's port.
            if ends.wants_transmit(host, link) {
                let free_at = self.lines[line as usize].free_at;
                next = Some(next.map_or(free_at, |next| next.min(free_at)));
            }
        }
        self.events.set(host, next);
    }

    /// Releases memory that traffic has used.
    pub fn rest(&mut self) {
        self.lines.iter_mut().for_each(Line::rest);
        self.switches.iter_mut().for_each(Switch::rest);
    }

    /// Puts on a host's line what it has to send, as long as the line is free.
    fn transmit(&mut self, ends: &mut impl Stations<P>, host: u32, link: u8, line: u32) {
        while self.lines[line as usize].free_at <= self.now {
            let id = self.packets.take();
            let packet = self.packets.get_mut(id);
            let Some(mut frame) = ends.transmit(self.now, host, link, packet) else {
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
            self.lose(&frame);
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
            false => self.lose(&frame),
            true => self.launched(line),
        }
    }

    /// A line has something new under way.
    #[inline]
    fn launched(&mut self, line: u32) {
        let it = &self.lines[line as usize];
        if it.leads_out {
            return self.export(line);
        }
        let next = it.next();
        self.events.set(self.arrival(line), next);
    }

    /// A frame's packet is lost.
    fn lose(&mut self, frame: &Frame) {
        self.watch.lose(frame, &self.packets);
        self.packets.give_back(frame.packet);
    }

    /// A port of a switch sends what comes next, if its line is free.
    fn depart(&mut self, line: u32) {
        let it = &self.lines[line as usize];
        let (free_at, (node, port)) = (it.free_at, it.way.from);
        if free_at > self.now {
            self.events.set(self.departure(line), Some(free_at));
            return;
        }
        let switch = self.switch_index(node);
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
        if line.send_pause(self.now, priorities) {
            self.launched(index);
        }
    }

    /// Something comes to the end of a line.
    fn arrive(&mut self, ends: &mut impl Stations<P>, line: u32) {
        let it = &mut self.lines[line as usize];
        let item = it.take_due(self.now);
        let (next, (node, port)) = (it.next(), it.way.to);
        self.events.set(self.arrival(line), next);
        let is_host = self.is_host(node);
        if let Some(Item::Frame(frame)) = item
            && !self.watch.is_idle()
        {
            self.watch.note(self.now, line, false, frame, &self.packets);
        }
        match item {
            Some(Item::Frame(frame)) if is_host => {
                self.hops += 1;
                if self.intakes.contains_key(&line) {
                    return self.keep_for_host(line, frame);
                }
                ends.receive(self.now, node, &frame, self.packets.get(frame.packet));
                self.packets.give_back(frame.packet);
                // What comes at the same moment comes in one batch.
                if next.is_none_or(|next| next > self.now) {
                    self.kick(ends, node);
                }
            }
            Some(Item::Frame(frame)) => self.forward(node, frame),
            Some(Item::Pause(priorities)) if is_host => {
                ends.set_paused(self.now, node, link_at(port), priorities);
                self.kick(ends, node);
            }
            Some(Item::Pause(priorities)) => {
                let switch = self.switch_index(node);
                self.switches[switch].set_paused(port, priorities);
                self.serve(switch, port);
            }
            None => {}
        }
    }

    /// Has a switch forward a frame.
    fn forward(&mut self, node: u32, frame: Frame) {
        self.hops += 1;
        let index = self.switch_index(node);
        let egress = self.egress(index, &frame);
        let switch = &mut self.switches[index];
        let Some(egress) = egress else {
            switch.counters.unreachable += 1;
            return self.lose(&frame);
        };
        let line = switch.ports[usize::from(egress)].line;
        if switch.discards(egress, frame.priority) {
            return self.discard(index, line, frame);
        }
        if self.lines[line as usize].free_at <= self.now && switch.passes(egress, frame.priority) {
            return self.send(line, frame);
        }
        match switch.enqueue(egress, frame) {
            Err(_) => return self.lose(&frame),
            Ok(true) => self.tell_pause(index, frame.ingress),
            Ok(false) => {}
        }
        self.serve(index, egress);
    }

    /// The port by which a frame leaves a switch.
    #[inline]
    fn egress(&mut self, index: usize, frame: &Frame) -> Option<u16> {
        let switch = &mut self.switches[index];
        let ports = self.routes.ports(NodeId(switch.number), frame.dest);
        if ports.len() > 1 {
            match switch.config.routing {
                Routing::Random => return pick(ports, switch.rng.next_u32(), switch.salt),
                Routing::Adaptive if frame.takes_any_path => {
                    let number = switch.rng.next_u32();
                    return self.lightly_loaded(index, ports, number, frame);
                }
                Routing::Hash | Routing::Adaptive => {}
            }
        }
        pick(ports, frame.flow, switch.salt)
    }

    /// Something has come to a port's queues, or is allowed to leave them.
    fn serve(&mut self, switch: usize, port: u16) {
        if self.watchdog.is_some() {
            self.show_watchdog(switch, port);
        }
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
}

/// The links of a host, from 1, and the lines that leave by them.
#[inline]
fn links(lines: [u32; 2]) -> impl Iterator<Item = (u8, u32)> {
    (1..).zip(lines).filter(|(_, line)| *line != NO_LINE)
}

/// The link, from 1, at a port of a host, from 0.
fn link_at(port: u16) -> u8 {
    port as u8 + 1 // a host has two at most
}

#[cfg(test)]
mod queue_models;
