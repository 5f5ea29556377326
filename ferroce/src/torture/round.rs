//! A round: programs on real devices of this host, and what happens to them, as a seed has it.
//!
//! | module | does |
//! |---|---|
//! | `members` | starts, stops and kills programs |
//! | `said` | gives programs orders, and judges what they say |
//! | `checks` | compares devices with what programs have done |

mod checks;
mod members;
mod said;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_base::random::Dice;
use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::{Direction, Span};
use ferroce_os::Clock;
use ferroce_registry::{DeviceSpec, LinkSetting, Observer, Registry, impairment};
use ferroce_torture::Finding;
use ferroce_wire::ROCE_V2_PORT;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use self::checks::files;
use super::crew::{Crew, Member};
use super::protocol::{End, Order, Place, Report, Tally, Terms};

/// The rule of what is not the devices' fault.
pub(super) const SET_UP: &str = "set-up";
/// What else happens to one of the programs or devices, one after another.
const EVENTS: RangeInclusive<u64> = 4..=10;
/// Local ACK timeouts, eight of which a queue pair waits: 2.1 s and 8.6 s. A program that is stopped or debugged for
/// less must come to no harm.
const TIMEOUT: u8 = 16;
const LONG_TIMEOUT: u8 = 18;
/// How long a program is stopped, and a port is down, in milliseconds.
const STOPPED_MS: RangeInclusive<u64> = 1..=400;
const DOWN_MS: RangeInclusive<u64> = 1..=200;
/// Time between two events, in milliseconds.
const PAUSE_MS: RangeInclusive<u64> = 0..=300;
/// The port by which rounds keep off each other's addresses.
const CLAIM_PORT: u16 = ROCE_V2_PORT + 1;

/// The name of a round's device.
pub(super) fn device_name(device: usize) -> String {
    format!("t{device}")
}

/// What happened in rounds, by its name.
#[derive(Clone, Default, Debug)]
pub(super) struct Counts(pub(super) BTreeMap<&'static str, u64>);

impl Counts {
    pub(super) fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }
}

/// How a round went.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    pub(super) finding: Option<Finding>,
    /// What was done, in order of time.
    pub(super) log: Vec<String>,
}

/// Two programs whose queue pairs are connected.
#[derive(Clone, Copy, Debug)]
struct Pair {
    number: u64,
    /// Of each side, the place of its program.
    programs: [usize; 2],
}

impl Pair {
    fn ends(self) -> [(usize, End); 2] {
        [0, 1].map(|side| {
            let pair = self.number;
            (self.programs[usize::from(side)], End { pair, side })
        })
    }
}

/// Plays the round of a seed.
pub(super) fn play(seed: u64) -> Outcome {
    let mut round = match Round::new(seed) {
        Ok(round) => round,
        Err(what) => {
            return Outcome {
                counts: Counts::default(),
                finding: Some(finding(SET_UP, what)),
                log: Vec::new(),
            };
        }
    };
    let finding = round.play().err();
    let finding = finding.map(|it| round.with_messages(it));
    Outcome {
        counts: round.counts,
        finding,
        log: round.log,
    }
}

fn finding(rule: &str, what: impl Into<String>) -> Finding {
    Finding {
        rule: rule.to_owned(),
        what: what.into(),
    }
}

#[derive(Debug)]
struct Round {
    dice: Dice,
    terms: Terms,
    /// Programs are killed, and packets may be lost.
    is_rough: bool,
    card_process: bool,
    directory: TempDir,
    registry: Registry,
    devices: Vec<Observer>,
    /// What keeps other rounds off the devices' addresses.
    _claims: Vec<UdpSocket>,
    crew: Crew,
    /// By place; killed ones are replaced.
    programs: Vec<Option<Member>>,
    pairs: Vec<Pair>,
    next_pair: u64,
    /// Ends whose peer was killed, and that have not failed yet, each with the life of their program.
    lonely: BTreeMap<End, u64>,
    counts: Counts,
    /// Of all ends that were closed.
    sum: Tally,
    began: Instant,
    log: Vec<String>,
    /// What programs have printed, the last lines.
    messages: VecDeque<String>,
}

/// What happens to programs, devices and pairs.
#[derive(Clone, Copy, Debug)]
enum Event {
    Stop,
    Debug,
    Leave,
    Visit,
    Flap,
    Reconnect,
    Kill,
    KillWhileConnecting,
    KillWhileStopped,
}

impl Event {
    const GENTLE: [Self; 6] = [
        Self::Stop,
        Self::Debug,
        Self::Leave,
        Self::Visit,
        Self::Flap,
        Self::Reconnect,
    ];
    const KILLS: [Self; 3] = [
        Self::Kill,
        Self::KillWhileConnecting,
        Self::KillWhileStopped,
    ];
}

impl Round {
    fn new(seed: u64) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let private = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new()
            .prefix("ferroce-torture-")
            .permissions(private)
            .tempdir()
            .map_err(|error| format!("cannot make a directory: {error}"))?;
        let registry = Registry::at(directory.path()).map_err(|error| error.to_string())?;
        let is_rough = dice.chance(75);
        let impairment = match is_rough && dice.chance(40) {
            true => "loss=0.2%,reorder=0.2%:200us,duplicate=0.1%",
            false => "",
        };
        let impairment = impairment::parse(impairment).unwrap_or_default();
        let (mut devices, mut claims) = (Vec::new(), Vec::new());
        for device in 0..dice.within(1..=3) as usize {
            let (address, claim) = claim()?;
            claims.push(claim);
            let mut spec = DeviceSpec::new(&device_name(device), address);
            spec.link = dice.pick(&[LinkSetting::Auto, LinkSetting::Udp]);
            // The timeouts that the terms have, and no slow start after those of a busy machine.
            spec.personality.adaptive = false;
            spec.personality.slow_restart = false;
            registry.add(&spec).map_err(|error| error.to_string())?;
            let observer = registry.observe(&spec.name);
            let observer = observer.map_err(|error| error.to_string())?;
            let set = observer
                .state()
                .set_impairment(Direction::Egress, impairment.clone());
            set.map_err(|error| error.to_string())?;
            devices.push(observer);
        }
        let terms = Terms {
            seed: 0,
            longest: dice.pick(&[64, 4 << 10, 64 << 10]),
            timeout: dice.pick(&[TIMEOUT, LONG_TIMEOUT]),
        };
        Ok(Self {
            card_process: dice.chance(25),
            dice,
            terms,
            is_rough,
            directory,
            registry,
            devices,
            _claims: claims,
            crew: Crew::new(),
            programs: Vec::new(),
            pairs: Vec::new(),
            next_pair: 0,
            lonely: BTreeMap::new(),
            counts: Counts::default(),
            sum: Tally::default(),
            began: Instant::now(),
            log: Vec::new(),
            messages: VecDeque::new(),
        })
    }

    fn play(&mut self) -> Result<(), Finding> {
        // What a device makes on its first use stays.
        for device in 0..self.devices.len() {
            self.visit(device)?;
        }
        let files = files(self.directory.path());
        for place in 0..self.dice.within(2..=8) as usize {
            self.programs.push(None);
            self.start(place)?;
        }
        let pairs = match self.dice.chance(20) && self.terms.longest <= 4 << 10 {
            // In a crowd.
            true => self.dice.within(64..=256),
            false => self.dice.within(1..=12),
        };
        for _ in 0..pairs {
            let (a, b) = (self.any(), self.any());
            self.connect(a, b)?;
        }
        for _ in 0..self.dice.within(EVENTS) {
            self.rest()?;
            let event = match self.is_rough && self.dice.chance(40) {
                true => self.dice.pick(&Event::KILLS),
                false => self.dice.pick(&Event::GENTLE),
            };
            self.happen(event)?;
        }
        while let Some((end, life)) = self.lonely.first_key_value() {
            let (end, life) = (*end, *life);
            let is_over = |round: &Self| !round.lonely.contains_key(&end);
            let pair = end.pair;
            self.wait(life, &format!("given pair {pair} up"), is_over)?;
        }
        self.check_objects()?;
        while let Some(pair) = self.pairs.pop() {
            self.close(pair)?;
        }
        for place in 0..self.programs.len() {
            self.leave(place)?;
        }
        self.check_counters()?;
        self.check_left(files)
    }

    fn happen(&mut self, event: Event) -> Result<(), Finding> {
        let place = self.any();
        match event {
            Event::Stop => {
                self.signal(place, Signal::SIGSTOP);
                self.pause(STOPPED_MS);
                self.signal(place, Signal::SIGCONT);
            }
            // Attaching takes its time.
            Event::Debug if self.terms.timeout == LONG_TIMEOUT => self.debug(place),
            Event::Debug => {}
            Event::Leave => {
                let partners = self.partners(place);
                while let Some(at) = self
                    .pairs
                    .iter()
                    .position(|it| it.programs.contains(&place))
                {
                    let pair = self.pairs.swap_remove(at);
                    self.close(pair)?;
                }
                self.leave(place)?;
                self.start_with(place, partners)?;
            }
            Event::Visit => {
                let device = self.dice.below(self.devices.len() as u64) as usize;
                self.visit(device)?;
            }
            Event::Flap => self.flap()?,
            Event::Reconnect => {
                if !self.pairs.is_empty() {
                    let at = self.dice.below(self.pairs.len() as u64) as usize;
                    let pair = self.pairs.swap_remove(at);
                    self.close(pair)?;
                    self.connect(pair.programs[0], pair.programs[1])?;
                }
            }
            Event::Kill => self.replace(place)?,
            Event::KillWhileConnecting => {
                let partner = self.any();
                let pair = self.open(partner, place)?;
                self.pairs.push(pair);
                let partners = self.kill(place);
                if partner != place {
                    self.order(partner, Order::Begin(pair.ends()[0].1));
                }
                self.start_with(place, partners)?;
            }
            Event::KillWhileStopped => {
                let stopped = self.any();
                self.signal(stopped, Signal::SIGSTOP);
                let partners = self.kill(place);
                self.pause(STOPPED_MS);
                if stopped != place {
                    self.signal(stopped, Signal::SIGCONT);
                }
                self.start_with(place, partners)?;
            }
        }
        Ok(())
    }

    fn any(&mut self) -> usize {
        self.dice.below(self.programs.len() as u64) as usize
    }

    fn note(&mut self, what: impl AsRef<str>) {
        let at = self.began.elapsed().as_secs_f64();
        self.log.push(format!("{at:8.3} s  {}", what.as_ref()));
    }

    fn pause(&mut self, milliseconds: RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.dice.within(milliseconds)));
    }

    /// Lets programs work for a while.
    fn rest(&mut self) -> Result<(), Finding> {
        let until = Instant::now() + Duration::from_millis(self.dice.within(PAUSE_MS));
        while let Some(said) = self
            .crew
            .next(until.saturating_duration_since(Instant::now()))
        {
            self.hear(said)?;
        }
        Ok(())
    }

    /// Connects two programs, which begin to send.
    fn connect(&mut self, a: usize, b: usize) -> Result<(), Finding> {
        let pair = self.open(a, b)?;
        for (place, end) in pair.ends() {
            self.order(place, Order::Begin(end));
        }
        self.pairs.push(pair);
        Ok(())
    }

    /// Connects them.
    fn open(&mut self, a: usize, b: usize) -> Result<Pair, Finding> {
        self.next_pair += 1;
        let pair = Pair {
            number: self.next_pair,
            programs: [a, b],
        };
        let terms = Terms {
            seed: self.dice.next(),
            ..self.terms
        };
        let [one, other] = pair.ends();
        let mut places: Vec<Place> = Vec::new();
        for (place, end) in [other, one] {
            places.push(
                self.ask(place, Order::Open(end, terms), |report| match report {
                    Report::Opened(of, at) if *of == end => Some(*at),
                    _ => None,
                })?,
            );
        }
        for ((place, end), peer) in [one, other].into_iter().zip(places) {
            let order = Order::Connect(end, peer);
            self.ask(place, order, |report| {
                matches!(report, Report::Connected(of) if *of == end).then_some(())
            })?;
        }
        self.counts.add("pairs", 1);
        Ok(pair)
    }

    /// Ends a pair, and checks that everything has arrived.
    fn close(&mut self, pair: Pair) -> Result<(), Finding> {
        for (place, end) in pair.ends() {
            self.ask(place, Order::Drain(end), |report| {
                matches!(report, Report::Drained(of) if *of == end).then_some(())
            })?;
        }
        let mut tallies = Vec::new();
        for (place, end) in pair.ends() {
            tallies.push(self.ask(place, Order::Close(end), |report| match report {
                Report::Closed(of, tally) if *of == end => Some(*tally),
                _ => None,
            })?);
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let (sent, arrived): (&Tally, &Tally) = (&tallies[from], &tallies[to]);
            let is_lost = sent.delivered != arrived.received;
            if is_lost || sent.added != arrived.word {
                let number = pair.number;
                let what = format!("pair {number}: {sent:?} and {arrived:?} do not go together");
                return Err(finding("delivery", what));
            }
            self.count(sent);
        }
        Ok(())
    }

    fn count(&mut self, tally: &Tally) {
        self.counts.add("requests", tally.succeeded);
        self.counts.add("bytes compared", tally.compared);
        self.sum.succeeded += tally.succeeded;
        self.sum.delivered += tally.delivered;
        self.sum.added += tally.added;
    }

    /// Takes a device's port down for a while.
    fn flap(&mut self) -> Result<(), Finding> {
        let device = self.dice.below(self.devices.len() as u64) as usize;
        let length = Span::from_millis(self.dice.within(DOWN_MS));
        let outage = Outages::once(Clock.now(), length);
        let schedule = Schedule::new(vec![outage]).unwrap_or_default();
        self.note(format!(
            "the port of {} is down for {length}",
            device_name(device)
        ));
        self.counts.add("port down", 1);
        self.devices[device]
            .set_schedule(schedule)
            .map_err(|error| finding(SET_UP, error.to_string()))
    }
}

/// An address of the loopback network that is free, and what reserves it.
fn claim() -> Result<(IpAddr, UdpSocket), String> {
    let mut dice = Dice::new(process::id().into());
    for _ in 0..4096 {
        let [a, b, c] = [dice.within(64..=127), dice.below(256), dice.within(1..=254)];
        let address = Ipv4Addr::new(127, a as u8, b as u8, c as u8);
        let free = UdpSocket::bind((address, CLAIM_PORT))
            .and_then(|claim| UdpSocket::bind((address, ROCE_V2_PORT)).map(|_| claim));
        if let Ok(claim) = free {
            return Ok((address.into(), claim));
        }
    }
    Err(format!(
        "no address of 127.64.0.0/10 has a free port {ROCE_V2_PORT}"
    ))
}
