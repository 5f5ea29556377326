//! mlxreg's tables.

use std::fmt::Write as _;

use ferroce_device::Method;
use ferroce_prm::adp_retx_histogram::{self, ADP_RETX_HISTOGRAM};
use ferroce_prm::{Access, Field, Image, Register};

use super::options::Options;

/// Columns of a description.
const DESCRIPTION: usize = 80;

/// `--help`.
pub(super) const HELP: &str = "    ferroce mlxreg OPTIONS

    Reads and writes access registers as mlxreg does.

    OPTIONS:
        -h|--help                Show this.
        -v|--version             Show the version.
        -d|--device DEV          The device; `ferroce dev` lists them.
        --reg_name NAME          The register, by its name.
        --reg_id ID              The register, by its number; with --reg_len.
        --reg_len BYTES          Length of a register that is given by its number.
        -i|--indexes TEXT        Index fields: name=value,..., or address.offset:size=value,...
        -g|--get                 Read the register.
        -s|--set TEXT            Write fields of the register; the others keep their values.
        --show_reg NAME          Show the fields of a register.
        --show_regs              Show the names of all registers.
        --yes                    Do not ask.
        -w|--overwrite           Set fields that are not named to zero.
        --full_path              Names of fields are paths.
        --no_dynamic             Read no more of a register than its fixed part.
        --detailed               Also show decimal values and names of values.
        --advanced               With --show_reg, also show what fields mean.
        --full_desc              With --advanced, all of it.
        --field NAME             With --advanced, of this field only.
        --gen_cmd_buffer TYPE    Print what would be sent; without a device.
";

/// `--show_regs`.
pub(super) fn register_names(registers: &[&Register]) -> String {
    let mut text = format!("Available Access Registers\n{}\n", "=".repeat(104));
    for register in registers {
        let _ = writeln!(text, "{:<30}", register.name());
    }
    text
}

/// The content of a register that is known by its number only.
pub(super) fn dwords(bytes: &[u8]) -> String {
    let line = "=".repeat(23);
    let mut text = format!("Address    | Data\n{line}\n");
    for (n, dword) in bytes.as_chunks().0.iter().enumerate() {
        let value = u32::from_be_bytes(*dword);
        let _ = writeln!(text, "{:#010x} | {value:#010x}", 4 * n);
    }
    text + &line + "\n"
}

/// What the tool calls a field. Without paths that is the last part of one, also where several fields
/// share it.
fn name(field: &Field, options: &Options) -> &'static str {
    match options.full_path {
        true => field.path(),
        false => field.name().rsplit('.').next().unwrap_or_default(),
    }
}

/// The content of a register by its fields.
pub(super) fn content(register: &'static Register, bytes: &[u8], options: &Options) -> String {
    let Ok(image) = Image::new(register, bytes) else {
        return dwords(bytes);
    };
    let fields = register.fields().iter();
    let mut rows: Vec<_> = fields
        .map(|field| {
            let value = image.get(field);
            let named = field.value_name(value);
            let in_words = match field.values() {
                [] => "",
                _ => named.unwrap_or("(unknown_enum)"),
            };
            (name(field, options).to_owned(), value, in_words)
        })
        .collect();
    if register.id() == ADP_RETX_HISTOGRAM.id() && !options.no_dynamic {
        rows.extend(later_bins(
            image.get(&adp_retx_histogram::BIN_NUM),
            bytes,
            options,
        ));
    }
    table(&rows, options.detailed)
}

/// Rows of the bins that the table of fields does not have.
fn later_bins(
    bin_num: u32,
    bytes: &[u8],
    options: &Options,
) -> impl Iterator<Item = (String, u32, &'static str)> {
    let bins = adp_retx_histogram::bins(bytes).take(bin_num as usize);
    let full_path = options.full_path;
    bins.enumerate().skip(1).flat_map(move |(bin, count)| {
        [("hi", (count >> 32) as u32), ("lo", count as u32)].map(|(half, value)| {
            let name = match full_path {
                true => format!("histogram_bin[{bin}].{half}"),
                false => format!("histogram_bin[{bin}]_{half}"),
            };
            (name, value, "")
        })
    })
}

fn table(rows: &[(String, u32, &str)], detailed: bool) -> String {
    let width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0) + 1;
    let line = "=".repeat(width + if detailed { 59 } else { 14 });
    let mut text = match detailed {
        true => format!(
            "{:<width$} | {:<10} | {:<10} | {:<30}\n",
            "Field Name", "Hex Value", "Decimal", "Enum/Type"
        ),
        false => format!("{:<width$} | {:<8}\n", "Field Name", "Data"),
    };
    text += &format!("{line}\n");
    for (name, value, in_words) in rows {
        let _ = match detailed {
            true => writeln!(
                text,
                "{name:<width$} | {value:#010x} | {value:<10} | {in_words:<30}"
            ),
            false => writeln!(text, "{name:<width$} | {value:#010x}"),
        };
    }
    text + &line + "\n"
}

/// `--show_reg`.
pub(super) fn fields(register: &'static Register, options: &Options) -> String {
    let all = register.fields().iter().copied();
    let wanted: Vec<_> = all
        .filter(|field| options.field.is_empty() || name(field, options) == options.field)
        .collect();
    if wanted.is_empty() {
        return format!("Field '{}' not found in register\n", options.field);
    }
    let longest = wanted.iter().map(|field| name(field, options).len()).max();
    let width = longest.unwrap_or(0) + 1;
    let head = format!(
        "{:<width$} | {:<10} | {:>6} | {:>4} | {:<6}",
        "Field Name", "Address", "Offset", "Size", "Access"
    );
    let row = |field: &Field| {
        format!(
            "{:<width$} | {:#010x} | {:>6} | {:>4} | {:<6}",
            name(field, options),
            field.offset(),
            field.lsb(),
            field.width(),
            field.access().as_str()
        )
    };
    if options.advanced {
        return advanced(register, &wanted, width, &head, &row, options);
    }
    let line = "=".repeat(width + 41);
    let rows: String = wanted.iter().map(|field| row(field) + "\n").collect();
    format!("{head}\n{line}\n{rows}{line}\n")
}

/// `--advanced`: fields with one and the same description share it.
fn advanced(
    register: &Register,
    fields: &[&'static Field],
    width: usize,
    head: &str,
    row: &dyn Fn(&Field) -> String,
    options: &Options,
) -> String {
    let total = width + 41 + DESCRIPTION;
    let line = "=".repeat(total);
    let indent = format!(
        "{:<width$} | {:<10} | {:>6} | {:>4} | {:<6}",
        "", "", "", "", ""
    );
    let groups = fields.chunk_by(|one, next| one.doc() == next.doc());
    let groups = groups.map(|group| {
        let mut text = String::new();
        let lines = description(group[0].doc(), options.full_desc);
        for (n, line) in lines.iter().enumerate() {
            let before = if n == 0 {
                row(group[0])
            } else {
                indent.clone()
            };
            let _ = writeln!(text, "{before} | {line}");
        }
        if !group[0].values().is_empty() {
            let name = name(group[0], options);
            let _ = writeln!(text, "{indent} | Possible values ({name}):");
        }
        for (value, name) in group[0].values() {
            let _ = writeln!(text, "{indent} |   {value} ({value:#x}): {name}");
        }
        for field in &group[1..] {
            let _ = writeln!(text, "{} |", row(field));
        }
        text
    });
    let between = format!("{}\n", "-".repeat(total));
    let groups = groups.collect::<Vec<_>>().join(&between);
    let mut text = format!("{head} | Description\n{line}\n{groups}{line}\n");
    let is_index = |field: &&&Field| field.access() == Access::Index;
    let indexes = register.fields().iter().filter(is_index);
    let indexes: Vec<_> = indexes
        .map(|field| format!("{}=0", name(field, options)))
        .collect();
    if options.field.is_empty() && !indexes.is_empty() {
        let device = options.device.as_deref().unwrap_or_default();
        let _ = write!(
            text,
            "\nSuggested 'get' command:\n\tmlxreg -d {device} --reg_name {} --indexes \"{}\" \
             --get\n\n\n",
            register.name(),
            indexes.join(",")
        );
    }
    text
}

/// A description in lines, or the beginning of it.
fn description(doc: &str, whole: bool) -> Vec<String> {
    if doc.len() <= DESCRIPTION {
        return vec![doc.to_owned()];
    }
    if !whole {
        let start: String = doc.chars().take(DESCRIPTION - 4).collect();
        return vec![start + "..."];
    }
    let mut lines = vec![String::new()];
    for word in doc.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = word.to_owned(),
            Some(line) if line.len() + 1 + word.len() <= DESCRIPTION => {
                *line += &format!(" {word}")
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `--gen_cmd_buffer`: the operation and register TLVs in front of the data, as cards get them.
pub(super) fn generated(
    what: &str,
    (name, id): (String, u32),
    method: Method,
    bytes: &[u8],
) -> String {
    let method = match method {
        Method::Query => 1,
        Method::Write => 2,
    };
    let operation = [0x0804_0000, id << 16 | method << 8 | 1, 0, 0];
    let register = 3 << 27 | (bytes.len() as u32 / 4 + 1) << 16;
    let data = bytes
        .as_chunks()
        .0
        .iter()
        .map(|dword| u32::from_be_bytes(*dword));
    let words = operation.into_iter().chain([register]).chain(data);
    let line = "=".repeat(35);
    let mut text =
        format!("Generated {what} buffer for register: {name}\nRaw Buffer Data:\n{line}\n");
    for (n, word) in words.enumerate() {
        let _ = writeln!(text, "Word[{n:02}]: {word:#010x}");
    }
    text + &line + "\n"
}
