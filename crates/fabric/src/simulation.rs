//! A workload with faults on a fabric, and what is recorded of it.

use std::collections::VecDeque;

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_device::VerbsError;
use rayon::ThreadPool;

use crate::fabric::Fabric;
use crate::line::Loss;
use crate::play::Player;

/// An event that changes a fabric.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// A cable is cut: what is on it and what waits for it is lost, and so is what is sent until it is
    /// repaired.
    CableDown(usize),
    /// A cable is repaired.
    CableUp(usize),
    /// Switches find ways around the cables that are down, and use those again that are up.
    Reroute,
    /// A cable has another rate, both ways.
    Rate(usize, Rate),
    /// A cable loses packets, both ways.
    Loss(usize, Loss),
    /// A cable flips a bit of this many packets of 2^32, both ways, and no switch notices.
    Corruption(usize, u32),
    /// A host sends nothing and hears nothing.
    Silent(u32),
    /// A silent host is there again.
    Heard(u32),
    /// A host takes packets no faster than at this rate, or again as fast as they arrive.
    Intake(u32, Option<Rate>),
    /// A host's device is reset: all its queue pairs are gone.
    NicReset(u32),
}

/// What is recorded over time, besides transfers and timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    /// The sampling interval.
    pub every: Span,
    /// Maximum number of samples of each kind; later ones are dropped.
    pub samples_max: usize,
    /// Record the bytes that wait at each port of a switch, if any.
    pub queues: bool,
    /// Record the bytes that each line has carried in the interval, if any.
    pub links: bool,
    /// Record the rates of queue pairs that congestion control slows down.
    pub rates: bool,
    /// Record the payload that queue pairs have delivered in the interval, if any.
    pub goodput: bool,
}

/// One value at one time, of a line or a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// The line (twice the cable's number, plus one for the direction from its second end), or the
    /// host.
    pub of: u32,
    /// The queue pair; zero for lines.
    pub qpn: u32,
    /// Bytes, or bit/s.
    pub value: u64,
}

/// The recorded samples, each kind in order of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Samples {
    /// Bytes that waited for lines.
    pub queues: Vec<Sample>,
    /// Bytes that lines carried since the sample before.
    pub links: Vec<Sample>,
    /// Rates of queue pairs, bit/s.
    pub rates: Vec<Sample>,
    /// Payload that the queue pairs of senders delivered since the sample before, bytes.
    pub goodput: Vec<Sample>,
    /// Whether samples were dropped because there were too many.
    pub is_cut_short: bool,
}

/// The state of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// There is more to come.
    Running,
    /// Every job has done what it had to do, or has died.
    Over,
    /// Its time is up.
    TimeUp,
    /// Nothing will ever happen any more, although there is something to do.
    Stuck,
}

/// A workload with faults on a fabric.
#[derive(Debug)]
pub struct Simulation {
    /// The fabric.
    pub fabric: Fabric,
    /// The workload and its results.
    pub player: Player,
    /// What was recorded.
    pub samples: Samples,
    timeline: VecDeque<(Time, Fault)>,
    until: Time,
    recording: Option<Recording>,
    next_sample: Time,
    /// What each line had carried at the last sample.
    carried: Vec<u64>,
    /// The largest share of its rate that each line carried between two samples.
    peaks: Vec<f64>,
    events: u64,
    /// The threads that parts run on, if not that of the caller.
    pool: Option<ThreadPool>,
    /// Events of a window that are worth waking them, and how many the last one had.
    worth: u64,
    window: u64,
}

impl Simulation {
    /// Creates a simulation. Faults may be in any order; those of the same time happen in the order
    /// given.
    pub fn new(
        mut fabric: Fabric,
        mut player: Player,
        mut timeline: Vec<(Time, Fault)>,
        recording: Option<Recording>,
        until: Time,
    ) -> Self {
        timeline.sort_by_key(|(at, _)| *at);
        player.meet(&mut fabric);
        if recording.is_some_and(|it| it.goodput) {
            player.record_goodput();
        }
        let carried = match recording {
            Some(_) => vec![0; 2 * fabric.topology().cables.len()],
            None => Vec::new(),
        };
        Self {
            fabric,
            player,
            samples: Samples::default(),
            timeline: timeline.into(),
            until,
            next_sample: recording.map_or(Time::NEVER, |it| Time::ZERO.after(it.every)),
            recording,
            peaks: vec![0.0; carried.len()],
            carried,
            events: 0,
            pool: None,
            worth: 0,
            window: 0,
        }
    }

    /// Runs the [parts](Fabric::parts) of the fabric on these threads from now on. The results are the same for any
    /// number of threads. Where time passes in windows of fewer than `worth` events, one thread does it all, because
    /// the others would take longer to wake.
    pub fn use_threads(&mut self, pool: ThreadPool, worth: u64) {
        (self.pool, self.worth) = (Some(pool), worth);
    }

    /// Returns the number of events processed.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the largest share of its rate that a line, numbered as in [`Sample::of`], carried in a sampling
    /// interval; `None` if there was none. Samples that were dropped are included.
    pub fn peak(&self, line: usize) -> Option<f64> {
        let every = self.recording?.every;
        let was_sampled = self.next_sample > Time::ZERO.after(every);
        was_sampled.then(|| self.peaks[line].min(1.0))
    }

    /// Processes events until there were at least this many.
    ///
    /// # Errors
    /// Returns an error if a device has no room for another queue pair.
    pub fn run(&mut self, events: u64) -> Result<Standing, VerbsError> {
        let Some(pool) = self.pool.take() else {
            return self.run_windows(events, false);
        };
        // On one of its threads, which wakes the others sooner than one that is not would.
        let standing = pool.install(|| self.run_windows(events, true));
        self.pool = Some(pool);
        standing
    }

    fn run_windows(&mut self, events: u64, has_threads: bool) -> Result<Standing, VerbsError> {
        let (mut left, lookahead) = (events, self.fabric.lookahead());
        while left > 0 {
            if self.player.is_over() {
                return Ok(Standing::Over);
            }
            let fault = self.timeline.front().map(|(at, _)| *at);
            let cut = [fault, self.player.next_reconnect()];
            let own = [self.fabric.next_event(), self.player.next()];
            let Some(next) = cut.iter().chain(&own).flatten().min() else {
                return Ok(Standing::Stuck);
            };
            let cuts = cut.into_iter().flatten();
            let cut = cuts.chain([self.next_sample, self.until]).min();
            let cut = cut.unwrap_or(self.until).max(self.fabric.now());
            let end = next.after(lookahead).min(cut);
            let beside = has_threads && self.window >= self.worth;
            self.window = self.player.run(&mut self.fabric, end, beside)?;
            left = left.saturating_sub(self.window);
            self.events += self.window;
            if end < cut {
                continue;
            }
            if self.player.is_over() {
                return Ok(Standing::Over);
            }
            if cut == self.until {
                return Ok(Standing::TimeUp);
            }
            self.sample(cut);
            self.suffer(cut);
            self.player.reconnect_due(&mut self.fabric)?;
        }
        Ok(Standing::Running)
    }

    /// Lets everything happen that is due.
    fn suffer(&mut self, now: Time) {
        while let Some(&(at, fault)) = self.timeline.front()
            && at <= now
        {
            self.timeline.pop_front();
            let fabric = &mut self.fabric;
            match fault {
                Fault::CableDown(cable) => fabric.set_up(cable, false),
                Fault::CableUp(cable) => fabric.set_up(cable, true),
                Fault::Reroute => fabric.reroute(),
                Fault::Rate(cable, rate) => fabric.set_rate(cable, rate),
                Fault::Loss(cable, loss) => fabric.set_loss(cable, loss),
                Fault::Corruption(cable, share) => fabric.set_corruption(cable, share),
                Fault::Silent(host) => fabric.set_silent(host, true),
                Fault::Heard(host) => fabric.set_silent(host, false),
                Fault::Intake(host, rate) => fabric.set_intake(host, rate),
                Fault::NicReset(host) => fabric.reset_nic(host),
            }
        }
    }

    fn sample(&mut self, at: Time) {
        let Some(recording) = self.recording.filter(|_| at == self.next_sample) else {
            return;
        };
        self.next_sample = at.after(recording.every);
        let (fabric, samples) = (&mut self.fabric, &mut self.samples);
        let max = recording.samples_max;
        // Once one has been dropped, more than there may be of a kind make no difference.
        let is_over = |kept: &[Sample]| samples.is_cut_short && kept.len() >= max;
        let rates = recording.rates && !is_over(&samples.rates);
        let goodput = recording.goodput && !is_over(&samples.goodput);
        let mut is_cut_short = false;
        let mut keep = |kept: &mut Vec<Sample>, of: u32, qpn: u32, value: u64| {
            if kept.len() < max {
                kept.push(Sample { at, of, qpn, value });
            } else {
                is_cut_short = true;
            }
        };
        for ((line, carried), peak) in (0..).zip(&mut self.carried).zip(&mut self.peaks) {
            let (cable, end) = (line as usize / 2, line as usize % 2);
            let (waiting, _) = fabric.queue(cable, end);
            if recording.queues && waiting > 0 {
                keep(&mut samples.queues, line, 0, waiting);
            }
            let bytes = fabric.line(cable, end).bytes;
            let since = bytes - std::mem::replace(carried, bytes);
            let room = fabric.rate(cable).bps() as f64 * recording.every.as_picos() as f64 / 8e12;
            *peak = peak.max(since as f64 / room);
            if recording.links && since > 0 {
                keep(&mut samples.links, line, 0, since);
            }
        }
        if rates {
            for host in 0..fabric.topology().hosts {
                let hca = &mut fabric.host_mut(host).hca;
                hca.look_at_limits(at, |qpn, rate| {
                    keep(&mut samples.rates, host, qpn.into(), rate.bps());
                });
            }
        }
        if goodput {
            self.player.look_at_goodput(fabric, |look, since| {
                let ([host, _], [qpn, _]) = (look.ends, look.qpns);
                keep(&mut samples.goodput, host, qpn.into(), since);
            });
        }
        samples.is_cut_short |= is_cut_short;
    }
}
