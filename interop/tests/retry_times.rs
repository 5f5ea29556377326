//! Unmodified verbs fail at the time the policy predicts. The short waits; the program
//! `retry_times` prints the whole table.

use ferroce_adp::QpTimeouts;
use ferroce_interop::lab::{Lab, undisturbed};
use ferroce_interop::retry::{Observed, Way, observe};

#[test]
fn errors_come_when_predicted() {
    let settings: Vec<QpTimeouts> = [
        (8, 0),
        (8, 3),
        (14, 0),
        (14, 7),
        (16, 1),
        (17, 0),
        (17, 7),
        (18, 1),
    ]
    .map(|(timeout, retry_cnt)| QpTimeouts { timeout, retry_cnt })
    .into();
    for way in Way::ALL {
        let lab = Lab::new("retry");
        let strays = |observed: &Vec<Observed>| {
            let strays: Vec<_> = observed.iter().filter(|one| !one.agrees()).collect();
            (!strays.is_empty()).then(|| format!("{way:?}: {strays:#?}"))
        };
        let observed = undisturbed(|| observe(&lab, way, &settings), strays);
        assert_eq!(observed.len(), settings.len());
    }
}
