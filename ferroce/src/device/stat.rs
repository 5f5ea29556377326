//! `ferroce stat`: the counters of devices.

mod rates;

pub(super) use self::rates::{per_second, thousandths};

use std::time::Duration;

use clap::{Args, Subcommand};
use ferroce_adp::file::nearest;
use ferroce_hca::{Counter, DeviceState, PortCounter};
use ferroce_udp::Registry;

use super::format::{Before, Format, Row, print};
use super::hist::Hist;
use super::watch::interval;
use super::{each, link, observe, registry};
use crate::bins;
use crate::json::device as json;
use crate::json::shared::{Bin, Named};
use crate::lines::indented;
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
    /// Include counters that are 0
    #[arg(short, long)]
    all: bool,
    /// Show rates per second instead, every SECONDS, until interrupted [default: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = interval)]
    watch: Option<Duration>,
    /// Stop after N tables
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
        /// Only this device: DEV or DEV/1, also after the word link; and of it only these counters
        #[arg(value_name = "[link] DEV] [COUNTER")]
        words: Vec<String>,
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
            None => self.look.show(&registry, &Wanted::default(), format, to),
            Some(Verb::Show { words, look }) => {
                let wanted = Wanted::parse(&words)?;
                look.after(self.look).show(&registry, &wanted, format, to)
            }
            Some(Verb::Names) => names(format, to),
            Some(Verb::Hist(hist)) => hist.run(format, to),
            Some(Verb::Clear { name }) => {
                let name = link(&name)?;
                let observer = registry.observe(name)?;
                let cleared = observer.state().clear_histogram();
                cleared.map_err(Failure::broken)?;
                match format.is_json() {
                    true => {
                        let wanted = Wanted {
                            device: Some(name),
                            ..Wanted::default()
                        };
                        self.look.show(&registry, &wanted, format, to)
                    }
                    false => Ok(()),
                }
            }
        }
    }
}

/// What is to be shown.
#[derive(Debug, Default)]
struct Wanted<'a> {
    device: Option<&'a str>,
    /// All of them if empty.
    counters: Vec<Counter>,
}

impl<'a> Wanted<'a> {
    fn parse(words: &'a [String]) -> Result<Self, Failure> {
        let words = match words {
            [word, rest @ ..] if word == "link" => rest,
            words => words,
        };
        let Some((device, names)) = words.split_first() else {
            return Ok(Self::default());
        };
        if counter(device).is_some() {
            return Err(Failure::input(format_args!(
                "no device named: write `ferroce stat show DEV {device}`; `ferroce dev` lists devices"
            )));
        }
        let known = |name: &String| counter(name).ok_or_else(|| unknown(name));
        Ok(Self {
            device: Some(link(device)?),
            counters: names.iter().map(known).collect::<Result<_, _>>()?,
        })
    }

    fn has(&self, counter: Counter) -> bool {
        self.counters.is_empty() || self.counters.contains(&counter)
    }
}

fn counter(name: &str) -> Option<Counter> {
    let info = Counter::TABLE.iter().find(|info| info.name == name)?;
    Some(info.counter)
}

fn unknown(name: &str) -> Failure {
    let names = Counter::TABLE.iter().map(|info| info.name);
    let meant = nearest(name, names).map_or_else(String::new, |it| format!("did you mean {it}? "));
    Failure::input(format_args!(
        "unknown counter {name:?}; {meant}`ferroce stat names` lists them"
    ))
}

impl Look {
    /// Whether a counter with this value is shown to people.
    fn shows(self, wanted: &Wanted<'_>, value: u64) -> bool {
        value > 0 || self.all || !wanted.counters.is_empty()
    }

    fn show(
        self,
        registry: &Registry,
        wanted: &Wanted<'_>,
        format: Format,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if let Some(interval) = self.watch {
            let times = (interval, self.count);
            return rates::watch(registry, wanted, times, self, format, to);
        }
        if format.is_json() {
            let devices = each(registry, wanted.device, |index, spec| {
                let observer = observe(registry, spec)?;
                Ok(document((index, &spec.name), observer.state()))
            })?;
            return format.document(&json::Counted { devices }, to);
        }
        let rows = each(registry, wanted.device, |_, spec| {
            let observer = observe(registry, spec)?;
            let counters = observer.state().counters();
            let mut row = Row::of_port(&spec.name);
            for info in Counter::TABLE.iter().filter(|it| wanted.has(it.counter)) {
                let value = counters[info.counter as usize];
                if self.shows(wanted, value) {
                    row.put(info.name, value);
                }
            }
            if counters.iter().all(|value| !self.shows(wanted, *value)) {
                row.say("all counters are 0");
            }
            if format.details {
                row.add_below(&histogram(&spec.name, observer.state()));
            }
            Ok(row)
        })?;
        print(&rows, to)
    }
}

/// The counters of a device for programs.
fn document((index, name): (usize, &str), state: &DeviceState) -> json::DeviceCounters {
    let (config, counts) = state.histogram_snapshot();
    json::DeviceCounters {
        device: name.to_owned(),
        index,
        counters: named(&state.counters(), |count| count),
        histogram: json::Histogram {
            counting: config.enabled,
            bins: Bin::all(&config, &counts),
        },
    }
}

/// Something of each counter, by name.
fn named<T>(counters: &[u64; Counter::COUNT], value: impl Fn(u64) -> T) -> Named<T> {
    let table = Counter::TABLE.iter();
    let named = table.map(|info| (info.name, value(counters[info.counter as usize])));
    named.collect()
}

/// The table of counters: first those of the device, then those of the port made of them.
fn names(format: Format, to: &mut Output<'_>) -> Result<(), Failure> {
    let counters = Counter::TABLE
        .iter()
        .map(|info| describe("hw_counters", info.name, info.metric, info.rxe, info.help));
    let of_the_port = PortCounter::TABLE
        .iter()
        .map(|counter| describe("counters", counter.name, counter.metric, None, counter.help));
    let counters: Vec<_> = counters.chain(of_the_port).collect();
    if format.is_json() {
        return format.document(&json::CounterNames { counters }, to);
    }
    let rows = counters.iter().map(|counter| {
        let mut row = Row::new(format!("{}/{}", counter.directory, counter.name));
        row.put("metric", counter.metric.as_str());
        if let Some(rxe) = counter.rxe {
            row.put("rxe", rxe);
        }
        row.add_below(&indented(counter.meaning));
        row
    });
    print(&rows.collect::<Vec<_>>(), to)
}

/// `directory` is where the file is, below `/sys/class/infiniband/DEV/ports/1`.
fn describe(
    directory: &'static str,
    name: &'static str,
    metric: &str,
    rxe: Option<&'static str>,
    meaning: &'static str,
) -> json::CounterName {
    json::CounterName {
        directory,
        name,
        metric: format!("{metric}_total"),
        rxe,
        meaning,
    }
}

/// The histogram of a device, for people.
fn histogram(name: &str, state: &DeviceState) -> String {
    let (config, counts) = state.histogram_snapshot();
    let table = bins::table(&config, &[(name.to_owned(), counts)]);
    table.unwrap_or_else(|| "no adaptive-retransmission timeouts\n".to_owned())
}
