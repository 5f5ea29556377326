//! The picture of a run.

use super::Sample;
use crate::chart::{self, Kind, Panel};

type Points = Vec<(f64, f64)>;

/// What was held and what happened, panel by panel.
pub(super) fn svg(samples: &[Sample]) -> Result<String, String> {
    let last = samples.last().map_or(0.0, |last| last.at);
    let lines = |title: &str, lines: Vec<(String, Points)>| Panel {
        title: title.into(),
        lines,
        kind: Kind::Lines,
    };
    let one = |value: &dyn Fn(&Sample) -> f64| -> Points {
        samples.iter().map(|it| (it.at, value(it))).collect()
    };
    let rate = |value: &dyn Fn(&Sample) -> f64| -> Points {
        let steps = samples.windows(2);
        steps
            .map(|pair| {
                (
                    pair[1].at,
                    (value(&pair[1]) - value(&pair[0])) / (pair[1].at - pair[0].at),
                )
            })
            .collect()
    };
    let names = samples.first().map_or(&[][..], |first| &first.residents);
    let of_each = |value: &dyn Fn(&(String, f64, f64)) -> f64| {
        let line = |(at, (name, ..)): (usize, &(String, f64, f64))| {
            (name.clone(), one(&|it| value(&it.residents[at])))
        };
        names.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let packets = [("sent", 0, 1e-3), ("lost", 1, 1.0), ("sent again", 2, 1.0)]
        .map(|(name, at, scale)| (name.to_owned(), rate(&|it| it.packets[at] * scale)));
    let [sent, lost, again] = packets;
    let panels = [
        lines("Packets of fr0, thousands a second", vec![sent]),
        lines("Packets of fr0, a second", vec![lost, again]),
        lines(
            "Pairs of programs that have ended",
            vec![("pairs".into(), one(&|it| it.ended))],
        ),
        lines(
            "Queue pairs",
            vec![("all programs".into(), one(&|it| it.queue_pairs))],
        ),
        lines("Memory, MiB", of_each(&|it| it.1)),
        lines("Descriptors", of_each(&|it| it.2)),
        lines(
            "Shared state, MiB",
            vec![("both devices".into(), one(&|it| it.state.1))],
        ),
    ];
    chart::svg(&panels, last, f64::INFINITY)
}
