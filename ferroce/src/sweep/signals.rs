//! Ctrl-C and SIGTERM: the first one ends a worker when its points are finished, or after a while;
//! the second one ends it immediately.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_sweep::Halt;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// How long points may take to finish: schedulers send SIGKILL 30 s after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);

/// Signals that came while it is there.
#[derive(Debug)]
pub(super) struct Stop {
    came: Arc<Mutex<Vec<Instant>>>,
    handle: Handle,
}

impl Stop {
    /// From now on these signals no longer end the process.
    pub(super) fn new() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let came = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&came);
        thread::spawn(move || {
            for _ in signals.forever() {
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                if noted.len() < 2 {
                    noted.push(Instant::now());
                }
            }
        });
        Ok(Self { came, handle })
    }

    /// Whether to go on.
    pub(super) fn halt(&self) -> Halt {
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        match came[..] {
            [] => Halt::No,
            [first] if first.elapsed() < GRACE => Halt::Soon,
            _ => Halt::Now,
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.handle.close();
    }
}
