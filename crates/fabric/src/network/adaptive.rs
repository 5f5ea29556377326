//! Adaptive routing: the port for a packet that may take any of several.

use super::Network;
use crate::frame::{Frame, Parcel};
use crate::route::place;

/// The size of a grade of load, bytes: ports that are this close to the least loaded one are as good.
///
/// Switches compare grades of load, not bytes. Junos has eight quality bands of queue length and recent load
/// (`egress-quantization` of dynamic load balancing), SAI up to eight (`SAI_ARS_PROFILE_ATTR_QUANT_BANDS`),
/// CloudEngine seven levels of queue depth (`adaptive-routing buffer`). None of them publishes the queue length
/// of a grade, so this is Ferroce's choice: four frames of the largest MTU. With a much smaller one, senders of
/// equal rate stay in step, each on a path of its own, and collide with others out of the switch's sight. With a
/// much larger one, adaptive routing is as good as chance.
const GRADE_BYTES: u32 = 16 << 10;

impl<P: Parcel> Network<P> {
    /// Of the ports in the grade of the least loaded one, the port that `number` chooses, which is random.
    ///
    /// The load of a port is the time until it would have sent the frame. Ports without a carrier are chosen
    /// only if none has one.
    pub(super) fn lightly_loaded(
        &self,
        switch: usize,
        ports: &[u16],
        number: u32,
        frame: &Frame,
    ) -> Option<u16> {
        let load = |port: &u16| {
            let port = &self.switches[switch].ports[usize::from(*port)];
            let line = &self.lines[port.line as usize];
            let waiting = port.queue_bytes() + u64::from(frame.bytes);
            let waiting = line.transmission(u32::try_from(waiting).unwrap_or(u32::MAX));
            let sent = line.free_at.max(self.now).after(waiting);
            (!line.is_up(), sent, line.transmission(GRADE_BYTES))
        };
        let (is_down, sent, grade) = ports.iter().map(load).min()?;
        let limit = (is_down, sent.after(grade));
        let mut equal = ports.iter().filter(|port| {
            let (is_down, sent, _) = load(port);
            (is_down, sent) <= limit
        });
        let nth = place(equal.clone().count(), number);
        equal.nth(nth).copied()
    }
}
