//! The time of a port's last CNP, which its processes share.

#[path = "../../crates/dcqcn/src/np/timer.rs"]
#[allow(dead_code, reason = "the product uses the rest")]
mod timer;

use std::sync::Arc;

use ferroce_base::time::{Span, Time};

use self::timer::CnpTimer;
use crate::sync::concurrently;

const INTERVAL: Span = Span::from_micros(4);

/// How many CNPs two processes send that get marked packets at these times.
fn sent_at(times_us: [&'static [u64]; 2]) -> usize {
    let timer = Arc::new(CnpTimer::default());
    let send = |times_us: &'static [u64]| {
        let timer = Arc::clone(&timer);
        move || {
            let times = times_us.iter().map(|us| Time::from_nanos(us * 1_000));
            times.filter(|at| timer.take(*at, INTERVAL)).count()
        }
    };
    let [one, other] = times_us.map(send);
    let (one, other) = concurrently(one, other);
    one + other
}

/// Of two processes with a marked packet, one sends a CNP, also if their times differ a little.
pub fn one_process_sends_a_cnp() {
    assert_eq!(sent_at([&[9], &[9]]), 1);
    assert_eq!(sent_at([&[9], &[7]]), 1);
}

/// In two intervals, two processes send two CNPs.
pub fn processes_share_the_interval() {
    assert_eq!(sent_at([&[0, 4], &[1, 5]]), 2);
}
