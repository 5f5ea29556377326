//! `[device.dcqcn]`.

use ferroce_base::toml_file::{Reader, Section, integer};
use ferroce_dcqcn::presets::{FIRMWARE, PRESETS, Preset};
use ferroce_dcqcn::{Param, Params, QUESTIONS, Switches};
use toml::de::DeValue;

/// Keys besides the parameters; these have several names each.
const OTHERS: [&str; 3] = ["preset", "enabled", "algorithm"];

/// The parameters and the algorithm.
pub(super) fn read<'t>(reader: &mut Reader<'t>, parent: &Section<'t>) -> (Params, Switches) {
    let section = reader.open_section(parent, "dcqcn", &OTHERS);
    let presets: Vec<_> = PRESETS.iter().map(|preset| (preset.name, preset)).collect();
    let preset: &Preset = reader
        .word(&section, "preset", &presets)
        .unwrap_or(&FIRMWARE);
    let mut params = preset.params();
    if reader.flag(&section, "enabled") == Some(false) {
        params.set_clipped(Param::PrioMask, 0);
        params.set_clipped(Param::NpPrioMask, 0);
    }
    for (name, value) in reader.entries(&section) {
        if OTHERS.contains(&name) {
            continue;
        }
        if let Err(error) = params.assign(&format!("{name}={}", text(value.get_ref()))) {
            let line = reader.line_of(value);
            let text = format!("{}: {error}", section.name());
            reader.problem(Some(line), text);
        }
    }
    (params, algorithm(reader, &section, preset.switches()))
}

/// `[device.dcqcn.algorithm]`: answers that differ from the preset's.
fn algorithm<'t>(
    reader: &mut Reader<'t>,
    parent: &Section<'t>,
    mut switches: Switches,
) -> Switches {
    let names: Vec<_> = QUESTIONS.iter().map(|question| question.name).collect();
    let section = reader.section(parent, "algorithm", &names);
    for name in names {
        let Some(value) = reader.value(&section, name) else {
            continue;
        };
        let word = text(value.get_ref());
        if let Err(error) = switches.assign(name, &word) {
            reader.invalid(&section, name, format_args!("{word:?}"), error);
        }
    }
    switches
}

/// A value as the tools would take it.
fn text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        value => integer(value).map_or_else(|| "none".into(), |number| number.to_string()),
    }
}
