//! Outages as operators write them, and saved states of a search.

use ferroce_adp::{AckTimeoutFloor, Demand, QpTimeouts};
use ferroce_base::time::Span;
use ferroce_trial::fit::{Question, State};
use ferroce_trial::{Link, Outages, Times};

/// Any text is a distribution of outages or is refused with a reason, and those that are read can be drawn
/// in order; any text is the state of a search or is refused, and comes back as it was read.
pub fn outages(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let lines = Times::from_lines(text).map(Outages::Lengths);
    for outages in [lines, text.parse()] {
        match outages {
            Ok(outages) => {
                let trains = outages.trains(7, 1);
                assert!(trains.iter().all(|train| train.down > Span::ZERO));
                assert!(trains.is_sorted_by_key(|train| train.down));
                assert!(!outages.to_string().is_empty());
            }
            Err(error) => assert!(!error.reason.is_empty(), "a reason"),
        }
    }
    let question = question();
    match State::read(text, &question) {
        Ok(state) => assert_eq!(State::read(&state.to_json(), &question), Ok(state)),
        Err(error) => assert!(!error.to_string().is_empty(), "a reason"),
    }
}

/// The one that the corpus has the state of.
fn question() -> Question {
    Question {
        outages: Outages::Lengths(Times::Same(Span::from_secs(1))),
        link: Link {
            loss: 0,
            round_trip: Times::Same(Span::from_micros(20)),
        },
        qp: QpTimeouts {
            timeout: 20,
            retry_cnt: 7,
        },
        floor: AckTimeoutFloor::DEFAULT,
        demand: Demand {
            survive: Span::ZERO,
            detect_within: Span::NEVER,
        },
        spurious_below: 0.01,
        death: Span::from_secs(300),
        count: 1,
        rounds: 9,
        steps: 1,
        seed: 1,
    }
}
