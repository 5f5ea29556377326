//! TOML values without their positions, and replacing them.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{NOWHERE, integer};

/// The table without places.
#[must_use]
pub fn plain_table(table: &DeTable<'_>) -> toml::Table {
    let entry = |(key, it): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        (key.get_ref().to_string(), plain_value(it.get_ref()))
    };
    table.iter().map(entry).collect()
}

/// The value without places.
#[must_use]
pub fn plain_value(it: &DeValue<'_>) -> toml::Value {
    use toml::Value;
    match it {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(_) => Value::Integer(integer(it).unwrap_or(i64::MAX)),
        DeValue::Float(digits) => {
            let number = digits.as_str().parse().unwrap_or(f64::NAN);
            Value::Float(number)
        }
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(array) => {
            let values = array.iter().map(|it| plain_value(it.get_ref()));
            Value::Array(values.collect())
        }
        DeValue::Table(it) => Value::Table(plain_table(it)),
    }
}

/// Puts a value at a path such as `job[0].timeout`; `job.timeout` is that of all jobs.
///
/// # Errors
/// Returns an error if the table has no such place.
pub fn set<'t>(table: &mut DeTable<'t>, path: &'t str, new: &DeValue<'t>) -> Result<(), String> {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, index) = match name.split_once('[') {
        None => (name, None),
        Some((name, index)) => {
            let index = index.strip_suffix(']').and_then(|it| it.parse().ok());
            let index: Option<usize> = index;
            (name, Some(index.ok_or("write a number in the brackets")?))
        }
    };
    if name.is_empty() {
        return Err("a name is empty".into());
    }
    let nowhere = || NOWHERE..NOWHERE;
    if !table.contains_key(name) {
        let empty = DeValue::Table(DeTable::new());
        let key = Spanned::new(nowhere(), Cow::Borrowed(name));
        table.insert(key, Spanned::new(nowhere(), empty));
    }
    let Some(value) = table.get_mut(name) else {
        return Err(format!("{name} cannot be set"));
    };
    if rest.is_empty() && index.is_none() {
        *value = Spanned::new(nowhere(), new.clone());
        return Ok(());
    }
    match (value.get_mut(), index) {
        (DeValue::Table(table), None) => set(table, rest, new),
        (DeValue::Array(array), None) => {
            let mut tables = array.iter_mut().map(Spanned::get_mut);
            tables.try_for_each(|it| set_in(it, name, rest, new))
        }
        (DeValue::Array(array), Some(index)) => {
            let count = array.len();
            let it = array.get_mut(index);
            let it =
                it.ok_or_else(|| format!("there are {count} of {name}, the first is {name}[0]"))?;
            set_in(it.get_mut(), name, rest, new)
        }
        (_, Some(_)) => Err(format!("{name} is not a list")),
        (_, None) => Err(format!("{name} is not a table")),
    }
}

fn set_in<'t>(
    it: &mut DeValue<'t>,
    name: &str,
    rest: &'t str,
    new: &DeValue<'t>,
) -> Result<(), String> {
    match it {
        _ if rest.is_empty() => {
            *it = new.clone();
            Ok(())
        }
        DeValue::Table(table) => set(table, rest, new),
        _ => Err(format!("{name} has no keys")),
    }
}
