//! The text format that preceded OpenMetrics, which some scrapers still request.

use std::fmt::Write as _;

/// A text of OpenMetrics in that format: the names of families are those of their samples, and there
/// is neither a unit nor an end mark.
pub(super) fn text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        match line
            .strip_prefix("# ")
            .and_then(|line| line.split_once(' '))
        {
            Some(("HELP", rest)) => help = rest.split_once(' '),
            Some(("TYPE", rest)) => {
                let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some((_, words)) = help.take().filter(|(of, _)| *of == name) {
                    let _ = writeln!(text, "# HELP {name}{suffix} {words}");
                }
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            Some(_) => {}
            None if line == "# EOF" => {}
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn families_are_named_as_their_samples() {
        let open_metrics = "# HELP a Help of a.\n# TYPE a counter\n# UNIT a bytes\na_total{x=\"# EOF\"} 1\n\
                            # HELP b Of b.\n# TYPE b info\nb_info{v=\"1\"} 1\n# TYPE c gauge\nc 2\n# EOF\n";
        let plain = "# HELP a_total Help of a.\n# TYPE a_total counter\na_total{x=\"# EOF\"} 1\n\
                     # HELP b_info Of b.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# TYPE c gauge\nc 2\n";
        assert_eq!(super::text(open_metrics), plain);
    }
}
