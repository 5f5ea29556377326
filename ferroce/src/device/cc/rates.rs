//! `ferroce cc rates`: the queue pairs that are slowed down.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::Args;
use ferroce_device::Counter;
use ferroce_registry::{FlowRow, Inquiry, Observer, Process, Query, Registry, ResourceRow};

use super::super::ask::ask;
use super::super::watch::Again;
use crate::json::cc as json;
use crate::json::res::{On, Silent};
use crate::naming::EachDevice;
use crate::output::look::columns;
use crate::output::{Failure, Output, Table};

/// How long processes may take to answer, all together; those that are stopped hold up one look.
const PATIENCE: Duration = Duration::from_millis(500);

/// Show the queue pairs whose peers have sent CNPs: rate, target, alpha, stage and CNPs
///
/// A terminal is redrawn; otherwise one table follows another. Below 120 columns some are left out.
/// With -j each refresh is a line of JSON, with all of them.
#[derive(Args, Debug)]
pub(super) struct Rates {
    #[command(flatten)]
    device: EachDevice,
    /// Only queue pairs of this priority
    #[arg(long, value_name = "P", value_parser = priority())]
    prio: Option<u8>,
    #[command(flatten)]
    again: Again,
}

/// Of what there are eight.
pub(super) fn priority() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=7)
}

impl Rates {
    /// As `ferroce cc watch` showed them.
    pub(super) fn every(
        interval: Duration,
        count: Option<u64>,
        device: Option<String>,
        prio: Option<u8>,
    ) -> Self {
        Self {
            device: EachDevice::of(device),
            prio,
            again: Again {
                watch: Some(interval),
                count,
            },
        }
    }

    pub(super) fn run(
        self,
        registry: &Registry,
        is_json: bool,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let (name, prio) = (self.device.named()?, self.prio);
        let mut looks = self.again.looks()?;
        let (mut before, mut inquiry) = (Counted::default(), Inquiry::default());
        while looks.next() {
            let (mut seen, silent) = look(registry, name.as_deref(), &mut inquiry)?;
            let now = Instant::now();
            seen.retain(|it| prio.is_none_or(|prio| it.row.prio == prio));
            if is_json {
                let queue_pairs = seen.iter().map(Seen::json).collect();
                let who = silent.iter().map(|(silent, _)| silent.clone()).collect();
                to.document(&json::Watched {
                    queue_pairs,
                    silent: who,
                })?;
            } else {
                let table = match seen.is_empty() {
                    true => no_cnps(prio, !silent.is_empty()),
                    false => table(&seen, &before, now),
                };
                to.text(&format!("{}{table}", looks.in_place()))?;
            }
            to.out.flush()?;
            // Below the picture, which a terminal would otherwise put in their place.
            for (_, line) in silent {
                to.remark(format_args!("warning: {line}"))?;
            }
            before = Counted {
                at: Some(now),
                cnps: seen.iter().map(|it| (it.key(), it.row.cnps)).collect(),
            };
        }
        Ok(())
    }
}

/// A queue pair of a device.
struct Seen {
    device: String,
    row: FlowRow,
}

type Key = (String, u32, u32);

/// What queue pairs had counted at a look.
#[derive(Default)]
struct Counted {
    at: Option<Instant>,
    cnps: HashMap<Key, u32>,
}

impl Counted {
    /// CNPs in a second since then: a look takes its time, too, not just the pause before it.
    fn rate(&self, it: &Seen, now: Instant) -> Option<f64> {
        let more = it.row.cnps.wrapping_sub(*self.cnps.get(&it.key())?);
        let seconds = now.duration_since(self.at?).as_secs_f64();
        Some(f64::from(more) / seconds)
    }
}

impl Seen {
    fn key(&self) -> Key {
        (self.device.clone(), self.row.lqpn, self.row.pid)
    }

    fn json(&self) -> On<&FlowRow> {
        On {
            device: self.device.clone(),
            row: &self.row,
        }
    }
}

/// A process that did not answer, and the line about it.
type Unheard = (Silent, String);

/// The queue pairs, and a line for each process that did not answer.
fn look(
    registry: &Registry,
    name: Option<&str>,
    inquiry: &mut Inquiry,
) -> Result<(Vec<Seen>, Vec<Unheard>), Failure> {
    let has_cnps = |observer: &Observer, process: &Process| {
        let state = observer.state();
        state.counter_of(process.slot, Counter::RpCnpHandled) > 0
    };
    let (mut seen, mut silent) = (Vec::new(), Vec::new());
    let question = (Some(Query::Flow), PATIENCE);
    for device in ask(registry, name, question, inquiry, has_cnps)? {
        silent.extend(device.silent.iter().map(|it| {
            let silent = Silent {
                device: device.device.clone(),
                pid: it.pid,
            };
            (silent, it.line.clone())
        }));
        seen.extend(device.rows.iter().filter_map(FlowRow::of).map(|row| Seen {
            device: device.device.clone(),
            row: row.clone(),
        }));
    }
    Ok((seen, silent))
}

fn no_cnps(prio: Option<u8>, some_are_silent: bool) -> String {
    let mut which = prio.map_or_else(String::new, |prio| format!(" of priority {prio}"));
    if some_are_silent {
        which += " of a process that answers";
    }
    format!("no queue pair{which} has received a CNP\n")
}

/// What all of a queue pair's columns take; narrower terminals get those with a mark only.
const COLUMNS_FOR_ALL: usize = 120;
const COLUMNS: [(&str, bool); 13] = [
    ("link", true),
    (">lqpn", true),
    (">rqpn", false),
    ("peer", true),
    (">prio", false),
    (">rate Mb/s", true),
    (">target", false),
    (">alpha", false),
    ("stage", true),
    (">cnps", false),
    (">cnps/s", true),
    (">pid", false),
    ("comm", true),
];

fn table(seen: &[Seen], before: &Counted, now: Instant) -> String {
    let has_room = columns() >= COLUMNS_FOR_ALL;
    let is_shown = |(_, is_marked): &(_, bool)| has_room || *is_marked;
    let header = COLUMNS.into_iter().filter(is_shown).map(|(name, _)| name);
    let mut table = Table::new(&header.collect::<Vec<_>>());
    for it in seen {
        let cells = it.cells(has_room, before, now).into_iter().zip(COLUMNS);
        let cells = cells.filter(|(_, column)| is_shown(column));
        table.row(cells.map(|(cell, _)| cell).collect());
    }
    table.to_string()
}

impl Seen {
    /// A cell for each of [`COLUMNS`]. Stages have their counts where there is room for them.
    fn cells(&self, has_room: bool, before: &Counted, now: Instant) -> [String; COLUMNS.len()] {
        let row = &self.row;
        let mbps = |bps: u64| format!("{:.1}", bps as f64 / 1e6);
        let [rate, target, alpha, stage] = match &row.limit {
            Some(limit) => [
                mbps(limit.rate_bps),
                mbps(limit.target_bps),
                format!("{:.3}", limit.alpha),
                match has_room {
                    true => format!("{} {}/{}", limit.stage, limit.time_stage, limit.byte_stage),
                    false => limit.stage.clone(),
                },
            ],
            None => ["full", "-", "-", "-"].map(str::to_owned),
        };
        let cnps = before.rate(self, now);
        let cnps = cnps.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        [
            format!("{}/1", self.device),
            row.lqpn.to_string(),
            row.rqpn.to_string(),
            row.peer.to_string(),
            row.prio.to_string(),
            rate,
            target,
            alpha,
            stage,
            row.cnps.to_string(),
            cnps,
            row.pid.to_string(),
            row.comm.clone(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cnps_are_counted_by_the_time_that_has_passed() {
        let seen = |cnps| Seen {
            device: "fr0".to_owned(),
            row: FlowRow {
                lqpn: 1,
                rqpn: 2,
                peer: std::net::Ipv4Addr::LOCALHOST.into(),
                prio: 0,
                cnps,
                limit: None,
                pid: 3,
                comm: "test".to_owned(),
            },
        };
        let at = Instant::now();
        let before = Counted {
            at: Some(at),
            cnps: HashMap::from([(seen(0).key(), u32::MAX)]),
        };
        let later = at + Duration::from_millis(500);
        assert_eq!(before.rate(&seen(9), later), Some(20.0), "modulo 2^32");
        assert_eq!(Counted::default().rate(&seen(9), later), None);
    }
}
