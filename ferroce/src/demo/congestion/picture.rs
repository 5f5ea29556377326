//! The course as SVG: each queue pair's throughput and limit, the queue, and alpha.

use plotters::style::{Color, RGBColor};

use super::course::{Course, Sample};
use crate::demo::report::{digits, wrap_for_picture};
use crate::svg::{
    self, Canvas, Drawn, FAINT, INK, LEFT_BOTTOM, LEFT_CENTER, LEFT_TOP, RIGHT_CENTER, TimeAxis,
};

const WIDTH: i32 = 1000;
/// Left and right end of all axes.
const X: (i32, i32) = (92, 960);
const TOP: i32 = 150;
const HEIGHT: i32 = 150;
/// From the foot of one part to the head of the next.
const GAP: i32 = 62;
const PARTS: i32 = 4;
const FOOT: i32 = 56;
/// Points of a line; more would not be seen.
const POINTS: usize = 430;

const QUEUE: RGBColor = RGBColor(0x5c, 0x66, 0x73);
const COLORS: [RGBColor; 8] = [
    RGBColor(0x0b, 0x4f, 0x9e),
    RGBColor(0xc8, 0x4b, 0x00),
    RGBColor(0x00, 0x86, 0x61),
    RGBColor(0x8e, 0x3a, 0x8e),
    RGBColor(0xb5, 0x8a, 0x00),
    RGBColor(0x00, 0x8f, 0xb5),
    RGBColor(0xc0, 0x1c, 0x28),
    RGBColor(0x5f, 0x7a, 0x00),
];

/// The picture as the text of an SVG file, under a headline of two lines.
pub(super) fn draw(course: &Course, rate_bps: u64, settings: &str) -> Result<String, String> {
    let end_ns = course.phases.last().map_or(1, |phase| phase.span.end);
    let axis = TimeAxis {
        x: X,
        time: 0.0..end_ns as f64 / 1e9,
    };
    let height = TOP + PARTS * HEIGHT + (PARTS - 1) * GAP + FOOT;
    svg::picture((WIDTH, height), |canvas| {
        let picture = Picture {
            canvas,
            course,
            axis,
            samples: thinned(&course.samples),
        };
        picture.draw(rate_bps as f64 / 1e9, settings)
    })
}

/// Samples in groups, so that there are no more than [`POINTS`].
fn thinned(samples: &[Sample]) -> Vec<Sample> {
    let groups = samples.chunks(samples.len().div_ceil(POINTS).max(1));
    groups.filter_map(Sample::merged).collect()
}

struct Picture<'p, 'a> {
    canvas: &'p Canvas<'a>,
    course: &'p Course,
    axis: TimeAxis,
    samples: Vec<Sample>,
}

/// One of the parts that lie below each other on the same time axis.
#[derive(Clone, Copy)]
struct Part {
    top: i32,
    /// The value at its head; 0 is at its foot.
    most: f64,
}

impl Part {
    fn new(place: i32, most: f64) -> Self {
        let top = TOP + place * (HEIGHT + GAP);
        Self { top, most }
    }

    fn bottom(self) -> i32 {
        self.top + HEIGHT
    }

    fn y(self, value: f64) -> i32 {
        let share = (value / self.most).clamp(0.0, 1.0);
        self.bottom() - (share * f64::from(HEIGHT)).round() as i32
    }
}

impl<'a> Picture<'_, 'a> {
    fn draw(&self, gbps: f64, settings: &str) -> Drawn<'a> {
        self.head(settings)?;
        let carried = Part::new(0, gbps * 1.2);
        self.frame(carried, "Carried, Gb/s; dashed: what the bottleneck passes")?;
        let line = carried.y(gbps);
        self.canvas.dashes((X.0, line), (X.1, line), QUEUE)?;
        self.lines(carried, &|sample, flow| sample.bps(flow) / 1e9)?;

        let limits = Part::new(1, gbps * 1.2);
        self.frame(
            limits,
            "Limit of each QP, Gb/s; clipped at top: unlimited, or above link rate",
        )?;
        self.lines(limits, &|sample, flow| {
            let limit = sample.flows[flow].limit_bps;
            limit.map_or(f64::INFINITY, |bps| bps as f64 / 1e9)
        })?;

        let queues = self.samples.iter().map(|sample| sample.queue_bytes);
        let queue = Part::new(2, queues.max().unwrap_or(0).max(1_000) as f64 / 1e3 * 1.05);
        self.frame(queue, "Queue of the bottleneck, KB")?;
        let mut from = X.0;
        for sample in &self.samples {
            let x = self.axis.x(sample.at_ns as f64 / 1e9);
            let y = queue.y(sample.queue_bytes as f64 / 1e3);
            let bar = QUEUE.filled();
            self.canvas.rectangle((from, y), (x, queue.bottom()), bar)?;
            from = x;
        }

        let alphas = self.samples.iter().flat_map(|sample| &sample.flows);
        let most = alphas.map(|flow| flow.alpha).fold(0.01, f64::max);
        let alpha = Part::new(3, most * 1.05);
        self.frame(alpha, "Alpha, each QP's estimate of congestion")?;
        self.lines(alpha, &|sample, flow| sample.flows[flow].alpha)?;
        let below = "seconds since the start of the run";
        self.axis.draw(self.canvas, alpha.bottom(), 1.0, below)
    }

    fn head(&self, settings: &str) -> Drawn<'a> {
        let title = "Queue pairs that share a marked bottleneck under DCQCN";
        self.canvas.text(title, (X.0, 14), LEFT_TOP, 20, INK)?;
        for (line, y) in wrap_for_picture(settings).lines().zip([44, 62]) {
            self.canvas.text(line, (X.0, y), LEFT_TOP, 13, INK)?;
        }
        let flows = self.samples.first().map_or(0, |sample| sample.flows.len());
        for (flow, color) in COLORS.into_iter().enumerate().take(flows) {
            let x = X.0 + 100 * flow as i32;
            self.canvas
                .line(&[(x, 102), (x + 18, 102)], color.stroke_width(3))?;
            let name = format!("QP {}", flow + 1);
            self.canvas
                .text(&name, (x + 24, 102), LEFT_CENTER, 14, color)?;
        }
        Ok(())
    }

    /// Name, values and the edges of the phases.
    fn frame(&self, part: Part, name: &str) -> Drawn<'a> {
        let above = (X.0, part.top - 10);
        self.canvas.text(name, above, LEFT_BOTTOM, 14, INK)?;
        let step = svg::round_step(part.most / 5.0);
        for n in 0..=(part.most / step) as i64 {
            let (value, y) = (n as f64 * step, part.y(n as f64 * step));
            self.canvas.line(&[(X.0, y), (X.1, y)], FAINT)?;
            let label = if n == 0 {
                "0".to_owned()
            } else {
                digits(value)
            };
            self.canvas
                .text(&label, (X.0 - 8, y), RIGHT_CENTER, 12, INK)?;
        }
        for phase in &self.course.phases {
            let x = self.axis.x(phase.span.start as f64 / 1e9);
            self.canvas
                .line(&[(x, part.top), (x, part.bottom())], FAINT)?;
        }
        self.canvas
            .line(&[(X.0, part.bottom()), (X.1, part.bottom())], INK)
    }

    /// A line for each queue pair, where it sends.
    fn lines(&self, part: Part, value: &dyn Fn(&Sample, usize) -> f64) -> Drawn<'a> {
        let flows = self.samples.first().map_or(0, |sample| sample.flows.len());
        for (flow, color) in COLORS.into_iter().enumerate().take(flows) {
            let points = self.samples.iter().filter_map(|sample| {
                let sends = self.course.sends(flow, sample.at_ns.saturating_sub(1));
                let x = self.axis.x(sample.at_ns as f64 / 1e9);
                sends.then(|| (x, part.y(value(sample, flow))))
            });
            let points: Vec<_> = points.collect();
            self.canvas.line(&points, color.stroke_width(2))?;
        }
        Ok(())
    }
}
