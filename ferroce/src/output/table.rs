//! Tables that fit the terminal.

use std::fmt;

use super::look::{self, columns, look};
use crate::lines::wrapped;

/// Lines up columns: the header tells how, a leading `>` means to the right.
///
/// Where all of it is wider than the terminal, text to the left is wrapped, the widest column first.
#[derive(Clone, Debug)]
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    is_wrapped: bool,
}

/// Columns between two columns.
const GAP: usize = 2;

impl Table {
    /// A table with these column headers.
    #[must_use]
    pub fn new(header: &[&str]) -> Self {
        let right = header.iter().map(|name| name.starts_with('>')).collect();
        let names = header
            .iter()
            .map(|name| name.trim_start_matches('>').to_owned())
            .collect();
        Self {
            right,
            rows: vec![names],
            is_wrapped: true,
        }
    }

    /// A row stays one line, however long.
    pub(crate) fn unwrapped(self) -> Self {
        Self {
            is_wrapped: false,
            ..self
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The largest of what `of` says of the cells of a column.
    fn most(&self, column: usize, of: impl Fn(&str) -> usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| of(cell)).max().unwrap_or(0)
    }

    /// How wide columns are so that together they take no more than `columns`, if that can be had.
    fn widths(&self, columns: usize) -> Vec<usize> {
        let all = 0..self.right.len();
        let mut widths: Vec<usize> = all.map(|it| self.most(it, look::width)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        loop {
            let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(columns);
            let spare = |column: usize| {
                let longest_word = |cell: &str| cell.split(' ').map(look::width).max().unwrap_or(0);
                widths[column].saturating_sub(self.most(column, longest_word))
            };
            let left = (0..widths.len()).filter(|it| !self.right[*it] && spare(*it) > 0);
            let Some(widest) = left.max_by_key(|it| widths[*it]).filter(|_| excess > 0) else {
                return widths;
            };
            widths[widest] -= excess.min(spare(widest));
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths(if self.is_wrapped {
            columns()
        } else {
            usize::MAX
        });
        for (at, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths);
            let cells: Vec<_> = cells.map(|(cell, width)| wrapped(cell, *width)).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..height {
                let mut text = String::new();
                for ((cell, width), right) in cells.iter().zip(&widths).zip(&self.right) {
                    let part = cell.get(line).map_or("", String::as_str);
                    let room = " ".repeat(width.saturating_sub(look::width(part)));
                    text += &match right {
                        true => format!("{room}{part}  "),
                        false => format!("{part}{room}  "),
                    };
                }
                match (at, text.trim_end()) {
                    (0, heading) => writeln!(f, "{}", look().out.heading(heading))?,
                    (_, line) => writeln!(f, "{line}")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(table: &Table) -> Vec<String> {
        table.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_too_wide_is_wrapped_below_itself() {
        let mut table = Table::new(&["name", ">bytes", "meaning"]);
        let long = "word ".repeat(20);
        table.row(vec!["one".into(), "12".into(), long.trim().into()]);
        table.row(vec!["two".into(), "3".into(), "short".into()]);
        let lines = lines(&table);
        assert_eq!(lines.len(), 4);
        assert!(
            lines.iter().all(|it| it.chars().count() <= 80),
            "{lines:#?}"
        );
        assert!(
            lines[2].starts_with(&format!("{:13}word", "")),
            "{lines:#?}"
        );
        assert_eq!(lines[3], "two       3  short");
    }

    #[test]
    fn words_and_numbers_stay_whole() {
        let mut table = Table::new(&["name", ">figure"]);
        let long = "x".repeat(90);
        table.row(vec![long.clone(), "1".into()]);
        assert!(lines(&table)[1].starts_with(&long));
    }
}
