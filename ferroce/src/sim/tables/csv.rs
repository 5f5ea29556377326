//! Tables as comma-separated values.

use std::borrow::Cow;
use std::io::{self, Write};

use super::{Column, Table};

/// Writes a table.
pub(super) fn write(table: &Table<'_>, to: &mut impl Write) -> io::Result<()> {
    for (at, (name, _)) in table.columns.iter().enumerate() {
        write!(to, "{}{name}", separator(at))?;
    }
    writeln!(to)?;
    for row in 0..table.rows() {
        for (at, (_, column)) in table.columns.iter().enumerate() {
            write!(to, "{}", separator(at))?;
            match column {
                Column::Number(values) => write!(to, "{}", values[row])?,
                Column::Perhaps(values) => {
                    if let Some(value) = values[row] {
                        write!(to, "{value}")?;
                    }
                }
                Column::Share(values) => {
                    if let Some(value) = values[row] {
                        write!(to, "{value}")?;
                    }
                }
                Column::Text(values) => write!(to, "{}", quoted(&values[row]))?,
                Column::Flag(values) => write!(to, "{}", values[row])?,
                Column::Name(places, names) => {
                    write!(to, "{}", quoted(&names[places[row] as usize]))?
                }
            }
        }
        writeln!(to)?;
    }
    Ok(())
}

fn separator(at: usize) -> &'static str {
    if at == 0 { "" } else { "," }
}

/// A name in quotes, if it has to be (RFC 4180).
fn quoted(name: &str) -> Cow<'_, str> {
    match name.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")).into(),
        false => name.into(),
    }
}
