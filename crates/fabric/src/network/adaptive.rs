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
    /// The load of a port is the time until it would have sent the frame. A port that is paused is chosen only if
    /// all are, and one without a carrier only if none has one.
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
            let blocked = (!line.is_up(), port.is_paused(frame.priority));
            (blocked, sent, line.transmission(GRADE_BYTES))
        };
        let (blocked, sent, grade) = ports.iter().map(load).min()?;
        let limit = (blocked, sent.after(grade));
        let mut equal = ports.iter().filter(|port| {
            let (blocked, sent, _) = load(port);
            (blocked, sent) <= limit
        });
        let nth = place(equal.clone().count(), number);
        equal.nth(nth).copied()
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;
    use ferroce_transport::Outgoing;

    use super::*;
    use crate::network::FabricConfig;
    use crate::switch::SwitchConfig;
    use crate::topology::{CableSpec, Topology};

    const PORTS: [u16; 4] = [0, 1, 2, 3];

    /// A switch with a cable at each of the ports.
    fn network() -> Network<Outgoing> {
        let cable = CableSpec::new(Rate::from_mbps(100_000), Span::ZERO);
        Network::new(FabricConfig {
            topology: Topology::star(4, cable).expect("a small topology"),
            switch: SwitchConfig::default(),
            seed: 1,
        })
    }

    fn queue(network: &mut Network<Outgoing>, port: u16, frames: u32) {
        for _ in 0..frames {
            let frame = Frame::new(0, 1, 4 << 10);
            network.switches[0].enqueue(port, frame).expect("room");
        }
    }

    /// The ports that random numbers choose; each as often as the others.
    fn chosen(network: &Network<Outgoing>) -> Vec<u16> {
        let frame = Frame::new(0, 1, 4 << 10);
        let mut times = [0; 4];
        for number in (0..12).map(|half| (2 * half + 1) * (u32::MAX / 24)) {
            let port = network.lightly_loaded(0, &PORTS, number, &frame);
            times[usize::from(port.unwrap())] += 1;
        }
        let chosen = PORTS.map(|port| (port, times[usize::from(port)]));
        let chosen: Vec<_> = chosen.into_iter().filter(|(_, times)| *times > 0).collect();
        assert!(chosen.iter().all(|(_, times)| *times == 12 / chosen.len()));
        chosen.into_iter().map(|(port, _)| port).collect()
    }

    #[test]
    fn ports_of_a_grade_are_chosen_equally() {
        let mut network = network();
        assert_eq!(chosen(&network), PORTS);
        queue(&mut network, 1, 4);
        assert_eq!(chosen(&network), PORTS);
        queue(&mut network, 1, 1);
        assert_eq!(chosen(&network), [0, 2, 3]);
        for port in [0, 2, 3] {
            queue(&mut network, port, 5);
        }
        assert_eq!(chosen(&network), PORTS);
    }

    #[test]
    fn time_counts_and_not_bytes() {
        let mut network = network();
        let line = network.switches[0].ports[2].line;
        network.lines[line as usize].set_rate(Some(Rate::from_mbps(10_000)));
        // One frame takes as long as ten at the others, which is more than a grade.
        assert_eq!(chosen(&network), [0, 1, 3]);
    }

    #[test]
    fn paused_ports_and_those_without_a_carrier_come_last() {
        let mut network = network();
        for port in [0, 1, 2] {
            network.switches[0].set_paused(port, 1);
        }
        queue(&mut network, 3, 20);
        assert_eq!(chosen(&network), [3]);
        let line = network.switches[0].ports[3].line;
        assert_eq!(network.lines[line as usize].cut().count(), 0);
        assert_eq!(chosen(&network), [0, 1, 2]);
        // Another priority may send.
        network.switches[0].set_paused(2, 2);
        assert_eq!(chosen(&network), [2]);
    }
}
