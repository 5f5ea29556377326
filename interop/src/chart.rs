//! Prometheus's answers as a picture: panels one below the other, with a common time axis.

use ferroce_picture::{
    Canvas, Color as _, Drawn, HPos, INK, LEFT_BOTTOM, LEFT_CENTER, RGBColor, Scale, VPos, picture,
    round_step,
};

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

const WIDTH: i32 = 960;
/// Left and right end of all panels; names stand behind them.
const X: (i32, i32) = (70, 730);
const TOP: i32 = 20;
const GAP: i32 = 46;
const LINES_HEIGHT: i32 = 110;
const BAND_HEIGHT: i32 = 20;
/// Names of moments below the axis of time, at least.
const MOMENTS: f64 = 10.0;
/// Those of Grafana's dashboards, to be told apart with any sight by their order of brightness.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x1f, 0x60, 0xc4),
    RGBColor(0xe0, 0x75, 0x2d),
    GOOD,
    RGBColor(0x8f, 0x3b, 0xb8),
    BAD,
];
const GOOD: RGBColor = RGBColor(0x37, 0x87, 0x2d);
const BAD: RGBColor = RGBColor(0xc4, 0x16, 0x2a);

/// The picture as SVG: `seconds` is the length of the axis of time. A series that has no value for longer than
/// `gap` seconds was away.
///
/// # Errors
///
/// It cannot be drawn.
pub fn svg(panels: &[Panel], seconds: f64, gap: f64) -> Result<String, String> {
    let total: i32 = panels.iter().map(|panel| height(panel) + GAP).sum();
    let time = Scale::linear(X, (0.0, seconds));
    picture((WIDTH, TOP + total + 16), |canvas| {
        let mut top = TOP;
        for panel in panels {
            canvas.text(&panel.title, (X.0, top + 12), LEFT_BOTTOM, 13, INK)?;
            match panel.kind {
                Kind::Lines => lines(canvas, &time, top + 18, panel, gap)?,
                Kind::Port | Kind::Present => bands(canvas, &time, top + 18, panel, gap)?,
            }
            top += height(panel) + GAP;
        }
        let (unit, length) = match seconds < 600.0 {
            true => ("s", 1.0),
            false => ("min", 60.0),
        };
        let step = round_step(seconds / length / MOMENTS);
        for moment in 0..=(seconds / length / step) as u32 {
            let moment = f64::from(moment) * step;
            let at = (time.at(moment * length), top - 10);
            let name = format!("{moment} {unit}");
            canvas.text(&name, at, (HPos::Center, VPos::Bottom), 12, INK)?;
        }
        Ok(())
    })
}

fn height(panel: &Panel) -> i32 {
    match panel.kind {
        Kind::Lines => LINES_HEIGHT,
        Kind::Port | Kind::Present => BAND_HEIGHT * panel.lines.len().max(1) as i32,
    }
}

fn lines<'a>(canvas: &Canvas<'a>, time: &Scale, top: i32, panel: &Panel, gap: f64) -> Drawn<'a> {
    let values = panel.lines.iter().flat_map(|(_, points)| points);
    let highest = values.map(|point| point.1).fold(0.0, f64::max);
    let max = if highest > 0.0 {
        round_step(highest)
    } else {
        1.0
    };
    let axis = Scale::linear((top + LINES_HEIGHT, top), (0.0, max));
    let marks = [0.0, 0.5, 1.0].map(|share| (share * max, format!("{}", share * max)));
    canvas.rows(&axis, X, marks)?;
    for (index, (name, points)) in (0..).zip(&panel.lines) {
        let colour = COLOURS[index as usize % COLOURS.len()];
        // A line ends where there was no value for a while.
        for run in points.chunk_by(|(before, _), (after, _)| after - before <= gap) {
            let place = |&(second, value): &(f64, f64)| (time.at(second), axis.at(value));
            let run: Vec<_> = run.iter().map(place).collect();
            canvas.line(&run, colour.stroke_width(2))?;
        }
        canvas.key((X.1 + 14, top + 8 + 18 * index), colour, 4, name)?;
    }
    Ok(())
}

fn bands<'a>(canvas: &Canvas<'a>, time: &Scale, top: i32, panel: &Panel, gap: f64) -> Drawn<'a> {
    for (index, (name, points)) in (0..).zip(&panel.lines) {
        let y = top + BAND_HEIGHT * index;
        for pair in points.windows(2) {
            let [(from, value), (to, _)] = [pair[0], pair[1]];
            if to - from > gap {
                continue;
            }
            let fill = match panel.kind {
                Kind::Port if value == 4.0 => GOOD,
                Kind::Port => BAD,
                Kind::Lines | Kind::Present => COLOURS[index as usize % COLOURS.len()],
            };
            let corners = [(time.at(from), y), (time.at(to), y + BAND_HEIGHT - 6)];
            canvas.rectangle(corners[0], corners[1], fill.filled())?;
        }
        canvas.text(name, (X.1 + 14, y + 7), LEFT_CENTER, 12, INK)?;
    }
    Ok(())
}
