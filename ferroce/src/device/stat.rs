//! `ferroce stat`: the counters of devices.

mod rates;

pub(super) use self::rates::per_second;

use std::time::Duration;

use clap::{Args, Subcommand};
use ferroce_hca::{Counter, DeviceState, PortCounter};
use ferroce_udp::Registry;

use super::format::{Before, Format, Row};
use super::hist::Hist;
use super::watch::interval;
use super::{link, observe, registry, show_each};
use crate::bins;
use crate::output::{Failure, Output};

/// Show counters, and with -d the histogram of timeouts
///
/// Counters that are not 0 are shown; JSON has all of them. Totals include programs that have exited.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Stat {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    format: Format,
}

/// Which counters to show, and how often.
#[derive(Args, Clone, Copy, Debug)]
struct Look {
    /// Show counters that are 0, too
    #[arg(short, long)]
    all: bool,
    /// Show rates per second instead, every SECONDS, until interrupted [default: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = interval)]
    watch: Option<Duration>,
    /// End after this many looks
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Look {
    /// With what stood in front of the verb.
    fn after(self, before: Self) -> Self {
        Self {
            all: self.all || before.all,
            watch: self.watch.or(before.watch),
            count: self.count.or(before.count),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show counters; what `ferroce stat` alone does
    #[command(alias = "list")]
    Show {
        /// Only this device: DEV, DEV/1, or the same after the word link
        #[arg(value_name = "[link] DEV", num_args = 0..=2)]
        link: Vec<String>,
        #[command(flatten)]
        look: Look,
    },
    /// What the counters mean, and what exporters and the kernel's software RoCE call them
    Names,
    Hist(Hist),
    /// Set the histogram of timeouts to zero; counters never fall
    Clear {
        #[arg(value_name = "DEV")]
        name: String,
    },
}

impl Stat {
    pub(crate) fn run(self, before: Before, to: &mut Output<'_>) -> Result<(), Failure> {
        let format = self.format.after(before);
        let registry = registry(to)?;
        match self.verb {
            None => self.look.show(&registry, None, format, to),
            Some(Verb::Show { link: words, look }) => {
                let name = match words.as_slice() {
                    [] => None,
                    [name] => Some(link(name)?),
                    [word, name] if word == "link" => Some(link(name)?),
                    [word, ..] => {
                        return Err(Failure::input(format_args!(
                            "unexpected {word:?}: a device comes alone or after the word link, and all its counters are shown"
                        )));
                    }
                };
                look.after(self.look).show(&registry, name, format, to)
            }
            Some(Verb::Names) => names(format, to),
            Some(Verb::Hist(hist)) => hist.run(format, to),
            Some(Verb::Clear { name }) => {
                let observer = registry.observe(link(&name)?)?;
                observer.state().clear_histogram().map_err(Failure::broken)
            }
        }
    }
}

impl Look {
    fn show(
        self,
        registry: &Registry,
        name: Option<&str>,
        format: Format,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if let Some(interval) = self.watch {
            return rates::watch(registry, name, (interval, self.count), self.all, format, to);
        }
        show_each(registry, name, format, to, |index, spec| {
            let observer = observe(registry, spec)?;
            let counters = observer.state().counters();
            let mut row = Row::of_port((index, &spec.name));
            for info in Counter::TABLE {
                let value = counters[info.counter as usize];
                if value > 0 || self.all || format.is_json() {
                    row.put(info.name, value);
                }
            }
            if counters.iter().all(|value| *value == 0) && !self.all {
                row.say("all counters are 0");
            }
            if format.details {
                put_histogram(&mut row, &spec.name, observer.state())?;
            }
            Ok(row)
        })
    }
}

/// The table of counters: first those of the device, then those of the port made of them.
fn names(format: Format, to: &mut Output<'_>) -> Result<(), Failure> {
    let counters = Counter::TABLE
        .iter()
        .map(|info| describe("hw_counters", info.name, info.metric, info.rxe, info.help));
    let of_the_port = PortCounter::TABLE
        .iter()
        .map(|counter| describe("counters", counter.name, counter.metric, None, counter.help));
    format.print(to, counters.chain(of_the_port).collect())
}

/// `directory` is where the file is, below `/sys/class/infiniband/DEV/ports/1`.
fn describe(directory: &str, name: &str, metric: &str, rxe: Option<&str>, help: &str) -> Row {
    let keys = [("directory", directory.into()), ("name", name.into())];
    let mut row = Row::new(format!("{directory}/{name}"), &keys);
    row.put("metric", format!("{metric}_total"));
    if let Some(rxe) = rxe {
        row.put("rxe", rxe);
    }
    row.put_below("meaning", help.into(), &format!("    {help}\n"));
    row
}

fn put_histogram(row: &mut Row, name: &str, state: &DeviceState) -> Result<(), Failure> {
    let (config, counts) = state.histogram_snapshot();
    let json = serde_json::to_value(bins::json(&config, &counts)).map_err(Failure::broken)?;
    let table = bins::table(&config, &[(name.to_owned(), counts)]);
    let lines = table.unwrap_or_else(|| "no adaptive-retransmission timeouts\n".to_owned());
    row.put_below("adp-retx-histogram", json, &lines);
    Ok(())
}
