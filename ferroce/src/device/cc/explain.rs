//! `ferroce cc explain`: the meaning of the parameters.

use clap::Args;
use ferroce_dcqcn::{Param, Target, Unit, Vocabulary};
use serde_json::{Map, Value};

use super::super::format::{Format, Row};
use super::INERT;
use crate::output::{Failure, Output};

/// Say what parameters mean: ranges, units, defaults, their names in all tools, and sources
#[derive(Args, Debug)]
pub(super) struct Explain {
    /// Names of any vocabulary; all parameters without one
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Explain {
    pub(super) fn run(self, format: Format, to: &mut Output<'_>) -> Result<(), Failure> {
        let param = |name: &String| Target::parse(name).map(|target| target.param);
        let named: Result<Vec<_>, _> = self.names.iter().map(param).collect();
        let named = named.map_err(Failure::input)?;
        let params = match named.as_slice() {
            [] => Param::ALL,
            some => some,
        };
        format.print(to, params.iter().map(|param| row(*param)).collect())
    }
}

fn row(param: Param) -> Row {
    let unit = match param.unit() {
        Unit::ByteResetUnits => "times 64 B".to_owned(),
        Unit::Number => String::new(),
        unit => unit.to_string(),
    };
    let (min, max, default) = (param.min(), param.max(), param.default_value());
    let keys: [(&'static str, Value); 5] = [
        ("name", param.name().into()),
        ("min", min.into()),
        ("max", max.into()),
        ("unit", unit.as_str().into()),
        ("default", default.into()),
    ];
    let values = format!("{min} to {max} {unit}");
    let title = format!("{param}: {}, default {default}", values.trim_end());
    let mut row = Row::new(title, &keys);
    let names = names(param);
    let listed: Vec<_> = names
        .iter()
        .map(|(whose, name)| format!("{whose} {name}"))
        .collect();
    let pairs = names.iter().map(|(whose, name)| {
        let name = name.as_str().into();
        ((*whose).to_owned(), name)
    });
    let pairs: Map<String, Value> = pairs.collect();
    row.put_below("names", pairs.into(), "");
    row.put_below("source", param.source().into(), "");
    let effect = effect(param);
    row.put_below("other-values", effect.as_str().into(), "");
    let lines = format!(
        "    {}\n    {effect}\n    {}\n    Source: {}\n",
        param.doc(),
        listed.join(", "),
        param.source()
    );
    row.put_below("meaning", param.doc().into(), &lines);
    row
}

/// What becomes of values that the range, the port or the device does not have.
fn effect(param: Param) -> String {
    let mut text = "Other values are refused".to_owned();
    if param.unit() == Unit::Mbps {
        text += "; one above the port's speed acts as that";
    }
    match INERT.iter().find(|(inert, _)| *inert == param) {
        Some((_, why)) => format!("{text}. Without effect here: {why}."),
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
