//! Random policies are identified, or left undecided.

mod random;

use random::judge;

const RUNS: u64 = 200;

#[test]
fn random_policies_are_identified_or_left_undecided() {
    let (mut decided, mut wrong, mut seen) = (0, Vec::new(), 0);
    for verdict in (0..RUNS).filter_map(judge) {
        if verdict.waits >= 4 {
            seen += 1;
            decided += u32::from(verdict.is_decided);
        }
        wrong.extend(verdict.wrong);
    }
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(decided * 10 >= seen * 9, "{decided} of {seen} decided");
}
