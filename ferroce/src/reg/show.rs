//! Registers as text and as JSON.

use ferroce_prm::adp_retx_histogram::{self, ADP_RETX_HISTOGRAM};
use ferroce_prm::{Field, Image, REGISTERS, Register};
use serde_json::{Map, Value, json};

use crate::output::{Failure, Output, Table};

/// All registers.
pub(super) fn list(json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
    if json {
        let registers = REGISTERS.iter().map(|register| {
            json!({
                "name": register.name(),
                "id": register.id(),
                "size": register.size(),
                "doc": register.doc(),
            })
        });
        return to.json(&registers.collect::<Vec<_>>());
    }
    let mut table = Table::new(&["register", "id", ">bytes", "what for"]);
    for register in REGISTERS {
        table.row(vec![
            register.name().to_owned(),
            format!("{:#06x}", register.id()),
            register.size().to_string(),
            register.doc().to_owned(),
        ]);
    }
    to.text(&table.to_string())
}

/// The fields of a register.
pub(super) fn fields(
    register: &'static Register,
    json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    if json {
        let fields = register.fields().iter().map(|field| {
            let values = field.values().iter();
            let values: Map<String, Value> = values
                .map(|(value, name)| ((*name).to_owned(), (*value).into()))
                .collect();
            json!({
                "name": field.name(),
                "path": field.path(),
                "offset": field.offset(),
                "lsb": field.lsb(),
                "width": field.width(),
                "access": field.access().as_str(),
                "values": values,
                "doc": field.doc(),
            })
        });
        return to.json(&fields.collect::<Vec<_>>());
    }
    let mut table = Table::new(&["field", "byte", ">bits", "access", "meaning"]);
    for field in register.fields() {
        table.row(vec![
            field.name().to_owned(),
            format!("{:#04x}", field.offset()),
            bits(field),
            field.access().as_str().to_owned(),
            meaning(field),
        ]);
    }
    to.text(&format!(
        "{} {:#06x}, {} bytes: {}\n{table}",
        register.name(),
        register.id(),
        register.size(),
        register.doc()
    ))
}

fn bits(field: &Field) -> String {
    match field.width() {
        1 => field.lsb().to_string(),
        width => format!("{}:{}", field.lsb() + width - 1, field.lsb()),
    }
}

fn meaning(field: &Field) -> String {
    let mut text = field.doc().to_owned();
    let values = field.values().iter();
    let names: Vec<_> = values
        .map(|(value, name)| format!("{value} {name}"))
        .collect();
    if !names.is_empty() {
        text += &format!(" {}", names.join(", "));
    }
    text
}

/// What a register holds.
pub(super) fn content(
    register: &'static Register,
    bytes: &[u8],
    json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let image = Image::new(register, bytes).map_err(Failure::broken)?;
    let has_bins = register.id() == ADP_RETX_HISTOGRAM.id();
    // The bins are told as a whole.
    let fields = register.fields().iter();
    let fields =
        fields.filter(|field| !has_bins || field.offset() < adp_retx_histogram::BINS_OFFSET);
    let bin_num = image.get(&adp_retx_histogram::BIN_NUM) as usize;
    let bins = adp_retx_histogram::bins(bytes).take(if has_bins { bin_num } else { 0 });
    if json {
        let values = fields.map(|field| (field.name().to_owned(), image.get(field).into()));
        let mut values: Map<String, Value> = values.collect();
        if has_bins {
            values.insert("histogram_bin".to_owned(), bins.collect());
        }
        return to.json(&values);
    }
    let mut table = Table::new(&["field", ">value", ""]);
    for field in fields {
        let value = image.get(field);
        table.row(vec![
            field.name().to_owned(),
            value.to_string(),
            in_words(field, value),
        ]);
    }
    for (bin, count) in bins.enumerate() {
        let name = format!("histogram_bin[{bin}]");
        table.row(vec![name, count.to_string(), String::new()]);
    }
    to.text(&table.to_string())
}

/// The name of a value, or its hexadecimal form where it is large.
fn in_words(field: &Field, value: u32) -> String {
    match field.value_name(value) {
        Some(name) => name.to_owned(),
        None if value > 9 => format!("{value:#x}"),
        None => String::new(),
    }
}
