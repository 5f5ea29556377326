//! The transmission windows of a card (`roce_tx_window_en`): how much each queue pair may have in
//! flight, by its round trips and losses.
//!
//! A host whose packets are lost when a buffer is full brings an [`Admission`] of its own, which has one
//! window for all queue pairs to a peer and is always on. This one is for cards: no packet waits for the
//! others' room.

use std::net::IpAddr;

use ferroce_dcqcn::Rate;
use ferroce_transport::{Span, Time};

use crate::admission::{Admission, Applicant, Audited, Called, PathLook, Seat, Signal};

/// The window of one queue pair.
///
/// It begins small and doubles with each round trip until something is lost: the peer misses it, or has
/// not answered. A loss halves it, once in a round trip, and each round trip without one adds a packet from
/// then on. The permanent window bounds it, and what the port sends in two of the shortest round trips so
/// far: more would only wait in queues. The second one is for a path that becomes longer.
#[derive(Clone, Copy, Debug)]
struct TxWindow {
    bytes: u64,
    /// The last round trip.
    rtt: Option<Span>,
    /// The shortest one; `NEVER` without any.
    shortest: Span,
    /// When it was halved last, if it was. Packets that were sent before say nothing about it.
    halved: Option<Time>,
}

/// The windows of a device's queue pairs. The `peer` of a [`Seat`] is the index of its queue pair.
#[derive(Debug)]
pub(crate) struct TxWindows {
    line: Rate,
    /// By the index of the queue pair.
    windows: Vec<TxWindow>,
}

/// A new queue pair's window.
const START_BYTES: u64 = 32 << 10;
/// One that is acknowledged, and one on its way meanwhile.
const PACKETS_MIN: u64 = 2;
/// Picoseconds in a second.
const PICOS: u128 = 1_000_000_000_000;

impl TxWindow {
    /// That of a queue pair with this permanent one.
    fn new(max: u32) -> Self {
        Self {
            bytes: START_BYTES.min(max.into()),
            rtt: None,
            shortest: Span::NEVER,
            halved: None,
        }
    }

    /// Bytes that may be in flight over a port of this speed.
    fn bytes(&self, line: Rate) -> u64 {
        let bits = u128::from(line.bps()) * 2 * u128::from(self.shortest.as_picos());
        let path = u64::try_from(bits / 8 / PICOS).unwrap_or(u64::MAX);
        self.bytes.min(path)
    }

    /// A queue pair with packets of `mtu` bytes, and a permanent window of `max`, has learned something.
    fn signal(&mut self, now: Time, signal: Signal, line: Rate, mtu: u64, max: u64) {
        let round_trip = self.rtt.unwrap_or(Span::ZERO);
        let is_new = self.halved.is_none_or(|at| now.since(at) >= round_trip);
        match signal {
            Signal::RoundTrip { rtt, .. } => {
                self.shortest = self.shortest.min(rtt);
                self.rtt = Some(rtt);
                if is_new {
                    let growth = if self.halved.is_some() {
                        mtu
                    } else {
                        self.bytes
                    };
                    self.bytes = (self.bytes + growth).min(max);
                }
            }
            Signal::Loss { .. } if is_new => {
                self.bytes = (self.bytes(line) / 2).max(PACKETS_MIN * mtu);
                self.halved = Some(now);
            }
            Signal::Loss { .. } | Signal::Answer | Signal::Spurious => {}
        }
    }
}

impl TxWindows {
    pub(crate) fn new(line: Rate) -> Self {
        Self {
            line,
            windows: Vec::new(),
        }
    }

    fn of(&self, seat: &Seat) -> Option<&TxWindow> {
        self.windows.get(seat.peer? as usize)
    }
}

const NONE: Called = [None, None];

impl Admission for TxWindows {
    fn connect(&mut self, _: Time, applicant: Applicant<'_>, address: Option<IpAddr>) -> Called {
        let index = applicant.index as usize;
        let window = TxWindow::new(applicant.qp.config().window_bytes);
        if index >= self.windows.len() {
            self.windows.resize(index + 1, window);
        }
        self.windows[index] = window;
        *applicant.seat = Seat {
            peer: address.map(|_| applicant.index),
            ..Seat::default()
        };
        NONE
    }

    fn grant(&mut self, applicant: Applicant<'_>) {
        let qp = applicant.qp;
        let bytes = self.of(applicant.seat).map(|it| it.bytes(self.line));
        qp.share_window(bytes.map_or(u32::MAX, clip));
    }

    fn book(&mut self, applicant: Applicant<'_>) -> Called {
        let mtu = applicant.qp.attr().path_mtu.bytes();
        applicant.seat.packets = u64::from(applicant.qp.in_flight()) * u64::from(mtu);
        NONE
    }

    fn signal(&mut self, now: Time, applicant: Applicant<'_>, signal: Signal) -> Called {
        let (qp, line) = (applicant.qp, self.line);
        let (mtu, max) = (qp.attr().path_mtu.bytes(), qp.config().window_bytes);
        if let Some(window) = self.windows.get_mut(applicant.index as usize) {
            window.signal(now, signal, line, mtu.into(), max.into());
        }
        NONE
    }

    fn end_turn(&mut self, _: Time, applicant: Applicant<'_>) -> Called {
        self.book(applicant)
    }

    fn share(&self, applicant: Applicant<'_>) -> u32 {
        let window = self.of(applicant.seat);
        window.map_or(u32::MAX, |it| clip(it.bytes(self.line)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn handle_timeout(&mut self, _: Time) -> Vec<u32> {
        Vec::new()
    }

    fn path(&self, seat: &Seat) -> Option<PathLook> {
        let window = self.of(seat)?;
        Some(PathLook {
            window_bytes: window.bytes(self.line),
            used_bytes: seat.packets,
            rtt_ns: window.rtt.map(Span::as_nanos),
        })
    }

    fn audit(&self, queue_pairs: &[Audited<'_>]) {
        for it in queue_pairs {
            let max = u64::from(it.qp.config().window_bytes);
            let Some(window) = self.of(it.seat) else {
                continue;
            };
            assert_eq!(it.seat.peer, Some(it.index), "another queue pair's window");
            let least = PACKETS_MIN * u64::from(it.qp.attr().path_mtu.bytes());
            assert!(window.bytes <= max.max(least), "{window:?} of {max}");
        }
    }
}

fn clip(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_mbps(100_000);
    const MTU: u64 = 4096;
    const MAX: u64 = 4 << 20;
    const RTT: Span = Span::from_micros(8);
    const LOSS: Signal = Signal::Loss { waited: None };

    fn window() -> TxWindow {
        TxWindow::new(MAX as u32)
    }

    fn round_trip(rtt: Span) -> Signal {
        Signal::RoundTrip { rtt, wait: None }
    }

    /// In a round trip of 8 us, 100 Gb/s carry 100 KB.
    #[test]
    fn two_of_the_shortest_round_trips_are_the_most() {
        let mut window = window();
        window.bytes = MAX;
        assert_eq!(window.bytes(LINE), MAX);
        for (rtt_us, bytes) in [(8, 200_000), (10_000, 200_000), (4, 100_000)] {
            let rtt = Span::from_micros(rtt_us);
            window.signal(Time::ZERO, round_trip(rtt), LINE, MTU, MAX);
            assert_eq!(window.bytes(LINE), bytes, "{window:?}");
            assert_eq!(window.rtt, Some(rtt));
        }
    }

    #[test]
    fn a_loss_halves_it_once_in_a_round_trip() {
        let mut window = window();
        let mut now = Time::ZERO.after(RTT);
        window.bytes = MAX;
        window.signal(now, round_trip(RTT), LINE, MTU, MAX);
        for expected in [100_000, 50_000, 25_000, 12_500, 8_192, 8_192] {
            window.signal(now, LOSS, LINE, MTU, MAX);
            window.signal(now.after(RTT / 2), LOSS, LINE, MTU, MAX);
            window.signal(now.after(RTT / 2), round_trip(RTT), LINE, MTU, MAX);
            assert_eq!(window.bytes(LINE), expected);
            now = now.after(RTT);
        }
        // A timeout says the same.
        let timeout = Signal::Loss { waited: Some(RTT) };
        window.bytes = 64_000;
        window.signal(now, timeout, LINE, MTU, MAX);
        assert_eq!(window.bytes(LINE), 32_000);
    }

    #[test]
    fn until_the_first_loss_a_round_trip_doubles_it() {
        let mut window = window();
        let far = round_trip(Span::from_millis(1));
        for expected in [64 << 10, 128 << 10, 256 << 10, 300_000, 300_000] {
            window.signal(Time::ZERO, far, LINE, MTU, 300_000);
            assert_eq!(window.bytes(LINE), expected);
        }
        assert_eq!(TxWindow::new(5_000).bytes(LINE), 5_000);
    }

    #[test]
    fn a_round_trip_without_loss_adds_one_packet() {
        let mut window = window();
        (window.bytes, window.halved) = (10_000, Some(Time::ZERO));
        let mut now = Time::ZERO;
        for expected in [14_096, 18_192, 22_288] {
            now = now.after(RTT);
            window.signal(now, round_trip(RTT), LINE, MTU, 64_000);
            assert_eq!(window.bytes(LINE), expected);
        }
        window.bytes = 63_000;
        window.signal(now, round_trip(RTT), LINE, MTU, 64_000);
        assert_eq!(window.bytes(LINE), 64_000);
        for nothing in [Signal::Answer, Signal::Spurious] {
            window.signal(now.after(RTT * 9), nothing, LINE, MTU, 64_000);
            assert_eq!(window.bytes(LINE), 64_000);
        }
    }
}
