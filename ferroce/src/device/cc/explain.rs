//! `ferroce cc explain`: the meaning of the parameters.

use clap::Args;
use ferroce_dcqcn::{Param, Target, Unit, Vocabulary};

use super::super::format::{Row, print};
use super::{INERT, OF_TAGS};
use crate::json::cc as json;
use crate::output::lines::indented;
use crate::output::{Failure, Output};

/// Say what parameters mean: ranges, units, defaults, their names in all tools, and sources
#[derive(Args, Debug)]
pub(super) struct Explain {
    /// Names of any vocabulary; all parameters without one
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Explain {
    pub(super) fn run(self, is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        let param = |name: &String| Target::parse(name).map(|target| target.param);
        let named: Result<Vec<_>, _> = self.names.iter().map(param).collect();
        let named = named.map_err(Failure::input)?;
        let params = match named.as_slice() {
            [] => Param::ALL,
            some => some,
        };
        let parameters = params.iter().map(|param| parameter(*param));
        let parameters: Vec<_> = parameters.collect();
        if is_json {
            return to.document(&json::Explained { parameters });
        }
        print(&parameters.iter().map(row).collect::<Vec<_>>(), to)
    }
}

fn parameter(param: Param) -> json::Parameter {
    json::Parameter {
        name: param.name(),
        min: param.min(),
        max: param.max(),
        unit: match param.unit() {
            Unit::ByteResetUnits => Some("times 64 B".to_owned()),
            Unit::Number => None,
            unit => Some(unit.to_string()),
        },
        default: param.default_value(),
        names: names(param).into_iter().collect(),
        source: param.source(),
        other_values: effect(param),
        meaning: param.doc(),
    }
}

fn row(it: &json::Parameter) -> Row {
    let unit = it.unit.as_deref().unwrap_or_default();
    let values = format!("{} to {} {unit}", it.min, it.max);
    let mut row = Row::new(format!(
        "{}: {}, default {}",
        it.name,
        values.trim_end(),
        it.default
    ));
    let names = it.names.iter();
    let names: Vec<_> = names
        .map(|(whose, name)| format!("{whose} {name}"))
        .collect();
    let source = format!("Source: {}", it.source);
    let below = [it.meaning, &it.other_values, &names.join(", "), &source];
    let lines: String = below.into_iter().map(indented).collect();
    row.add_below(&lines);
    row
}

/// How values are treated that are outside the range, the port's speed or the device's abilities.
fn effect(param: Param) -> String {
    let mut text = "Other values are refused".to_owned();
    if param.unit() == Unit::Mbps {
        text += "; one above the port's speed acts as that";
    }
    match INERT.iter().find(|(inert, _)| *inert == param) {
        Some((_, why)) => format!("{text}. Without effect here: {why}."),
        None if OF_TAGS.contains(&param) => {
            format!("{text}. Without effect on a device without a VLAN.")
        }
        None => text + ".",
    }
}

fn names(param: Param) -> Vec<(&'static str, String)> {
    let ecn = param.ecn_path();
    let sysfs = match param.unit() {
        Unit::PriorityMask => ecn.map(|path| path + "/0..7"),
        _ => ecn,
    };
    let other = |vocabulary| param.name_in(vocabulary).map(str::to_owned);
    let winof = match param.unit() {
        Unit::PriorityMask => other(Vocabulary::WinOf).map(|name| name + "0..7"),
        _ => other(Vocabulary::WinOf),
    };
    let all = [
        ("sysfs", sysfs),
        ("debugfs", other(Vocabulary::Debugfs)),
        ("mlxconfig", other(Vocabulary::NvConfig)),
        ("winof", winof),
    ];
    let named = all.into_iter();
    named
        .filter_map(|(whose, name)| Some((whose, name?)))
        .collect()
}
