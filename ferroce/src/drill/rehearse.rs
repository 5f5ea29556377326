//! One run of a drill: starts the hosts, does what the plan says, and notes what happens.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::{Impairment, Span, impair::Blackout};
use ferroce_os::Clock;
use nix::sys::signal::Signal;

use super::crew::{Crew, Line, Said};
use super::plan::{BEFORE, Length, Plan, What, flaps};
use super::protocol::{Order, Report};
use super::record::{Note, Record, Sample};
use super::site::Site;
use super::verdict::End;
use crate::output::Failure;

/// How often the rails are looked at.
const EVERY: Duration = Duration::from_millis(20);
/// How late a look may be while hosts have much to say.
const LATE_NS: u64 = 100_000_000;
/// How long hosts may take to load the library and to connect.
const CONNECT_NS: u64 = 120_000_000_000;
/// How long the other hosts are listened to after the first failure.
const ECHO_NS: u64 = 1_000_000_000;
/// A channel that has received something within this time moves.
const ALIVE_NS: u64 = 500_000_000;
/// How long hosts may take to close.
const CLOSE_NS: u64 = 3_000_000_000;
/// How long all must have moved before the run is over: connections fail over one after the other.
const SETTLED_NS: u64 = 1_000_000_000;

/// Starts the processes of a drill, which speak the [`super::protocol`].
pub(super) trait Hosts {
    /// The command that starts all hosts; `None` if the drill does.
    fn launcher(&self) -> Result<Option<process::Command>, Failure>;
    /// The command of a host, without the variables that show it its devices.
    fn command(&self, host: usize) -> Result<process::Command, Failure>;
}

/// How long a run takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// After the last event, traffic is watched for this long.
    pub(super) after: Span,
    /// An outage without end that was survived for this long counts as survived.
    pub(super) forever: Span,
    /// A run in which nothing moves ends this long after the first outage.
    pub(super) patience: Span,
}

/// A run that is under way.
struct Rehearsal<'a> {
    site: &'a Site,
    crew: Crew,
    stop: &'a Arc<AtomicBool>,
    record: Record,
    starts: &'a dyn Hosts,
    hosts: Vec<Host>,
    next_sample_ns: u64,
    later: Vec<(u64, Later)>,
    /// Whether a host was killed that is started again, and not all are connected yet.
    is_restarting: bool,
}

/// What the end of an event asks for.
#[derive(Clone, Copy)]
enum Later {
    /// A process that was stopped goes on.
    Resume(usize),
    /// A process that was killed is started again.
    Restart(usize),
}

/// What a host has said.
#[derive(Default)]
struct Host {
    handles: Option<Vec<String>>,
    is_connected: bool,
    is_closed: bool,
    /// Whether it was killed on purpose.
    is_killed: bool,
    /// Ends of its processes that are still to be heard of.
    deaths: usize,
    oldest_ns: u64,
    bytes: u64,
    wrong_words: u64,
}

/// Runs a plan. `show` is told how far it is.
pub(super) fn run(
    site: &Site,
    hosts: &dyn Hosts,
    plan: &Plan,
    limits: Limits,
    stop: &Arc<AtomicBool>,
    show: &mut dyn FnMut(&Record),
) -> Result<Record, Failure> {
    let commands = (0..site.hosts()).map(|host| command(site, hosts, host));
    let commands = commands.collect::<Result<_, Failure>>()?;
    let crew = Crew::start(commands, hosts.launcher()?)?;
    let mut run = Rehearsal {
        site,
        crew,
        stop,
        record: Record {
            rails: site.rails().collect(),
            ..Record::default()
        },
        starts: hosts,
        hosts: (0..site.hosts()).map(|_| Host::default()).collect(),
        next_sample_ns: 0,
        later: Vec::new(),
        is_restarting: false,
    };
    match run.connect()? {
        None => run.play(plan, limits, show)?,
        Some(end) => {
            run.record.first_event_ns = Clock.now_ns();
            run.record.end = end;
        }
    }
    Ok(run.finish())
}

fn command(site: &Site, hosts: &dyn Hosts, host: usize) -> Result<process::Command, Failure> {
    let mut command = hosts.command(host)?;
    command.envs(site.variables(host)?);
    Ok(command)
}

impl Rehearsal<'_> {
    /// Lets the hosts connect. The end of the run, if they cannot.
    fn connect(&mut self) -> Result<Option<End>, Failure> {
        let until = Clock.now_ns() + CONNECT_NS;
        self.record.began_ns = Clock.now_ns();
        while !self.hosts.iter().all(|host| host.is_connected) {
            if let Some(end) = self.listen()? {
                return Ok(Some(end));
            }
            self.introduce();
            if Clock.now_ns() > until {
                return Ok(Some(End::Stuck));
            }
        }
        self.record.began_ns = Clock.now_ns();
        Ok(None)
    }

    /// Tells each host how to connect to the next one, once all have said it.
    fn introduce(&mut self) {
        if self.hosts.iter().any(|host| host.handles.is_none()) {
            return;
        }
        let all: Vec<_> = self.hosts.iter_mut().map(|it| it.handles.take()).collect();
        for host in 0..all.len() {
            let next = (host + 1) % all.len();
            let handles = all[next].clone().unwrap_or_default();
            self.crew.order(host, &Order::Connect { handles });
        }
    }

    fn play(
        &mut self,
        plan: &Plan,
        limits: Limits,
        show: &mut dyn FnMut(&Record),
    ) -> Result<(), Failure> {
        let begun = self.record.began_ns;
        let at = |span: Span| begun + span.as_nanos();
        let first = plan.first_outage().unwrap_or(BEFORE);
        self.record.first_event_ns = at(first);
        let limit = at(first) + limits.patience.as_nanos();
        let end = plan.end().map(|end| at(end + limits.after));
        let forever = at(first + limits.forever);
        let enough = end.unwrap_or(forever);
        let mut events = plan.events.iter().peekable();
        let mut still_ns = begun;
        loop {
            let now = Clock.now_ns();
            while let Some(event) = events.next_if(|it| at(it.at) <= now) {
                self.happen(&event.what)?;
            }
            self.do_later(now)?;
            self.introduce();
            if let Some(end) = self.listen()? {
                self.record.ended_ns = Clock.now_ns();
                self.record.end = end;
                self.listen_for(ECHO_NS)?;
                return Ok(());
            }
            show(&self.record);
            let now = Clock.now_ns();
            let is_alive = self.hosts.iter().all(|it| it.oldest_ns + ALIVE_NS > now);
            if !is_alive || self.is_restarting {
                still_ns = now;
            }
            let is_settled = still_ns + SETTLED_NS < now;
            if now >= enough && events.peek().is_none() && is_settled {
                self.record.ended_ns = now;
                return Ok(());
            }
            if now >= limit.max(enough) + SETTLED_NS {
                self.record.ended_ns = now;
                self.record.end = End::Stuck;
                return Ok(());
            }
        }
    }

    /// Lets an event happen.
    fn happen(&mut self, what: &What) -> Result<(), Failure> {
        self.record.event(what.to_string());
        let now = Clock.now();
        match what {
            What::Down(rail, Length(length)) => {
                self.schedule(*rail, Outages::once(now, *length))?;
            }
            What::Flap(rail, length) => {
                let (length, every, times) = flaps(*length);
                let first = now;
                self.schedule(
                    *rail,
                    Outages {
                        first,
                        length,
                        every,
                        times,
                    },
                )?;
            }
            What::Silent(rail, lost, Length(length)) => {
                let blackout = Blackout {
                    from: now,
                    length: *length,
                };
                for direction in lost.directions() {
                    let state = self.site.rail(*rail).state();
                    let mut impairment = state.impairment(*direction);
                    impairment.blackouts = vec![blackout];
                    self.impair(*rail, *direction, impairment)?;
                }
            }
            What::Loss(rail, loss) => {
                let direction = ferroce_device::Direction::Egress;
                let state = self.site.rail(*rail).state();
                let mut impairment = state.impairment(direction);
                impairment.loss = loss.as_f64();
                self.impair(*rail, direction, impairment)?;
            }
            What::Stop(host, Length(length)) => {
                self.crew.signal(*host, Signal::SIGSTOP);
                if *length != Span::NEVER {
                    let at = Clock.now_ns() + length.as_nanos();
                    self.later.push((at, Later::Resume(*host)));
                }
            }
            What::Kill(host) => self.kill(*host),
            What::Restart(host, Length(length)) => {
                self.kill(*host);
                self.is_restarting = true;
                let at = Clock.now_ns() + length.as_nanos();
                self.later.push((at, Later::Restart(*host)));
            }
        }
        Ok(())
    }

    fn schedule(&self, rail: super::plan::Rail, outages: Outages) -> Result<(), Failure> {
        let schedule = Schedule::new(vec![outages]).map_err(Failure::broken)?;
        let observer = self.site.rail(rail);
        observer.set_schedule(schedule).map_err(Failure::broken)
    }

    fn impair(
        &self,
        rail: super::plan::Rail,
        direction: ferroce_device::Direction,
        impairment: Impairment,
    ) -> Result<(), Failure> {
        let observer = self.site.rail(rail);
        let set = observer.state().set_impairment(direction, impairment);
        set.map_err(Failure::broken)?;
        observer.call_attention();
        Ok(())
    }

    fn kill(&mut self, host: usize) {
        self.hosts[host].is_killed = true;
        self.hosts[host].deaths += 1;
        self.crew.signal(host, Signal::SIGKILL);
    }

    /// Does what is due by now.
    fn do_later(&mut self, now: u64) -> Result<(), Failure> {
        let due: Vec<_> = self.later.extract_if(.., |(at, _)| now >= *at).collect();
        for (_, what) in due {
            match what {
                Later::Resume(host) => self.crew.signal(host, Signal::SIGCONT),
                Later::Restart(host) => self.restart(host)?,
            }
        }
        Ok(())
    }

    /// Starts a host's process again, and has all hosts connect anew.
    fn restart(&mut self, host: usize) -> Result<(), Failure> {
        let text = format!("h{host} starts again, and all hosts connect anew");
        self.record.event(text);
        let command = command(self.site, self.starts, host)?;
        self.crew.restart(host, command)?;
        for (other, state) in self.hosts.iter_mut().enumerate() {
            (state.is_connected, state.handles) = (false, None);
            if other != host {
                self.crew.order(other, &Order::Again);
            }
        }
        let state = &mut self.hosts[host];
        state.is_killed = false;
        self.record.bytes += std::mem::take(&mut state.bytes);
        self.record.wrong_words += std::mem::take(&mut state.wrong_words);
        Ok(())
    }

    /// Waits for lines of the hosts until the next look at the rails. The end of the run, if a host
    /// says so.
    fn listen(&mut self) -> Result<Option<End>, Failure> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::broken(
                    "interrupted; all processes have been ended",
                ));
            }
            let now = Clock.now_ns();
            if now > self.next_sample_ns + LATE_NS {
                self.look();
                return Ok(None);
            }
            // What is there already is heard first, also if the next look is a little late.
            let left = self.next_sample_ns.saturating_sub(now);
            let Some(said) = self.crew.next(Duration::from_nanos(left)) else {
                self.look();
                return Ok(None);
            };
            if let Some(end) = self.hear(said) {
                return Ok(Some(end));
            }
        }
    }

    /// Notes what the rails have sent.
    fn look(&mut self) {
        let at_ns = Clock.now_ns();
        self.next_sample_ns = at_ns + EVERY.as_nanos() as u64;
        let rails = self.site.look();
        self.record.samples.push(Sample { at_ns, rails });
    }

    fn listen_for(&mut self, ns: u64) -> Result<(), Failure> {
        let until = Clock.now_ns() + ns;
        while Clock.now_ns() < until {
            self.listen()?;
        }
        Ok(())
    }

    /// Notes what a host has said. The end of the run, if that is one.
    fn hear(&mut self, Said { host, at_ns, what }: Said) -> Option<End> {
        let state = &mut self.hosts[host];
        match what {
            Line::Message(text) => self.record.message(host, at_ns, text),
            Line::Report(Report::Loaded { .. }) => {}
            Line::Report(Report::Refused { reason }) => {
                return Some(End::Died { host, how: reason });
            }
            Line::Report(Report::Listening { handles }) => state.handles = Some(handles),
            Line::Report(Report::Connected) => {
                state.is_connected = true;
                state.oldest_ns = at_ns;
                let is_complete = self.hosts.iter().all(|it| it.is_connected);
                self.is_restarting &= !is_complete;
            }
            Line::Report(Report::Progress {
                bytes,
                wrong_words,
                oldest_ns,
                ..
            }) => {
                (state.bytes, state.wrong_words) = (bytes, wrong_words);
                state.oldest_ns = oldest_ns;
            }
            Line::Report(Report::Standstill { from_ns, to_ns }) => {
                let length = to_ns.saturating_sub(from_ns);
                self.record.standstill_ns = self.record.standstill_ns.max(length);
            }
            Line::Report(Report::Failed {
                at_ns,
                call,
                code,
                name,
            }) => {
                self.record.events.push(Note {
                    at_ns,
                    host: Some(host),
                    text: format!("{call} returned {name} ({code})"),
                    times: 1,
                });
                let end = End::Failed {
                    host,
                    call,
                    code,
                    name,
                };
                // Without its peer a host must fail; what counts is whether it connects anew.
                return (!self.is_restarting).then_some(end);
            }
            Line::Report(Report::Closed) => state.is_closed = true,
            Line::JobEnded => {}
            Line::Ended if state.deaths > 0 => {
                state.deaths -= 1;
                state.is_closed = state.is_killed;
            }
            Line::Ended if state.is_closed => {}
            Line::Ended => {
                let how = self.crew.ending(host);
                return Some(End::Died { host, how });
            }
        }
        None
    }

    /// Sums up, and ends the hosts.
    fn finish(mut self) -> Record {
        if self.record.ended_ns == 0 {
            self.record.ended_ns = Clock.now_ns();
        }
        let ended = self.record.ended_ns;
        let has_begun = |host: &&Host| !host.is_killed && host.oldest_ns > 0;
        let alive = self.hosts.iter().filter(has_begun);
        let still = alive.map(|host| ended.saturating_sub(host.oldest_ns));
        if self.record.end != End::Survived {
            let still = still.max().unwrap_or(0);
            self.record.standstill_ns = self.record.standstill_ns.max(still);
        }
        self.record.bytes += self.hosts.iter().map(|it| it.bytes).sum::<u64>();
        self.record.wrong_words += self.hosts.iter().map(|it| it.wrong_words).sum::<u64>();
        if self.record.end == End::Survived {
            for host in 0..self.hosts.len() {
                self.crew.order(host, &Order::End);
            }
            let until = Clock.now_ns() + CLOSE_NS;
            while !self.hosts.iter().all(|it| it.is_closed) && Clock.now_ns() < until {
                if let Some(said) = self.crew.next(EVERY) {
                    self.hear(said);
                }
            }
        }
        self.record
    }
}
