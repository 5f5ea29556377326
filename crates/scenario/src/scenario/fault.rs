//! `[[fault]]`.

use std::collections::BTreeMap;

use ferroce_base::names::near;
use ferroce_base::time::{Span, Time};
use ferroce_base::toml_file::{NANOS_MAX, Reader, Section};
use ferroce_base::units::TIME;
use ferroce_dcqcn::Rate;
use ferroce_fabric::{Fault, Loss, NodeId, Topology};
use toml::de::DeValue;

use super::keys::{self, FaultKind as Kind};
use super::names::{link_names, read_host, read_links};
use super::topology::read_rate;

/// One fault, for one span of time.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultSpan {
    /// The kind and place of the fault: `leaf0-spine1 down`.
    pub what: String,
    /// When it begins.
    pub from: Time,
    /// When it ends; [`Time::NEVER`] if it lasts to the end of the run.
    pub to: Time,
    /// Its index among the file's faults.
    pub entry: usize,
    effect: Effect,
    reroute_after: Option<Span>,
}

impl FaultSpan {
    /// Returns how long it lasts.
    #[must_use]
    pub fn length(&self) -> Span {
        match self.to {
            Time::NEVER => Span::NEVER,
            to => to.since(self.from),
        }
    }

    /// The only host that nothing gets through to while it lasts, if there is one.
    pub(super) fn host_cut_off(&self, topology: &Topology) -> Option<u32> {
        match &self.effect {
            Effect::Silent(host) => Some(*host),
            Effect::Down(cables) => {
                let [cable] = cables[..] else { return None };
                let mut ends = topology.cables[cable].ends.into_iter();
                ends.find(|node| topology.is_host(*node)).map(|node| node.0)
            }
            _ => None,
        }
    }

    /// Returns whether some host is cut off while it lasts.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self.effect, Effect::Down(_) | Effect::Silent(_))
    }

    /// The cables that are down meanwhile.
    pub(super) fn cables_down(&self) -> &[usize] {
        match &self.effect {
            Effect::Down(cables) => cables,
            _ => &[],
        }
    }

    /// When switches begin to use other paths, and bonds their other link.
    pub(super) fn reroute_after(&self) -> Option<Span> {
        self.reroute_after
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Effect {
    Down(Vec<usize>),
    Loss(Vec<usize>, Loss),
    Corruption(Vec<usize>, u32),
    Rate(Vec<usize>, Rate),
    Silent(u32),
    Slow(u32, Rate),
    Reset(u32),
}

/// Keys that a kind needs, each with an example.
fn needed(kind: Kind) -> &'static [(&'static str, &'static str)] {
    const LINK: (&str, &str) = ("link", "\"leaf0-spine0\"");
    match kind {
        Kind::LinkDown => &[LINK],
        Kind::Loss | Kind::Corruption => &[LINK, ("probability", "\"0.1%\"")],
        Kind::BurstLoss => &[LINK, ("burst", "10"), ("burst_every", "100000")],
        Kind::Rate => &[LINK, ("rate", "\"10Gbit\"")],
        Kind::SlowReceiver => &[("host", "0"), ("rate", "\"10Gbit\"")],
        Kind::SilentHost | Kind::NicReset => &[("host", "0")],
        Kind::SwitchReboot => &[("switch", "\"leaf0\""), ("for", "\"30s\"")],
    }
}

/// Times at which one entry may happen at most.
const TIMES_MAX: u64 = 100_000;

pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    topology: &Topology,
    duration: Span,
) -> Vec<FaultSpan> {
    let sections = reader.sections(root, "fault", keys::FAULT);
    let mut spans = Vec::new();
    let names = link_names(topology);
    for (entry, section) in sections.iter().enumerate() {
        reader.require(section, "kind", "\"link-down\"");
        let Some(kind) = reader.word(section, "kind", Kind::ALL) else {
            continue;
        };
        let times = times(reader, section, kind, duration);
        let Some((what, effect)) = effect(reader, section, kind, topology, &names) else {
            continue;
        };
        let reroute_after = reader.span(section, "reroute_after", 0);
        let spans_of_it = times.into_iter().map(|(from, to)| FaultSpan {
            what: what.clone(),
            from,
            to,
            entry,
            effect: effect.clone(),
            reroute_after,
        });
        spans.extend(spans_of_it);
    }
    spans
}

/// When it begins and ends, each time.
fn times<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    kind: Kind,
    duration: Span,
) -> Vec<(Time, Time)> {
    if section.has("times") {
        let others = ["at", "for", "every", "count"];
        reader.idle(section, &others, "excludes `times`");
        return recorded(reader, section);
    }
    let at = reader.span(section, "at", 0).unwrap_or(Span::ZERO);
    let lasts = reader.span(section, "for", if kind == Kind::NicReset { 0 } else { 1 });
    let to = |from: Time| match lasts {
        Some(lasts) => from.after(lasts),
        None if kind == Kind::NicReset => from,
        None => Time::NEVER,
    };
    let first = Time::ZERO.after(at);
    if !section.has("every") {
        reader.idle(section, &["count"], "goes with `every` only");
        return vec![(first, to(first))];
    }
    let every = reader.span(section, "every", 1_000);
    let Some(every) = every else {
        return Vec::new();
    };
    if lasts.is_none_or(|lasts| lasts >= every) {
        reader.bad(section, "every", "`for` must be given, and shorter");
        return Vec::new();
    }
    let count = reader.count(section, "count", (1, TIMES_MAX));
    let left = Time::ZERO.after(duration).since(first).as_nanos();
    let in_time = left.div_ceil(every.as_nanos()).max(1);
    let count = count.unwrap_or(u64::MAX).min(in_time);
    if count > TIMES_MAX {
        let text = format!(
            "happens {count} times in the scenario's duration: must be at most {TIMES_MAX}"
        );
        reader.bad(section, "every", text);
        return Vec::new();
    }
    let nth = |n| first.after(every.times(n));
    (0..count).map(|n| (nth(n), to(nth(n)))).collect()
}

/// A probability, as this many of 2^32.
fn share<'t>(reader: &mut Reader<'t>, section: &Section<'t>, name: &str) -> Option<u32> {
    let value = reader.probability(section, name)?.as_f64() * 4_294_967_296.0;
    Some(value.round().min(f64::from(u32::MAX)) as u32)
}

/// A list of times at which something went down and came up again.
fn recorded<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Vec<(Time, Time)> {
    let mut times = Vec::new();
    let mut last = Time::ZERO;
    for value in reader.list(section, "times").unwrap_or_default() {
        let pair = match value.get_ref() {
            DeValue::Array(pair) => pair.iter().map(|it| point(it.get_ref())).collect(),
            _ => Vec::new(),
        };
        match pair[..] {
            [Some(down), Some(up)] if last <= down && down < up => {
                times.push((down, up));
                last = up;
            }
            _ => {
                let line = Some(reader.line_of(value));
                let path = &section.path;
                let text = format!(
                    "invalid {path}times: must be a list of [down, up] times in order, for example [[\"1s\", \"1.3s\"], [\"5s\", \"5.1s\"]]"
                );
                reader.problem(line, text);
                return Vec::new();
            }
        }
    }
    times
}

fn point(value: &DeValue<'_>) -> Option<Time> {
    let nanos = TIME.read_in(value.as_str()?, 0..=NANOS_MAX).ok()?;
    Some(Time::from_nanos(nanos))
}

/// What happens, and its name.
fn effect<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    kind: Kind,
    topology: &Topology,
    names: &[String],
) -> Option<(String, Effect)> {
    let mut may = vec!["kind", "at", "for", "every", "count", "times"];
    for (name, example) in needed(kind) {
        may.push(name);
        reader.require(section, name, example);
    }
    if matches!(kind, Kind::LinkDown | Kind::SwitchReboot) {
        may.push("reroute_after");
    }
    let idle: Vec<_> = keys::FAULT.iter().map(|key| key.name).collect();
    let idle: Vec<_> = idle
        .into_iter()
        .filter(|name| !may.contains(name))
        .collect();
    reader.idle(section, &idle, "has no meaning for this kind");

    let links = read_links(reader, section, "link", topology);
    let host = read_host(reader, section, "host", topology);
    let host_name = |host| topology.name(NodeId(host));
    let some = |cables: &[usize]| match cables {
        [one] => names[*one].clone(),
        [first, .., last] => {
            format!(
                "{} to {} ({} links)",
                names[*first],
                names[*last],
                cables.len()
            )
        }
        [] => String::new(),
    };
    Some(match kind {
        Kind::LinkDown => {
            let cables = links?;
            (format!("{} down", some(&cables)), Effect::Down(cables))
        }
        Kind::Loss => {
            let probability = reader.probability(section, "probability")?;
            let share = share(reader, section, "probability")?;
            let cables = links?;
            let what = format!("{} loses {probability}", some(&cables));
            (what, Effect::Loss(cables, Loss::random(share)))
        }
        Kind::BurstLoss => {
            let burst = reader.count32(section, "burst", (1, 1_000_000));
            let every = reader.count32(section, "burst_every", (1, 1_000_000_000));
            let (burst, every, cables) = (burst?, every?, links?);
            let one_in = |packets: u32| (u64::from(u32::MAX) / u64::from(packets)) as u32;
            let loss = Loss {
                good: 0,
                bad: u32::MAX,
                enter: one_in(every),
                leave: one_in(burst),
            };
            let what = format!("{} loses bursts of {burst} packets", some(&cables));
            (what, Effect::Loss(cables, loss))
        }
        Kind::Corruption => {
            let probability = reader.probability(section, "probability")?;
            let share = share(reader, section, "probability")?;
            let cables = links?;
            let what = format!("{} corrupts {probability}", some(&cables));
            (what, Effect::Corruption(cables, share))
        }
        Kind::Rate => {
            let (rate, cables) = (read_rate(reader, section, "rate")?, links?);
            let what = format!("{} at {rate}", some(&cables));
            (what, Effect::Rate(cables, rate))
        }
        Kind::SilentHost => (
            format!("{} silent", host_name(host?)),
            Effect::Silent(host?),
        ),
        Kind::SlowReceiver => {
            let (rate, host) = (read_rate(reader, section, "rate")?, host?);
            let what = format!("{} takes packets at {rate}", host_name(host));
            (what, Effect::Slow(host, rate))
        }
        Kind::NicReset => (
            format!("{} NIC reset", host_name(host?)),
            Effect::Reset(host?),
        ),
        Kind::SwitchReboot => {
            let name = reader.string(section, "switch")?;
            let node = topology.find(name).filter(|node| !topology.is_host(*node));
            let Some(node) = node else {
                let switches = &topology.names[topology.hosts as usize..];
                let near = near(name, switches.iter().map(String::as_str));
                let must = match (near, switches.first()) {
                    (Some(near), _) => format!("no such switch; did you mean {near}?"),
                    (None, Some(first)) => format!("no such switch; write a name such as {first}"),
                    (None, None) => "the topology has no switches".into(),
                };
                reader.invalid(section, "switch", format_args!("{name:?}"), must);
                return None;
            };
            let cables = topology.cables.iter().enumerate();
            let cables = cables.filter(|(_, it)| it.ends.contains(&node));
            let cables = cables.map(|(at, _)| at).collect();
            (format!("{name} reboots"), Effect::Down(cables))
        }
    })
}

/// The same as single events. A cable is up again when nothing keeps it down any more.
pub(super) fn timeline(spans: &[FaultSpan], topology: &Topology) -> Vec<(Time, Fault)> {
    let mut timeline = Vec::new();
    // How many things keep a cable down from when on, by differences.
    let mut down: BTreeMap<(usize, Time), i32> = BTreeMap::new();
    let mut reroutes = Vec::new();
    for span in spans {
        let (from, to) = (span.from, span.to);
        let mut during = |begins: Fault, ends: Fault| {
            timeline.push((from, begins));
            timeline.push((to, ends));
        };
        match &span.effect {
            Effect::Down(cables) => {
                for &cable in cables {
                    *down.entry((cable, from)).or_insert(0) += 1;
                    *down.entry((cable, to)).or_insert(0) -= 1;
                }
                if let Some(after) = span.reroute_after {
                    reroutes.extend([from, to].map(|at| (at.after(after), Fault::Reroute)));
                }
            }
            Effect::Loss(cables, loss) => cables.iter().for_each(|cable| {
                let own = Loss::random(topology.cables[*cable].loss_share());
                during(Fault::Loss(*cable, *loss), Fault::Loss(*cable, own));
            }),
            Effect::Corruption(cables, share) => cables.iter().for_each(|cable| {
                during(
                    Fault::Corruption(*cable, *share),
                    Fault::Corruption(*cable, 0),
                );
            }),
            Effect::Rate(cables, rate) => cables.iter().for_each(|cable| {
                let whole = topology.cables[*cable].rate;
                during(Fault::Rate(*cable, *rate), Fault::Rate(*cable, whole));
            }),
            Effect::Silent(host) => during(Fault::Silent(*host), Fault::Heard(*host)),
            Effect::Slow(host, rate) => {
                let (begins, ends) = (Some(*rate), None);
                during(Fault::Intake(*host, begins), Fault::Intake(*host, ends));
            }
            Effect::Reset(host) => {
                timeline.push((from, Fault::NicReset(*host)));
                if to > from {
                    for (cable, it) in topology.cables.iter().enumerate() {
                        if it.ends.contains(&NodeId(*host)) {
                            *down.entry((cable, from)).or_insert(0) += 1;
                            *down.entry((cable, to)).or_insert(0) -= 1;
                        }
                    }
                }
            }
        }
    }
    let mut keeps_down = 0;
    let mut last = None;
    for ((cable, at), difference) in down {
        if last.replace(cable) != Some(cable) {
            keeps_down = 0;
        }
        let was = keeps_down;
        keeps_down += difference;
        match (was, keeps_down) {
            (0, 1..) => timeline.push((at, Fault::CableDown(cable))),
            (1.., 0) => timeline.push((at, Fault::CableUp(cable))),
            _ => {}
        }
    }
    timeline.extend(reroutes);
    timeline.retain(|(at, _)| *at != Time::NEVER);
    timeline.sort_by_key(|(at, _)| *at);
    timeline
}
