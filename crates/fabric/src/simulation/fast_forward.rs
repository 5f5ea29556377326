//! Leaves out time in which nothing changes.
//!
//! All messages under way are looked at in regular intervals. If each goes on evenly, and nothing begins, ends, or is
//! lost, then what has happened since this began goes on to happen: as many packets as belong to a stretch of time
//! are left out of each message, everything counted is counted again, and the clock goes on. The state of devices and
//! switches stays as it is, and with it every timer that runs.
//!
//! How much a rate may be wrong in that time follows from what was seen. It is known to one packet of those that have
//! arrived, and it may have been about to change, at most as fast as the four intervals seen differ. The tolerance
//! limits both together, so the more has been seen, the more may be left out. Each time that four intervals have been
//! seen, they become two, and the next ones are twice as long.

use ferroce_base::time::{Span, Time};

use super::Simulation;
use crate::fabric::Counts;
use crate::play::Flow;

/// The intervals that are compared.
const INTERVALS: usize = 4;
/// The first interval.
const FIRST: Span = Span::from_micros(20);
/// What it grows to while messages do not go on: acknowledgements come more often.
const LONGEST: Span = Span::from_millis(20);
/// A stretch is this many times as long as what has been seen, or else the longest one that a later look could leave
/// out: the more has been seen, the longer it may be.
const WORTH: u64 = 4;
/// Packets by which two equal intervals may differ, and by which what is in flight may: one has just arrived, or is
/// just about to.
const JITTER: u32 = 1;
/// Packets of a message that may be seen: numbers of packets are half as many as can be told apart.
const PACKETS_MAX: u32 = 1 << 22;

/// The time that a simulation has left out because nothing changed in it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LeftOut {
    /// All of it.
    pub time: Span,
    /// How often time was left out.
    pub times: u32,
    /// How much earlier or later messages may be when time goes on, if rates had gone on to change as they did when
    /// they were looked at. What follows may differ by more if a moment decides, as between seeds.
    pub error: Span,
}

/// What leaves out time.
#[derive(Debug)]
pub(super) struct FastForward {
    /// By which part rates may be wrong.
    tolerance: f64,
    interval: Span,
    /// Of which a multiple is left out, so that samples stay evenly apart.
    step: Span,
    /// When to look next, in the fabric's time.
    pub(super) next: Time,
    /// Changes up to the last look.
    changes: u64,
    watch: Option<Watch>,
    pub(super) left_out: LeftOut,
    /// The fabric's time at which time was left out, and all that had been left out then.
    at: Vec<(Time, Span)>,
}

/// Messages that go on.
#[derive(Debug)]
struct Watch {
    /// When they were first seen, and when last, in the fabric's time.
    since: Time,
    until: Time,
    /// What has been left out since then.
    left_out: Span,
    /// Acknowledgements come at least as often.
    period: Span,
    /// What had been counted when they were first seen.
    counts: Counts,
    /// The messages as seen first, and after each interval.
    looks: Vec<Vec<Flow>>,
}

/// A message, and what has happened to it in the time seen.
struct Seen<'a> {
    now: &'a Flow,
    /// Packets of it that have arrived, and intervals differ by this many.
    arrived: u32,
    unevenness: u32,
    /// The change of what is in flight, packets.
    growth: u32,
}

impl FastForward {
    /// Creates one that leaves out multiples of a step.
    pub(super) fn new(tolerance: f64, step: Span) -> Self {
        Self {
            tolerance,
            interval: FIRST,
            step,
            next: Time::ZERO.after(FIRST),
            changes: 0,
            watch: None,
            left_out: LeftOut::default(),
            at: Vec::new(),
        }
    }

    /// What a time of the fabric is with the time that had been left out before.
    pub(super) fn shown(&self, at: Time) -> Time {
        let place = self.at.partition_point(|(place, _)| *place < at);
        let before = place.checked_sub(1).map(|last| self.at[last].1);
        at.after(before.unwrap_or_default())
    }

    /// Looks at all messages, and leaves out time if all of them go on evenly.
    pub(super) fn look(&mut self, simulation: &mut Simulation) {
        let changes = simulation.changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            (self.interval, self.watch) = (FIRST, None);
        } else {
            let flows = simulation.player.flows(&simulation.fabric);
            let flows = flows.filter(|flows| !flows.is_empty());
            match flows.filter(|_| !simulation.fabric.is_unreliable()) {
                Some(flows) => self.see(simulation, flows),
                None => self.watch = None,
            }
        }
        self.next = simulation.fabric.now().after(self.interval);
    }

    fn see(&mut self, simulation: &mut Simulation, flows: Vec<Flow>) {
        let Some(mut watch) = self.watch.take() else {
            self.watch = Some(Watch::begin(simulation, flows, self.interval));
            return;
        };
        if !watch.goes_on(&flows) {
            // The interval may be too short for acknowledgements.
            self.interval = (self.interval * 2).min(LONGEST);
            self.watch = Some(Watch::begin(simulation, flows, self.interval));
            return;
        }
        watch.see(simulation.fabric.now(), flows);
        if watch.looks.len() > INTERVALS {
            let limit = simulation.next_of_its_own();
            let found = watch.stretch(self.tolerance, self.step, limit);
            if let Some((stretch, error)) = found {
                self.leave_out(simulation, &mut watch, stretch, error);
            }
            self.interval = self.interval * 2;
            watch = watch.with_longer_intervals(simulation);
        }
        self.watch = Some(watch);
    }

    fn leave_out(
        &mut self,
        simulation: &mut Simulation,
        watch: &mut Watch,
        stretch: Span,
        error: Span,
    ) {
        let now = simulation.fabric.now();
        let seen = watch.time();
        let part = |seen_in_it: u64| {
            let part = u128::from(seen_in_it) * u128::from(stretch.as_picos());
            (part / u128::from(seen.as_picos())) as u64
        };
        let packets = watch.messages();
        let packets = packets.map(|it| (it.now, part(it.arrived.into()) as u32));
        let before = simulation.line_bytes();
        let fabric = &mut simulation.fabric;
        fabric.count_again(&watch.counts, part);
        simulation.player.leave_out(fabric, stretch, packets);
        simulation.repeat_samples(&before, seen, stretch);
        watch.left_out += stretch;
        self.left_out.time += stretch;
        self.left_out.times += 1;
        self.left_out.error += error;
        self.at.push((now, simulation.player.left_out()));
    }
}

impl Watch {
    fn begin(simulation: &Simulation, flows: Vec<Flow>, period: Span) -> Self {
        let now = simulation.fabric.now();
        Self {
            since: now,
            until: now,
            left_out: Span::ZERO,
            period,
            counts: simulation.fabric.counts(),
            looks: vec![flows],
        }
    }

    /// How long messages have been seen.
    fn time(&self) -> Span {
        self.until.since(self.since)
    }

    /// Whether these are the same messages as at the last look, and have all gone on.
    fn goes_on(&self, flows: &[Flow]) -> bool {
        let last = self.looks.last().map_or(&[][..], Vec::as_slice);
        flows.len() == last.len() && flows.iter().zip(last).all(|(now, then)| now.goes_on(then))
    }

    fn see(&mut self, now: Time, flows: Vec<Flow>) {
        self.until = now;
        self.looks.push(flows);
    }

    /// Makes one interval of two, or begins anew if numbers of packets would become ambiguous.
    fn with_longer_intervals(mut self, simulation: &Simulation) -> Self {
        if self.messages().any(|it| it.arrived >= PACKETS_MAX)
            && let Some(last) = self.looks.pop()
        {
            return Self::begin(simulation, last, self.period);
        }
        let mut is_kept = false;
        self.looks.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
        self
    }

    /// What has happened to each message.
    fn messages(&self) -> impl Iterator<Item = Seen<'_>> {
        let first = self.looks.first().map_or(&[][..], Vec::as_slice);
        first.iter().enumerate().filter_map(|(message, then)| {
            let now = &self.looks.last()?[message];
            let pairs = self.looks.windows(2);
            let steps = pairs.map(|it| it[1][message].arrived.since(it[0][message].arrived));
            let (sent, arrived) = (now.sent.since(then.sent), now.arrived.since(then.arrived));
            Some(Seen {
                now,
                arrived,
                unevenness: steps.clone().max()? - steps.min()?,
                growth: sent.abs_diff(arrived),
            })
        })
    }

    /// How many steps of time may be left out up to a limit of the fabric's time, if any are worth it, and by how much
    /// times may be wrong then.
    fn stretch(&self, tolerance: f64, step: Span, limit: Time) -> Option<(Span, Span)> {
        let seen = self.time();
        let [whole, before] = [seen, self.left_out].map(|it| it.as_picos() as f64);
        let mut rest = limit.since(self.until);
        let mut allowed = f64::INFINITY;
        for it in self.messages() {
            // The end of a message is not left out, nor what may happen when it comes near.
            let unsent = it
                .now
                .write
                .unsent
                .saturating_sub(it.arrived / INTERVALS as u32);
            let ends = u128::from(seen.as_picos()) * u128::from(unsent) / u128::from(it.arrived);
            rest = rest.min(Span::from_picos(u64::try_from(ends).unwrap_or(u64::MAX)));
            allowed = allowed.min((tolerance - it.doubt()) / it.trend() * whole - before);
        }
        let allowed = Span::from_picos(allowed.max(0.0) as u64);
        let stretch = rest.min(allowed) / step * step;
        let later = rest - seen;
        if stretch == Span::ZERO || stretch < later.min(seen * WORTH) {
            return None;
        }
        let share = (before + stretch.as_picos() as f64) / whole;
        let parts = self.messages().map(|it| it.doubt() + it.trend() * share);
        let error = stretch.as_picos() as f64 * parts.fold(0.0, f64::max);
        let error = Span::from_picos(error.ceil() as u64) + self.out_of_step();
        (error < stretch / 2).then_some((stretch, error))
    }

    /// How much earlier or later messages may be because what is in flight is another part of them, and timers because
    /// of the acknowledgements that start them.
    fn out_of_step(&self) -> Span {
        let seen = self.time();
        let in_flight = self
            .messages()
            .map(|it| seen / u64::from(it.arrived) * it.in_flight());
        in_flight.fold(self.period, Span::max)
    }
}

impl Seen<'_> {
    /// Packets of it that have not been acknowledged.
    fn in_flight(&self) -> u64 {
        self.now.sent.since(self.now.acknowledged).into()
    }

    /// By which part the rate of the message may differ from what was seen.
    fn doubt(&self) -> f64 {
        1.0 / f64::from(self.arrived)
    }

    /// By which part it has changed in the time seen.
    fn trend(&self) -> f64 {
        let unevenness = self.unevenness.saturating_sub(JITTER) * INTERVALS as u32;
        let growth = self.growth.saturating_sub(2 * JITTER);
        f64::from(unevenness + growth) / f64::from(self.arrived)
    }
}
