//! The course as SVG: each queue pair's throughput and limit, the queue, and alpha.

use ferroce_picture::{
    Canvas, Color as _, Drawn, FAINT, INK, LEFT_BOTTOM, LEFT_CENTER, LEFT_TOP, RGBColor, Scale,
    picture,
};

use super::course::{Course, Sample};
use crate::demo::report::{digits, wrap_for_picture};

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
    let axis = Scale::linear(X, (0.0, end_ns as f64 / 1e9));
    let height = TOP + PARTS * HEIGHT + (PARTS - 1) * GAP + FOOT;
    picture((WIDTH, height), |canvas| {
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
    axis: Scale,
    samples: Vec<Sample>,
}

/// The values of one of the parts that lie below each other on the same time axis: 0 is at its foot, and
/// this at its head.
fn part(place: i32, most: f64) -> Scale {
    let top = TOP + place * (HEIGHT + GAP);
    Scale::linear((top + HEIGHT, top), (0.0, most))
}

impl<'a> Picture<'_, 'a> {
    fn draw(&self, gbps: f64, settings: &str) -> Drawn<'a> {
        self.head(settings)?;
        let carried = part(0, gbps * 1.2);
        self.frame(
            &carried,
            "Carried, Gb/s; dashed: what the bottleneck passes",
        )?;
        let line = carried.at(gbps);
        self.canvas.dashes((X.0, line), (X.1, line), QUEUE)?;
        self.lines(&carried, &|sample, flow| sample.bps(flow) / 1e9)?;

        let limits = part(1, gbps * 1.2);
        self.frame(
            &limits,
            "Limit of each QP, Gb/s; clipped at top: unlimited, or above link rate",
        )?;
        self.lines(&limits, &|sample, flow| {
            let limit = sample.flows[flow].limit_bps;
            limit.map_or(f64::INFINITY, |bps| bps as f64 / 1e9)
        })?;

        let queues = self.samples.iter().map(|sample| sample.queue_bytes);
        let queue = part(2, queues.max().unwrap_or(0).max(1_000) as f64 / 1e3 * 1.05);
        self.frame(&queue, "Queue of the bottleneck, KB")?;
        let mut from = X.0;
        for sample in &self.samples {
            let x = self.axis.at(sample.at_ns as f64 / 1e9);
            let y = queue.at(sample.queue_bytes as f64 / 1e3);
            let bar = QUEUE.filled();
            self.canvas.rectangle((from, y), (x, queue.pixels.0), bar)?;
            from = x;
        }

        let alphas = self.samples.iter().flat_map(|sample| &sample.flows);
        let most = alphas.map(|flow| flow.alpha).fold(0.01, f64::max);
        let alpha = part(3, most * 1.05);
        self.frame(&alpha, "Alpha, each QP's estimate of congestion")?;
        self.lines(&alpha, &|sample, flow| sample.flows[flow].alpha)?;
        let below = "seconds since the start of the run";
        self.canvas
            .time_axis(&self.axis, alpha.pixels.0, 1.0, below)
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
    fn frame(&self, part: &Scale, name: &str) -> Drawn<'a> {
        let (bottom, top) = part.pixels;
        self.canvas
            .text(name, (X.0, top - 10), LEFT_BOTTOM, 14, INK)?;
        let marks = part.round(5.0).into_iter();
        let label = |value: f64| {
            if value == 0.0 {
                "0".to_owned()
            } else {
                digits(value)
            }
        };
        self.canvas
            .rows(part, X, marks.map(|value| (value, label(value))))?;
        for phase in &self.course.phases {
            let x = self.axis.at(phase.span.start as f64 / 1e9);
            self.canvas.line(&[(x, top), (x, bottom)], FAINT)?;
        }
        self.canvas.line(&[(X.0, bottom), (X.1, bottom)], INK)
    }

    /// A line for each queue pair, where it sends.
    fn lines(&self, part: &Scale, value: &dyn Fn(&Sample, usize) -> f64) -> Drawn<'a> {
        let flows = self.samples.first().map_or(0, |sample| sample.flows.len());
        for (flow, color) in COLORS.into_iter().enumerate().take(flows) {
            let points = self.samples.iter().filter_map(|sample| {
                let sends = self.course.sends(flow, sample.at_ns.saturating_sub(1));
                let x = self.axis.at(sample.at_ns as f64 / 1e9);
                sends.then(|| (x, part.at(value(sample, flow))))
            });
            let points: Vec<_> = points.collect();
            self.canvas.line(&points, color.stroke_width(2))?;
        }
        Ok(())
    }
}
