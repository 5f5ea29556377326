//! `ferroce identify` on captures by tcpdump with segmentation offload and by `ferroce run --pcap`,
//! of queue pairs whose link is bad: it is never certain and wrong, and leaves open only what too
//! few waits show, except where a busy machine stretches waits. `FERROCE_CAPTURES` sets the number
//! of captures; with `--nocapture` the test prints the results.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use ferroce_interop::captures::{Case, Verdict, judge};

/// The default number of captures.
const CAPTURES: usize = 8;
/// Captures made concurrently.
const AT_A_TIME: usize = 2;

#[test]
fn own_captures_are_never_identified_wrongly_with_certainty() {
    let count =
        env::var("FERROCE_CAPTURES").map_or(CAPTURES, |text| text.parse().expect("a number"));
    let next = AtomicUsize::new(0);
    let verdicts: Mutex<Vec<Verdict>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let verdict = judge(Case::numbered(number));
                    verdicts.lock().unwrap().push(verdict);
                }
            });
        }
    });
    let verdicts = verdicts.into_inner().unwrap();
    assert_eq!(verdicts.len(), count);
    let with_waits = verdicts.iter().filter(|it| it.queue_pairs > 0).count();
    let decided = verdicts
        .iter()
        .filter(|it| it.queue_pairs > 0 && it.is_decided)
        .count();
    let wrong: Vec<&String> = verdicts
        .iter()
        .flat_map(|it| &it.certain_and_wrong)
        .collect();
    let likely: Vec<&String> = verdicts
        .iter()
        .flat_map(|it| &it.likely_and_wrong)
        .collect();
    let open: Vec<&Verdict> = verdicts
        .iter()
        .filter(|it| !it.undecided.is_empty())
        .collect();
    println!(
        "{count} captures, {with_waits} with waits; decided for all queue pairs: {decided}; certain and \
         wrong: {}; likely and wrong: {}; undecided with four waits or more: {}",
        wrong.len(),
        likely.len(),
        open.len()
    );
    assert!(
        with_waits * 2 > count,
        "{with_waits} of {count} captures show waits"
    );
    assert!(wrong.is_empty(), "certain and wrong: {wrong:#?}");
    // On a busy machine, many waits are longer than any timer.
    assert!(open.len() * 10 <= count, "undecided: {open:#?}");
}
