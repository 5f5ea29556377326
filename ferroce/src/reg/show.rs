//! Registers as text and as JSON.

use ferroce_prm::adp_retx_histogram::{self, ADP_RETX_HISTOGRAM, BINS_OFFSET};
use ferroce_prm::{Field, Image, REGISTERS, Register};

use crate::json::reg as json;
use crate::output::lines::{indented, wrapped};
use crate::output::look::columns;
use crate::output::{Failure, Output, Table};

const COLUMNS_FOR_MEANINGS: usize = 110;

/// All registers.
pub(super) fn list(json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
    if json {
        let registers = REGISTERS.iter().map(|it| register_json(it));
        return to.document(&json::List {
            registers: registers.collect(),
        });
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

fn register_json(register: &Register) -> json::Register {
    json::Register {
        register: register.name(),
        register_id: register.id(),
        size_bytes: register.size(),
        doc: register.doc(),
    }
}

fn field_json(field: &&'static Field) -> json::Field {
    let values = field.values().iter();
    json::Field {
        name: field.name(),
        path: field.path(),
        offset_bytes: field.offset(),
        lsb: field.lsb(),
        width_bits: field.width(),
        access: field.access().as_str(),
        values: values.map(|(value, name)| (*name, *value)).collect(),
        doc: field.doc(),
    }
}

/// The fields of a register.
pub(super) fn fields(
    register: &'static Register,
    json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    if json {
        let fields = register.fields().iter().map(field_json).collect();
        let register = register_json(register);
        return to.document(&json::Fields { register, fields });
    }
    let title = format!(
        "{} {:#06x}, {} bytes: {}",
        register.name(),
        register.id(),
        register.size(),
        register.doc()
    );
    to.text(&(wrapped(&title, columns()).join("\n") + "\n"))?;
    // Names are long, so meanings stand beside them on wide terminals only.
    let has_room = columns() >= COLUMNS_FOR_MEANINGS;
    let header = ["field", "byte", ">bits", "access", "meaning"];
    let mut table = Table::new(&header[..4 + usize::from(has_room)]);
    for field in register.fields() {
        let mut cells = vec![
            field.name().to_owned(),
            format!("{:#04x}", field.offset()),
            bits(field),
            field.access().as_str().to_owned(),
        ];
        cells.extend(has_room.then(|| meaning(field)));
        table.row(cells);
    }
    let table = table.to_string();
    if has_room {
        return to.text(&table);
    }
    let (heading, rows) = table.split_once('\n').unwrap_or((&table, ""));
    to.text(&format!("{heading}\n"))?;
    for (row, field) in rows.lines().zip(register.fields()) {
        to.text(&format!("{row}\n{}", indented(&meaning(field))))?;
    }
    Ok(())
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

/// What a register holds: its fields, and the counts of a histogram.
struct Held<'a> {
    image: Image<&'a [u8]>,
    fields: Vec<&'static Field>,
    bins: Option<Vec<u64>>,
}

impl<'a> Held<'a> {
    fn new(register: &'static Register, bytes: &'a [u8]) -> Result<Self, Failure> {
        let image = Image::new(register, bytes).map_err(Failure::broken)?;
        let has_bins = register.id() == ADP_RETX_HISTOGRAM.id();
        // The bins are told as a whole.
        let is_told = |field: &&&Field| !has_bins || field.offset() < BINS_OFFSET;
        Ok(Self {
            fields: register.fields().iter().filter(is_told).copied().collect(),
            bins: has_bins.then(|| {
                let bin_num = image.get(&adp_retx_histogram::BIN_NUM) as usize;
                adp_retx_histogram::bins(bytes).take(bin_num).collect()
            }),
            image,
        })
    }
}

/// Prints for programs what a register of a device holds.
pub(super) fn document(
    device: &str,
    register: &'static Register,
    bytes: &[u8],
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let Held {
        image,
        fields,
        bins,
    } = Held::new(register, bytes)?;
    let fields = fields.iter();
    to.document(&json::Content {
        device: device.to_owned(),
        register: register.name(),
        register_id: register.id(),
        fields: fields
            .map(|field| (field.name(), image.get(field)))
            .collect(),
        histogram_bins: bins,
    })
}

/// Prints what a register holds.
pub(super) fn content(
    register: &'static Register,
    bytes: &[u8],
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let Held {
        image,
        fields,
        bins,
    } = Held::new(register, bytes)?;
    let mut table = Table::new(&["field", ">value", ""]);
    for field in fields {
        let value = image.get(field);
        table.row(vec![
            field.name().to_owned(),
            value.to_string(),
            in_words(field, value),
        ]);
    }
    for (bin, count) in bins.into_iter().flatten().enumerate() {
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
