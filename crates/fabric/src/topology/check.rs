//! Checks whether a topology can be simulated.

use std::collections::HashSet;

use super::{
    CABLES_MAX, Cable, DELAY_MAX, HOSTS_MAX, NodeId, PORTS_MAX, Ports, RATE_MIN, SWITCHES_MAX,
    Topology, TopologyError,
};

/// Refuses a number that is out of its range.
pub(super) fn within(
    field: &'static str,
    value: u64,
    min: u32,
    max: u32,
) -> Result<(), TopologyError> {
    if (u64::from(min)..=u64::from(max)).contains(&value) {
        return Ok(());
    }
    Err(TopologyError::Count {
        field,
        value,
        min: min.into(),
        max: max.into(),
    })
}

impl Topology {
    /// Checks whether the topology can be simulated, and returns the first error. Topologies from
    /// builders are always valid.
    ///
    /// Every host must have one cable, or up to two that lead to switches if there is a
    /// [pairing](Topology::pairing); all nodes must be connected; names, rates and delays must be as
    /// described at [`Topology`], [`RATE_MIN`] and [`DELAY_MAX`]; no cable may connect a node to itself.
    /// Several cables may connect the same two nodes.
    pub fn check(&self) -> Result<(), TopologyError> {
        let switches = (self.names.len() as u64).saturating_sub(self.hosts.into());
        within("hosts", self.hosts.into(), 1, HOSTS_MAX)?;
        within("switches", switches, 0, SWITCHES_MAX)?;
        within("cables", self.cables.len() as u64, 1, CABLES_MAX)?;
        self.check_names()?;
        for (at, cable) in self.cables.iter().enumerate() {
            self.check_cable(at, cable)?;
        }
        self.check_degrees()?;
        self.check_connected()
    }

    fn check_names(&self) -> Result<(), TopologyError> {
        if self.names.len() < self.hosts as usize {
            return Err(TopologyError::Unnamed {
                hosts: self.hosts,
                names: self.names.len(),
            });
        }
        let mut seen = HashSet::with_capacity(self.names.len());
        for (node, name) in (0..).zip(&self.names) {
            if name.is_empty() || !seen.insert(name.as_str()) {
                let name = name.clone();
                return Err(TopologyError::Name { node, name });
            }
        }
        Ok(())
    }

    fn check_cable(&self, at: usize, cable: &Cable) -> Result<(), TopologyError> {
        for end in cable.ends {
            if end.0 >= self.nodes() {
                return Err(TopologyError::NoNode {
                    cable: at,
                    node: end.0.to_string(),
                });
            }
        }
        let [a, b] = cable.ends;
        if a == b {
            return Err(TopologyError::Loop {
                cable: at,
                node: self.name(a).into(),
            });
        }
        let place = || format!("{at} ({} to {})", self.name(a), self.name(b));
        if cable.rate < RATE_MIN {
            return Err(TopologyError::Rate {
                cable: place(),
                rate: cable.rate,
            });
        }
        if cable.delay > DELAY_MAX {
            return Err(TopologyError::Delay {
                cable: place(),
                delay: cable.delay,
            });
        }
        Ok(())
    }

    fn check_degrees(&self) -> Result<(), TopologyError> {
        let mut degrees = vec![0_u32; self.names.len()];
        for end in self.cables.iter().flat_map(|cable| cable.ends) {
            degrees[end.0 as usize] += 1;
        }
        for (node, &cables) in (0..).map(NodeId).zip(&degrees) {
            let name = || self.name(node).to_owned();
            let max = if self.pairing.is_some() { 2 } else { 1 };
            if self.is_host(node) && !(1..=max).contains(&cables) {
                let host = name();
                return Err(TopologyError::HostCables { host, cables, max });
            }
            if cables > PORTS_MAX {
                let switch = name();
                return Err(TopologyError::SwitchCables { switch, cables });
            }
        }
        Ok(())
    }

    fn check_connected(&self) -> Result<(), TopologyError> {
        let ports = Ports::of(self);
        let mut reached = vec![false; self.names.len()];
        let mut next = vec![NodeId(0)];
        reached[0] = true;
        while let Some(node) = next.pop() {
            for port in ports.at(node) {
                if !std::mem::replace(&mut reached[port.peer.0 as usize], true) {
                    next.push(port.peer);
                }
            }
        }
        match reached.iter().position(|it| !it) {
            None => Ok(()),
            Some(at) => Err(TopologyError::Disconnected {
                from: self.names[0].clone(),
                to: self.names[at].clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;
    use ferroce_device::Pairing;

    use super::*;
    use crate::topology::CableSpec;

    const CABLE: CableSpec = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));

    fn broken(change: impl FnOnce(&mut Topology)) -> String {
        let mut topology = Topology::star(3, CABLE).unwrap();
        change(&mut topology);
        topology.check().unwrap_err().to_string()
    }

    #[test]
    fn each_mistake_is_named() {
        assert_eq!(
            broken(|it| it.hosts = 0),
            "invalid hosts 0: must be 1 to 65536"
        );
        assert_eq!(
            broken(|it| it.cables.clear()),
            "invalid cables 0: must be 1 to 1048576"
        );
        assert_eq!(
            broken(|it| it.names.truncate(2)),
            "3 hosts but 2 node names: name every host, then every switch"
        );
        assert_eq!(
            broken(|it| it.names[2] = "h0".into()),
            "node 2 is named \"h0\": must be a name of at least one character that no other node has"
        );
        assert_eq!(
            broken(|it| it.cables[1].ends[0] = NodeId(9)),
            "cable 1: unknown node \"9\": add it to the nodes or correct the name"
        );
        assert_eq!(
            broken(|it| it.cables[1].ends[0] = NodeId(3)),
            "cable 1 connects switch0 to itself: connect it to another node or remove it"
        );
        assert_eq!(
            broken(|it| it.cables[2].rate = Rate::default()),
            "cable 2 (h2 to switch0): invalid rate 0 bit/s: must be 1 Mb/s to 4294967.295 Gb/s"
        );
        assert_eq!(
            broken(|it| it.cables[2].delay = Span::from_millis(1_001)),
            "cable 2 (h2 to switch0): invalid delay 1.001 s: must be 0 to 1 s"
        );
        assert_eq!(
            broken(|it| it.cables.truncate(2)),
            "host h2 has 0 cables: must be exactly 1; connect it to one switch"
        );
        let twice = |it: &mut Topology| it.cables.push(it.cables[2]);
        assert_eq!(
            broken(twice),
            "host h2 has 2 cables: must be exactly 1, unless host_links says what a second one is"
        );
        assert_eq!(
            broken(|it| {
                it.pairing = Some(Pairing::Bond);
                twice(it);
                twice(it);
            }),
            "host h2 has 3 cables: must be 1 or 2; make the other ports of a server a host of their own"
        );
        assert_eq!(
            broken(|it| it.names.push("switch1".into())),
            "no path from h0 to switch1: add a cable that connects them"
        );
    }

    #[test]
    fn the_limits_are_reached() {
        let switch = Topology::star(PORTS_MAX, CABLE).unwrap();
        assert_eq!(switch.hosts, 65_535);
        let error = Topology::star(PORTS_MAX + 1, CABLE).unwrap_err();
        assert_eq!(
            error.to_string(),
            "switch switch0 has 65536 cables: must be at most 65535; use several switches"
        );
        let mut parallel = Topology::star(2, CABLE).unwrap();
        parallel.names.push("switch1".into());
        let cable = Cable::new(NodeId(2), NodeId(3), CABLE);
        parallel.cables.extend([cable, cable]);
        assert_eq!(parallel.check(), Ok(()));
        parallel.cables.resize(CABLES_MAX as usize + 1, cable);
        assert_eq!(
            parallel.check().unwrap_err().to_string(),
            "invalid cables 1048577: must be 1 to 1048576"
        );
    }
}
