//! Writes a profile as a file.

use std::borrow::ToOwned;
use std::fmt::Write as _;
use std::format;
use std::string::{String, ToString};

use ferroce_base::time::Span;
use ferroce_prm::roce_accl;

use crate::raw::{RANGE_NUM_MAX, RawProfile, RawRange};

/// Returns the profile as a file, with every duration in a comment.
#[must_use]
pub fn to_toml(raw: &RawProfile) -> String {
    // Durations can only be told where the base is one.
    let base = raw
        .time_base
        .is_power_of_two()
        .then(|| raw.time_base.trailing_zeros());
    let span = |exponent: u16| match base {
        Some(log2) => Span::from_micros(1).doubled(log2 + u32::from(exponent)),
        None => Span::NEVER,
    };
    let mut out = Lines {
        text: String::new(),
    };
    out.line("time_base", raw.time_base, "us");
    if raw.time_unit != 1 {
        out.line("time_unit", raw.time_unit, "reserved");
    }
    out.line(
        "qp_total_timeout",
        raw.qp_total_timeout,
        match raw.qp_total_timeout {
            true => "the QP's timeout * retry_cnt",
            false => "retx_total_timeout",
        },
    );
    let total = match raw.qp_total_timeout {
        true => "not used".to_owned(),
        false => span(raw.retx_total_timeout.into()).to_string(),
    };
    out.line("retx_total_timeout", raw.retx_total_timeout, &total);
    let used = raw
        .timeout_range
        .iter()
        .rposition(|range| *range != RawRange::EMPTY);
    let tables = used
        .map_or(0, |last| last + 1)
        .max(usize::from(raw.range_num))
        .min(RANGE_NUM_MAX);
    if usize::from(raw.range_num) != tables {
        out.line(
            "range_num",
            raw.range_num,
            "further tables are kept, but not used",
        );
    }
    out.line("start_range_index", raw.start_range_index, "");
    let low = u16::from(raw.timeout_init_low_bound);
    out.line("timeout_init_low_bound", low, &span(low).to_string());
    let size = u16::from(raw.timeout_init_range_size);
    let high = low + size.max(1) - 1;
    out.line(
        "timeout_init_range_size",
        size,
        &format!("drawn up to {}", span(high)),
    );
    for range in &raw.timeout_range[..tables] {
        out.text += "\n[[timeout_range]]\n";
        let low = u16::from(range.range_low_bound);
        out.line("range_low_bound", low, &span(low).to_string());
        let size = u16::from(range.range_size);
        out.line("range_size", size, &format!("up to {}", span(low + size)));
        out.line("timeout_retry_num", range.timeout_retry_num, "");
        match roce_accl::DEC_MODE[0].value_name(range.dec_mode.into()) {
            Some(name) => out.line("dec_mode", format!("\"{name}\""), ""),
            None => out.line("dec_mode", range.dec_mode, "reserved"),
        }
        out.line("prev_range_index", range.prev_range_index, "");
    }
    out.text
}

/// Lines of a canonical file.
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, name: &str, value: impl ToString, comment: &str) {
        let assignment = format!("{name} = {}", value.to_string());
        // Writing to a String cannot fail.
        let _ = match comment {
            "" => writeln!(self.text, "{assignment}"),
            _ => writeln!(self.text, "{assignment:<30}# {comment}"),
        };
    }
}
