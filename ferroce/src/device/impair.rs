//! `ferroce impair`: link impairments.

use clap::{Args, ValueEnum};
use ferroce_hca::impair::{Blackout, Bottleneck};
use ferroce_hca::{DeviceState, Direction, Impairment, Span, Time};
use ferroce_udp::wait::Clock;
use ferroce_udp::{Observer, Registry, impairment};

use super::format::{Before, Format, Row, print};
use super::{each, link, observe, registry};
use crate::json::device as json;
use crate::output::{Failure, Output};

/// Impair a device's link, even while in use
///
/// SPEC is one or more of loss=P, burst=P:PACKETS, duplicate=P, corrupt=P, ecn=P, rate=R, red=B:B:P,
/// limit=B, delay=T, jitter=T, reorder=P:T, down=T@T and carrier, comma-separated; P is 0 to 1 or a percentage,
/// T, R (Mbit, Gbit) and B (KB, MB) have a unit. Times after an @ count from now; down=T begins at once.
/// SPEC replaces the current setting.
///
/// rate is that of a queue that all programs on the device share; red marks its packets from a
/// length on, at another with a probability, and all above that; limit is what it holds. With
/// carrier the port notices what down does, and is down meanwhile; without, the switch behind it is
/// dark.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Impair {
    /// The device [default: show all], and what its link is to do, for example loss=1%,delay=50us;
    /// or show, or clear
    #[arg(value_name = "[DEV] [SPEC]", num_args = 0..=2)]
    words: Vec<String>,
    /// The device, in place of the first word
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// Which packets: those the device sends, those it receives, or both; clear takes both
    #[arg(long, value_name = "WHICH", value_enum)]
    direction: Option<Which>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    /// Break the JSON into lines
    #[arg(short, long)]
    pretty: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// Packets the device sends
    Egress,
    /// Packets the device receives
    Ingress,
    /// Both; a packet from one device to another is impaired twice
    Both,
}

impl Which {
    fn directions(self) -> &'static [Direction] {
        match self {
            Self::Egress => &[Direction::Egress],
            Self::Ingress => &[Direction::Ingress],
            Self::Both => &[Direction::Egress, Direction::Ingress],
        }
    }
}

impl Impair {
    pub(crate) fn run(self, before: Before, to: &mut Output<'_>) -> Result<(), Failure> {
        let format = Format::new(self.json, self.pretty).after(before);
        let (name, what) = self.name_and_what()?;
        let registry = registry(to)?;
        let Some(name) = name else {
            return show(&registry, None, format, to);
        };
        let (impairment, usual) = match what {
            "show" | "list" => return show(&registry, Some(name), format, to),
            "clear" => (Impairment::default(), Which::Both),
            spec => (read(spec)?, Which::Egress),
        };
        if let Some(warning) = loses_most(&impairment) {
            to.remark(warning)?;
        }
        let observer = registry.observe(name)?;
        let directions = self.direction.unwrap_or(usual).directions();
        set(&observer, directions, &impairment)?;
        match format.is_json() {
            true => show(&registry, Some(name), format, to),
            false => Ok(()),
        }
    }

    /// The device, and what is to become of its link; without a device, all are to be shown.
    fn name_and_what(&self) -> Result<(Option<&str>, &str), Failure> {
        let is_option = self.device.is_some();
        let words = self.device.iter().chain(&self.words).map(String::as_str);
        match words.collect::<Vec<_>>()[..] {
            [] => Ok((None, "show")),
            ["show" | "list"] if !is_option => Ok((None, "show")),
            [what] if !is_option && (what == "clear" || what.contains('=')) => {
                Err(Failure::input(format_args!(
                    "no device named: write `ferroce impair DEV {what}`; `ferroce dev` lists devices"
                )))
            }
            [name] => Ok((Some(link(name)?), "show")),
            [name, what] => Ok((Some(link(name)?), what)),
            [_, word, ..] => Err(Failure::input(format_args!(
                "unexpected {word:?}: with -d the only word is what the link is to do"
            ))),
        }
    }
}

/// Above this share of lost packets an impairment is more likely a slip: `loss=1` for 1 %.
const LOSS_LIKELY: f64 = 0.5;

/// A warning about a link that loses most of its packets.
pub(crate) fn loses_most(impairment: &Impairment) -> Option<String> {
    let parts = [("loss", impairment.loss), ("corrupt", impairment.corrupt)];
    let (name, share) = parts.into_iter().find(|(_, share)| *share > LOSS_LIKELY)?;
    let percent = share * 100.0;
    Some(format!(
        "warning: {name} is {percent} % of the packets; for 1 percent write {name}=1%"
    ))
}

/// An impairment as people write it; nothing is none.
pub(crate) fn read(spec: &str) -> Result<Impairment, Failure> {
    match spec {
        "" => Ok(Impairment::default()),
        spec => impairment::parse(spec).map_err(Failure::input),
    }
}

/// Impairs a device's link from now on.
pub(crate) fn set(
    observer: &Observer,
    directions: &[Direction],
    impairment: &Impairment,
) -> Result<(), Failure> {
    let impairment = impairment.clone().beginning_at(now());
    for direction in directions {
        let state = observer.state();
        let set = state.set_impairment(*direction, impairment.clone());
        set.map_err(Failure::input)?;
    }
    observer.call_attention();
    Ok(())
}

/// What a device's link does, as [`read`] reads it, or `none`.
pub(crate) fn in_words(state: &DeviceState, direction: Direction) -> String {
    impairment::text(&still_to_come(state, direction))
}

fn show(
    registry: &Registry,
    name: Option<&str>,
    format: Format,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    if format.is_json() {
        let devices = each(registry, name, |index, spec| {
            let observer = observe(registry, spec)?;
            let state = observer.state();
            Ok(json::DeviceImpairment {
                device: spec.name.clone(),
                index,
                egress: document(state, Direction::Egress),
                ingress: document(state, Direction::Ingress),
            })
        })?;
        return format.document(&json::Impaired { devices }, to);
    }
    let rows = each(registry, name, |_, spec| {
        let mut row = Row::new(format!("dev {}", spec.name));
        let observer = observe(registry, spec)?;
        let state = observer.state();
        for (direction, key, queue) in [
            (Direction::Egress, "egress", "egress_queue_bytes"),
            (Direction::Ingress, "ingress", "ingress_queue_bytes"),
        ] {
            row.put(key, in_words(state, direction));
            if let Some(bytes) = state.queue_bytes(direction, now()) {
                row.put(queue, bytes);
            }
        }
        Ok(row)
    })?;
    print(&rows, to)
}

/// What a link does in a direction, for programs.
fn document(state: &DeviceState, direction: Direction) -> json::Impairment {
    let impairment = still_to_come(state, direction);
    let length_bytes = state.queue_bytes(direction, now());
    let queue = |queue: &Bottleneck| json::Queue {
        rate_bps: queue.rate.bps(),
        limit_bytes: queue.limit_bytes,
        red: queue.red.as_ref().map(|red| json::Red {
            min_bytes: red.kmin(),
            max_bytes: red.kmax(),
            probability: red.pmax(),
        }),
        length_bytes: length_bytes.unwrap_or(0),
    };
    let outage = |it: &Blackout| json::Outage {
        from_ns: it.from.since(Time::ZERO).as_nanos(),
        length_ns: it.length.as_nanos(),
    };
    json::Impairment {
        spec: (impairment != Impairment::default()).then(|| impairment::text(&impairment)),
        loss: impairment.loss,
        burst: impairment.burst.map(|it| json::Burst {
            probability: it.enter,
            mean_packets: it.mean_length,
        }),
        duplicate: impairment.duplicate,
        corrupt: impairment.corrupt,
        ecn: impairment.ecn_mark,
        queue: impairment.bottleneck.as_ref().map(queue),
        delay_ns: impairment.delay.as_nanos(),
        jitter_ns: impairment.jitter.as_nanos(),
        reorder: impairment.reorder,
        reorder_by_ns: impairment.reorder_by.as_nanos(),
        down: impairment.blackouts.iter().map(outage).collect(),
        carrier: impairment.carrier,
    }
}

/// The impairment in force in a direction, if there is one, in words that stay the same while time
/// passes: `down` stands for all outages that are not over.
pub(crate) fn in_force(state: &DeviceState, direction: Direction) -> Option<String> {
    let mut impairment = still_to_come(state, direction);
    let has_outages = !impairment.blackouts.is_empty();
    impairment.blackouts.clear();
    let is_noticed = std::mem::take(&mut impairment.carrier) && has_outages;
    let steady = (impairment != Impairment::default()).then(|| impairment::text(&impairment));
    let outages = has_outages.then(|| match is_noticed {
        true => "down,carrier".to_owned(),
        false => "down".to_owned(),
    });
    let parts: Vec<_> = steady.into_iter().chain(outages).collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// The impairment with its blackouts counted from now, without those that are over.
fn still_to_come(state: &DeviceState, direction: Direction) -> Impairment {
    let (mut impairment, now) = (state.impairment(direction), now());
    impairment.blackouts.retain_mut(|blackout| {
        let (from, end) = (blackout.from, blackout.from.after(blackout.length));
        // Nanoseconds have passed when they are read.
        let in_ms = |span: Span| Span::from_millis(span.as_nanos().div_ceil(1_000_000));
        blackout.from = Time::ZERO.after(in_ms(from.since(now)));
        blackout.length = in_ms(end.since(from.max(now)));
        blackout.length > Span::ZERO
    });
    impairment
}

fn now() -> Time {
    Clock.now()
}

#[cfg(test)]
mod tests {
    use ferroce_hca::Personality;

    use super::*;

    #[test]
    fn what_is_in_force_says_nothing_of_times() {
        for (spec, expected) in [
            ("none", None),
            ("loss=1%,delay=50us", Some("loss=1%,delay=50us")),
            ("loss=1%,down=1min@3s", Some("loss=1%,down")),
            ("down=1min@0s,down=1s@90s,carrier", Some("down,carrier")),
        ] {
            let state = DeviceState::new(Personality::default());
            let impairment = impairment::parse(spec).unwrap().beginning_at(now());
            state.set_impairment(Direction::Egress, impairment).unwrap();
            let found = in_force(&state, Direction::Egress);
            assert_eq!(found.as_deref(), expected, "{spec}");
            assert_eq!(in_force(&state, Direction::Ingress), None);
        }
        // An outage that is over leaves nothing, not even the port's notice of it.
        let state = DeviceState::new(Personality::default());
        let over = impairment::parse("down=1ms@0s,carrier").unwrap();
        state.set_impairment(Direction::Egress, over).unwrap();
        assert_eq!(in_force(&state, Direction::Egress), None);
    }
}
