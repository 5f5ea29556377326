//! Plays a script on devices in virtual time, and compares what comes out of them with the model.
//!
//! | module | content |
//! |---|---|
//! | `host` | a device with its memory and its script's objects |
//! | `steps` | what the lines of a script do |
//! | `posts` | work requests |
//! | `windows` | memory windows |
//! | `queues` | completion queues |
//! | `odd` | calls that are refused |
//! | `datagrams` | UD queue pairs and multicast groups |
//! | `aging` | connections that grow old |
//! | `extended` | XRC and DC |
//! | `wire` | what packets show: what is outstanding, what is acknowledged, when it is sent again |
//! | `links`, `outages` | ports that go down and come up, and bonds |
//! | `faults` | impairments, registers and resets |
//! | `cm` | connections by way of the connection managers |
//! | `rules`, `border` | rules of `ferroce fault` |
//! | `completions` | what completes, compared with what was posted |
//! | `ending` | the end of a run: faults stop, everything completes, memory is compared, objects are returned |

mod aging;
mod border;
mod cm;
mod completions;
mod datagrams;
mod ending;
mod extended;
mod faults;
mod host;
mod links;
mod odd;
mod outages;
mod posts;
mod queues;
mod rules;
mod steps;
mod windows;
mod wire;

pub(crate) use odd::{FAULTS, OPERATIONS};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ferroce_base::random::Dice;
use ferroce_device::{
    AccessFlags, Data, Event as DeviceEvent, Outgoing, QpEvent, Qpn, Received, Span, Time,
};

use self::host::Host;
use crate::coverage::Coverage;
use crate::events::{Event, Events};
use crate::model::{Connection, Id, Outcome, Receive, Region, Request};
use crate::network::{Flight, host_at};
use crate::script::{HOSTS_MAX, Script};
use crate::seen::{Heard, Place};
use crate::watch::Progress;
use crate::windows::{Binding, Window};

/// When scripts start: a device's clock is not at zero.
const START: Time = Time::from_nanos(1_000_000);
/// The number of events, packets and completions after which a run counts as endless: a base, and more for each
/// line.
const STEPS_MAX: u64 = 600_000;
const STEPS_MAX_PER_LINE: u64 = 4_000;
/// Packets that a stopped host's socket holds.
const BACKLOG_MAX: usize = 512;

/// Something that must not happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which rule was broken: the same for the same mistake in different runs.
    pub rule: String,
    /// What happened, with its numbers.
    pub what: String,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first thing that must not happen, if anything did.
    pub finding: Option<Finding>,
    /// What was done.
    pub coverage: Coverage,
}

/// Plays a script to its end or to the first finding. The same script always has the same outcome.
pub fn play(script: &Script) -> Report {
    play_watched(script, &Arc::default())
}

/// [`play`], while another thread sees how far it comes.
pub fn play_watched(script: &Script, progress: &Arc<Progress>) -> Report {
    let mut play = Play::new(script, Arc::clone(progress));
    progress.begin(script);
    let run = catch_unwind(AssertUnwindSafe(|| play.run(script)));
    progress.end();
    if let Err(panic) = run {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a message");
        let rule: String = text
            .chars()
            .filter(|it| !it.is_ascii_digit())
            .take(60)
            .collect();
        play.finding = Some(Finding {
            rule: format!("panic: {rule}"),
            what: format!("at {:?}: panic: {text}", play.now),
        });
    }
    Report {
        finding: play.finding,
        coverage: play.coverage,
    }
}

/// A run.
pub(crate) struct Play {
    now: Time,
    events: Events,
    /// Of the network.
    dice: Dice,
    seed: u64,
    hosts: Vec<Option<Host>>,
    regions: Vec<Region>,
    connections: Vec<Connection>,
    /// Requests whose receives had not been polled when they were acknowledged.
    unseen: Vec<Id>,
    /// Memory windows, and their binds.
    windows: Vec<Window>,
    bindings: Vec<Binding>,
    /// What each target of DC that there has been permits, once it is ready.
    dcts: Vec<Option<AccessFlags>>,
    dials: Vec<cm::Dial>,
    requests: Vec<Request>,
    receives: Vec<Receive>,
    coverage: Coverage,
    finding: Option<Finding>,
    handled: u64,
    handled_max: u64,
    /// Devices that there have been.
    incarnations: u64,
    /// Nothing has kept a packet from arriving soon.
    quiet: bool,
    /// What the end of a connection is being told.
    heard: Option<(Place, Heard)>,
    progress: Arc<Progress>,
}

impl Play {
    fn new(script: &Script, progress: Arc<Progress>) -> Self {
        let hosts = script.lines.iter().map(|line| line.host + 1).max();
        Self {
            now: START,
            events: Events::default(),
            dice: Dice::new(script.seed),
            seed: script.seed,
            hosts: (0..hosts.unwrap_or(0).min(HOSTS_MAX))
                .map(|_| None)
                .collect(),
            regions: Vec::new(),
            connections: Vec::new(),
            unseen: Vec::new(),
            windows: Vec::new(),
            bindings: Vec::new(),
            dcts: Vec::new(),
            dials: Vec::new(),
            requests: Vec::new(),
            receives: Vec::new(),
            coverage: Coverage::default(),
            finding: None,
            handled: 0,
            handled_max: STEPS_MAX + STEPS_MAX_PER_LINE * script.lines.len() as u64,
            incarnations: 0,
            quiet: true,
            heard: None,
            progress,
        }
    }

    fn run(&mut self, script: &Script) {
        self.coverage.runs = 1;
        let landing = host::landing_bytes(script);
        for line in &script.lines {
            self.run_until(START.after(Span::from_nanos(line.at)));
            if self.finding.is_some() {
                return;
            }
            self.progress.step();
            self.step(line, &landing);
        }
        self.end();
    }

    /// Records a finding, unless there is one.
    fn found(&mut self, rule: &str, what: impl FnOnce() -> String) {
        if self.finding.is_none() {
            let what = format!("at {:?}: {}", self.now, what());
            self.finding = Some(Finding {
                rule: rule.to_owned(),
                what,
            });
        }
    }

    /// Handles what is due up to a time, at which it is then.
    fn run_until(&mut self, until: Time) {
        while self.finding.is_none()
            && self.events.next().is_some_and(|next| next <= until)
            && let Some((at, event)) = self.events.pop()
        {
            self.now = self.now.max(at);
            if !self.count_step() {
                return;
            }
            self.handle(event, at);
        }
        if until != Time::NEVER {
            self.now = self.now.max(until);
        }
    }

    /// Counts something that happens. False if it is one too many.
    fn count_step(&mut self) -> bool {
        self.progress.step();
        self.handled += 1;
        if self.handled > self.handled_max {
            self.found("ends", || "it never ends".to_owned());
        }
        self.handled <= self.handled_max
    }

    fn handle(&mut self, event: Event, at: Time) {
        match event {
            Event::Arrival(host, flight) => self.arrive(host, flight),
            Event::Resume(host) => self.resume(host),
            Event::Poll(host) => self.wake(host),
            Event::Look(host) => self.look_again(host),
            Event::Answer(number) => self.answer(number),
            Event::Deadline(host) => {
                let now = self.now;
                let Some(it) = self.hosts[host].as_mut() else {
                    return;
                };
                if it.deadline != Some(at) {
                    return; // another one came before it
                }
                it.deadline = None;
                if !it.stopped {
                    it.hca.handle_timeout(now);
                    self.drain(host);
                }
            }
        }
    }

    fn arrive(&mut self, host: usize, flight: Flight) {
        let now = self.now;
        let Some(it) = self.hosts.get_mut(host).and_then(Option::as_mut) else {
            return;
        };
        if it.stopped {
            if it.backlog.len() < BACKLOG_MAX {
                it.backlog.push(flight);
            }
            return;
        }
        let mut heard = None;
        match flight.read() {
            Err(counter) => it.hca.count(counter, 1),
            Ok((headers, payload)) => {
                if let Some(qp) = it.qpns.get(&headers.dest_qp) {
                    let state = it.hca.qp(headers.dest_qp).map(|qp| qp.state());
                    let own = &it.qps[*qp];
                    let place = own.connection;
                    self.coverage.packet(own.kind, state, headers.opcode());
                    heard = self.see_arrive(place, &headers);
                }
                let it = self.host(host);
                let port = it.port_at(flight.dest);
                it.hca.handle_packet(
                    now,
                    &Received {
                        source: flight.source,
                        dest: flight.dest,
                        traffic_class: flight.traffic_class,
                        sl: flight.sl,
                        port,
                        headers: &headers,
                        data: Data::Bytes(payload),
                    },
                );
                it.taken += 1;
            }
        }
        self.heard = heard;
        self.drain(host);
        self.heard = None;
    }

    fn resume(&mut self, host: usize) {
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        it.stopped = false;
        let backlog = std::mem::take(&mut it.backlog);
        self.drain(host);
        for flight in backlog {
            self.arrive(host, flight);
        }
        let now = self.now;
        if let Some(it) = self.hosts[host].as_mut()
            && it.hca.poll_timeout().is_some_and(|at| at <= now)
        {
            it.hca.handle_timeout(now);
        }
        self.drain(host);
    }

    /// Takes from a device what it has to send and to tell, and notes its next deadline.
    fn drain(&mut self, host: usize) {
        self.take_from(host);
        while self.attend(host) || self.has_acted_on_completion(host) {
            self.take_from(host);
        }
        self.note_deadline(host);
    }

    /// Takes packets, events and completions.
    fn take_from(&mut self, host: usize) {
        let mut packet = Outgoing::empty();
        loop {
            let now = self.now;
            let Some(it) = self.hosts[host].as_mut().filter(|it| !it.stopped) else {
                return;
            };
            if !it.hca.poll_transmit_into(now, &mut packet) {
                break;
            }
            if !self.count_step() {
                return;
            }
            self.launch(host, &packet);
        }
        // An event says why requests were flushed.
        while let Some(event) = self.hosts[host].as_mut().and_then(|it| it.hca.poll_event())
            && self.count_step()
        {
            self.told(host, event);
        }
        self.poll_all(host);
    }

    fn note_deadline(&mut self, host: usize) {
        let Some(it) = self.hosts[host].as_mut().filter(|it| !it.stopped) else {
            return;
        };
        if it.hca.wants_transmit() {
            self.found("drained", || {
                format!("host {host} has a packet that it does not hand out")
            });
            return;
        }
        let next = it.hca.poll_timeout();
        if let Some(next) = next
            && it.deadline.is_none_or(|deadline| next < deadline)
        {
            it.deadline = Some(next);
            self.events.add(next, Event::Deadline(host));
        } else if next.is_none() {
            it.deadline = None;
        }
    }

    /// Puts a packet on the network.
    fn launch(&mut self, host: usize, packet: &Outgoing) {
        let now = self.now;
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        self.coverage.packets += 1;
        it.sent.0 += 1;
        it.sent.1 += u64::from(packet.payload_len);
        let mut payload = vec![0; packet.payload_len.into()];
        if !it.hca.gather(packet, &mut payload) {
            return self.found("gather", || {
                format!("host {host}: a packet without its payload")
            });
        }
        if packet.headers.dest_qp == Qpn::GSI {
            cm::count_request(&mut self.dials, &payload);
        }
        let flip = it
            .weather
            .flip(&mut self.dice)
            .or_else(|| packet.corrupt_bit());
        let source = it.address_at(packet.path.port);
        let flight = Flight::new(source, packet, payload, flip);
        let leaves = it.hca.departure().max(now);
        let dest = packet.headers.dest_qp;
        for lonely in it.qps.iter_mut().filter_map(|qp| qp.lonely.as_mut()) {
            if lonely.peer == dest {
                let (_, psn) = *lonely.first.get_or_insert((leaves, packet.headers.psn));
                lonely.sent += u32::from(psn == packet.headers.psn);
            }
        }
        let copies = it.weather.copies(&mut self.dice);
        let dest = packet.path.dest;
        let to: Vec<usize> = match dest.is_multicast() {
            true => (0..self.hosts.len()).collect(), // its own socket hears it as well
            false => host_at(dest).into_iter().collect(),
        };
        self.see_leave(host, packet);
        for late in copies {
            for to in &to {
                self.events
                    .add(leaves.after(late), Event::Arrival(*to, flight.clone()));
            }
        }
    }

    /// A device has told something of a queue pair.
    fn told(&mut self, host: usize, event: DeviceEvent) {
        let pushed = match event {
            DeviceEvent::Qp(qpn, QpEvent::RequestError | QpEvent::AccessError)
            | DeviceEvent::QpFatal(qpn) => Some(qpn),
            _ => None,
        };
        match event {
            DeviceEvent::CqOverrun(cq) => self.overrun(host, cq),
            DeviceEvent::QpFatal(qpn) => self.failed_by_overrun(host, qpn),
            _ => {}
        }
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        if let DeviceEvent::TimerExpired { qpn, at, expiry } = event {
            it.expiries.push(expiry);
            self.see_expiry(host, qpn, at, expiry);
        }
        match event {
            DeviceEvent::Qp(qpn, QpEvent::CommunicationEstablished) => self.data_came(host, qpn),
            DeviceEvent::PortError { port } => self.told_of_port(host, port, false),
            DeviceEvent::PortActive { port } => self.told_of_port(host, port, true),
            _ => {}
        }
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        if let Some(qp) = pushed.and_then(|qpn| it.qpns.get(&qpn)) {
            it.qps[*qp].pushed = true;
            let (connection, is_target) = (it.qps[*qp].connection, it.qps[*qp].dct.is_some());
            if let Some((connection, end)) = connection {
                self.connections[connection].ends[end].ended = true;
            }
            if is_target {
                self.note_target_failed();
            }
        }
    }

    /// A request ends without a completion.
    fn drop_requests(&mut self, host: usize, qp: usize) {
        let now = self.now;
        let Some(it) = self.hosts[host].as_mut() else {
            return;
        };
        it.forget_completions(qp);
        let it = &mut it.qps[qp];
        for id in it.sends.drain(..) {
            (self.requests[id].outcome, self.requests[id].ended) = (Outcome::Dropped, now);
        }
        for id in it.receives.drain(..) {
            self.receives[id].outcome = Outcome::Dropped;
        }
    }
}
