//! Victims and attacker together, and what the attack achieved.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_bench::pair;
use ferroce_device::{Counter, WcStatus};
use ferroce_wire::ROCE_V2_PORT;

use super::attacker::{Attacker, Origin, Sent};
use super::packets::{Aim, Flood};
use super::victims::{Footprint, Victims};

/// Why a trial failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The victims.
    #[error(transparent)]
    Victims(#[from] pair::Error),
    /// The attacker, or what the system says of this process.
    #[error("the attacker cannot attack: {0}")]
    Attacker(#[from] io::Error),
}

/// How long an attack is.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Length of each measurement of the victims' goodput.
    pub length: Duration,
    /// Rounds, each with a measurement without the attack, one beside it, and one under it.
    pub rounds: u32,
}

/// What an attack achieved.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was sent to the victim in all rounds.
    pub sent: Sent,
    /// For how long, seconds.
    pub seconds: f64,
    /// The victims' WRITEs a second while nothing was sent, of each round.
    pub alone: Vec<f64>,
    /// The same while the flood went to a bystander, which takes as much of the processors.
    pub beside: Vec<f64>,
    /// The same under the flood.
    pub under: Vec<f64>,
    /// How the connection ended, if it did.
    pub ended: Option<WcStatus>,
    /// Memory that the process has more after it than before, KiB.
    pub grown_kib: i64,
    /// Descriptors that it has more.
    pub opened: i64,
    /// Counters of the victim that rose under the flood, with by how much.
    pub counters: Vec<(Counter, u64)>,
}

/// Floods victims while they work.
///
/// # Errors
/// Returns an error when the attacker's socket or a request of the victims is refused, and when these come to a
/// standstill.
pub fn under_fire(
    victims: &Victims,
    flood: Flood,
    origin: Origin,
    effort: Effort,
) -> Result<Outcome, Error> {
    let aim = flood.aim();
    let attacker = Attacker::new(origin, victims.attacker(), victims.peer_of(aim))?;
    let bystander = UdpSocket::bind((victims.bystander(), ROCE_V2_PORT))?;
    let known = victims.known(aim);
    let mut elsewhere = known;
    elsewhere.device = bystander.local_addr()?;
    victims.work(effort.length / 2)?;

    let mut outcome = Outcome {
        sent: Sent::default(),
        seconds: 0.0,
        alone: Vec::new(),
        beside: Vec::new(),
        under: Vec::new(),
        ended: None,
        grown_kib: 0,
        opened: 0,
        counters: Vec::new(),
    };
    let was = Footprint::now()?;
    for round in 0..u64::from(effort.rounds) {
        let work = || victims.work(effort.length);
        outcome.alone.push(work()?.rate());
        let (moved, _) = beside(&attacker, flood, elsewhere, round, work)?;
        outcome.beside.push(moved?.rate());
        let before = counts(victims, aim);
        let started = Instant::now();
        let (moved, sent) = beside(&attacker, flood, known, round, work)?;
        let moved = moved?;
        outcome.under.push(moved.rate());
        outcome.seconds += started.elapsed().as_secs_f64();
        outcome.sent.packets += sent.packets;
        outcome.sent.bytes += sent.bytes;
        outcome.sent.replied += sent.replied;
        outcome.ended = moved.ended;
        outcome.add(victims, aim, &before);
        let now = Footprint::now()?;
        outcome.grown_kib = now.resident_kib as i64 - was.resident_kib as i64;
        outcome.opened = now.descriptors as i64 - was.descriptors as i64;
        if moved.ended.is_some() {
            break;
        }
    }
    Ok(outcome)
}

impl Outcome {
    fn add(&mut self, victims: &Victims, aim: Aim, before: &[(Counter, u64)]) {
        for (counter, before) in before {
            let rise = victims.count(aim, *counter) - before;
            match self.counters.iter_mut().find(|(it, _)| it == counter) {
                Some((_, sum)) => *sum += rise,
                None if rise > 0 => self.counters.push((*counter, rise)),
                None => {}
            }
        }
    }
}

fn counts(victims: &Victims, aim: Aim) -> Vec<(Counter, u64)> {
    let counters = Counter::TABLE.iter().map(|info| info.counter);
    counters
        .map(|counter| (counter, victims.count(aim, counter)))
        .collect()
}

/// Runs `f` while an attacker sends a flood.
fn beside<T>(
    attacker: &Attacker,
    flood: Flood,
    known: super::Known,
    seed: u64,
    f: impl FnOnce() -> T,
) -> io::Result<(T, Sent)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("attacker".into());
        let sending =
            builder.spawn_scoped(scope, || attacker.run(flood, known, seed, u64::MAX, &stop))?;
        let done = f();
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().expect("the attacker does not panic")?;
        Ok((done, sent))
    })
}

/// What a victim that has nothing else to do sends for what an attacker sends.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// What was sent to it.
    pub sent: Sent,
    /// Packets that it sent meanwhile.
    pub packets: u64,
    /// Their bytes, from BTH to ICRC, with an extension header of 4 bytes each.
    pub bytes: u64,
}

impl Reply {
    /// Bytes that leave the victim for each that comes.
    pub fn amplification(&self) -> f64 {
        self.bytes.max(self.sent.replied) as f64 / self.sent.bytes as f64
    }
}

/// BTH, AETH and ICRC.
const ANSWER_LEN: u64 = 20;

/// Sends packets of a flood to a victim that does nothing.
///
/// # Errors
/// Returns an error when the attacker's socket or a request of the victims is refused.
pub fn quiet(
    victims: &Victims,
    flood: Flood,
    origin: Origin,
    packets: u64,
) -> Result<Reply, Error> {
    let aim = flood.aim();
    let attacker = Attacker::new(origin, victims.attacker(), victims.peer_of(aim))?;
    victims.work(Duration::from_millis(20))?;
    let tx = [Counter::RdmaTxPackets, Counter::RdmaTxBytes];
    let before = tx.map(|counter| victims.count(aim, counter));
    let mut sent = Sent::default();
    let never = AtomicBool::new(false);
    for burst in 0..packets.div_ceil(REST_AFTER) {
        let some = attacker.run(flood, victims.known(aim), burst, REST_AFTER, &never)?;
        victims.rest(Duration::from_millis(1))?;
        sent.packets += some.packets;
        sent.bytes += some.bytes;
        sent.replied += some.replied;
    }
    victims.rest(Duration::from_millis(30))?;
    sent.replied += attacker.replies();
    let [packets, payload] = [0, 1].map(|at| victims.count(aim, tx[at]) - before[at]);
    Ok(Reply {
        sent,
        packets,
        bytes: payload + packets * ANSWER_LEN,
    })
}

/// This number of packets fits into the victim's receive buffer.
const REST_AFTER: u64 = 32;
