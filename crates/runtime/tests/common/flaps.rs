//! A port that flaps, and its events.

use std::time::Instant;

use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::{Event, Span};
use ferroce_os::Clock;

use super::{Node, PATIENCE};

/// The next port event of a program.
pub fn next_event(node: &Node) -> Event {
    let started = Instant::now();
    loop {
        match node.device.poll_event() {
            Some(
                event @ (Event::PortError { port: 1 }
                | Event::PortActive { port: 1 }
                | Event::GidChange { port: 1 }),
            ) => {
                return event;
            }
            Some(_) => {}
            None => std::thread::yield_now(),
        }
        assert!(started.elapsed() < PATIENCE, "no event");
    }
}

/// Waits for all flaps, each of which is two events.
pub fn watch_flaps(node: &Node, flaps: u32) {
    for flap in 0..flaps {
        assert_eq!(next_event(node), Event::PortError { port: 1 }, "{flap}");
        assert_eq!(next_event(node), Event::PortActive { port: 1 }, "{flap}");
    }
}

/// Short outages from now on.
pub fn flaps(times: u32) -> Schedule {
    let flaps = Outages {
        first: Clock.now().after(Span::from_millis(20)),
        length: Span::from_millis(5),
        every: Span::from_millis(10),
        times,
    };
    Schedule::new(vec![flaps]).unwrap()
}
