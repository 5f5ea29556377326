//! The fluid model of the paper's algorithm: N identical flows on one link, as differential
//! equations.
//!
//! Source: Zhu et al., SIGCOMM 2015, section 5, and "ECN or Delay", CoNEXT 2016. Rates are in
//! packets per second, times in seconds, the queue in packets.

use std::vec::Vec;

use crate::cp::CongestionPoint;

/// A link and the parameters that its flows have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fluid {
    /// C, the link's capacity, packets/s.
    pub capacity: f64,
    /// N, the number of flows.
    pub flows: f64,
    /// Bytes of a packet.
    pub packet_bytes: f64,
    /// tau, the least time between CNPs of a flow, s.
    pub cnp_interval: f64,
    /// tau', the timer of alpha, s.
    pub alpha_timer: f64,
    /// T, the timer of increases, s.
    pub timer: f64,
    /// B, the byte counter, packets.
    pub byte_counter: f64,
    /// F, steps of fast recovery.
    pub threshold: f64,
    /// R_AI, packets/s.
    pub additive: f64,
    /// g.
    pub gain: f64,
    /// The queue's marking.
    pub red: CongestionPoint,
}

/// The point where all rates of change are zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedPoint {
    /// p, the share of packets marked.
    pub marked: f64,
    /// R_C, bit/s.
    pub rate_bps: f64,
    /// R_T, bit/s.
    pub target_bps: f64,
    /// Alpha.
    pub alpha: f64,
    /// CNPs per second and flow.
    pub cnps: f64,
    /// Queue in bytes, or `None` if no length up to kmax marks that much, so that the queue stays
    /// near kmax.
    pub queue: Option<f64>,
}

/// The queue in a run of the equations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueTrace {
    /// Mean length, bytes.
    pub mean: f64,
    /// Standard deviation, bytes.
    pub deviation: f64,
    /// The shortest, bytes.
    pub min: f64,
}

/// What marks do to a flow at marking share `p` and rate `r`; the letters are the paper's.
struct Marks {
    /// Probability of a CNP in tau.
    a: f64,
    /// Probability of a mark in tau'.
    alpha: f64,
    /// Events of the byte counter per packet, all and those after fast recovery.
    b: f64,
    c: f64,
    /// The same for the timer.
    d: f64,
    e: f64,
}

#[derive(Clone, Copy)]
struct State {
    queue: f64,
    alpha: f64,
    target: f64,
    rate: f64,
}

impl Fluid {
    /// The published model: 40 Gb/s, packets of 1000 bytes, the authors' parameters.
    #[must_use]
    pub fn paper(flows: u32, red: CongestionPoint) -> Self {
        Self {
            capacity: 5e6,
            flows: f64::from(flows),
            packet_bytes: 1_000.0,
            cnp_interval: 50e-6,
            alpha_timer: 55e-6,
            timer: 55e-6,
            byte_counter: 10_000.0,
            threshold: 5.0,
            additive: 5e3,
            gain: 1.0 / 256.0,
            red,
        }
    }

    /// Returns the only point at which rates, alpha and queue do not change.
    #[must_use]
    pub fn fixed_point(&self) -> FixedPoint {
        let rate = self.capacity / self.flows;
        // Cuts outweigh increases where this is positive; it grows with p.
        let excess = |p: f64| {
            let m = self.marks(p, rate);
            m.a * m.a * m.alpha
                - (m.b + m.d) * (m.c + m.e) * self.cnp_interval.powi(2) * self.additive * rate
        };
        let (mut low, mut high) = (1e-12, 1.0 - 1e-12);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if excess(middle) > 0.0 {
                high = middle;
            } else {
                low = middle;
            }
        }
        let marks = self.marks(low, rate);
        let gap = self.cnp_interval * self.additive * rate * (marks.c + marks.e) / marks.a;
        let bits = self.packet_bytes * 8.0;
        let (kmin, kmax) = (f64::from(self.red.kmin()), f64::from(self.red.kmax()));
        let share = low / self.red.pmax();
        FixedPoint {
            marked: low,
            rate_bps: rate * bits,
            target_bps: (rate + gap) * bits,
            alpha: marks.alpha,
            cnps: marks.a / self.cnp_interval,
            queue: (share <= 1.0).then_some(kmin + share * (kmax - kmin)),
        }
    }

    /// Returns the paper's closed form for the marking share at the fixed point. It is too high by
    /// a fifth and more.
    #[must_use]
    pub fn approximate_marked(&self) -> f64 {
        let events = 1.0 / self.byte_counter + self.flows / (self.timer * self.capacity);
        let factor = self.additive * self.flows * self.flows
            / (self.alpha_timer * self.capacity * self.capacity);
        (factor * events * events).cbrt()
    }

    /// Solves the equations for `duration` seconds from line rate and an empty queue, with feedback
    /// that is `delay` seconds old, and returns the figures of the second half.
    #[must_use]
    pub fn run(&self, delay: f64, duration: f64) -> QueueTrace {
        const STEP: f64 = 1e-6;
        // Durations and delays of experiments fit.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let (steps, lag) = ((duration / STEP) as usize, (delay / STEP).round() as usize);
        let mut state = State {
            queue: 0.0,
            alpha: 1.0,
            target: self.capacity,
            rate: self.capacity,
        };
        // Marking share and rate of the last `lag` steps.
        let mut past = Vec::from_iter((0..=lag).map(|_| (0.0, state.rate)));
        let (mut sum, mut squares, mut min) = (0.0, 0.0, f64::INFINITY);
        let begin = steps / 2;
        for step in 0..steps {
            let slot = step % past.len();
            past[slot] = (self.marked(state.queue), state.rate);
            let (p, rate) = past[(step + 1) % past.len()];
            state = self.step(state, &self.marks(p, rate), rate, STEP);
            if step >= begin {
                let bytes = state.queue * self.packet_bytes;
                sum += bytes;
                squares += bytes * bytes;
                min = bytes.min(min);
            }
        }
        let count = (steps - begin) as f64;
        let mean = sum / count;
        QueueTrace {
            mean,
            deviation: (squares / count - mean * mean).max(0.0).sqrt(),
            min,
        }
    }

    /// The equations; `rate` is as old as the marks.
    fn step(&self, s: State, m: &Marks, rate: f64, dt: f64) -> State {
        let cuts = m.a / self.cnp_interval;
        let recovery = (s.target - s.rate) / 2.0 * rate * (m.b + m.d);
        let slope = State {
            queue: self.flows * s.rate - self.capacity,
            alpha: self.gain / self.alpha_timer * (m.alpha - s.alpha),
            target: self.additive * rate * (m.c + m.e) - (s.target - s.rate) * cuts,
            rate: recovery - s.rate * s.alpha / 2.0 * cuts,
        };
        State {
            queue: (s.queue + slope.queue * dt).max(0.0),
            alpha: s.alpha + slope.alpha * dt,
            target: (s.target + slope.target * dt).min(self.capacity),
            rate: (s.rate + slope.rate * dt).min(self.capacity),
        }
    }

    fn marked(&self, queue: f64) -> f64 {
        // Saturates far above kmax.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = (queue * self.packet_bytes) as u32;
        self.red.probability(bytes)
    }

    fn marks(&self, p: f64, rate: f64) -> Marks {
        // ln of the probability that a packet is not marked; a sum over packets.
        let unmarked = (-p).ln_1p();
        let any = |packets: f64| -(packets * unmarked).exp_m1();
        // p / ((1-p)^-n - 1), whose limit is 1/n.
        let events = |packets: f64| match p {
            0.0 => 1.0 / packets,
            _ => p / (-packets * unmarked).exp_m1(),
        };
        let after = |packets: f64| match p {
            0.0 => 1.0,
            _ => (self.threshold * packets * unmarked).exp(),
        };
        let (bytes, timer) = (self.byte_counter, self.timer * rate);
        Marks {
            a: any(self.cnp_interval * rate),
            alpha: any(self.alpha_timer * rate),
            b: events(bytes),
            c: events(bytes) * after(bytes),
            d: events(timer),
            e: events(timer) * after(timer),
        }
    }
}
