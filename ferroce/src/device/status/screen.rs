//! The lines, limited to a terminal of 24 lines and to its width.

use ferroce_device::Span;

use super::super::stat::per_second;
use super::gather::{Condition, DeviceLook, Program, Seen, Status};
use crate::output::Table;
use crate::output::lines::short;
use crate::output::lines::wrapped;
use crate::output::look::{columns, cut, look};

/// One is left for the shell's prompt.
const LINES: usize = 23;
/// Lines that are always there: the title, and three headings below an empty line each.
const FIXED: usize = 7;
const WARNING_LINES: usize = 5;

/// The screen; with `all`, all rows.
pub(super) fn draw(status: &Status, all: bool) -> String {
    if status.devices.is_empty() {
        return "no device; add one: ferroce dev add fr0 127.0.0.1\n".to_owned();
    }
    let warnings = warnings(&status.warnings, all);
    let (mut devices, mut programs) = (status.devices.len(), status.programs.len().max(1));
    if !all {
        let left = LINES - FIXED - warnings.len() - usize::from(!warnings.is_empty());
        (devices, programs) = fitting(devices, programs, left);
    }
    let shown = shown(status, devices);
    let mut lines = vec![title(status), String::new()];
    lines.extend(settings(&shown, all));
    lines.push(String::new());
    lines.extend(counters(status, &shown, all));
    if shown.len() < status.devices.len() {
        let more = status.devices.len() - shown.len();
        lines.push(format!(
            "and {more} more; `ferroce status --all` shows them"
        ));
    }
    lines.push(String::new());
    lines.extend(programs_table(&status.programs, programs, all));
    if !warnings.is_empty() {
        lines.push(String::new());
        lines.extend(warnings);
    }
    let lines = lines.iter().map(|line| match all {
        true => format!("{line}\n"),
        false => format!("{}\n", cut(line, columns())),
    });
    lines.collect()
}

/// How many devices, of two rows each, and how many programs fit into `lines` lines. If some do
/// not, one line says how many; neither takes more than half of the lines from the other.
fn fitting(devices: usize, programs: usize, lines: usize) -> (usize, usize) {
    if 2 * devices + programs <= lines {
        return (devices, programs);
    }
    let for_devices = lines - programs.min(lines / 2);
    let (devices, used) = match 2 * devices <= for_devices {
        true => (devices, 2 * devices),
        false => {
            let shown = (for_devices - 1) / 2;
            (shown, 2 * shown + 1)
        }
    };
    match programs <= lines - used {
        true => (devices, programs),
        false => (devices, lines - used - 1),
    }
}

fn title(status: &Status) -> String {
    let queue_pairs: u64 = status.programs.iter().map(|it| it.queue_pairs.sum()).sum();
    let many = |count: u64, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    format!(
        "{}, {}, {}; rates over {:.1} s",
        many(status.devices.len() as u64, "device"),
        many(status.programs.len() as u64, "program"),
        many(queue_pairs, "queue pair"),
        status.seconds
    )
}

/// The devices to show: those in use or in trouble before those at rest.
fn shown(status: &Status, count: usize) -> Vec<&DeviceLook> {
    let is_at_rest = |device: &DeviceLook| {
        let is_used = status
            .programs
            .iter()
            .any(|it| it.device == device.spec.name);
        let is_usual = |seen: &Seen| {
            seen.port.is_up && seen.impairment().is_none() && seen.policy.profile_names().is_none()
        };
        !is_used && device.seen.as_ref().is_ok_and(is_usual)
    };
    let mut devices: Vec<_> = status.devices.iter().collect();
    devices.sort_by_key(|device| is_at_rest(device));
    devices.truncate(count);
    devices
}

fn settings(devices: &[&DeviceLook], all: bool) -> Vec<String> {
    let mut table = Table::new(&[
        "device",
        "address",
        "port",
        ">flaps",
        "policy",
        "impairment",
    ]);
    for device in devices {
        let mut cells = vec![device.spec.name.clone(), device.spec.address.to_string()];
        match &device.seen {
            Err(_) => cells.push(look().out.bad("cannot be read")),
            Ok(seen) => cells.extend([
                port(seen),
                seen.port.downed.to_string(),
                seen.policy.to_string(),
                seen.impairment().unwrap_or_else(|| "none".to_owned()),
            ]),
        }
        table.row(cells);
    }
    lines_of(table, all)
}

fn port(seen: &Seen) -> String {
    let state = match seen.port.is_up {
        true => "up".to_owned(),
        false => look().out.bad("down"),
    };
    match seen.port.changes_in {
        None => state,
        Some(left) => {
            let next = if seen.port.is_up { "down" } else { "up" };
            format!("{state}, {next} in {}", rounded(left))
        }
    }
}

/// A time that is left, in whole milliseconds at least.
pub(super) fn rounded(left: Span) -> String {
    let ms = left.as_nanos().div_ceil(1_000_000);
    short((ms * 1_000_000) as f64)
}

fn counters(status: &Status, devices: &[&DeviceLook], all: bool) -> Vec<String> {
    let mut table = Table::new(&[
        "device",
        ">resent",
        ">per s",
        ">timeouts",
        ">per s",
        ">failed QPs",
        ">CNPs",
        ">per s",
        ">slowed QPs",
    ]);
    for device in devices {
        let mut cells = vec![device.spec.name.clone()];
        if let Ok(seen) = &device.seen {
            let (totals, moved) = (&seen.totals, &seen.moved);
            let rate = |moved: u64| per_second(status.rate(moved));
            cells.extend([
                totals.retransmitted.to_string(),
                rate(moved.retransmitted),
                totals.timeouts.to_string(),
                rate(moved.timeouts),
                totals.failed.to_string(),
                totals.cnps.to_string(),
                rate(moved.cnps),
                device.slowed.to_string(),
            ]);
        }
        table.row(cells);
    }
    lines_of(table, all)
}

/// The first `count` programs, and how many more there are.
fn programs_table(programs: &[Program], count: usize, all: bool) -> Vec<String> {
    if programs.is_empty() {
        return vec!["no program; start one: ferroce run PROGRAM".to_owned()];
    }
    let mut programs: Vec<_> = programs.iter().collect();
    // Those with something to report first.
    programs.sort_by_key(|it| {
        (
            it.condition == Condition::Running,
            it.queue_pairs.sum() == 0,
        )
    });
    let mut table = Table::new(&["program", ">pid", "device", "queue pairs"]);
    for program in programs.iter().take(count) {
        table.row(vec![
            program.comm.clone(),
            program.pid.to_string(),
            program.device.clone(),
            queue_pairs(program),
        ]);
    }
    let mut lines = lines_of(table, all);
    if programs.len() > count {
        let more = programs.len() - count;
        lines.push(format!("and {more} more; `ferroce res show ctx` lists all"));
    }
    lines
}

fn queue_pairs(program: &Program) -> String {
    match program.condition {
        Condition::Stopped => return "stopped".to_owned(),
        Condition::Silent => return "does not answer".to_owned(),
        Condition::Running => {}
    }
    let states = program.queue_pairs.named().into_iter();
    let states = states.filter(|(_, count)| *count > 0);
    let states: Vec<_> = states
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    match states.is_empty() {
        true => "none".to_owned(),
        false => states.join(", "),
    }
}

/// Each warning in a line or more.
fn warnings(warnings: &[String], all: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for (shown, warning) in warnings.iter().enumerate() {
        let rows = wrapped(warning, columns() - 2);
        let is_last = shown + 1 == warnings.len();
        let room = WARNING_LINES - usize::from(!is_last);
        if !all && lines.len() + rows.len() > room {
            let more = warnings.len() - shown;
            lines.push(format!(
                "! {more} more warnings; `ferroce status --all` shows them"
            ));
            break;
        }
        for (row, text) in rows.iter().enumerate() {
            let mark = if row == 0 { "!" } else { " " };
            lines.push(look().out.warning(&format!("{mark} {text}")));
        }
    }
    lines
}

/// A line for each row, unless there may be any number of lines.
fn lines_of(table: Table, all: bool) -> Vec<String> {
    let table = if all { table } else { table.unwrapped() };
    table.to_string().lines().map(str::to_owned).collect()
}

#[cfg(test)]
pub(super) mod tests;
