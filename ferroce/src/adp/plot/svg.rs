//! The plot as SVG.

use ferroce_adp::trace::Event;
use ferroce_picture::{
    CENTER_TOP, Canvas, Color as _, Drawn, FAINT, HPos, INK, LEFT_CENTER, LEFT_TOP, RGBColor,
    RIGHT_CENTER, Scale, VPos, picture,
};

use super::{Ladder, ticks};
use crate::output::lines::short;

const SIZE: (i32, i32) = (960, 540);
/// Where the picture lies: left, top, right, bottom.
const FRAME: (i32, i32, i32, i32) = (86, 84, 838, 468);

const LINE: RGBColor = RGBColor(0x0b, 0x4f, 0x9e);
const BANDS: [RGBColor; 2] = [RGBColor(0x2f, 0x80, 0xd8), RGBColor(0x3f, 0xa8, 0x4a)];
const CAP: RGBColor = RGBColor(0xb3, 0x5c, 0x00);
const FATAL: RGBColor = RGBColor(0xc0, 0x1c, 0x28);

pub(super) fn draw(ladder: &Ladder) -> Result<String, String> {
    picture(SIZE, |canvas| {
        let picture = Picture { canvas, ladder };
        picture.bands()?;
        picture.axes()?;
        picture.limits()?;
        picture.steps()?;
        picture.words()
    })
}

struct Picture<'c, 'a> {
    canvas: &'c Canvas<'a>,
    ladder: &'c Ladder,
}

impl<'a> Picture<'_, 'a> {
    fn bands(&self) -> Drawn<'a> {
        let (left, frame_top, right, frame_bottom) = FRAME;
        for (index, low, high) in self.ladder.visible_bands() {
            // A range of one timeout has no height of its own.
            let top = (self.y(high) - 2).max(frame_top);
            let bottom = (self.y(low) + 2).min(frame_bottom);
            // Translucent, because ranges may overlap.
            let fill = BANDS[index % 2].mix(0.14).filled();
            self.canvas.rectangle((left, top), (right, bottom), fill)?;
        }
        Ok(())
    }

    fn axes(&self) -> Drawn<'a> {
        let (left, top, right, bottom) = FRAME;
        for tick in ticks(self.ladder.y) {
            let y = self.y(tick);
            self.canvas
                .line(&[(left, y), (right, y)], FAINT.stroke_width(1))?;
            self.canvas
                .text(&short(tick), (left - 8, y), RIGHT_CENTER, 13, INK)?;
        }
        for tick in ticks(self.ladder.x) {
            let x = self.x(tick);
            self.canvas
                .line(&[(x, top), (x, bottom)], FAINT.stroke_width(1))?;
            self.canvas
                .text(&short(tick), (x, bottom + 8), CENTER_TOP, 13, INK)?;
        }
        self.canvas.line(
            &[(left, top), (left, bottom), (right, bottom)],
            INK.stroke_width(1),
        )
    }

    fn limits(&self) -> Drawn<'a> {
        let (left, top, right, bottom) = FRAME;
        if let Some(cap) = self.ladder.visible_cap() {
            self.canvas
                .dashes((left, self.y(cap)), (right, self.y(cap)), CAP)?;
        }
        if let Some(total) = self.ladder.visible_total() {
            let x = self.x(total);
            self.canvas.dashes((x, top), (x, bottom), FATAL)?;
            let text = format!("total {}", short(total));
            self.canvas
                .text(&text, (x, top - 6), (HPos::Center, VPos::Bottom), 13, FATAL)?;
        }
        Ok(())
    }

    fn steps(&self) -> Drawn<'a> {
        let corners: Vec<_> = self
            .ladder
            .steps()
            .flat_map(|(from, to, wait, _)| [(from, wait), (to, wait)])
            .map(|(time, wait)| (self.x(time), self.y(wait)))
            .collect();
        self.canvas.line(&corners, LINE.stroke_width(2))?;
        for (_, to, wait, event) in self.ladder.steps() {
            let at = (self.x(to), self.y(wait));
            if event == Event::Error {
                self.canvas.cross(at, 6, FATAL.stroke_width(3))?;
            } else {
                self.canvas.circle(at, 3, LINE)?;
            }
        }
        Ok(())
    }

    fn words(&self) -> Drawn<'a> {
        let (left, top, right, bottom) = FRAME;
        let Ladder {
            title, subtitle, ..
        } = self.ladder;
        self.canvas.text(title, (left, 14), LEFT_TOP, 19, INK)?;
        self.canvas.text(subtitle, (left, 40), LEFT_TOP, 14, INK)?;
        self.canvas.text(
            "wait",
            (left - 8, top - 6),
            (HPos::Right, VPos::Bottom),
            13,
            INK,
        )?;
        let centre = i32::midpoint(left, right);
        let below = "time since the first send (both axes logarithmic)";
        self.canvas
            .text(below, (centre, bottom + 30), CENTER_TOP, 13, INK)?;

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
            self.canvas
                .text(&name, (right + 8, y), LEFT_CENTER, 13, color)?;
        }

        let legend = [
            (LINE, "a timer that ends in a retransmission"),
            (FATAL, "the one that ends in IBV_WC_RETRY_EXC_ERR"),
        ];
        let mut x = left;
        for (color, text) in legend {
            self.canvas.circle((x + 4, bottom + 60), 4, color)?;
            self.canvas
                .text(text, (x + 14, bottom + 60), LEFT_CENTER, 12, INK)?;
            x += 270;
        }
        Ok(())
    }

    fn x(&self, time: f64) -> i32 {
        Scale::log((FRAME.0, FRAME.2), self.ladder.x).at(time)
    }

    fn y(&self, wait: f64) -> i32 {
        Scale::log((FRAME.3, FRAME.1), self.ladder.y).at(wait)
    }
}
