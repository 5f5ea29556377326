//! What happens to the hosts of a drill, and when.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use clap::ValueEnum;
use ferroce_base::units::{Probability, TIME};
use ferroce_device::{Direction, Span};

use crate::output::Failure;

/// The shortest and the longest outage.
const LENGTHS_NS: std::ops::RangeInclusive<u64> = 1_000_000..=86_400_000_000_000;
/// What stands for an outage without end.
const FOREVER: &str = "forever";
/// How long a flapping port is down, and how often.
const FLAP: (Span, Span) = (Span::from_millis(100), Span::from_millis(250));
/// The most events of a file.
const EVENTS_MAX: usize = 1000;

/// A device of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rail {
    pub(super) host: usize,
    pub(super) rail: usize,
}

impl fmt::Display for Rail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}r{}", self.host, self.rail)
    }
}

impl FromStr for Rail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_prefix('h').and_then(|it| it.split_once('r'));
        let number = |text: &str| text.parse().ok();
        let rail = parts.and_then(|(host, rail)| {
            Some(Self {
                host: number(host)?,
                rail: number(rail)?,
            })
        });
        rail.ok_or_else(|| {
            format!(
                "unknown rail {text:?}; write host and rail, such as h0r0 for the first of each"
            )
        })
    }
}

/// How long an outage is: [`Span::NEVER`] if it does not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Length(pub(super) Span);

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == FOREVER {
            return Ok(Self(Span::NEVER));
        }
        let ns = TIME.read_in(text, LENGTHS_NS);
        let ns = ns.map_err(|invalid| format!("{invalid}; or {FOREVER}"))?;
        Ok(Self(Span::from_nanos(ns)))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Span::NEVER => f.write_str(FOREVER),
            span => f.write_str(&TIME.write(span.as_nanos())),
        }
    }
}

/// What a port does in an outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Port {
    /// It goes down, and programs are told
    Down,
    /// It stays up, and the link behind it loses everything
    Up,
    /// It goes down for 100 ms every 250 ms
    Flap,
}

/// Which packets of a rail are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Lost {
    /// Those that it sends
    Out,
    /// Those that it would receive
    In,
    /// All of them
    Both,
}

impl Lost {
    pub(super) fn directions(self) -> &'static [Direction] {
        match self {
            Self::Out => &[Direction::Egress],
            Self::In => &[Direction::Ingress],
            Self::Both => &[Direction::Egress, Direction::Ingress],
        }
    }
}

/// What happens to a host's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Peer {
    /// It is stopped for the length of the outage (SIGSTOP)
    Stop,
    /// It is killed (SIGKILL)
    Kill,
    /// It is killed, and started again after the length of the outage; then all hosts connect anew
    Restart,
}

/// Something that happens.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum What {
    /// A port goes down.
    Down(Rail, Length),
    /// A port goes down again and again.
    Flap(Rail, Length),
    /// A link loses packets behind a port that stays up.
    Silent(Rail, Lost, Length),
    /// A link loses some packets from now on.
    Loss(Rail, Probability),
    /// A process is stopped.
    Stop(usize, Length),
    /// A process is killed.
    Kill(usize),
    /// A process is killed and started again.
    Restart(usize, Length),
}

impl What {
    /// How long until it is over; `None` if it is not an outage.
    fn length(&self) -> Option<Span> {
        match self {
            Self::Down(_, Length(length))
            | Self::Flap(_, Length(length))
            | Self::Silent(_, _, Length(length))
            | Self::Stop(_, Length(length))
            | Self::Restart(_, Length(length)) => Some(*length),
            Self::Kill(_) => Some(Span::NEVER),
            Self::Loss(..) => None,
        }
    }

    /// For how long nothing passes, at a time.
    fn dark(&self) -> Option<Span> {
        match self {
            Self::Flap(..) => Some(FLAP.0),
            // Connections do not wait for a process that knows nothing of them.
            Self::Restart(..) => None,
            other => other.length(),
        }
    }

    /// The rail that it happens to, and the host.
    fn place(&self) -> (Option<Rail>, usize) {
        match self {
            Self::Down(rail, _)
            | Self::Flap(rail, _)
            | Self::Silent(rail, ..)
            | Self::Loss(rail, _) => (Some(*rail), rail.host),
            Self::Stop(host, _) | Self::Kill(host) | Self::Restart(host, _) => (None, *host),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasting = |length: &Length| match length.0 {
            Span::NEVER => String::new(),
            _ => format!(" for {length}"),
        };
        match self {
            Self::Down(rail, length) => write!(f, "{rail} down{}", lasting(length)),
            Self::Flap(rail, length) => write!(f, "{rail} flap{}", lasting(length)),
            Self::Silent(rail, lost, length) => {
                let lost = match lost {
                    Lost::Out => " out",
                    Lost::In => " in",
                    Lost::Both => "",
                };
                write!(f, "{rail} silent{lost}{}", lasting(length))
            }
            Self::Loss(rail, loss) => write!(f, "{rail} loss {}%", loss.as_f64() * 100.0),
            Self::Stop(host, length) => write!(f, "h{host} stop{}", lasting(length)),
            Self::Kill(host) => write!(f, "h{host} kill"),
            Self::Restart(host, length) => write!(f, "h{host} restart{}", lasting(length)),
        }
    }
}

/// Something that happens, and when.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Event {
    /// Counted from when all is connected and sends.
    pub(super) at: Span,
    pub(super) what: What,
}

/// What happens in a run.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    /// What it is called in a table.
    pub(super) name: String,
    /// In the order in which they happen.
    pub(super) events: Vec<Event>,
}

/// The time before the first outage.
pub(super) const BEFORE: Span = Span::from_secs(1);

impl Plan {
    /// The longest time for which nothing passes on a rail or from a host, as far as it is one outage.
    pub(super) fn outage(&self) -> Option<Span> {
        self.events.iter().filter_map(|it| it.what.dark()).max()
    }

    /// Whether a port goes down.
    pub(super) fn downs_a_port(&self) -> bool {
        let is_port = |what: &What| matches!(what, What::Down(..) | What::Flap(..));
        self.events.iter().any(|it| is_port(&it.what))
    }

    /// Whether a process is killed.
    pub(super) fn kills_a_host(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|it| matches!(it.what, What::Kill(_)))
    }

    /// When the first outage begins; random loss is none.
    pub(super) fn first_outage(&self) -> Option<Span> {
        let first = self.events.iter().find(|it| it.what.length().is_some());
        first.map(|it| it.at)
    }

    /// When the last event is over; `None` if one never is.
    pub(super) fn end(&self) -> Option<Span> {
        let end = |it: &Event| match it.what.length() {
            Some(Span::NEVER) => None,
            length => Some(it.at + length.unwrap_or(Span::ZERO)),
        };
        let ends: Option<Vec<Span>> = self.events.iter().map(end).collect();
        Some(ends?.into_iter().max().unwrap_or(Span::ZERO))
    }

    /// Whether hosts always keep a rail to which nothing has happened, or whose outage is over if rails
    /// come back into use.
    pub(super) fn leaves_a_rail(&self, rails: usize, comes_back: bool) -> bool {
        let outages = || self.events.iter().filter(|it| it.what.dark().is_some());
        let is_hit = |rail: usize, now: Span| {
            outages().any(|it| {
                let is_there = it.what.place().0.is_none_or(|it| it.rail == rail);
                let end = it.at + it.what.length().unwrap_or(Span::ZERO);
                is_there && it.at <= now && (now <= end || !comes_back)
            })
        };
        outages().all(|it| (0..rails).any(|rail| !is_hit(rail, it.at)))
    }

    /// Refuses events at places that the drill does not have.
    pub(super) fn check(&self, hosts: usize, rails: usize) -> Result<(), Failure> {
        for event in &self.events {
            let (rail, host) = event.what.place();
            if host >= hosts {
                return Err(Failure::input(format_args!(
                    "{}: there is no host {host}; the drill has h0 to h{}, --hosts changes that",
                    event.what,
                    hosts - 1
                )));
            }
            if let Some(rail) = rail.filter(|it| it.rail >= rails) {
                return Err(Failure::input(format_args!(
                    "{}: there is no rail {rail}; each host has r0 to r{}, --rails changes that",
                    event.what,
                    rails - 1
                )));
            }
        }
        Ok(())
    }
}

/// The events of a file: lines such as `1s h0r0 down for 300ms`. What follows a # is a remark.
pub(super) fn of_file(file: &Path) -> Result<Plan, Failure> {
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", file.display())))?;
    let mut events = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let event = event(line).map_err(|reason| {
            Failure::input(format_args!("{}:{number}: {reason}", file.display()))
        })?;
        events.push(event);
    }
    if events.is_empty() || events.len() > EVENTS_MAX {
        return Err(Failure::input(format_args!(
            "{}: {} events: must be 1 to {EVENTS_MAX}, one a line, such as {EXAMPLE:?}",
            file.display(),
            events.len()
        )));
    }
    events.sort_by_key(|it| it.at);
    let name = file.file_stem().unwrap_or(file.as_os_str());
    Ok(Plan {
        name: name.to_string_lossy().into_owned(),
        events,
    })
}

const EXAMPLE: &str = "1s h0r0 down for 300ms";
const FORMS: &str = "down, flap or silent (a rail), stop (a host), each with or without `for TIME`; \
                     `silent out`, `silent in`; `loss P`; kill (a host); `restart for TIME` (a host)";

fn event(line: &str) -> Result<Event, String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [at, place, what @ ..] = &words[..] else {
        return Err(format!(
            "invalid event {line:?}: write when, where and what, such as {EXAMPLE:?}"
        ));
    };
    let ns = TIME.read_in(at, 0..=*LENGTHS_NS.end());
    let ns = ns.map_err(|invalid| format!("invalid time {at:?}: {invalid}"))?;
    let (what, length) = match what {
        [what @ .., "for", length] => {
            let length = length.parse::<Length>();
            (
                what,
                length.map_err(|reason| format!("invalid length of an outage: {reason}"))?,
            )
        }
        what => (what, Length(Span::NEVER)),
    };
    let unknown = || format!("unknown event {:?}; expected {FORMS}", what.join(" "));
    let host = place.strip_prefix('h').and_then(|it| it.parse().ok());
    let what = match (host, what) {
        (Some(host), ["stop"]) => What::Stop(host, length),
        (Some(host), ["kill"]) => What::Kill(host),
        (Some(host), ["restart"]) if length.0 != Span::NEVER => What::Restart(host, length),
        (Some(_), _) => return Err(unknown()),
        (None, what) => {
            let rail = place.parse::<Rail>()?;
            match what {
                ["down"] => What::Down(rail, length),
                ["flap"] => What::Flap(rail, length),
                ["silent"] => What::Silent(rail, Lost::Both, length),
                ["silent", "out"] => What::Silent(rail, Lost::Out, length),
                ["silent", "in"] => What::Silent(rail, Lost::In, length),
                ["loss", loss] => {
                    let loss = loss.parse::<Probability>();
                    let loss = loss.map_err(|invalid| format!("invalid loss: {invalid}"))?;
                    What::Loss(rail, loss)
                }
                _ => return Err(unknown()),
            }
        }
    };
    let at = Span::from_nanos(ns);
    Ok(Event { at, what })
}

/// The flaps of an outage: how long each lasts, how often they come, and how many there are.
pub(super) fn flaps(Length(length): Length) -> (Span, Span, u32) {
    let (down, every) = FLAP;
    let times = match length {
        Span::NEVER => u64::from(u32::MAX),
        length => length.as_nanos().div_ceil(every.as_nanos()),
    };
    (down, every, u32::try_from(times).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        match event(line) {
            Ok(event) => format!("{} {}", TIME.write(event.at.as_nanos()), event.what),
            Err(reason) => reason,
        }
    }

    #[test]
    fn every_event_is_read() {
        for line in [
            "1s h0r0 down for 300ms",
            "2s h1r3 flap for 5s",
            "0 h0r0 silent",
            "1500ms h7r0 silent in for 1s",
            "1s h0r1 silent out for 1s",
            "1s h0r1 loss 1%",
            "3s h1 stop for 2s",
            "3s h1 kill",
            "3s h1 restart for 2s",
        ] {
            assert_eq!(read(line), line);
        }
        assert_eq!(read("1s h0r0 down for forever"), "1s h0r0 down");
    }

    #[test]
    fn bad_events_are_refused() {
        for (line, expected) in [
            ("1s", "write when, where and what"),
            ("1s h0r0 explode", "unknown event \"explode\""),
            ("1s h0 down", "unknown event \"down\""),
            ("1s h0 restart", "`restart for TIME`"),
            ("x h0r0 down", "invalid time \"x\""),
            ("1s fr0 down", "unknown rail \"fr0\""),
            ("1s h0r0 down for 0s", "invalid length of an outage"),
            ("1s h0r0 loss 2", "invalid loss"),
        ] {
            let reason = read(line);
            assert!(reason.contains(expected), "{line}: {reason}");
        }
    }

    fn plan(lines: &[&str]) -> Plan {
        Plan {
            name: String::new(),
            events: lines.iter().map(|line| event(line).unwrap()).collect(),
        }
    }

    #[test]
    fn a_plan_knows_its_end_and_its_longest_outage() {
        let both = plan(&["1s h0r0 down for 300ms", "5s h0r1 flap for 2s"]);
        assert_eq!(both.end(), Some(Span::from_secs(7)));
        assert_eq!(both.first_outage(), Some(Span::from_secs(1)));
        assert_eq!(both.outage(), Some(Span::from_millis(300)));
        assert!(!both.leaves_a_rail(2, false));
        assert!(both.leaves_a_rail(2, true));
        assert!(both.leaves_a_rail(3, false));
        let together = plan(&["1s h0r0 down", "5s h0r1 down for 2s"]);
        assert!(!together.leaves_a_rail(2, true));
        let endless = plan(&["1s h0r0 down", "5s h1r0 loss 1%"]);
        assert_eq!((endless.end(), endless.outage()), (None, Some(Span::NEVER)));
        let lossy = plan(&["0s h1r1 loss 1%", "2s h0 kill"]);
        assert_eq!(lossy.first_outage(), Some(Span::from_secs(2)));
        assert_eq!(plan(&["5s h1r1 loss 1%"]).outage(), None);
        assert!(plan(&["5s h1r1 loss 1%"]).leaves_a_rail(2, false));
    }

    #[test]
    fn places_that_are_not_there_are_refused() {
        let refusal = |line: &str| plan(&[line]).check(2, 2).unwrap_err().to_string();
        assert!(plan(&["1s h1r1 down"]).check(2, 2).is_ok());
        assert!(refusal("1s h2r0 down").contains("there is no host 2; the drill has h0 to h1"));
        assert!(refusal("1s h0r2 down").contains("there is no rail h0r2; each host has r0 to r1"));
        assert!(refusal("1s h4 kill").contains("there is no host 4"));
    }
}
