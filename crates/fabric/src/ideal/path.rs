//! The time a path takes when it carries nothing else.

use ferroce_base::time::Span;
use ferroce_dcqcn::Rate;

use super::duration;
use crate::route::Routes;
use crate::topology::{NodeId, Ports, Topology};

/// A cable and the end at which a path enters it: two for each cable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hop {
    /// The cable, by its index in [`Topology::cables`].
    pub cable: u32,
    /// Its end, 0 or 1.
    pub end: u8,
}

/// The path of a flow from one host to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// The cables, in order.
    pub hops: Vec<Hop>,
}

/// How messages become frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// The maximum payload of a frame.
    pub payload: u32,
    /// The additional bytes of each frame.
    pub headers: u32,
}

impl Framing {
    /// The values with which HPCC's simulator computes its ideal completion times.
    pub const HPCC: Self = Self {
        payload: 1_000,
        headers: 48,
    };
}

impl Path {
    /// Creates the path between two hosts on which `choose` selects one of the ports that each
    /// switch offers. Returns `None` if there is none.
    pub fn new(
        topology: &Topology,
        ports: &Ports,
        routes: &Routes,
        [src, dst]: [u32; 2],
        mut choose: impl FnMut(NodeId, &[u16]) -> u16,
    ) -> Option<Self> {
        let (mut at, mut number) = (NodeId(src), 0);
        let mut hops = Vec::new();
        loop {
            let port = ports.at(at).get(usize::from(number))?;
            let (cable, end) = (port.cable, port.end);
            hops.push(Hop { cable, end });
            at = port.peer;
            if topology.is_host(at) {
                return (at.0 == dst && src != dst).then_some(Self { hops });
            }
            // A shortest path does not come back.
            if hops.len() > topology.names.len() {
                return None;
            }
            match routes.ports(at, dst) {
                [] => return None,
                ports => number = choose(at, ports),
            }
        }
    }

    /// Returns the rate of the slowest cable.
    #[must_use]
    pub fn rate(&self, topology: &Topology) -> Rate {
        let rates = self.cables(topology).map(|cable| cable.rate);
        rates.min().unwrap_or_default()
    }

    /// Returns how long a frame of this length takes to the other host: every switch receives all
    /// of it before it forwards it.
    #[must_use]
    pub fn latency(&self, topology: &Topology, frame_bytes: u32) -> Span {
        let times = self.cables(topology);
        times
            .map(|it| it.delay + it.rate.transmission(frame_bytes))
            .sum()
    }

    /// Returns the base round-trip time as defined by HPCC: a frame of this length to the other
    /// host, and an answer without any length back.
    #[must_use]
    pub fn base_rtt(&self, topology: &Topology, frame_bytes: u32) -> Span {
        self.latency(topology, frame_bytes) + self.latency(topology, 0)
    }

    /// Returns the ideal completion time as defined by HPCC, to which slowdowns are relative: the
    /// base round-trip time of a full payload, plus all bytes with their headers at the rate of the
    /// slowest cable.
    #[must_use]
    pub fn ideal_fct(&self, topology: &Topology, bytes: u64, framing: Framing) -> Span {
        let frames = bytes.div_ceil(framing.payload.max(1).into());
        let all = u128::from(bytes) + u128::from(frames) * u128::from(framing.headers);
        self.base_rtt(topology, framing.payload) + duration(all, 1, self.rate(topology))
    }

    fn cables(&self, topology: &Topology) -> impl Iterator<Item = crate::Cable> {
        let hops = self.hops.iter();
        hops.map(|hop| topology.cables[hop.cable as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{CableSpec, LeafSpine};

    fn first_path(topology: &Topology, ends: [u32; 2]) -> Option<Path> {
        let (ports, routes) = (Ports::of(topology), Routes::new(topology, |_| true));
        Path::new(topology, &ports, &routes, ends, |_, ports| ports[0])
    }

    /// Flows of runs of HPCC's simulator, 16 hosts on a switch at 100 Gb/s and 1 us a cable.
    #[test]
    fn ideal_times_are_those_of_hpcc() {
        let cable = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));
        let topology = Topology::star(16, cable).unwrap();
        let path = first_path(&topology, [3, 5]).unwrap();
        assert_eq!(path.base_rtt(&topology, 1_000), Span::from_nanos(4_160));
        for (bytes, ideal_ns) in [
            (584, 4_210),
            (680, 4_218),
            (978, 4_242),
            (1_856, 4_316),
            (11_506, 5_126),
            (43_137, 7_779),
            (48_964, 8_265),
            (190_955, 20_169),
        ] {
            let ideal = path.ideal_fct(&topology, bytes, Framing::HPCC);
            assert_eq!(ideal.as_nanos(), ideal_ns, "{bytes}");
        }
    }

    #[test]
    fn every_cable_counts() {
        let topology = LeafSpine {
            leaves: 2,
            spines: 2,
            hosts_per_leaf: 2,
            cables_per_spine: 1,
            host_cable: CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1)),
            spine_cable: CableSpec::new(Rate::from_mbps(40_000), Span::from_micros(3)),
        };
        let topology = topology.build().unwrap();
        let path = first_path(&topology, [0, 3]).unwrap();
        assert_eq!(path.hops.len(), 4);
        assert_eq!(path.rate(&topology), Rate::from_mbps(40_000));
        let serialization = 2 * Span::from_nanos(80) + 2 * Span::from_nanos(200);
        assert_eq!(
            path.latency(&topology, 1_000),
            Span::from_micros(8) + serialization
        );
        assert_eq!(path.base_rtt(&topology, 0), Span::from_micros(16));
        let local = first_path(&topology, [0, 1]).unwrap();
        assert_eq!(local.latency(&topology, 0), Span::from_micros(2));
        assert_eq!(first_path(&topology, [0, 0]), None);
        assert_eq!(first_path(&topology, [0, 4]), None);
        assert_eq!(first_path(&topology, [9, 0]), None);
        let pair = Topology::pair(CableSpec::new(Rate::from_mbps(1), Span::ZERO)).unwrap();
        assert_eq!(
            first_path(&pair, [1, 0]).unwrap().hops,
            [Hop { cable: 0, end: 1 }]
        );
    }
}
