//! `ferroce stat --watch`: the rates of counters.

use std::time::{Duration, Instant};

use ferroce_device::Counter;
use ferroce_registry::{DeviceSpec, Registry};

use super::super::watch::{Pauses, in_place};
use super::{Look, Wanted, named};
use crate::json::device as json;
use crate::naming::{links, observe};
use crate::output::{Failure, Output, Table};

/// Prints how much counters have grown in a second, after each interval.
pub(super) fn watch(
    registry: &Registry,
    wanted: &Wanted,
    (interval, count): (Duration, Option<u64>),
    look: Look,
    is_json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let pauses = Pauses::new()?;
    let mut before = Taken::now(registry, wanted.device.as_deref())?;
    for round in 0.. {
        if count == Some(round) || !pauses.pass(interval) {
            break;
        }
        let now = Taken::now(registry, wanted.device.as_deref())?;
        let rates = now.since(&before);
        match is_json {
            true => to.document(&document(&rates, now.at.duration_since(before.at)))?,
            false => {
                let shows = |counter, total| wanted.has(counter) && look.shows(wanted, total);
                to.text(&format!("{}{}", in_place(), table(&rates, shows)))?;
            }
        }
        to.out.flush()?;
        before = now;
    }
    Ok(())
}

type Counters = [u64; Counter::COUNT];

/// The counters of devices at one time.
struct Taken {
    at: Instant,
    links: Vec<(DeviceSpec, Counters)>,
}

/// How the counters of a link have grown.
struct Rates {
    link: DeviceSpec,
    seconds: f64,
    totals: Counters,
    moved: Counters,
}

impl Taken {
    fn now(registry: &Registry, name: Option<&str>) -> Result<Self, Failure> {
        let at = Instant::now();
        let links = links(registry, name)?.into_iter().map(|(_, spec)| {
            let counters = observe(registry, &spec)?.state().counters();
            Ok((spec, counters))
        });
        let links = links.collect::<Result<_, Failure>>()?;
        Ok(Self { at, links })
    }

    /// The rates of the links that were there before, too.
    fn since(&self, before: &Self) -> Vec<Rates> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let rates = self.links.iter().filter_map(|(link, totals)| {
            let mut known = before.links.iter();
            let (_, earlier) = known.find(|(other, _)| other.name == link.name)?;
            let mut moved = *totals;
            for (now, earlier) in moved.iter_mut().zip(earlier) {
                // Less than before: another device has taken the name, and counts from zero.
                *now = now.checked_sub(*earlier).unwrap_or(*now);
            }
            Some(Rates {
                link: link.clone(),
                seconds,
                totals: *totals,
                moved,
            })
        });
        rates.collect()
    }
}

impl Rates {
    fn of(&self, counter: Counter) -> f64 {
        self.moved[counter as usize] as f64 / self.seconds
    }
}

/// Rates for programs.
fn document(rates: &[Rates], elapsed: Duration) -> json::Rates {
    let devices = rates.iter().map(|it| json::DeviceRates {
        device: it.link.device_name().to_owned(),
        port: it.link.link_number(),
        rates: named(&it.moved, |moved| thousandths(moved as f64 / it.seconds)),
        counters: named(&it.totals, |total| total),
    });
    json::Rates {
        elapsed_s: elapsed.as_secs_f64(),
        devices: devices.collect(),
    }
}

/// Rounds to thousandths; more digits have no meaning.
pub(in super::super) fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn table(rates: &[Rates], shows: impl Fn(Counter, u64) -> bool) -> String {
    let mut table = Table::new(&["link", "counter", ">per second", ">total"]);
    let mut is_empty = true;
    for it in rates {
        for info in Counter::TABLE {
            let total = it.totals[info.counter as usize];
            if !shows(info.counter, total) {
                continue;
            }
            is_empty = false;
            table.row(vec![
                format!("{}/{}", it.link.device_name(), it.link.link_number()),
                info.name.to_owned(),
                per_second(it.of(info.counter)),
                total.to_string(),
            ]);
        }
    }
    match is_empty {
        true => "all counters are 0\n".to_owned(),
        false => table.to_string(),
    }
}

/// A rate with as many digits as mean something.
pub(in super::super) fn per_second(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(at: Instant, devices: &[(&str, u64)]) -> Taken {
        let device = |(name, packets): &(&str, u64)| {
            let mut counters = [0; Counter::COUNT];
            counters[Counter::RdmaTxPackets as usize] = *packets;
            (DeviceSpec::new(name, [127, 0, 0, 1].into()), counters)
        };
        Taken {
            at,
            links: devices.iter().map(device).collect(),
        }
    }

    #[test]
    fn rates_are_of_the_time_that_has_passed() {
        let at = Instant::now();
        let before = taken(at, &[("a", 100), ("b", 100), ("gone", 1)]);
        let later = at + Duration::from_millis(500);
        let rates = taken(later, &[("a", 110), ("b", 3), ("new", 7)]).since(&before);
        let found = rates
            .iter()
            .map(|it| (it.link.name.as_str(), it.of(Counter::RdmaTxPackets)));
        let found: Vec<_> = found.collect();
        assert_eq!(found, [("a", 20.0), ("b", 6.0)], "b was replaced");
        assert_eq!(
            table(&rates, |_, total| total > 0),
            "link  counter          per second  total\n\
             a/1   rdma_tx_packets          20    110\n\
             b/1   rdma_tx_packets         6.0      3\n"
        );
        assert_eq!(
            table(&rates, |_, _| true).lines().count(),
            1 + 2 * Counter::COUNT
        );
        assert_eq!(table(&[], |_, _| true), "all counters are 0\n");
    }
}
