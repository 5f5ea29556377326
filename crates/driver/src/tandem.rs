//! Two devices driven by one thread.

use ferroce_device::Time;

use crate::{Clock, Driver, Link, Sent};

/// What a round of two devices has brought that one thread drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Both {
    /// Something has happened.
    Busy,
    /// Nothing has, and nothing will before this time unless a packet arrives.
    Idle(Option<Time>),
}

/// One round of two devices that talk to each other. No timer of either runs out before both have
/// taken and answered what had arrived when it was due.
pub fn drive_both<L: Link, C: Clock>(mut devices: [&mut Driver<L, C>; 2]) -> Both {
    // A deadline that passes from here on comes up in the next round.
    let began = devices[0].now();
    let mut is_busy = false;
    // A request that lay on one link is answered in the first pass, and the answer taken in the
    // second one at the latest.
    for _ in 0..2 {
        let mut packets = 0;
        for driver in &mut devices {
            packets += driver.receive_all();
            is_busy |= driver.transmit() != Sent::All;
        }
        is_busy |= packets > 0;
        if packets == 0 {
            break;
        }
    }
    for driver in &mut devices {
        if driver.expire_due(began) {
            driver.transmit();
            is_busy = true;
        }
    }
    if is_busy {
        return Both::Busy;
    }
    let deadlines = devices.iter().filter_map(|driver| driver.poll_timeout());
    Both::Idle(deadlines.min())
}
