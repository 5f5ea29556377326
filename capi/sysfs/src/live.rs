//! Counters as they are when they are read.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ferroce_sysfs::{View, ViewError};
use ferroce_udp::Registry;

/// How long counters that were written are new enough, as `hw_counters/lifespan` says.
const LIFESPAN: Duration = Duration::from_millis(10);

struct Live {
    view: View,
    written: Instant,
}

/// Writes the counters anew if the path is that of one and they are old. What goes wrong leaves
/// them as they are: a program that reads a file is not told about another one.
pub(crate) fn refresh(path: &[u8]) {
    static LIVE: OnceLock<Option<Mutex<Live>>> = OnceLock::new();
    if !is_counter(path) {
        return;
    }
    let live = LIVE.get_or_init(|| {
        let written = Instant::now();
        let view = open().ok()?;
        Some(Mutex::new(Live { view, written }))
    });
    // Whoever holds the lock is writing them, or was when this process was forked.
    let Some(Ok(mut live)) = live.as_ref().map(Mutex::try_lock) else {
        return;
    };
    if live.written.elapsed() >= LIFESPAN && live.view.refresh().is_ok() {
        live.written = Instant::now();
    }
}

fn open() -> Result<View, ViewError> {
    let registry = Registry::open()?;
    let devices = registry.devices()?;
    View::open(&registry, &devices)
}

fn is_counter(path: &[u8]) -> bool {
    path.windows(10)
        .any(|part| part == b"/counters/" || part == b"_counters/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_from_the_rest() {
        for counter in ["counters/port_rcv_data", "hw_counters/lifespan"] {
            assert!(is_counter(format!("/x/ports/1/{counter}").as_bytes()));
        }
        for other in ["/x/ports/1/state", "/x/ports/1/counters", "/"] {
            assert!(!is_counter(other.as_bytes()), "{other}");
        }
    }
}
