//! Ports that go down and up: the events for programs, and the fate of their queue pairs.

mod crowd;
mod flaps;
mod gid;
mod port;

use ferroce_device::Event;
use ferroce_testing::Side;

/// The port events that a side was told of.
fn of_port(side: &Side) -> Vec<Event> {
    let is_of_port = |event: &&Event| {
        matches!(
            event,
            Event::PortError { port: 1 }
                | Event::PortActive { port: 1 }
                | Event::GidChange { port: 1 }
        )
    };
    side.events.iter().filter(is_of_port).copied().collect()
}
