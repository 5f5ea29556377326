//! The tables of a run, each created when it is written.
//!
//! | module | purpose |
//! |---|---|
//! | `csv` | writes one as comma-separated values |
//! | `parquet` | writes one as Parquet, and reads it |

mod csv;
pub(super) mod parquet;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use clap::ValueEnum;
use ferroce_fabric::{Sample, Samples};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{LinkRow, Results, line_name};

/// How tables are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Format {
    /// Comma-separated values
    Csv,
    /// Apache Parquet, for data frames and SQL
    Parquet,
}

/// A table: columns of the same length.
struct Table<'a> {
    name: &'static str,
    columns: Vec<(&'static str, Column<'a>)>,
}

/// A column, as text or as a number that is less than 2^63.
enum Column<'a> {
    Number(Vec<u64>),
    /// Numbers that not every row has.
    Perhaps(Vec<Option<u64>>),
    /// Shares, from 0 to 1, that not every row has.
    Share(Vec<Option<f64>>),
    Flag(Vec<bool>),
    Text(Vec<String>),
    /// Names, by their places in a list.
    Name(Vec<u32>, &'a [String]),
}

impl Table<'_> {
    fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Number(values) => values.len(),
            Self::Perhaps(values) => values.len(),
            Self::Share(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Flag(values) => values.len(),
            Self::Name(places, _) => places.len(),
        }
    }
}

/// What tables are made of.
struct Source<'a> {
    results: &'a Results,
    samples: &'a Samples,
    hosts: &'a [String],
    lines: Vec<String>,
}

/// The column by which tables join: with `qpn`, it names a queue pair.
const HOST: &str = "host";

impl<'a> Source<'a> {
    /// A column of hosts, by name in every table.
    fn host<R>(
        &self,
        name: &'static str,
        rows: &[R],
        of: impl Fn(&R) -> u32,
    ) -> (&'static str, Column<'a>) {
        let places = rows.iter().map(of).collect();
        (name, Column::Name(places, self.hosts))
    }
}

/// Writes all tables to a directory, in each of these formats.
pub(super) fn write(
    directory: &Path,
    scenario: &Scenario,
    samples: &Samples,
    results: &Results,
    formats: &[Format],
) -> io::Result<()> {
    let topology = &scenario.topology;
    let lines = 0..2 * topology.cables.len();
    let source = Source {
        results,
        samples,
        hosts: &topology.names,
        lines: lines
            .map(|it| line_name(topology, it / 2, it % 2))
            .collect(),
    };
    for table in [
        flows,
        qps,
        timeouts,
        histogram,
        link_totals,
        queues,
        links,
        rates,
        goodput,
    ] {
        let table = table(&source);
        for format in formats {
            match format {
                Format::Csv => {
                    let file = File::create_new(directory.join(table.name).with_extension("csv"))?;
                    let mut file = BufWriter::new(file);
                    csv::write(&table, &mut file)?;
                    file.flush()?;
                }
                Format::Parquet => {
                    let path = directory.join(table.name).with_extension("parquet");
                    parquet::write(&table, File::create_new(path)?)?;
                }
            }
        }
    }
    Ok(())
}

/// Columns of numbers, named after the fields they come from.
macro_rules! numbers {
    ($rows:expr; $($field:ident),*) => {
        vec![$((
            stringify!($field),
            Column::Number($rows.iter().map(|it| u64::from(it.$field)).collect()),
        )),*]
    };
}

fn flows<'a>(source: &'a Source<'_>) -> Table<'a> {
    let rows = &source.results.flows;
    let fct = rows.iter().map(|it| it.fct_ns).collect();
    let mut columns = numbers!(rows; transfer, job);
    columns.push(source.host("src", rows, |it| it.src));
    columns.push(source.host("dst", rows, |it| it.dst));
    columns.extend(numbers!(rows; bytes, start_ns));
    columns.push(("fct_ns", Column::Perhaps(fct)));
    columns.extend(numbers!(rows; ideal_ns));
    let delivery = rows.iter().map(|it| it.delivery_ns).collect();
    columns.push(("delivery_ns", Column::Perhaps(delivery)));
    columns.extend(numbers!(rows; connection));
    Table {
        name: "flows",
        columns,
    }
}

fn qps<'a>(source: &'a Source<'_>) -> Table<'a> {
    let rows = &source.results.qps;
    let mut columns = numbers!(rows; job);
    columns.push(source.host(HOST, rows, |it| it.host));
    columns.extend(numbers!(rows; qpn));
    columns.push(source.host("peer", rows, |it| it.peer));
    columns.extend(numbers!(
        rows; peer_qpn, transfers, acknowledged, bytes, timeouts, waited_ns, failures
    ));
    let paths = &source.results.paths;
    let numbers = 0..rows.len();
    columns.push((
        "connection",
        Column::Number(numbers.clone().map(|it| it as u64).collect()),
    ));
    let path = |it: usize| {
        let links = paths.lines(it).iter();
        let links: Vec<_> = links
            .map(|line| source.lines[*line as usize].as_str())
            .collect();
        links.join(" ")
    };
    columns.push(("path", Column::Text(numbers.clone().map(path).collect())));
    let changed = numbers.map(|it| paths.has_changed(it)).collect();
    columns.push(("path_changed", Column::Flag(changed)));
    Table {
        name: "qps",
        columns,
    }
}

fn timeouts<'a>(source: &'a Source<'_>) -> Table<'a> {
    let rows = &source.results.timeouts;
    let adaptive = rows.iter().map(|it| it.adaptive).collect();
    let fatal = rows.iter().map(|it| it.fatal).collect();
    let mut columns = numbers!(rows; at_ns);
    columns.push(source.host(HOST, rows, |it| it.host));
    columns.extend(numbers!(rows; qpn, job, wait_ns));
    columns.push(("adaptive", Column::Flag(adaptive)));
    columns.push(("fatal", Column::Flag(fatal)));
    Table {
        name: "timeouts",
        columns,
    }
}

fn histogram<'a>(source: &'a Source<'_>) -> Table<'a> {
    let rows = &source.results.summary.histogram;
    let high = rows.iter().map(|it| it.high_ns).collect();
    let mut columns = numbers!(rows; low_ns);
    columns.push(("high_ns", Column::Perhaps(high)));
    columns.extend(numbers!(rows; count));
    Table {
        name: "histogram",
        columns,
    }
}

fn link_totals<'a>(source: &'a Source<'_>) -> Table<'a> {
    let rows = &source.results.links;
    let carried: Vec<_> = rows.iter().map(|it| it.carried).collect();
    let talkers = |it: &LinkRow| {
        let qps = it.talkers.iter().flatten();
        let qps = qps.map(|qp| &source.results.qps[*qp as usize]);
        let name = |host: u32| source.hosts[host as usize].as_str();
        let named = qps.map(|qp| {
            format!(
                "{} {:#x} to {}: {}",
                name(qp.host),
                qp.qpn,
                name(qp.peer),
                qp.bytes
            )
        });
        named.collect::<Vec<_>>().join("; ")
    };
    let lines = rows.iter().map(|it| it.line).collect();
    let mut columns = vec![("link", Column::Name(lines, &source.lines))];
    columns.extend(numbers!(carried; bytes));
    let utilisation = carried.iter().map(|it| Some(it.utilisation)).collect();
    columns.push(("utilisation", Column::Share(utilisation)));
    let peak = carried.iter().map(|it| it.peak).collect();
    columns.push(("peak", Column::Share(peak)));
    columns.extend(numbers!(carried; queue_max, pauses, dropped, lost, connections));
    columns.push(("talkers", Column::Text(rows.iter().map(talkers).collect())));
    Table {
        name: "link_totals",
        columns,
    }
}

fn queues<'a>(source: &'a Source<'_>) -> Table<'a> {
    series(
        "queues",
        ("port", &source.lines),
        "bytes",
        &source.samples.queues,
    )
}

fn links<'a>(source: &'a Source<'_>) -> Table<'a> {
    series(
        "links",
        ("link", &source.lines),
        "bytes",
        &source.samples.links,
    )
}

fn rates<'a>(source: &'a Source<'_>) -> Table<'a> {
    of_qps("rates", source, "bps", &source.samples.rates)
}

fn goodput<'a>(source: &'a Source<'_>) -> Table<'a> {
    of_qps("goodput", source, "bytes", &source.samples.goodput)
}

/// Samples of queue pairs, by their hosts and numbers.
fn of_qps<'a>(
    name: &'static str,
    source: &'a Source<'_>,
    value: &'static str,
    samples: &[Sample],
) -> Table<'a> {
    let mut table = series(name, (HOST, source.hosts), value, samples);
    table.columns.splice(2..2, numbers!(samples; qpn));
    table
}

/// Samples of lines or hosts, by name.
fn series<'a>(
    name: &'static str,
    (of, names): (&'static str, &'a [String]),
    value: &'static str,
    samples: &[Sample],
) -> Table<'a> {
    let at = samples.iter().map(|it| it.at.as_nanos()).collect();
    let places = samples.iter().map(|it| it.of).collect();
    let values = samples.iter().map(|it| it.value).collect();
    Table {
        name,
        columns: vec![
            ("at_ns", Column::Number(at)),
            (of, Column::Name(places, names)),
            (value, Column::Number(values)),
        ],
    }
}
