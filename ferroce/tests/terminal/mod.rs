//! A terminal's content, drawn as SVG: readable as a still, and shown line by line where pictures
//! move.

use std::fmt::Write as _;

/// A cell of the terminal, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 18.0;
/// The title bar of the window.
const BAR: f64 = 34.0;
const COLUMNS: usize = 80;

/// Seconds until the command is typed, and from a block of lines to the next.
const TYPED: f64 = 1.2;
const BLOCK: f64 = 1.1;

const HEAD: &str = "<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;\
fill:#d7dce4;white-space:pre}
rect.bar{fill:#d7dce4}
.prompt{fill:#7ee787}
.heading{font-weight:bold;fill:#fff}
.title{font:13px system-ui,sans-serif;fill:#8b949e;text-anchor:middle}
g.line{animation:show 1ms backwards}
@keyframes show{from{opacity:0}}
@media(prefers-reduced-motion:reduce){g.line{animation:none}}
</style>
";

/// A window in which a command was typed, with its output.
pub(crate) fn draw(command: &str, printed: &[&str]) -> String {
    let width = COLUMNS as f64 * CELL.0 + 2.0 * MARGIN;
    let height = BAR + (printed.len() + 2) as f64 * CELL.1 + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n\
         <title>A terminal: {command}</title>\n{HEAD}\
         <rect width=\"100%\" height=\"100%\" rx=\"9\" fill=\"#1b212b\"/>\n\
         <path d=\"M0 {BAR}h{width:.0}\" stroke=\"#2d3542\"/>\n"
    );
    for (x, colour) in [(20, "#ff5f57"), (40, "#febc2e"), (60, "#28c840")] {
        let _ = writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"17\" r=\"6\" fill=\"{colour}\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"{:.0}\" y=\"22\">{command}</text>",
        width / 2.0
    );
    svg += &line(0, 0.0, "<tspan class=\"prompt\">$</tspan>", &[]);
    svg += &line(0, 0.6, "", &runs(&format!("  {command}")));
    let mut at = TYPED;
    for (row, text) in printed.iter().enumerate() {
        // A block appears when it is ready; the first line of a table is its heading.
        let is_first = row == 0 || printed[row - 1].is_empty();
        if is_first {
            at += BLOCK;
        }
        let is_heading = is_first && text.contains("  ");
        let class = if is_heading { "heading" } else { "" };
        svg += &line(row + 1, at, class, &runs(text));
    }
    svg + "</svg>\n"
}

/// Text, or a bar in eighths of a cell, from a column on.
enum Run {
    Text(usize, String),
    Bar(usize, usize),
}

const EIGHTHS: &str = "▏▎▍▌▋▊▉█";

/// The parts of a line without a wide gap, so that no font moves a column.
fn runs(line: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    for (column, letter) in line.chars().enumerate() {
        let eighths = EIGHTHS.chars().position(|it| it == letter);
        match (eighths, runs.last_mut()) {
            (Some(eighths), Some(Run::Bar(from, length))) if *from + *length / 8 == column => {
                *length += eighths + 1;
            }
            (Some(eighths), _) => runs.push(Run::Bar(column, eighths + 1)),
            (None, Some(Run::Text(from, text))) if *from + text.chars().count() == column => {
                text.push(letter);
            }
            (None, _) if letter == ' ' => {}
            (None, _) => runs.push(Run::Text(column, letter.to_string())),
        }
        // Two spaces separate columns.
        if let Some(Run::Text(from, text)) = runs.last_mut()
            && text.ends_with("  ")
        {
            let kept = Run::Text(*from, text.trim_end().to_owned());
            *runs.last_mut().unwrap() = kept;
        }
    }
    runs
}

/// A line that appears at a time. `first` is a class, or the content of its first cell.
fn line(row: usize, seconds: f64, first: &str, runs: &[Run]) -> String {
    let (top, base) = (
        BAR + (row as f64 + 0.6) * CELL.1,
        BAR + (row as f64 + 1.35) * CELL.1,
    );
    let x = |column: usize| MARGIN + column as f64 * CELL.0;
    let mut svg = format!("<g class=\"line\" style=\"animation-delay:{seconds:.1}s\">");
    if first.starts_with('<') {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{base:.1}\">{first}</text>",
            x(0)
        );
    }
    for run in runs {
        let _ = match run {
            Run::Text(column, text) => {
                let length = text.chars().count() as f64 * CELL.0;
                let class = match first {
                    "heading" => " class=\"heading\"",
                    _ => "",
                };
                let text = text.replace('&', "&amp;").replace('<', "&lt;");
                write!(
                    svg,
                    "<text{class} x=\"{:.1}\" y=\"{base:.1}\" textLength=\"{length:.1}\">{text}</text>",
                    x(*column)
                )
            }
            Run::Bar(column, eighths) => write!(
                svg,
                "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                x(*column),
                top + 1.0,
                *eighths as f64 / 8.0 * CELL.0,
                CELL.1 - 3.0
            ),
        };
    }
    svg + "</g>\n"
}
