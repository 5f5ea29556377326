//! The ladder as SVG.

use ferroce_adp::trace::Event;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Ladder, short, ticks};

const SIZE: (u32, u32) = (960, 540);
/// Where the picture lies: left, top, right, bottom.
const FRAME: (i32, i32, i32, i32) = (86, 84, 838, 468);

const INK: RGBColor = RGBColor(0x22, 0x2b, 0x36);
const FAINT: RGBColor = RGBColor(0xd9, 0xde, 0xe4);
const LINE: RGBColor = RGBColor(0x0b, 0x4f, 0x9e);
const BANDS: [RGBColor; 2] = [RGBColor(0x2f, 0x80, 0xd8), RGBColor(0x3f, 0xa8, 0x4a)];
const CAP: RGBColor = RGBColor(0xb3, 0x5c, 0x00);
const FATAL: RGBColor = RGBColor(0xc0, 0x1c, 0x28);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Error<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

pub(super) fn draw(ladder: &Ladder) -> Result<String, String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    picture(&area, ladder).map_err(|error| error.to_string())?;
    drop(area);
    Ok(svg)
}

fn picture<'a>(area: &Area<'a>, ladder: &Ladder) -> Result<(), Error<'a>> {
    area.fill(&WHITE)?;
    let canvas = Canvas { area, ladder };
    canvas.bands()?;
    canvas.axes()?;
    canvas.limits()?;
    canvas.steps()?;
    canvas.words()
}

struct Canvas<'c, 'a> {
    area: &'c Area<'a>,
    ladder: &'c Ladder,
}

impl<'a> Canvas<'_, 'a> {
    fn bands(&self) -> Result<(), Error<'a>> {
        let (left, frame_top, right, frame_bottom) = FRAME;
        for (index, low, high) in self.ladder.visible_bands() {
            // A range of one timeout has no height of its own.
            let top = (self.y(high) - 2).max(frame_top);
            let bottom = (self.y(low) + 2).min(frame_bottom);
            // Translucent, because ranges may overlap.
            let fill = BANDS[index % 2].mix(0.14).filled();
            self.area
                .draw(&Rectangle::new([(left, top), (right, bottom)], fill))?;
        }
        Ok(())
    }

    fn axes(&self) -> Result<(), Error<'a>> {
        let (left, top, right, bottom) = FRAME;
        for tick in ticks(self.ladder.y) {
            let y = self.y(tick);
            self.line(&[(left, y), (right, y)], FAINT.stroke_width(1))?;
            self.text(
                &short(tick),
                (left - 8, y),
                (HPos::Right, VPos::Center),
                13,
                INK,
            )?;
        }
        for tick in ticks(self.ladder.x) {
            let x = self.x(tick);
            self.line(&[(x, top), (x, bottom)], FAINT.stroke_width(1))?;
            self.text(
                &short(tick),
                (x, bottom + 8),
                (HPos::Center, VPos::Top),
                13,
                INK,
            )?;
        }
        self.line(
            &[(left, top), (left, bottom), (right, bottom)],
            INK.stroke_width(1),
        )
    }

    fn limits(&self) -> Result<(), Error<'a>> {
        let (left, top, right, bottom) = FRAME;
        if let Some(cap) = self.ladder.visible_cap() {
            self.dashes((left, self.y(cap)), (right, self.y(cap)), CAP)?;
        }
        if let Some(total) = self.ladder.visible_total() {
            let x = self.x(total);
            self.dashes((x, top), (x, bottom), FATAL)?;
            let text = format!("total {}", short(total));
            self.text(&text, (x, top - 6), (HPos::Center, VPos::Bottom), 13, FATAL)?;
        }
        Ok(())
    }

    fn steps(&self) -> Result<(), Error<'a>> {
        let corners: Vec<_> = self
            .ladder
            .steps()
            .flat_map(|(from, to, wait, _)| [(from, wait), (to, wait)])
            .map(|(time, wait)| (self.x(time), self.y(wait)))
            .collect();
        self.line(&corners, LINE.stroke_width(2))?;
        for (_, to, wait, event) in self.ladder.steps() {
            let at = (self.x(to), self.y(wait));
            if event == Event::Error {
                self.area.draw(&Cross::new(at, 6, FATAL.stroke_width(3)))?;
            } else {
                self.area.draw(&Circle::new(at, 3, LINE.filled()))?;
            }
        }
        Ok(())
    }

    fn words(&self) -> Result<(), Error<'a>> {
        let (left, top, right, bottom) = FRAME;
        let Ladder {
            title, subtitle, ..
        } = self.ladder;
        self.text(title, (left, 14), (HPos::Left, VPos::Top), 19, INK)?;
        self.text(subtitle, (left, 40), (HPos::Left, VPos::Top), 14, INK)?;
        self.text(
            "wait",
            (left - 8, top - 6),
            (HPos::Right, VPos::Bottom),
            13,
            INK,
        )?;
        let centre = i32::midpoint(left, right);
        let below = "time since the first send (both axes logarithmic)";
        self.text(
            below,
            (centre, bottom + 30),
            (HPos::Center, VPos::Top),
            13,
            INK,
        )?;

        // Names of ranges and cap stand beside the picture, as far apart as they must.
        let mut names: Vec<(i32, String, RGBColor)> = self
            .ladder
            .visible_bands()
            .map(|(index, low, high)| {
                let y = i32::midpoint(self.y(low), self.y(high));
                (y, format!("range {index}"), INK)
            })
            .collect();
        names.extend(
            self.ladder
                .visible_cap()
                .map(|cap| (self.y(cap), format!("cap {}", short(cap)), CAP)),
        );
        names.sort_by_key(|(y, ..)| *y);
        let mut free = top;
        for (y, name, color) in names {
            let y = y.max(free);
            free = y + 16;
            self.text(&name, (right + 8, y), (HPos::Left, VPos::Center), 13, color)?;
        }

        let legend = [
            (LINE, "a timer that ends in a retransmission"),
            (FATAL, "the one that ends in IBV_WC_RETRY_EXC_ERR"),
        ];
        let mut x = left;
        for (color, text) in legend {
            self.area
                .draw(&Circle::new((x + 4, bottom + 60), 4, color.filled()))?;
            self.text(
                text,
                (x + 14, bottom + 60),
                (HPos::Left, VPos::Center),
                12,
                INK,
            )?;
            x += 270;
        }
        Ok(())
    }

    fn line(&self, points: &[(i32, i32)], style: ShapeStyle) -> Result<(), Error<'a>> {
        self.area.draw(&PathElement::new(points.to_vec(), style))
    }

    fn dashes(&self, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Result<(), Error<'a>> {
        let points = [from, to];
        self.area
            .draw(&DashedPathElement::new(points, 6, 4, color.stroke_width(2)))
    }

    fn text(
        &self,
        text: &str,
        at: (i32, i32),
        (h, v): (HPos, VPos),
        size: u32,
        color: RGBColor,
    ) -> Result<(), Error<'a>> {
        let style = ("sans-serif", size)
            .into_font()
            .color(&color)
            .pos(Pos::new(h, v));
        self.area.draw(&Text::new(text.to_owned(), at, style))
    }

    fn x(&self, time: f64) -> i32 {
        let (left, _, right, _) = FRAME;
        place(time, self.ladder.x, (left, right))
    }

    fn y(&self, wait: f64) -> i32 {
        let (_, top, _, bottom) = FRAME;
        place(wait, self.ladder.y, (bottom, top))
    }
}

/// The pixel of a value on a logarithmic axis.
fn place(value: f64, (least, most): (f64, f64), pixels: (i32, i32)) -> i32 {
    let axis: LogCoord<f64> = (least..most).log_scale().into();
    axis.map(&value.clamp(least, most), pixels)
}
