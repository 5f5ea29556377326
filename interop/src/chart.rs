//! Prometheus's answers as a picture: panels one below the other, with a common time axis.

use std::fmt::Write as _;

/// A panel of a picture.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it shows, with the unit.
    pub title: String,
    /// The names of lines, and their points: seconds and values.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// How they are drawn.
    pub kind: Kind,
}

/// How the values of a panel are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Lines over an axis that begins at 0.
    Lines,
    /// A band for each line: green while the value is 4, red otherwise, as the dashboard has ports.
    Port,
    /// A band for each line while it has values.
    Present,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 20.0;
const GAP: f64 = 46.0;
const LINES_HEIGHT: f64 = 110.0;
const BAND_HEIGHT: f64 = 20.0;
/// A series that has no value for longer than this was away.
const GAP_SECONDS: f64 = 0.5;
/// Those of Grafana's dashboards, to be told apart with any sight by their order of brightness.
const COLOURS: [&str; 5] = ["#1f60c4", "#e0752d", "#37872d", "#8f3bb8", "#c4162a"];

/// The picture as SVG: `seconds` is the length of the axis of time.
pub fn svg(panels: &[Panel], seconds: f64) -> String {
    let heights: Vec<f64> = panels.iter().map(height).collect();
    let total = TOP + heights.iter().map(|height| height + GAP).sum::<f64>() + 16.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{total:.0}\" \
         viewBox=\"0 0 {WIDTH} {total:.0}\" font-family=\"sans-serif\" font-size=\"12\" \
         fill=\"#222b36\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut top = TOP;
    for (panel, height) in panels.iter().zip(heights) {
        let area = Area {
            top: top + 18.0,
            height,
            seconds,
        };
        text(&mut svg, (LEFT, top + 10.0), "start", "bold", &panel.title);
        match panel.kind {
            Kind::Lines => lines(&mut svg, &area, panel),
            kind => bands(&mut svg, &area, panel, kind),
        }
        top += height + GAP;
    }
    let area = Area {
        top,
        height: 0.0,
        seconds,
    };
    for second in (0..=seconds as u32).step_by(5) {
        let at = (area.x(f64::from(second)), top - 10.0);
        text(&mut svg, at, "middle", "normal", &format!("{second} s"));
    }
    svg + "</svg>\n"
}

fn height(panel: &Panel) -> f64 {
    match panel.kind {
        Kind::Lines => LINES_HEIGHT,
        Kind::Port | Kind::Present => BAND_HEIGHT * panel.lines.len().max(1) as f64,
    }
}

/// Where a panel draws.
struct Area {
    top: f64,
    height: f64,
    seconds: f64,
}

impl Area {
    fn x(&self, second: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (second / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64, max: f64) -> f64 {
        self.top + self.height * (1.0 - value / max)
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, weight: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" \
         font-weight=\"{weight}\">{text}</text>"
    );
}

fn rectangle(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
    );
}

fn lines(svg: &mut String, area: &Area, panel: &Panel) {
    let values = panel.lines.iter().flat_map(|(_, points)| points);
    let highest = values.map(|point| point.1).fold(0.0, f64::max);
    let max = round_up(highest);
    for share in [0.0, 0.5, 1.0] {
        let y = area.y(share * max, max);
        rectangle(svg, (LEFT, y), (WIDTH - LEFT - RIGHT, 1.0), "#d9dee4");
        let at = (LEFT - 6.0, y + 4.0);
        text(svg, at, "end", "normal", &format!("{}", share * max));
    }
    for (index, (name, points)) in panel.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        // A line ends where there was no value for a while.
        for run in points.chunk_by(|(before, _), (after, _)| after - before <= GAP_SECONDS) {
            let run: Vec<String> = run
                .iter()
                .map(|(second, value)| format!("{:.1},{:.1}", area.x(*second), area.y(*value, max)))
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
                run.join(" ")
            );
        }
        let y = area.top + 12.0 + 18.0 * index as f64;
        let x = WIDTH - RIGHT + 14.0;
        rectangle(svg, (x, y - 6.0), (14.0, 4.0), colour);
        text(svg, (x + 20.0, y), "start", "normal", name);
    }
}

fn bands(svg: &mut String, area: &Area, panel: &Panel, kind: Kind) {
    for (index, (name, points)) in panel.lines.iter().enumerate() {
        let y = area.top + BAND_HEIGHT * index as f64;
        for pair in points.windows(2) {
            let [(from, value), (to, _)] = [pair[0], pair[1]];
            if to - from > GAP_SECONDS {
                continue;
            }
            let fill = match kind {
                Kind::Port if value == 4.0 => "#37872d",
                Kind::Port => "#c4162a",
                Kind::Lines | Kind::Present => COLOURS[index % COLOURS.len()],
            };
            let (left, right) = (area.x(from), area.x(to));
            rectangle(
                svg,
                (left, y),
                (right - left + 0.3, BAND_HEIGHT - 6.0),
                fill,
            );
        }
        text(
            svg,
            (WIDTH - RIGHT + 14.0, y + 11.0),
            "start",
            "normal",
            name,
        );
    }
}

/// The next of 1, 2, 5, 10, 20 and so on.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * unit >= value);
    step.unwrap_or(10.0) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_values() {
        let rounded = [0.0, 0.3, 1.0, 1.1, 47.0, 100.0].map(round_up);
        let expected = [1.0, 0.5, 1.0, 2.0, 50.0, 100.0];
        for (found, expected) in rounded.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{rounded:?}");
        }
    }
}
