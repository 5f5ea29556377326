//! Plots as SVG text.

use std::fmt::Write as _;

use ferroce_picture::{Scale, decades, escape};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// Colours that people with any eyes tell apart (Okabe and Ito).
pub(crate) const COLORS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555",
];

/// One axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) scale: Scale,
    pub(crate) label: String,
    /// What a tick says.
    pub(crate) show: fn(f64) -> String,
}

impl Axis {
    pub(crate) fn linear(from: f64, to: f64, label: impl Into<String>) -> Self {
        Self {
            scale: Scale::linear((0, 1), (from, if to > from { to } else { from + 1.0 })),
            label: label.into(),
            show: plain,
        }
    }

    /// From one power of ten to another.
    pub(crate) fn log(from: f64, to: f64, label: &str, show: fn(f64) -> String) -> Self {
        let power = |value: f64, round: fn(f64) -> f64| 10_f64.powf(round(value.max(1e-9).log10()));
        let (from, to) = (power(from, f64::floor), power(to, f64::ceil));
        Self {
            scale: Scale::log((0, 1), (from, if to > from { to } else { from * 10.0 })),
            label: label.into(),
            show,
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale.is_log {
            true => decades(self.scale.values, &[1.0]),
            false => self.scale.round(8.0),
        }
    }
}

/// A number without needless digits.
pub(crate) fn plain(value: f64) -> String {
    // The sum turns -0 into 0.
    format!("{}", (value * 1e6).round() / 1e6 + 0.0)
}

/// A size in thousands.
pub(crate) fn bytes(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{} GB", plain(value / 1e9)),
        _ if value >= 1e6 => format!("{} MB", plain(value / 1e6)),
        _ if value >= 1e3 => format!("{} KB", plain(value / 1e3)),
        _ => format!("{} B", plain(value)),
    }
}

/// A unit in which times have few digits: its nanoseconds, and its name.
pub(crate) fn time_unit(ns: f64) -> (f64, &'static str) {
    match ns {
        _ if ns >= 2e9 => (1e9, "s"),
        _ if ns >= 2e6 => (1e6, "ms"),
        _ if ns >= 2e3 => (1e3, "\u{b5}s"),
        _ => (1.0, "ns"),
    }
}

/// A plot that is being drawn.
pub(crate) struct Plot {
    x: Axis,
    y: Axis,
    height: f64,
    body: String,
    names: Vec<(String, &'static str)>,
}

impl Plot {
    pub(crate) fn new(x: Axis, y: Axis, height: f64) -> Self {
        Self {
            x,
            y,
            height,
            body: String::new(),
            names: Vec::new(),
        }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let wide = WIDTH - LEFT - RIGHT;
        let high = self.height - TOP - BOTTOM;
        let x = LEFT + self.x.scale.share(x) * wide;
        (x, TOP + (1.0 - self.y.scale.share(y)) * high)
    }

    /// A line through points, with its name in the legend.
    pub(crate) fn line(&mut self, points: &[(f64, f64)], name: &str, color: &'static str) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = self.at(*x, *y);
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\"/>",
            path.trim_end()
        );
        self.names.push((name.to_owned(), color));
    }

    /// A dot, and what it says when pointed at.
    pub(crate) fn dot(&mut self, x: f64, y: f64, color: &str, title: &str) {
        let (x, y) = self.at(x, y);
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"><title>{}</title></circle>",
            escape(title)
        );
    }

    /// A box from corner to corner, at least visible, and what it says when pointed at.
    pub(crate) fn area(&mut self, from: (f64, f64), to: (f64, f64), color: &str, title: &str) {
        let ((x0, y0), (x1, y1)) = (self.at(from.0, from.1), self.at(to.0, to.1));
        let _ = writeln!(
            self.body,
            "<rect x=\"{x0:.1}\" y=\"{y1:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{color}\"><title>{}</title></rect>",
            (x1 - x0).max(1.5),
            (y0 - y1).max(1.0),
            escape(title)
        );
    }

    /// Words in the plot.
    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let (x, y) = self.at(x, y);
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            y + 4.0,
            escape(text)
        );
    }

    /// The plot as the text of an SVG element; without ticks at the left if `rows` names them.
    pub(crate) fn finish(self, rows: &[(f64, String)]) -> String {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (top, bottom) = (TOP, self.height - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n",
            self.height
        );
        for tick in self.x.ticks() {
            let (x, _) = self.at(tick, self.y.scale.values.0);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" class=\"grid\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                (self.x.show)(tick)
            );
        }
        let ticks = self.y.ticks().into_iter().map(|y| (y, (self.y.show)(y)));
        let ticks: Vec<_> = if rows.is_empty() {
            ticks.collect()
        } else {
            rows.to_vec()
        };
        for (tick, text) in ticks {
            let (_, y) = self.at(self.x.scale.values.0, tick);
            if rows.is_empty() {
                let _ = writeln!(
                    svg,
                    "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" class=\"grid\"/>"
                );
            }
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 4.0,
                escape(&text)
            );
        }
        svg += &self.body;
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\" class=\"axis\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"label\">{}</text>",
            f64::midpoint(left, right),
            bottom + 36.0,
            escape(&self.x.label)
        );
        if !self.y.label.is_empty() {
            let middle = f64::midpoint(top, bottom);
            let _ = writeln!(
                svg,
                "<text transform=\"translate(13 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" class=\"label\">{}</text>",
                escape(&self.y.label)
            );
        }
        svg += "</svg>\n";
        svg + &self.legend()
    }

    fn legend(&self) -> String {
        if self.names.is_empty() {
            return String::new();
        }
        let mut html = String::from("<p class=\"legend\">");
        for (name, color) in &self.names {
            let name = escape(name);
            let _ = write!(
                html,
                "<span><i style=\"background:{color}\"></i>{name}</span> "
            );
        }
        html + "</p>\n"
    }
}
