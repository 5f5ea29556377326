//! Timeout histograms, as text and as JSON.

use std::fmt::Write as _;

use ferroce_hca::HistogramConfig;

use crate::adp::plot::short;
use crate::output::Table;

/// Columns of the longest bar.
const BAR: usize = 14;

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
    let names = columns.iter().map(|(name, _)| name.as_str());
    let header: Vec<_> = std::iter::once("timeouts after").chain(names).collect();
    let mut table = Table::new(&header);
    for bin in first..=last {
        let mut cells = vec![edges(config, bin)];
        cells.extend(columns.iter().map(|column| bar(count(column, bin), most)));
        table.row(cells);
    }
    if let Some((name, counts)) = besides {
        let bars = counts.iter().map(|count| bar(*count, most));
        table.row([name.to_owned()].into_iter().chain(bars).collect());
    }
    Some(table.to_string())
}

fn edges(config: &HistogramConfig, bin: usize) -> String {
    let time = |ns: u64| short(ns as f64);
    match config.edges_ns(bin) {
        (low, Some(high)) => format!("{} to {}", time(low), time(high)),
        (low, None) => format!("{} and more", time(low)),
    }
}

/// A bar and its number, in cells of one width.
fn bar(count: u64, most: u64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let width = BAR + 1 + most.to_string().len();
    if count == 0 {
        return format!("{:<width$}", "·");
    }
    let eighths = (count as f64 / most as f64 * (BAR * 8) as f64).ceil() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(EIGHTHS[eighths % 8]);
    }
    let _ = write!(text, " {count}");
    format!("{text:<width$}")
}
