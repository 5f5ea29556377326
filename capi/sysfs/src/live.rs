//! Current values of counters, parameters and port states.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ferroce_registry::Registry;
use ferroce_sysfs::{View, ViewError};

/// How long counters that were written are new enough, as `hw_counters/lifespan` says.
const LIFESPAN: Duration = Duration::from_millis(10);

struct Live {
    view: View,
    written: Instant,
}

/// Writes the files anew if the path is that of one that changes and they are old. What goes wrong leaves
/// them as they are: a program that reads a file is not told about another one.
pub(crate) fn refresh(path: &[u8]) {
    if changes(path) {
        renew(LIFESPAN);
    }
}

/// Writes them anew at once: something was set.
pub(crate) fn refresh_now() {
    renew(Duration::ZERO);
}

/// Writes them anew if they are as old as this.
fn renew(age: Duration) {
    static LIVE: OnceLock<Option<Mutex<Live>>> = OnceLock::new();
    let live = LIVE.get_or_init(|| {
        let written = Instant::now();
        let view = open().ok()?;
        Some(Mutex::new(Live { view, written }))
    });
    // Another thread holds the lock and is writing them, or was when this process was forked.
    let Some(Ok(mut live)) = live.as_ref().map(Mutex::try_lock) else {
        return;
    };
    if live.written.elapsed() >= age && live.view.refresh().is_ok() {
        live.written = Instant::now();
    }
}

fn open() -> Result<View, ViewError> {
    let registry = Registry::open()?;
    let devices = registry.devices()?;
    View::open(&registry, &devices)
}

fn changes(path: &[u8]) -> bool {
    let has = |wanted: &[u8]| path.windows(wanted.len()).any(|part| part == wanted);
    let port = [
        b"/ports/1/state".as_slice(),
        b"/phys_state",
        b"/gids/",
        b"/gid_attrs/",
    ];
    port.into_iter().any(has)
        || has(b"/counters/")
        || has(b"_counters/")
        || has(b"/ecn/")
        || has(b"/cc_params/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_change_are_told_from_the_rest() {
        for counter in ["counters/port_rcv_data", "hw_counters/lifespan"] {
            assert!(changes(format!("/x/ports/1/{counter}").as_bytes()));
        }
        for parameter in ["net/lo/ecn/roce_np/cnp_dscp", "mlx5/x/cc_params/rp_gd"] {
            assert!(changes(format!("/x/{parameter}").as_bytes()));
        }
        for of_port in ["state", "phys_state", "gids/0", "gid_attrs/types/0"] {
            assert!(changes(format!("/x/ports/1/{of_port}").as_bytes()));
        }
        for other in ["/x/ports/1/rate", "/x/ports/1/counters", "/"] {
            assert!(!changes(other.as_bytes()), "{other}");
        }
    }
}
