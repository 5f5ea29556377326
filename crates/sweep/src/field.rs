//! A field of a scenario by its path: `job.all-reduce.timeout`, `fault[0].for`, `device.dcqcn.g`.

use toml::{Table, Value};

use ferroce_base::names::near;

/// The keys that tell the tables of an array apart, the best one first.
const NAMES: &[&str] = &["name", "workload", "kind"];

/// The path with numbers in place of names, as the scenario's reader takes it: `job[0].timeout`. A path
/// that leaves the number out, `job.timeout`, is that of all entries.
pub(crate) fn resolve(scenario: &Table, path: &str) -> Result<String, String> {
    let mut at: Option<&Value> = None;
    let mut table = Some(scenario);
    let mut resolved = String::new();
    let mut parts = split(path)?.into_iter().peekable();
    while let Some(part) = parts.next() {
        match at {
            Some(Value::Array(array)) if parts.peek().is_some() || is_number(part) => {
                let index = index_of(array, part, &resolved)?;
                resolved += &format!("[{index}]");
                at = array.get(index);
            }
            _ => {
                if !resolved.is_empty() {
                    resolved.push('.');
                }
                resolved += part;
                at = table.and_then(|table| table.get(part));
            }
        }
        table = at.and_then(Value::as_table);
    }
    Ok(resolved)
}

/// The names of a path: `fault[0].for` is fault, 0, for.
fn split(path: &str) -> Result<Vec<&str>, String> {
    let mut parts = Vec::new();
    for part in path.split('.') {
        let (name, indices) = match part.split_once('[') {
            Some((name, rest)) => {
                let indices = rest.strip_suffix(']');
                (name, Some(indices.ok_or("a [ without a ]")?))
            }
            None => (part, None),
        };
        parts.push(name);
        parts.extend(indices.into_iter().flat_map(|it| it.split("][")));
    }
    match parts.iter().any(|part| part.is_empty()) {
        true => Err("a name is empty".into()),
        false => Ok(parts),
    }
}

fn is_number(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Which entry of an array a number or name means.
fn index_of(array: &[Value], part: &str, of: &str) -> Result<usize, String> {
    let last = array.len().saturating_sub(1);
    if is_number(part) {
        let index = part.parse().ok().filter(|index| *index < array.len());
        return index.ok_or_else(|| format!("{of} has entries 0 to {last} only"));
    }
    let named = |key: &&str| {
        let is_it = |value: &Value| value.get(*key).and_then(Value::as_str) == Some(part);
        let found = array.iter().enumerate().filter(|(_, it)| is_it(it));
        found.map(|(index, _)| index).collect::<Vec<_>>()
    };
    let found = NAMES.iter().map(named).find(|found| !found.is_empty());
    match found.as_deref() {
        Some([index]) => Ok(*index),
        Some([first, ..]) => Err(format!(
            "{of} has several entries {part}; write {of}[{first}] for the first of them"
        )),
        _ => {
            let names = array.iter();
            let names = names.filter_map(|it| NAMES.iter().find_map(|key| it.get(*key)?.as_str()));
            let near = near(part, names);
            let near = near.map_or_else(String::new, |it| format!("; did you mean {it}?"));
            Err(format!(
                "{of} has no entry {part}; numbers are 0 to {last}{near}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        duration = '1s'
        [device]
        profile = 'backoff'
        [[job]]
        workload = 'incast'
        [[job]]
        name = 'ring'
        workload = 'ring-all-reduce'
        hosts = [1, 2]
        [[fault]]
        kind = 'loss'
        [[fault]]
        kind = 'link-down'
        for = '1ms'
        [[fault]]
        kind = 'link-down'
    ";

    #[test]
    fn a_field_is_found_by_names_and_numbers() {
        let scenario: Table = TEXT.parse().unwrap();
        for (path, resolved) in [
            ("duration", "duration"),
            ("device.window", "device.window"),
            ("device.dcqcn.rpg_ai_rate", "device.dcqcn.rpg_ai_rate"),
            ("switch.ecn.kmin", "switch.ecn.kmin"),
            ("job.incast.timeout", "job[0].timeout"),
            ("job.ring.timeout", "job[1].timeout"),
            ("job.1.timeout", "job[1].timeout"),
            ("job.timeout", "job.timeout"),
            ("job[1].hosts[0]", "job[1].hosts[0]"),
            ("fault.loss.probability", "fault[0].probability"),
            ("fault[2].for", "fault[2].for"),
        ] {
            assert_eq!(resolve(&scenario, path).as_deref(), Ok(resolved));
        }
    }

    #[test]
    fn bad_paths_are_explained() {
        let scenario: Table = TEXT.parse().unwrap();
        for (path, must) in [
            ("job.incst.timeout", "did you mean incast?"),
            ("job[7].timeout", "job has entries 0 to 1 only"),
            (
                "fault.link-down.for",
                "write fault[1] for the first of them",
            ),
            ("fault[0", "a [ without a ]"),
            ("device..x", "a name is empty"),
            ("", "a name is empty"),
        ] {
            let error = resolve(&scenario, path).unwrap_err();
            assert!(error.contains(must), "{path}: {error}");
        }
    }
}
