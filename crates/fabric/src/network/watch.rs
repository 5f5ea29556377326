//! Observers of packets: those that pass a port, and those that are lost.

use ferroce_base::time::Time;

use crate::frame::{Frame, Parcel};
use crate::packets::Packets;

/// Who looks at packets, and what was seen and not taken.
pub(crate) struct Watch<P> {
    /// Lines that leave ports that are looked at.
    ports: Vec<u32>,
    /// What has passed these, in order.
    pub(crate) passed: Vec<Passed<P>>,
    keeps_lost: bool,
    /// What was lost, and the number of the sender's address.
    pub(crate) lost: Vec<(u32, P)>,
}

/// A packet that has passed a port.
pub(crate) struct Passed<P> {
    pub(crate) at: Time,
    /// The line that leaves the port.
    pub(crate) port: u32,
    /// It leaves.
    pub(crate) leaves: bool,
    pub(crate) frame: Frame,
    pub(crate) packet: P,
}

impl<P> Default for Watch<P> {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            passed: Vec::new(),
            keeps_lost: false,
            lost: Vec::new(),
        }
    }
}

impl<P: Parcel> Watch<P> {
    /// Looks at a port from now on.
    pub(crate) fn port(&mut self, leaving: u32) {
        if !self.ports.contains(&leaving) {
            self.ports.push(leaving);
        }
    }

    /// Keeps what is lost from now on.
    pub(crate) fn losses(&mut self) {
        self.keeps_lost = true;
    }

    /// Whether no port is looked at.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.ports.is_empty()
    }

    /// A frame is put on a line, or has come to its end.
    #[cold]
    pub(crate) fn note(
        &mut self,
        at: Time,
        line: u32,
        leaves: bool,
        frame: Frame,
        packets: &Packets<P>,
    ) {
        // The lines of a cable differ in the last bit.
        let port = if leaves { line } else { line ^ 1 };
        if self.ports.contains(&port) {
            let packet = packets.get(frame.packet).clone();
            self.passed.push(Passed {
                at,
                port,
                leaves,
                frame,
                packet,
            });
        }
    }

    /// A packet is lost.
    #[cold]
    pub(crate) fn lose(&mut self, frame: &Frame, packets: &Packets<P>) {
        if self.keeps_lost {
            let packet = packets.get(frame.packet).clone();
            self.lost.push((frame.source, packet));
        }
    }
}
