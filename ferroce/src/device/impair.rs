//! `ferroce impair`: link impairments.

use clap::{Args, Subcommand, ValueEnum};
use ferroce_device::impair::{Blackout, Bottleneck};
use ferroce_device::{DeviceState, Direction, Impairment, Span, Time};
use ferroce_os::Clock;
use ferroce_registry::{DeviceSpec, Observer, Registry, impairment};

use super::format::{Row, print};
use crate::json::device as json;
use crate::naming::{self, DeviceArg, EachDevice, each_link, links_to_set, observe, registry};
use crate::output::exit_codes;
use crate::output::{Failure, Output};
use crate::spelling;

/// Impair a device's link, even while in use
///
/// KEY VALUE is one or more of loss P, burst P:PACKETS, duplicate P, corrupt P, ecn P, rate R, red B:B:P,
/// limit B, delay T, jitter T, reorder P:T, down T@T and carrier, which has no value; loss=P,delay=T is the
/// same in one word. P is 0 to 1 or a percentage; T, R (Mbit, Gbit) and B (KB, MB) have a unit. Times after
/// an @ count from now; down T begins at once.
///
/// rate is that of a queue that all programs on the device share; red marks its packets from a
/// length on, at another with a probability, and all above that; limit is what it holds. With
/// carrier the port notices what down does, and is down meanwhile; without, the switch behind it is
/// dark.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, infer_subcommands = true)]
pub(crate) struct Impair {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// What the previous release took: the device, and what its link was to do.
    #[arg(hide = true, value_name = "WORDS")]
    words: Vec<String>,
    #[arg(short, long, hide = true, global = true, value_name = "DEV")]
    device: Option<String>,
    #[arg(long, hide = true, value_name = "WHICH", value_enum)]
    direction: Option<Which>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show impairments; what `ferroce impair` alone does
    #[command(alias = "list")]
    Show(EachDevice),
    /// Impair a link; replaces the current setting
    #[command(after_help = EXAMPLES)]
    #[command(override_usage = "ferroce impair set [OPTIONS] [DEV] KEY VALUE...")]
    Set {
        #[command(flatten)]
        device: DeviceArg,
        /// What the link does, such as loss 1% delay 50us, or loss=1%,delay=50us
        #[arg(value_name = "KEY VALUE")]
        spec: Vec<String>,
        /// Which packets: those the device sends, those it receives, or both [default: egress]
        #[arg(long, value_name = "WHICH", value_enum)]
        direction: Option<Which>,
    },
    /// End the impairments of a link
    Clear {
        #[command(flatten)]
        device: DeviceArg,
        /// Of which packets [default: both]
        #[arg(long, value_name = "WHICH", value_enum)]
        direction: Option<Which>,
    },
}

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce impair set fr0 loss 1% delay 50us
  ferroce impair set fr0 rate 10Gbit red 20KB:80KB:10% --direction egress
  ferroce impair set fr0 down 300ms@2s        an outage in two seconds
  ferroce impair clear fr0"
);

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
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let is_json = self.json;
        let registry = registry(to)?;
        let verb = match self.verb {
            Some(verb) => verb,
            None => Self::in_old_words(self.device, self.words, self.direction, to)?,
        };
        let (device, impairment, directions) = match verb {
            Verb::Show(device) => {
                return show(&registry, device.named()?.as_deref(), is_json, to);
            }
            Verb::Clear { device, direction } => {
                let all = direction.unwrap_or(Which::Both);
                (device.named()?, Impairment::default(), all)
            }
            Verb::Set {
                device,
                spec,
                direction,
            } => {
                let (device, spec) = device.before(spec, impairment::is_key);
                let impairment = read(&in_one_word(&spec)?)?;
                (device, impairment, direction.unwrap_or(Which::Egress))
            }
        };
        if let Some(warning) = loses_most(&impairment) {
            to.remark(warning)?;
        }
        let links = links_to_set(&registry, device.as_deref())?;
        for link in &links {
            let observer = observe(&registry, link)?;
            set(&observer, directions.directions(), &impairment)?;
        }
        let name = device.as_deref();
        let name = name.or_else(|| links.first().map(DeviceSpec::device_name));
        match is_json {
            true => show(&registry, name, is_json, to),
            false => Ok(()),
        }
    }

    /// The verb of `impair [DEV] [SPEC]`, as the previous release took it.
    fn in_old_words(
        device: Option<String>,
        words: Vec<String>,
        direction: Option<Which>,
        to: &mut Output<'_>,
    ) -> Result<Verb, Failure> {
        let words: Vec<_> = device.into_iter().chain(words).collect();
        let (verb, newer) = match words.as_slice() {
            [] => return Ok(Verb::Show(EachDevice::default())),
            [name] if impairment::is_key(name) => {
                return Err(Failure::input(format_args!(
                    "missing verb; write: ferroce impair set DEV {name}"
                )));
            }
            [name] => {
                let device = EachDevice::of(Some(name.clone()));
                (Verb::Show(device), format!("ferroce impair show {name}"))
            }
            [name, word] if word == "show" || word == "list" => {
                let device = EachDevice::of(Some(name.clone()));
                (Verb::Show(device), format!("ferroce impair show {name}"))
            }
            [name, word] if word == "clear" => {
                let device = DeviceArg::of(name);
                let verb = Verb::Clear { device, direction };
                (verb, format!("ferroce impair clear {name}"))
            }
            [name, spec @ ..] => {
                let newer = format!("ferroce impair set {name} {}", spec.join(" "));
                let verb = Verb::Set {
                    device: DeviceArg::of(name),
                    spec: spec.to_vec(),
                    direction,
                };
                (verb, newer)
            }
        };
        spelling::old(&newer, to)?;
        Ok(verb)
    }
}

/// `loss 1% carrier delay=50us` as `loss=1%,carrier,delay=50us`.
fn in_one_word(words: &[String]) -> Result<String, Failure> {
    if words.is_empty() {
        return Err(Failure::input(
            "missing impairment; write KEY VALUE, such as loss 1%",
        ));
    }
    let is_whole = |word: &str| word.contains(',') || impairment::is_flag(word);
    Ok(naming::assignments(words, is_whole)?.join(","))
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
    is_json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    if is_json {
        let devices = each_link(registry, name, |index, spec| {
            let observer = observe(registry, spec)?;
            let state = observer.state();
            Ok(json::DeviceImpairment {
                device: spec.device_name().to_owned(),
                index,
                port: spec.link_number(),
                egress: document(state, Direction::Egress),
                ingress: document(state, Direction::Ingress),
            })
        })?;
        return to.document(&json::Impaired { devices });
    }
    let rows = each_link(registry, name, |_, spec| {
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
    use ferroce_device::Personality;

    use super::*;

    #[test]
    fn settings_in_force_do_not_mention_times() {
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
