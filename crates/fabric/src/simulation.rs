//! A workload with faults on a fabric, and what is recorded of it.

mod fast_forward;

use std::collections::VecDeque;

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_device::VerbsError;
use rayon::ThreadPool;

use self::fast_forward::FastForward;
pub use self::fast_forward::LeftOut;
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

impl Samples {
    /// Repeats those of the stretch of time before `now`, `seen` long, throughout the `left_out` one behind it, up to
    /// `max` of each kind.
    fn repeat(&mut self, now: Time, seen: Span, left_out: Span, max: usize) {
        for kind in [
            &mut self.queues,
            &mut self.links,
            &mut self.rates,
            &mut self.goodput,
        ] {
            let first = kind.partition_point(|it| it.at <= now.before(seen));
            let last = kind.len();
            let rounds = (1_u64..).take_while(|round| seen * (round - 1) < left_out);
            let later = rounds.flat_map(|round| (first..last).map(move |it| (it, seen * round)));
            for (it, later) in later {
                let at = kind[it].at.after(later);
                if at > now.after(left_out) {
                    break;
                }
                if kind.len() == max {
                    self.is_cut_short = true;
                    break;
                }
                kind.push(Sample { at, ..kind[it] });
            }
        }
    }
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
    /// Faults that have happened.
    faults: u64,
    /// What leaves out time in which nothing changes, if that is wanted.
    fast_forward: Option<FastForward>,
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
            faults: 0,
            fast_forward: None,
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

    /// Leaves out time in which nothing changes from now on, as far as the rates of messages are not wrong by more
    /// than a part (0 to 1) in it. See [`LeftOut`].
    pub fn fast_forward(&mut self, tolerance: f64) {
        let step = self.recording.map(|it| it.every);
        let step = step.unwrap_or(Span::from_nanos(1));
        self.fast_forward = Some(FastForward::new(tolerance, step));
    }

    /// Returns how much time has been left out; `None` without [`Self::fast_forward`].
    pub fn left_out(&self) -> Option<LeftOut> {
        self.fast_forward.as_ref().map(|it| it.left_out)
    }

    /// Returns the current time: the fabric's, and what has been left out.
    pub fn now(&self) -> Time {
        self.fabric.now().after(self.player.left_out())
    }

    /// Returns a time of the fabric as one of the simulation: with what had been left out before it.
    pub fn shown(&self, at: Time) -> Time {
        let fast_forward = self.fast_forward.as_ref();
        fast_forward.map_or(at, |it| it.shown(at))
    }

    /// How many things have happened that end a stretch of time in which nothing changes.
    fn changes(&self) -> u64 {
        self.player.changes() + self.faults
    }

    /// When something happens next that no packet causes, in the fabric's time.
    fn next_of_its_own(&self) -> Time {
        let of_player = [self.player.next(), self.player.next_act()];
        let nexts = of_player.into_iter().chain([self.next_fault()]).flatten();
        nexts.min().unwrap_or(Time::NEVER).min(self.end())
    }

    /// When the next fault happens, in the fabric's time.
    fn next_fault(&self) -> Option<Time> {
        let next = self.timeline.front();
        next.map(|(at, _)| at.before(self.player.left_out()))
    }

    /// When the simulation ends, in the fabric's time.
    fn end(&self) -> Time {
        self.until.before(self.player.left_out())
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
            let cut = [self.next_fault(), self.player.next_act()];
            let own = [self.fabric.next_event(), self.player.next()];
            let Some(next) = cut.iter().chain(&own).flatten().min() else {
                return Ok(Standing::Stuck);
            };
            let look = self.fast_forward.as_ref().map(|it| it.next);
            let cuts = cut.into_iter().chain([look]).flatten();
            let last = self.end();
            let cut = cuts.chain([self.next_sample]).min();
            let cut = cut.unwrap_or(last).min(last).max(self.fabric.now());
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
            if cut == last {
                return Ok(Standing::TimeUp);
            }
            self.sample(cut);
            self.suffer();
            self.player.act(&mut self.fabric)?;
            if look == Some(cut)
                && let Some(mut fast_forward) = self.fast_forward.take()
            {
                fast_forward.look(self);
                self.fast_forward = Some(fast_forward);
            }
        }
        Ok(Standing::Running)
    }

    /// Lets everything happen that is due.
    fn suffer(&mut self) {
        let now = self.now();
        while let Some(&(at, fault)) = self.timeline.front()
            && at <= now
        {
            self.timeline.pop_front();
            self.faults += 1;
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
        let (of_fabric, at) = (at, self.now());
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
                hca.look_at_limits(of_fabric, |qpn, rate| {
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

    /// What each line has carried, if that is sampled.
    fn line_bytes(&self) -> Vec<u64> {
        let lines = 0..self.carried.len();
        lines
            .map(|line| self.fabric.line(line / 2, line % 2).bytes)
            .collect()
    }

    /// Takes samples of the time that was just left out to be those of the time seen before; `before` is what lines
    /// had carried then.
    fn repeat_samples(&mut self, before: &[u64], seen: Span, left_out: Span) {
        let Some(Recording {
            every, samples_max, ..
        }) = self.recording
        else {
            return;
        };
        let then = self.now().before(left_out);
        let seen = (seen / every).max(1) * every;
        self.samples.repeat(then, seen, left_out, samples_max);
        // The next ones do not count what was left out.
        let after = self.line_bytes();
        for ((carried, before), after) in self.carried.iter_mut().zip(before).zip(after) {
            *carried += after - before;
        }
    }
}
