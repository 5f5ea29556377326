//! Tables that fit the terminal.

use std::fmt;

use super::look::{self, columns, look};
use crate::output::lines::{pieces, wrapped_at};

/// Lines up columns: the header tells how, a leading `>` means to the right.
///
/// Where all of it is wider than the terminal, text to the left is wrapped, the widest column first, then
/// the headers of numbers.
#[derive(Clone, Debug)]
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    is_wrapped: bool,
    /// Columns that say what a row is about, and stand in each part of a table in parts.
    keys: Option<usize>,
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
            keys: None,
        }
    }

    /// A table in parts, one below the other, if it is too wide: the first columns begin each of them.
    pub(crate) fn in_parts(self, keys: usize) -> Self {
        Self {
            keys: Some(keys),
            ..self
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

    /// The largest of what `of` says of the cells of a column, each with its row.
    fn most(&self, column: usize, of: impl Fn(usize, &str) -> usize) -> usize {
        let rows = self.rows.iter().enumerate();
        let cells = rows.filter_map(|(at, row)| Some((at, row.get(column)?)));
        cells.map(|(at, cell)| of(at, cell)).max().unwrap_or(0)
    }

    /// How narrow a column can be with its text wrapped, and with its header alone wrapped.
    fn least(&self, column: usize) -> (usize, usize) {
        let wrapped = |at: usize, cell: &str| {
            let widths = pieces(ends(at), cell).map(|piece| look::width(piece.trim_end()));
            widths.max().unwrap_or(0)
        };
        let numbers = |at: usize, cell: &str| match at {
            0 => wrapped(at, cell),
            _ => look::width(cell),
        };
        (self.most(column, wrapped), self.most(column, numbers))
    }

    /// How wide columns are so that together they take no more than `columns`, if that can be had.
    fn widths(&self, columns: usize) -> Vec<usize> {
        let all = 0..self.right.len();
        let width = |_, cell: &str| look::width(cell);
        let mut widths: Vec<usize> = all.map(|it| self.most(it, width)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        for of_numbers in [false, true] {
            loop {
                let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(columns);
                let spare = |column: usize| {
                    let (text, numbers) = self.least(column);
                    let least = if of_numbers { numbers } else { text };
                    widths[column].saturating_sub(least)
                };
                let mut sort = (0..widths.len()).filter(|it| self.right[*it] == of_numbers);
                let widest = sort
                    .by_ref()
                    .filter(|it| spare(*it) > 0)
                    .max_by_key(|it| widths[*it]);
                let Some(widest) = widest.filter(|_| excess > 0) else {
                    break;
                };
                widths[widest] -= excess.min(spare(widest));
            }
        }
        widths
    }

    /// The columns of each part.
    fn parts(&self, widths: &[usize], columns: usize) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..widths.len()).collect();
        let Some(keys) = self.keys else {
            return vec![all];
        };
        let taken = |part: &[usize]| part.iter().map(|it| widths[*it] + GAP).sum::<usize>();
        let (keys, others) = all.split_at(keys.min(all.len()));
        let mut parts = vec![keys.to_vec()];
        for column in others {
            let last = parts.last_mut().expect("there is a first part");
            let is_full = taken(last) + widths[*column] > columns && last.len() > keys.len();
            match is_full {
                true => parts.push([keys, &[*column]].concat()),
                false => last.push(*column),
            }
        }
        parts
    }

    fn part(&self, f: &mut fmt::Formatter<'_>, part: &[usize], widths: &[usize]) -> fmt::Result {
        for (at, row) in self.rows.iter().enumerate() {
            let cell = |column: &usize| row.get(*column).map_or("", String::as_str);
            let wrap = |column: &usize| wrapped_at(ends(at), cell(column), widths[*column]);
            let cells: Vec<_> = part.iter().map(wrap).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..height {
                let mut text = String::new();
                for (cell, column) in cells.iter().zip(part) {
                    let piece = cell.get(line).map_or("", String::as_str);
                    let room = " ".repeat(widths[*column].saturating_sub(look::width(piece)));
                    text += &match self.right[*column] {
                        true => format!("{room}{piece}  "),
                        false => format!("{piece}{room}  "),
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

/// After which characters the text of a row may break: in headers, paths in files as well.
fn ends(row: usize) -> &'static [char] {
    match row {
        0 => &[' ', '.'],
        _ => &[' '],
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = match self.is_wrapped {
            true => columns(),
            false => usize::MAX,
        };
        let widths = self.widths(columns);
        for (at, part) in self.parts(&widths, columns).iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            self.part(f, part, &widths)?;
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
    fn wide_cells_are_wrapped() {
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
    #[test]
    fn headers_of_numbers_are_wrapped_if_text_is_not_enough() {
        let mut table = Table::new(&["of", ">figures of the first kind", ">of the second kind"]);
        table.row(vec!["x".repeat(60), "1 2".into(), "3".into()]);
        let lines = lines(&table);
        assert!(
            lines.iter().all(|it| it.chars().count() <= 80),
            "{lines:#?}"
        );
        let last = lines.last().unwrap();
        assert!(last.contains(" 1 2 ") && lines.len() > 2, "{lines:#?}");
    }

    #[test]
    fn wide_tables_continue_below_with_their_keys() {
        let mut header = vec!["fault[0].probability", "job.all-reduce.timeout"];
        header.extend([">survived"; 9]);
        let mut table = Table::new(&header).in_parts(2);
        let figures = (0..9).map(|it| format!("9{it} % (70 to 97)"));
        let keys = ["0.001 %".to_owned(), "14".to_owned()];
        table.row(keys.into_iter().chain(figures).collect());
        let lines = lines(&table);
        assert!(
            lines.iter().all(|it| it.chars().count() <= 80),
            "{lines:#?}"
        );
        let with_keys = lines.iter().filter(|it| it.starts_with("0.001 %")).count();
        assert!(with_keys > 1, "{lines:#?}");
        let text = lines.join("\n");
        assert!((0..9).all(|it| text.contains(&format!("9{it} % (70 to 97)"))));
    }
}
