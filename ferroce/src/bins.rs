//! Timeout histograms, as text and as JSON.

use std::fmt::Write as _;

use ferroce_device::HistogramConfig;

use crate::output::Table;
use crate::output::lines::short;
use crate::output::look::columns as output_columns;

/// Columns of the longest bar, where there is room for it.
const BAR: usize = 14;
/// Of the longest bar where many histograms stand side by side.
const BAR_MIN: usize = 4;

/// Named histograms side by side in the same bins, from the first to the last bin that has
/// anything in it; `None` if none has.
pub(crate) fn table(config: &HistogramConfig, columns: &[(String, Vec<u64>)]) -> Option<String> {
    table_and(config, columns, None)
}

/// The same with a count besides for each of them, below the bins and drawn like one.
pub(crate) fn table_and(
    config: &HistogramConfig,
    columns: &[(String, Vec<u64>)],
    besides: Option<(&str, &[u64])>,
) -> Option<String> {
    let count = |column: &(String, Vec<u64>), bin: usize| column.1.get(bin).copied().unwrap_or(0);
    let is_used = |bin: &usize| columns.iter().any(|column| count(column, *bin) > 0);
    let bins = 0..usize::from(config.bins);
    let (first, last) = (bins.clone().find(is_used)?, bins.rev().find(is_used)?);
    let all = columns.iter().flat_map(|(_, counts)| counts);
    let all = all.chain(besides.iter().flat_map(|(_, counts)| *counts));
    let most = all.copied().max().unwrap_or(1);
    let edges: Vec<_> = (first..=last).map(|bin| edges(config, bin)).collect();
    let longest = bar_len(&edges, most, columns.len());
    let names = columns.iter().map(|(name, _)| name.as_str());
    let header: Vec<_> = std::iter::once("timeouts after").chain(names).collect();
    let mut table = Table::new(&header);
    for (bin, edges) in (first..=last).zip(edges) {
        let mut cells = vec![edges];
        let bars = columns.iter().map(|it| bar(count(it, bin), most, longest));
        cells.extend(bars);
        table.row(cells);
    }
    if let Some((name, counts)) = besides {
        let bars = counts.iter().map(|count| bar(*count, most, longest));
        table.row([name.to_owned()].into_iter().chain(bars).collect());
    }
    Some(table.unwrapped().to_string())
}

/// The longest bar with which `count` of them fit beside each other on the terminal.
fn bar_len(edges: &[String], most: u64, count: usize) -> usize {
    let name = edges.iter().map(|it| it.chars().count()).max();
    let name = name.unwrap_or(0).max("timeouts after".len());
    let each = output_columns().saturating_sub(name) / count.max(1);
    each.saturating_sub(3 + most.to_string().len())
        .clamp(BAR_MIN, BAR)
}

fn edges(config: &HistogramConfig, bin: usize) -> String {
    let time = |ns: u64| short(ns as f64);
    match config.edges_ns(bin) {
        (low, Some(high)) => format!("{} to {}", time(low), time(high)),
        (low, None) => format!("{} and more", time(low)),
    }
}

/// A bar and its number, in cells of one width.
fn bar(count: u64, most: u64, longest: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let width = longest + 1 + most.to_string().len();
    if count == 0 {
        return format!("{:<width$}", "·");
    }
    let eighths = (count as f64 / most as f64 * (longest * 8) as f64).ceil() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(EIGHTHS[eighths % 8]);
    }
    let _ = write!(text, " {count}");
    format!("{text:<width$}")
}
