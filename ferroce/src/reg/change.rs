//! Reading registers, and writing single fields.

use ferroce_device::Method;
use ferroce_prm::adp_retx_histogram::ADP_RETX_HISTOGRAM;
use ferroce_prm::mfrl::MFRL;
use ferroce_prm::{Access, Field, Image, Register, mlxreg, roce_accl};

use super::room;
use crate::output::Failure;
use crate::registers::Registers;

/// The content of a register.
pub(super) fn read(
    of: &dyn Registers,
    register: &'static Register,
    index: u32,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = question(register, index)?;
    of.access(register.id(), Method::Query, &mut bytes)?;
    Ok(bytes)
}

/// What is sent to read a register.
pub(super) fn question(register: &'static Register, index: u32) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; room(register)];
    if index != 0 {
        let fields = register.fields().iter();
        let found = fields
            .copied()
            .find(|field| field.access() == Access::Index);
        let field = found.ok_or_else(|| {
            Failure::input(format_args!(
                "{} has no index; leave --index out",
                register.name()
            ))
        })?;
        put(register, &mut bytes, field, index)?;
    }
    Ok(bytes)
}

/// Writes fields of a register and leaves the others as they are. MFRL is a command, in which others
/// are 0: what it reads is what a write may ask for.
pub(super) fn write(
    of: &dyn Registers,
    register: &'static Register,
    fields: &[String],
) -> Result<(), Failure> {
    let values = fields
        .iter()
        .map(|text| assignment(register, text))
        .collect::<Result<Vec<_>, _>>()?;
    for (n, (field, _)) in values.iter().enumerate() {
        if values[..n].iter().any(|(earlier, _)| earlier == field) {
            return Err(Failure::input(format_args!(
                "{} is given twice; write it once",
                field.name()
            )));
        }
    }
    // A read may clear the histogram, and its write is refused anyway.
    let is_unread = [MFRL.id(), ADP_RETX_HISTOGRAM.id()].contains(&register.id());
    let mut bytes = match is_unread {
        true => vec![0; room(register)],
        false => read(of, register, 0)?,
    };
    if register.id() == roce_accl::ROCE_ACCL.id() {
        // Only what is named is written, whatever others write meanwhile.
        for select in roce_accl::SELECTS {
            put(register, &mut bytes, select, 0)?;
        }
        for select in values
            .iter()
            .filter_map(|(field, _)| roce_accl::select_of(field))
        {
            put(register, &mut bytes, select, 1)?;
        }
    }
    for (field, value) in values {
        put(register, &mut bytes, field, value)?;
    }
    Ok(of.access(register.id(), Method::Write, &mut bytes)?)
}

fn put(
    register: &'static Register,
    bytes: &mut [u8],
    field: &Field,
    value: u32,
) -> Result<(), Failure> {
    let mut image = Image::new(register, bytes).map_err(Failure::input)?;
    image.set(field, value).map_err(Failure::input)
}

/// The field and the value of `FIELD=VALUE`.
fn assignment(register: &'static Register, text: &str) -> Result<(&'static Field, u32), Failure> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Failure::input(format_args!(
            "{text:?} has no value; write {text}=VALUE"
        )));
    };
    let register_name = register.name();
    let field = register.field(name).ok_or_else(|| {
        Failure::input(format_args!(
            "{register_name} has no field {name:?}; `ferroce reg explain {register_name}` lists them"
        ))
    })?;
    if field.access() == Access::Ro {
        return Err(Failure::input(format_args!(
            "{name} can be read only: the device tells it"
        )));
    }
    let value = field
        .value_named(value)
        .or_else(|| mlxreg::number(value).ok())
        .ok_or_else(|| {
            let names: Vec<_> = field.values().iter().map(|(_, name)| *name).collect();
            let or = if names.is_empty() {
                String::new()
            } else {
                format!(", or {}", names.join(", "))
            };
            Failure::input(format_args!(
                "{name} = {value:?} is not a number; write 0 to {}{or}",
                field.max()
            ))
        })?;
    Ok((field, value))
}
