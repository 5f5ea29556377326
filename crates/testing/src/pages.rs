//! Tables of pages that are what tests measure.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// Compares the table of docs/validation.md that has this header with its rows, which are those of a run.
/// With `UPDATE_DOCS=1` in the environment, the page gets them.
///
/// # Panics
///
/// If they differ, or the page has no such table.
pub fn publish(header: &str, rows: &[String]) {
    static PAGE: Mutex<()> = Mutex::new(());
    let _held = PAGE.lock();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/validation.md");
    let page = fs::read_to_string(&path).unwrap();
    let begin = page.find(header);
    let begin = begin.unwrap_or_else(|| panic!("docs/validation.md has no table {header}"));
    // The row below the header draws a line.
    let below = page[begin..].match_indices('\n').nth(1).map(|(at, _)| at);
    let first = begin + below.unwrap() + 1;
    let end = page[first..]
        .find("\n\n")
        .map_or(page.len(), |at| first + at + 1);
    let rows = rows.concat();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, format!("{}{rows}{}", &page[..first], &page[end..])).unwrap();
    } else {
        assert_eq!(page[first..end], rows, "run with UPDATE_DOCS=1");
    }
}
