//! N flows through one queue, packet by packet, on virtual time.
//!
//! All senders have the link's speed. The way from a mark to the CNP at the sender takes a constant
//! time, so that two events are enough: a sender's packet joins the queue, and the link takes the
//! next packet out of it. Nothing is lost: the queue has no end, as with flow control.

use std::collections::{BinaryHeap, VecDeque};
use std::vec::Vec;

use core::cmp::Reverse;

use ferroce_time::Time;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::cp::CongestionPoint;
use crate::error::RangeError;
use crate::np::{Arrival, CnpTimer, NotificationPoint};
use crate::rate::Rate;
use crate::rp::ReactionPoint;

/// An experiment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How many flows, all of them with packets to send all the time; 1..=65 536.
    pub flows: usize,
    /// Speed of the link and of each sender; at least 1 Mb/s.
    pub line: Rate,
    /// Bytes of a packet; 64..=65 536.
    pub packet_bytes: u32,
    /// From a mark to its CNP at the sender, ns; at most a second.
    pub feedback_ns: u64,
    /// The queue's marking.
    pub red: CongestionPoint,
    /// The receivers' parameters of the notification point.
    pub np: NotificationPoint,
    /// How long it takes, ns; a millisecond to a minute. The second half is observed.
    pub duration_ns: u64,
    /// When the later half of the flows begins, ns; at most `duration_ns`.
    pub late_ns: u64,
    /// Of the marks, and of first packets within a microsecond.
    pub seed: u64,
}

/// What was seen in the second half.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Mean length of the queue, bytes.
    pub queue: f64,
    /// Its standard deviation, bytes.
    pub queue_deviation: f64,
    /// The longest, bytes, first half included.
    pub queue_max: u64,
    /// Mean of the flows' alpha.
    pub alpha: f64,
    /// CNPs per second and flow.
    pub cnps: f64,
    /// Share of the link's time in use.
    pub utilisation: f64,
    /// What each flow got, bit/s.
    pub rates_bps: Vec<f64>,
    /// How long after the later half of the flows began the two halves were first within a tenth of
    /// the fair share of each other, ns; mean rates of two milliseconds, of the whole run.
    pub converged_ns: Option<u64>,
}

impl Observed {
    /// Jain's index of fairness, 1/N to 1.
    #[must_use]
    pub fn jain(&self) -> f64 {
        let sum: f64 = self.rates_bps.iter().sum();
        let squares: f64 = self.rates_bps.iter().map(|rate| rate * rate).sum();
        sum * sum / (self.rates_bps.len() as f64 * squares)
    }
}

impl Scenario {
    fn check(&self) -> Result<(), RangeError> {
        let second_ns = 1_000_000_000;
        let (flows, duration_ns) = (self.flows as u64, self.duration_ns);
        RangeError::check("flows", flows, 1, 65_536)?;
        let line_bps = (1_000_000, Rate::MAX.bps());
        RangeError::check("line", self.line.bps(), line_bps.0, line_bps.1)?;
        RangeError::check("packet_bytes", self.packet_bytes.into(), 64, 65_536)?;
        RangeError::check("feedback_ns", self.feedback_ns, 0, second_ns)?;
        RangeError::check("duration_ns", duration_ns, 1_000_000, 60 * second_ns)?;
        RangeError::check("late_ns", self.late_ns, 0, duration_ns)
    }
}

/// Plays the scenario with flows that all have this configuration.
pub fn run<R: ReactionPoint>(
    scenario: &Scenario,
    config: &R::Config,
) -> Result<Observed, RangeError> {
    scenario.check()?;
    let mut run = Run::<R>::new(scenario, config);
    while run.step() {}
    Ok(run.finish())
}

const PS_PER_NS: u64 = 1_000;
const ALPHA_SAMPLE_NS: u64 = 10_000;
const WINDOW_NS: u64 = 2_000_000;

struct Flow<R> {
    rp: R,
    np: CnpTimer,
    /// Bytes through the queue in the second half, and in this window.
    observed_bytes: u64,
    window_bytes: u64,
}

struct Run<'a, R: ReactionPoint> {
    scenario: &'a Scenario,
    config: &'a R::Config,
    np: NotificationPoint,
    rng: Xoshiro256PlusPlus,
    flows: Vec<Flow<R>>,
    now_ps: u64,
    /// When each flow sends next.
    sends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Whose packets wait.
    queue: VecDeque<usize>,
    /// When the link is free; meaningless while it is.
    free_ps: u64,
    is_busy: bool,
    /// When CNPs arrive, and where.
    cnps: VecDeque<(u64, usize)>,
    packet_ps: u64,
    stats: Stats,
    next_sample_ns: u64,
    next_window_ns: u64,
}

#[derive(Default)]
struct Stats {
    begin_ps: u64,
    area: f64,
    area_squares: f64,
    queue_max: u64,
    alphas: f64,
    samples: u64,
    cnps: u64,
    packets: u64,
    converged_ns: Option<u64>,
}

impl<'a, R: ReactionPoint> Run<'a, R> {
    fn new(scenario: &'a Scenario, config: &'a R::Config) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(scenario.seed);
        let first = |flow: usize| {
            let is_late = flow >= scenario.flows.div_ceil(2);
            let begin_ns = if is_late { scenario.late_ns } else { 0 };
            Reverse((begin_ns * PS_PER_NS + rng.random_range(0..1_000_000), flow))
        };
        let sends = (0..scenario.flows).map(first).collect();
        let flow = || Flow {
            rp: R::new(config),
            np: CnpTimer::default(),
            observed_bytes: 0,
            window_bytes: 0,
        };
        Self {
            scenario,
            config,
            np: scenario.np.clone(),
            flows: Vec::from_iter((0..scenario.flows).map(|_| flow())),
            rng,
            now_ps: 0,
            sends,
            queue: VecDeque::new(),
            free_ps: 0,
            is_busy: false,
            cnps: VecDeque::new(),
            packet_ps: scenario.line.transmission(scenario.packet_bytes).as_picos(),
            stats: Stats {
                begin_ps: scenario.duration_ns / 2 * PS_PER_NS,
                ..Stats::default()
            },
            next_sample_ns: scenario.duration_ns / 2,
            next_window_ns: scenario.late_ns,
        }
    }

    /// The next event; false at the end.
    fn step(&mut self) -> bool {
        let never = u64::MAX;
        let send_ps = self.sends.peek().map_or(never, |Reverse((at, _))| *at);
        let cnp_ps = self.cnps.front().map_or(never, |(at, _)| *at);
        let free_ps = if self.is_busy { self.free_ps } else { never };
        let next_ps = send_ps.min(cnp_ps).min(free_ps);
        if next_ps > self.scenario.duration_ns * PS_PER_NS {
            return false;
        }
        self.advance(next_ps);
        if next_ps == free_ps {
            self.depart();
        } else if next_ps == cnp_ps {
            self.receive_cnp();
        } else {
            self.send();
        }
        true
    }

    /// The present as flows see it: their clock ticks in nanoseconds.
    fn now(&self) -> Time {
        Time::from_nanos(self.now_ns())
    }

    fn now_ns(&self) -> u64 {
        self.now_ps / PS_PER_NS
    }

    fn queue_bytes(&self) -> u64 {
        self.queue.len() as u64 * u64::from(self.scenario.packet_bytes)
    }

    fn send(&mut self) {
        let Some(Reverse((_, index))) = self.sends.pop() else {
            return;
        };
        let (now, bytes) = (self.now(), self.scenario.packet_bytes);
        let rp = &mut self.flows[index].rp;
        let pause = rp.rate(self.config, now).transmission(bytes);
        rp.on_bytes_sent(self.config, now, bytes);
        self.sends.push(Reverse((
            self.now_ps.saturating_add(pause.as_picos()),
            index,
        )));
        self.queue.push_back(index);
        if !self.is_busy {
            self.depart();
        }
        self.stats.queue_max = self.stats.queue_max.max(self.queue_bytes());
    }

    /// The link takes the next packet, which is marked by what it leaves behind.
    fn depart(&mut self) {
        let Some(index) = self.queue.pop_front() else {
            self.is_busy = false;
            return;
        };
        self.is_busy = true;
        self.free_ps = self.now_ps + self.packet_ps;
        let ce = self
            .scenario
            .red
            .mark(self.queue_bytes(), self.rng.next_u32());
        let (now, bytes) = (self.now(), u64::from(self.scenario.packet_bytes));
        let flow = &mut self.flows[index];
        flow.window_bytes += bytes;
        let is_observed = self.now_ps >= self.stats.begin_ps;
        if is_observed {
            flow.observed_bytes += bytes;
            self.stats.packets += 1;
        }
        let arrival = Arrival {
            ce,
            ..Arrival::default()
        };
        if self.np.on_packet(now, arrival, &mut flow.np).is_some() {
            let at_ps = self.now_ps + self.scenario.feedback_ns * PS_PER_NS;
            self.cnps.push_back((at_ps, index));
            self.stats.cnps += u64::from(is_observed);
        }
    }

    fn receive_cnp(&mut self) {
        if let Some((_, index)) = self.cnps.pop_front() {
            let now = self.now();
            self.flows[index].rp.on_cnp(self.config, now);
        }
    }

    /// Goes on to the next event, and looks at what lies between.
    fn advance(&mut self, next_ps: u64) {
        let from_ps = self.now_ps.max(self.stats.begin_ps);
        if next_ps > from_ps {
            let (length, time) = (self.queue_bytes() as f64, (next_ps - from_ps) as f64);
            self.stats.area += length * time;
            self.stats.area_squares += length * length * time;
        }
        self.now_ps = next_ps;
        let (now, now_ns) = (self.now(), self.now_ns());
        if now_ns >= self.next_sample_ns {
            let alpha = |flow: &Flow<R>| flow.rp.alpha(self.config, now);
            self.stats.alphas += self.flows.iter().map(alpha).sum::<f64>();
            self.stats.samples += self.flows.len() as u64;
            self.next_sample_ns += ALPHA_SAMPLE_NS;
        }
        if now_ns >= self.next_window_ns {
            self.close_window(now_ns);
        }
    }

    fn close_window(&mut self, now_ns: u64) {
        let (early, late) = self.flows.split_at(self.flows.len().div_ceil(2));
        let mean = |flows: &[Flow<R>]| {
            let bytes: u64 = flows.iter().map(|flow| flow.window_bytes).sum();
            bytes as f64 / flows.len() as f64
        };
        let window_s = WINDOW_NS as f64 / 1e9;
        let fair = self.scenario.line.bps() as f64 / 8.0 * window_s / self.flows.len() as f64;
        let is_close = (mean(early) - mean(late)).abs() < fair / 10.0;
        // What came before the later half began belongs to no window.
        let is_window = self.next_window_ns > self.scenario.late_ns;
        if is_window && is_close && self.stats.converged_ns.is_none() {
            self.stats.converged_ns = Some(now_ns - self.scenario.late_ns);
        }
        for flow in &mut self.flows {
            flow.window_bytes = 0;
        }
        self.next_window_ns += WINDOW_NS;
    }

    fn finish(mut self) -> Observed {
        let end_ps = self.scenario.duration_ns * PS_PER_NS;
        self.advance(end_ps);
        let observed_ps = (end_ps - self.stats.begin_ps) as f64;
        let seconds = observed_ps / 1e12;
        let stats = &self.stats;
        let mean = stats.area / observed_ps;
        let variance = stats.area_squares / observed_ps - mean * mean;
        let rate = |flow: &Flow<R>| flow.observed_bytes as f64 * 8.0 / seconds;
        Observed {
            queue: mean,
            queue_deviation: variance.max(0.0).sqrt(),
            queue_max: stats.queue_max,
            alpha: stats.alphas / stats.samples as f64,
            cnps: stats.cnps as f64 / seconds / self.flows.len() as f64,
            utilisation: (stats.packets * self.packet_ps) as f64 / observed_ps,
            rates_bps: self.flows.iter().map(rate).collect(),
            converged_ns: stats.converged_ns,
        }
    }
}
