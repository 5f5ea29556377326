//! `ferroce stat`: the counters of devices.

mod rates;

use clap::{Args, Subcommand};
use ferroce_base::names::near;
use ferroce_device::{Counter, DeviceState, PortCounter};
use ferroce_registry::{DeviceSpec, Registry};

pub(super) use self::rates::{per_second, thousandths};
use super::format::{Format, Row, print};
use super::hist::{self, Hist};
use super::watch::Again;
use crate::bins;
use crate::json::device as json;
use crate::json::shared::{Bin, Named};
use crate::naming::{DeviceArg, EachDevice, each_link, observe, registry};
use crate::output::lines::indented;
use crate::output::{Failure, Output};
use crate::spelling;

/// Show counters, and the histogram of timeouts
///
/// Counters that are not 0 are shown; JSON has all of them. Totals include programs that have exited.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES, infer_subcommands = true)]
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
    /// With --watch rates per second are shown instead.
    #[command(flatten)]
    again: Again,
}

impl Look {
    /// With what stood in front of the verb.
    fn after(self, before: Self) -> Self {
        Self {
            all: self.all || before.all,
            again: self.again.or(before.again),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show counters, or with --watch their rates; what `ferroce stat` alone does
    #[command(alias = "list")]
    Show {
        #[command(flatten)]
        device: EachDevice,
        /// Only these counters
        #[arg(value_name = "COUNTER")]
        counters: Vec<String>,
        #[command(flatten)]
        look: Look,
    },
    /// Say what counters mean, and what exporters and the kernel's software RoCE call them
    Explain {
        /// Only these counters
        #[arg(value_name = "COUNTER")]
        counters: Vec<String>,
    },
    Hist(Hist),
    /// What `ferroce stat explain` was called
    #[command(hide = true)]
    Names,
    /// What `ferroce stat hist clear` was called
    #[command(hide = true)]
    Clear(DeviceArg),
}

impl Stat {
    pub(crate) fn run(self, details: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        let format = self.format.with(details);
        match self.verb {
            None => self
                .look
                .show(&registry(to)?, &Wanted::default(), format, to),
            Some(Verb::Show {
                device,
                counters,
                look,
            }) => {
                let (device, counters) = device.before(counters, |it| counter(it).is_some());
                let wanted = Wanted {
                    device,
                    counters: known(&counters)?,
                };
                look.after(self.look)
                    .show(&registry(to)?, &wanted, format, to)
            }
            Some(Verb::Explain { counters }) => explain(&counters, format.json, to),
            Some(Verb::Hist(hist)) => match hist.run(format.json, to)? {
                Some(cleared) => self.look.show_cleared(cleared, format, to),
                None => Ok(()),
            },
            Some(Verb::Names) => {
                spelling::old("ferroce stat explain", to)?;
                explain(&[], format.json, to)
            }
            Some(Verb::Clear(device)) => {
                spelling::old("ferroce stat hist clear [DEV]", to)?;
                self.look.show_cleared(hist::clear(device, to)?, format, to)
            }
        }
    }
}

/// What is to be shown.
#[derive(Debug, Default)]
struct Wanted {
    device: Option<String>,
    /// All of them if empty.
    counters: Vec<Counter>,
}

impl Wanted {
    fn has(&self, counter: Counter) -> bool {
        self.counters.is_empty() || self.counters.contains(&counter)
    }
}

fn known(names: &[String]) -> Result<Vec<Counter>, Failure> {
    let known = |name: &String| counter(name).ok_or_else(|| unknown(name));
    names.iter().map(known).collect()
}

fn counter(name: &str) -> Option<Counter> {
    let info = Counter::TABLE.iter().find(|info| info.name == name)?;
    Some(info.counter)
}

fn unknown(name: &str) -> Failure {
    let names = Counter::TABLE.iter().map(|info| info.name);
    let meant = near(name, names).map_or_else(String::new, |it| format!("did you mean {it}? "));
    Failure::input(format_args!(
        "unknown counter {name:?}; {meant}`ferroce stat explain` lists them"
    ))
}

impl Look {
    /// Prints for programs what is left of a device whose histogram was cleared.
    fn show_cleared(
        self,
        device: String,
        format: Format,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let wanted = Wanted {
            device: Some(device),
            ..Wanted::default()
        };
        match format.json {
            true => self.show(&registry(to)?, &wanted, format, to),
            false => Ok(()),
        }
    }

    /// Whether a counter with this value is shown to people.
    fn shows(self, wanted: &Wanted, value: u64) -> bool {
        value > 0 || self.all || !wanted.counters.is_empty()
    }

    fn show(
        self,
        registry: &Registry,
        wanted: &Wanted,
        format: Format,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if let Some(interval) = self.again.watch {
            let times = (interval, self.again.count);
            return rates::watch(registry, wanted, times, self, format.json, to);
        }
        if format.json {
            let devices = each_link(registry, wanted.device.as_deref(), |index, spec| {
                let observer = observe(registry, spec)?;
                Ok(document((index, spec), observer.state()))
            })?;
            return to.document(&json::Counted { devices });
        }
        let rows = each_link(registry, wanted.device.as_deref(), |_, spec| {
            let observer = observe(registry, spec)?;
            let counters = observer.state().counters();
            let mut row = Row::of_link(spec.device_name(), spec.link_number().into());
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
fn document((index, spec): (usize, &DeviceSpec), state: &DeviceState) -> json::DeviceCounters {
    let (config, counts) = state.histogram_snapshot();
    json::DeviceCounters {
        device: spec.device_name().to_owned(),
        index,
        port: spec.link_number(),
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
fn explain(names: &[String], is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
    let counters = Counter::TABLE
        .iter()
        .map(|info| describe("hw_counters", info.name, info.metric, info.rxe, info.help));
    let of_the_port = PortCounter::TABLE
        .iter()
        .map(|counter| describe("counters", counter.name, counter.metric, None, counter.help));
    let mut counters: Vec<_> = counters.chain(of_the_port).collect();
    for name in names {
        if counters.iter().all(|it| it.name != name) {
            return Err(unknown(name));
        }
    }
    counters.retain(|it| names.is_empty() || names.iter().any(|name| it.name == name));
    if is_json {
        return to.document(&json::CounterNames { counters });
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
