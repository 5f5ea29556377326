//! Ports that go down and up: what programs are told, and what becomes of their queue pairs.

mod crowd;
mod flaps;
mod gid;
mod port;

use ferroce_device::Event;
use ferroce_testing::Side;

/// What a side was told of its port.
fn of_port(side: &Side) -> Vec<Event> {
    let is_of_port = |event: &&Event| {
        matches!(
            event,
            Event::PortError | Event::PortActive | Event::GidChange
        )
    };
    side.events.iter().filter(is_of_port).copied().collect()
}
