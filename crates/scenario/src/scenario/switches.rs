//! `[switch]`.

use ferroce_base::time::Span;
use ferroce_base::toml_file::{Reader, Section, integer};
use ferroce_dcqcn::{CongestionPoint, Rate, presets};
use ferroce_device::Trust;
use ferroce_fabric::{
    PRIORITIES, Routing, Schedule, StormAction, SwitchConfig, Topology, WatchdogConfig,
};
use toml::de::DeValue;

use super::device::trust;
use super::keys::{self, StormWord};

const BYTES_MAX: u64 = 1 << 40;

pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    topology: Option<&Topology>,
    of_hosts: Trust,
) -> SwitchConfig {
    let section = reader.section(root, "switch", keys::SWITCH);
    let mut config = SwitchConfig::default();
    if let Some(bytes) = reader.size(&section, "buffer", (1, BYTES_MAX)) {
        config.buffer_bytes = bytes;
    }
    if let Some(alpha) = alpha(reader, &section, "drop_alpha") {
        config.drop_alpha_log2 = alpha;
    }
    if let Some(flag) = reader.flag(&section, "cut_through") {
        config.cuts_through = flag;
    }
    if let Some(latency) = reader.span(&section, "latency", 0) {
        config.latency = latency;
    }
    let routing = [
        ("hash", Routing::Hash),
        ("random", Routing::Random),
        ("adaptive", Routing::Adaptive),
    ];
    if let Some(routing) = reader.word(&section, "routing", &routing) {
        config.routing = routing;
    }
    config.trust = trust(reader, &section).unwrap_or(of_hosts);
    config.schedule = schedule(reader, &section);
    config.ecn = ecn(reader, &section, topology);
    pfc(reader, &section, &mut config);
    config
}

/// A power of two, as its logarithm.
fn alpha<'t>(reader: &mut Reader<'t>, section: &Section<'t>, name: &str) -> Option<i8> {
    let value = reader.value(section, name)?;
    let given = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        value @ DeValue::Integer(_) => integer(value).unwrap_or(-1).to_string(),
        DeValue::Float(digits) => digits.as_str().to_owned(),
        _ => {
            reader.wrong_type(section, name, "a power of two such as \"1/8\"", value);
            return None;
        }
    };
    let is_it = |log2: &i8| {
        let fraction = format!("1/{}", 1_u32 << (-log2).max(0));
        let number = given.parse::<f64>().ok();
        given == fraction || number == Some(f64::from(*log2).exp2())
    };
    let found = (-8..=3).find(is_it);
    if found.is_none() {
        let must = "must be a power of two from 1/256 to 8, for example \"1/8\"";
        reader.invalid(section, name, format_args!("{given:?}"), must);
    }
    found
}

fn schedule<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Schedule {
    let words = [("strict", false), ("weighted", true)];
    let is_weighted = reader.word(section, "schedule", &words) == Some(true);
    if !is_weighted {
        reader.idle(
            section,
            &["weights"],
            "goes with schedule = \"weighted\" only",
        );
        return Schedule::Strict;
    }
    let mut weights = [1; PRIORITIES];
    match small_numbers(reader, section, "weights", 255) {
        Some(given) if given.len() == PRIORITIES => weights.copy_from_slice(&given),
        Some(given) => {
            let must = "must be eight weights of 0 to 255, priority 0 first";
            reader.invalid(
                section,
                "weights",
                format_args!("of {} values", given.len()),
                must,
            );
        }
        None => reader.require(section, "weights", "[1, 1, 1, 1, 1, 1, 8, 0]"),
    }
    Schedule::Weighted(weights)
}

fn small_numbers<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    max: u8,
) -> Option<Vec<u8>> {
    let values = reader.list(section, name)?;
    let small = |value: &&toml::Spanned<DeValue<'_>>| {
        let number = u8::try_from(integer(value.get_ref())?).ok();
        number.filter(|number| *number <= max)
    };
    let numbers: Option<Vec<u8>> = values.iter().map(small).collect();
    if numbers.is_none() {
        let must = format!("must be a list of whole numbers from 0 to {max}");
        reader.invalid(section, name, "list", must);
    }
    numbers
}

fn ecn<'t>(
    reader: &mut Reader<'t>,
    parent: &Section<'t>,
    topology: Option<&Topology>,
) -> Option<CongestionPoint> {
    let section = reader.section(parent, "ecn", keys::ECN);
    if !section.is_there() {
        return None;
    }
    let fastest = topology.and_then(|it| it.cables.iter().map(|cable| cable.rate).max());
    let words = [
        ("hpcc", presets::hpcc_red(fastest.unwrap_or(Rate::MAX))),
        ("conweave", presets::CONWEAVE_RED),
        ("paper", presets::PAPER_RED),
    ];
    if section.has("preset") {
        let values = ["kmin", "kmax", "pmax"];
        reader.idle(&section, &values, "is part of the preset");
        return reader.word(&section, "preset", &words);
    }
    for (name, example) in [
        ("kmin", "\"400KB\""),
        ("kmax", "\"1600KB\""),
        ("pmax", "\"20%\""),
    ] {
        reader.require(&section, name, example);
    }
    let bytes = |reader: &mut Reader<'t>, name| {
        let bytes = reader.size(&section, name, (0, u32::MAX.into()))?;
        u32::try_from(bytes).ok()
    };
    let (kmin, kmax) = (bytes(reader, "kmin")?, bytes(reader, "kmax")?);
    let pmax = reader.probability(&section, "pmax")?;
    let pmax = (pmax.as_f64() * 1e6).round() as u32;
    match CongestionPoint::new(kmin, kmax, pmax) {
        Ok(point) => Some(point),
        Err(error) => {
            reader.bad(&section, "kmin", error);
            None
        }
    }
}

fn pfc<'t>(reader: &mut Reader<'t>, parent: &Section<'t>, config: &mut SwitchConfig) {
    let section = reader.section(parent, "pfc", keys::PFC);
    if !section.is_there() {
        return;
    }
    reader.require(&section, "priorities", "[3]");
    let priorities = small_numbers(reader, &section, "priorities", 7).unwrap_or_default();
    let bits = priorities.iter().map(|priority| 1 << priority);
    config.lossless = bits.fold(0, |all, bit: u8| all | bit);
    if let Some(bytes) = reader.size(&section, "headroom", (0, BYTES_MAX)) {
        config.headroom_bytes = bytes;
    }
    if let Some(bytes) = reader.size(&section, "resume_offset", (0, BYTES_MAX)) {
        config.resume_offset_bytes = bytes;
    }
    if let Some(alpha) = alpha(reader, &section, "pause_alpha") {
        config.pause_alpha_log2 = alpha;
    }
    config.watchdog = watchdog(reader, &section);
}

fn watchdog<'t>(reader: &mut Reader<'t>, parent: &Section<'t>) -> Option<WatchdogConfig> {
    let section = reader.section(parent, "watchdog", keys::WATCHDOG);
    if !section.is_there() {
        return None;
    }
    let detection = reader.span(&section, "detection", 1);
    let detection = detection.unwrap_or(Span::from_millis(200));
    let restoration = reader.span(&section, "restoration", 1);
    let action = match reader.word(&section, "action", StormWord::ALL) {
        Some(StormWord::Forward) => StormAction::Forward,
        Some(StormWord::Drop) | None => StormAction::Drop,
    };
    Some(WatchdogConfig {
        detection,
        restoration: restoration.unwrap_or(detection + detection),
        action,
    })
}
