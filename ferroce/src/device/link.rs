//! `ferroce link`: the state of ports.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ferroce_base::units::TIME;
use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::{Function, Span, Time};
use ferroce_os::Clock;
use ferroce_registry::{DeviceSpec, Observer, Registry};
use ferroce_sysfs::netdev_of;

use super::format::{Row, print};
use crate::json::device as json;
use crate::naming::{DeviceArg, EachDevice, each_link, links_to_set, observe, registry};
use crate::output::exit_codes;
use crate::output::{Failure, Output};

/// Show ports, and take them down and up
///
/// A port that is down loses what it sends and receives, and tells programs so: IBV_EVENT_PORT_ERR,
/// IBV_EVENT_PORT_ACTIVE, ibv_query_port, link_downed. For a link that fails while the port stays
/// up, see `ferroce impair`.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Link {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show ports; what `ferroce link` alone does
    #[command(alias = "list")]
    Show(EachDevice),
    /// Take a port down or up, now or later; replaces the current setting
    #[command(after_help = EXAMPLES, override_usage = "ferroce link set [OPTIONS] [DEV] WHAT")]
    Set {
        #[command(flatten)]
        device: DeviceArg,
        /// down, up, `down for TIME`, `flap NUMBERx DOWN/EVERY`, or `times FILE`, whose lines are
        /// LENGTH@FROM, counted from now
        #[arg(value_name = "WHAT")]
        what: Vec<String>,
    },
}

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce link set fr0 down                  until `ferroce link set fr0 up`
  ferroce link set fr0 down for 300ms
  ferroce link set fr0 flap 10x 200ms/2s     down for 200 ms every 2 s
  ferroce link set fr0 times outages.txt     a file with lines such as 200ms@3s
  ferroce link set fr1/2 down                only the second of two ports"
);

/// The words with which that begins which may follow the device's name.
const STATES: [&str; 4] = ["down", "up", "flap", "times"];
/// All of it.
const FORMS: &str = "down, up, down for 300ms, flap 10x 200ms/2s, or times FILE";
/// The shortest and the longest outage, and time between two.
const LENGTHS_NS: std::ops::RangeInclusive<u64> = 1_000_000..=86_400_000_000_000;
const TIMES_MAX: u32 = 1_000_000;

impl Link {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let registry = registry(to)?;
        match self.verb {
            None => show(&registry, None, self.json, to),
            Some(Verb::Show(device)) => show(&registry, device.named()?.as_deref(), self.json, to),
            Some(Verb::Set { device, what }) => {
                let (name, what) = device.before(what, |word| STATES.contains(&word));
                let what: Vec<_> = what.iter().map(String::as_str).collect();
                let links = links_to_set(&registry, name.as_deref())?;
                for link in &links {
                    set(&observe(&registry, link)?, &what)?;
                }
                let name = name
                    .as_deref()
                    .or_else(|| links.first().map(DeviceSpec::device_name));
                match self.json {
                    true => show(&registry, name, self.json, to),
                    false => Ok(()),
                }
            }
        }
    }
}

/// Takes a device's port down or up, as the words after its name say.
pub(crate) fn set(observer: &Observer, what: &[&str]) -> Result<(), Failure> {
    if let Function::Vf { pf, .. } = observer.state().function() {
        let name = &observer.spec().name;
        return Err(Failure::input(format_args!(
            "{name} is a VF of {pf}, whose port it shares; write `ferroce link set {pf} {}`",
            what.join(" ")
        )));
    }
    // Read before the clock: a file may take its time.
    let plan = read(what)?;
    let now = Clock.now();
    let schedule = plan.into_iter().map(|it| Outages {
        first: now.after(it.first.since(Time::ZERO)),
        ..it
    });
    let schedule = Schedule::new(schedule.collect()).map_err(Failure::input)?;
    observer.set_schedule(schedule).map_err(Failure::broken)
}

/// Outages counted from the beginning of time.
fn read(what: &[&str]) -> Result<Vec<Outages>, Failure> {
    let once = |length| vec![Outages::once(Time::ZERO, length)];
    match what {
        [] => Err(Failure::input(format_args!(
            "missing link state; write {FORMS}"
        ))),
        ["up"] => Ok(Vec::new()),
        ["down"] => Ok(once(Span::NEVER)),
        ["down", "for", length] => Ok(once(span("time for which the port is down", length)?)),
        ["flap", times, lengths] => flap(times, lengths).map(|it| vec![it]),
        ["times", file] => file_of_times(&PathBuf::from(file)),
        _ => Err(Failure::input(format_args!(
            "unknown link state {:?}; expected {FORMS}",
            what.join(" ")
        ))),
    }
}

fn span(what: &str, text: &str) -> Result<Span, Failure> {
    let ns = TIME
        .read_in(text, LENGTHS_NS)
        .map_err(|invalid| Failure::input(format_args!("invalid {what} {text:?}: {invalid}")))?;
    Ok(Span::from_nanos(ns))
}

fn flap(times: &str, lengths: &str) -> Result<Outages, Failure> {
    let count = times.strip_suffix('x').and_then(|it| it.parse().ok());
    let times = count
        .filter(|it| (1..=TIMES_MAX).contains(it))
        .ok_or_else(|| {
            Failure::input(format_args!(
                "invalid number of flaps {times:?}: must be 1x to {TIMES_MAX}x, for example 10x"
            ))
        })?;
    let (length, every) = lengths.split_once('/').ok_or_else(|| {
        Failure::input(format_args!(
            "invalid flap {lengths:?}: must be how long the port is down and how often, for \
             example 200ms/2s"
        ))
    })?;
    let outages = Outages {
        first: Time::ZERO,
        length: span("time for which the port is down", length)?,
        every: span("time from flap to flap", every)?,
        times,
    };
    if outages.length >= outages.every {
        return Err(Failure::input(format_args!(
            "invalid flap {lengths:?}: the port must be down for less than the time from flap to \
             flap, for example 200ms/2s"
        )));
    }
    Ok(outages)
}

/// A file with an outage in each line, as an impairment has it: `200ms@3s`. What follows a # is a
/// remark.
fn file_of_times(file: &Path) -> Result<Vec<Outages>, Failure> {
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", file.display())))?;
    let mut outages = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        outages.push(outage(line).ok_or_else(|| {
            Failure::input(format_args!(
                "{}:{number}: invalid outage {line:?}: must be how long the port is down, 1ms to \
                 86400s, and, after an @, from when on, for example 200ms@3s",
                file.display()
            ))
        })?);
    }
    if outages.len() > Schedule::LEN_MAX {
        return Err(Failure::input(format_args!(
            "{}: {} outages: must be {} at most; write `flap` for regular ones",
            file.display(),
            outages.len(),
            Schedule::LEN_MAX
        )));
    }
    Ok(outages)
}

fn outage(line: &str) -> Option<Outages> {
    let (length, from) = line.split_once('@')?;
    let length = TIME.read_in(length.trim(), LENGTHS_NS).ok()?;
    let from = TIME.read_in(from.trim(), 0..=*LENGTHS_NS.end()).ok()?;
    Some(Outages::once(
        Time::from_nanos(from),
        Span::from_nanos(length),
    ))
}

fn show(
    registry: &Registry,
    name: Option<&str>,
    is_json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    if is_json {
        let ports = each_link(registry, name, |index, spec| {
            let port = observe(registry, spec)?.port();
            Ok(json::Port {
                device: spec.device_name().to_owned(),
                index,
                port: spec.link_number(),
                state: if port.is_up { "up" } else { "down" },
                changes_in_ns: port.changes_in.map(Span::as_nanos),
                link_downed: port.downed,
                netdev: netdev_of(spec.address),
            })
        })?;
        return to.document(&json::Ports { ports });
    }
    let rows = each_link(registry, name, |_, spec| {
        let mut row = Row::of_link(spec.device_name(), spec.link_number().into());
        let port = observe(registry, spec)?.port();
        row.put("state", if port.is_up { "ACTIVE" } else { "DOWN" });
        let cable = if port.is_up { "LINK_UP" } else { "DISABLED" };
        row.put("physical_state", cable);
        row.put("netdev", netdev_of(spec.address));
        row.put("link_downed", port.downed);
        if let Some(left) = port.changes_in {
            let left_ms = left.as_nanos().div_ceil(1_000_000);
            row.put("changes_in", TIME.write(left_ms * 1_000_000));
        }
        Ok(row)
    })?;
    print(&rows, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood() {
        assert_eq!(read(&["up"]).unwrap(), []);
        let down = Outages::once(Time::ZERO, Span::NEVER);
        assert_eq!(read(&["down"]).unwrap(), [down]);
        let down = Outages::once(Time::ZERO, Span::from_millis(300));
        assert_eq!(read(&["down", "for", "300ms"]).unwrap(), [down]);
        let flaps = Outages {
            first: Time::ZERO,
            length: Span::from_millis(200),
            every: Span::from_secs(2),
            times: 10,
        };
        assert_eq!(read(&["flap", "10x", "200ms/2s"]).unwrap(), [flaps]);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "# two\n 200ms@3s # one\n\n1s@0\n").unwrap();
        let read = read(&["times", file.path().to_str().unwrap()]).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].first, Time::from_nanos(3_000_000_000));
    }

    #[test]
    fn too_many_outages_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        fs::write(file.path(), "1s@1s\n".repeat(129)).unwrap();
        let error = read(&["times", path]).unwrap_err().to_string();
        assert!(
            error.contains("129 outages: must be 128 at most"),
            "{error}"
        );
    }
}
