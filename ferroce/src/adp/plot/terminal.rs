//! The plot in characters.

use std::fmt::Write as _;

use ferroce_adp::trace::Event;
use ferroce_picture::Scale;

use super::{Ladder, ticks};
use crate::output::lines::short;

const ROWS: usize = 20;
/// Columns left of the picture, for what the rows mean.
const LEFT: usize = 8;
/// Columns right of it, for ranges and cap.
const RIGHT: usize = 20;

pub(super) fn draw(ladder: &Ladder, width: usize) -> String {
    let columns = width.saturating_sub(LEFT + 1 + RIGHT).max(20);
    let mut canvas = Canvas {
        ladder,
        columns,
        cells: vec![vec![' '; columns]; ROWS],
    };
    let mut labels = vec![String::new(); ROWS];
    canvas.bands(&mut labels);
    canvas.limits(&mut labels);
    canvas.steps();
    canvas.text(&labels)
}

struct Canvas<'a> {
    ladder: &'a Ladder,
    columns: usize,
    cells: Vec<Vec<char>>,
}

impl Canvas<'_> {
    fn bands(&mut self, labels: &mut [String]) {
        for (index, low, high) in self.ladder.visible_bands() {
            let (top, bottom) = (self.row(high), self.row(low));
            // Two kinds of shade, so that neighbours can be told apart.
            let shade = if index % 2 == 0 { '░' } else { '▒' };
            for row in &mut self.cells[top..=bottom] {
                row.fill(shade);
            }
            join(&mut labels[top.midpoint(bottom)], &format!("range {index}"));
        }
    }

    fn limits(&mut self, labels: &mut [String]) {
        if let Some(cap) = self.ladder.visible_cap() {
            let row = self.row(cap);
            for cell in &mut self.cells[row] {
                *cell = '╌';
            }
            join(&mut labels[row], &format!("cap {}", short(cap)));
        }
        if let Some(total) = self.ladder.visible_total() {
            let column = self.column(total);
            for row in &mut self.cells {
                row[column] = '┊';
            }
        }
    }

    fn steps(&mut self) {
        let mut before: Option<usize> = None;
        for (from, to, wait, event) in self.ladder.steps() {
            let (left, right, row) = (self.column(from), self.column(to), self.row(wait));
            for cell in &mut self.cells[row][left..=right] {
                *cell = '━';
            }
            match before {
                Some(below) if below > row => {
                    self.cells[below][left] = '┛';
                    for row in row + 1..below {
                        self.cells[row][left] = '┃';
                    }
                    self.cells[row][left] = '┏';
                }
                Some(above) if above < row => {
                    self.cells[above][left] = '┓';
                    for row in above + 1..row {
                        self.cells[row][left] = '┃';
                    }
                    self.cells[row][left] = '┗';
                }
                Some(_) => self.cells[row][left] = '┿',
                None => {}
            }
            if event == Event::Error {
                self.cells[row][right] = '✗';
            }
            before = Some(row);
        }
    }

    fn text(&self, labels: &[String]) -> String {
        let Ladder {
            title,
            subtitle,
            x,
            y,
            ..
        } = self.ladder;
        let mut rows = vec![String::new(); ROWS];
        for tick in ticks(*y) {
            rows[self.row(tick)] = short(tick);
        }
        let mut text = format!("{title}\n{subtitle}\n\n{:>LEFT$}\n", "wait");
        for ((cells, name), label) in self.cells.iter().zip(&rows).zip(labels) {
            let axis = if name.is_empty() { '│' } else { '┤' };
            let cells: String = cells.iter().collect();
            let line = format!("{name:>LEFT$}{axis}{cells} {label}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let mut axis = vec!['─'; self.columns];
        let mut names = vec![' '; self.columns + RIGHT];
        let mut free = 0;
        for tick in ticks(*x) {
            let (column, name) = (self.column(tick), short(tick));
            let start = column.saturating_sub(name.chars().count() / 2);
            if start >= free {
                axis[column] = '┴';
                free = start + name.chars().count() + 1;
                names.splice(start..free - 1, name.chars());
            }
        }
        let (axis, names): (String, String) = (axis.into_iter().collect(), names.iter().collect());
        let _ = writeln!(text, "{:LEFT$}└{axis} since first send", "");
        let _ = writeln!(text, "{:LEFT$} {}", "", names.trim_end());
        let mut legend = vec!["━ wait", "┿ same wait again"];
        if self
            .ladder
            .waits
            .iter()
            .any(|wait| wait.event == Event::Error)
        {
            legend.push("✗ IBV_WC_RETRY_EXC_ERR");
        }
        if self.ladder.visible_bands().next().is_some() {
            legend.push("░▒ ranges");
        }
        if self.ladder.visible_total().is_some() {
            legend.push("┊ total");
        }
        let _ = writeln!(text, "\n{:LEFT$} {}", "", legend.join("  "));
        text
    }

    fn row(&self, wait: f64) -> usize {
        ROWS - 1 - place(wait, self.ladder.y, ROWS)
    }

    fn column(&self, time: f64) -> usize {
        place(time, self.ladder.x, self.columns)
    }
}

/// In which of `count` cells a value lies, on a logarithmic axis.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]
fn place(value: f64, ends: (f64, f64), count: usize) -> usize {
    Scale::log((0, count as i32 - 1), ends).at(value) as usize
}

fn join(label: &mut String, more: &str) {
    if !label.is_empty() {
        *label += ", ";
    }
    *label += more;
}
