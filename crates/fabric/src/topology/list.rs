//! Topologies from lists of nodes and cables.

use std::collections::HashMap;

use ferroce_base::units::Probability;
use ferroce_device::Pairing;

use super::{Cable, CableSpec, NodeId, Topology, TopologyError};

/// A cable between nodes given by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedCable {
    /// The nodes that it connects.
    pub ends: [String; 2],
    /// Its rate and delay.
    pub spec: CableSpec,
    /// Probability of losing a packet, independently for each packet and direction.
    pub loss: Probability,
}

impl Topology {
    /// Creates a topology from lists of hosts, switches and cables. With a pairing, hosts may have two.
    pub fn from_list(
        hosts: Vec<String>,
        switches: Vec<String>,
        cables: &[NamedCable],
        pairing: Option<Pairing>,
    ) -> Result<Self, TopologyError> {
        let mut it = Self {
            // Too many are found by the check.
            hosts: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
            names: hosts,
            pairing,
            cables: Vec::new(),
            port_names: Vec::new(),
        };
        it.names.extend(switches);
        let names = it.names.iter().map(String::as_str);
        let nodes: HashMap<&str, NodeId> = names.zip((0..).map(NodeId)).collect();
        for (at, cable) in cables.iter().enumerate() {
            let find = |name: &String| {
                let unknown = || TopologyError::NoNode {
                    cable: at,
                    node: name.clone(),
                };
                nodes.get(name.as_str()).copied().ok_or_else(unknown)
            };
            let [a, b] = &cable.ends;
            it.cables.push(Cable {
                loss: cable.loss,
                ..Cable::new(find(a)?, find(b)?, cable.spec)
            });
        }
        it.check()?;
        Ok(it)
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;

    use super::*;

    #[test]
    fn names_are_found() {
        let list = |ends: &[[&str; 2]]| {
            let cable = |ends: &[&str; 2]| NamedCable {
                ends: ends.map(str::to_owned),
                spec: CableSpec::new(Rate::from_mbps(10_000), Span::from_micros(2)),
                loss: "1%".parse().unwrap(),
            };
            let cables: Vec<_> = ends.iter().map(cable).collect();
            let names = |names: &[&str]| names.iter().map(|it| String::from(*it)).collect();
            Topology::from_list(names(&["a", "b"]), names(&["tor"]), &cables, None)
        };
        let topology = list(&[["tor", "b"], ["a", "tor"]]).unwrap();
        assert_eq!(topology.cables[0].ends, [NodeId(2), NodeId(1)]);
        assert_eq!(topology.cables[1].ends, [NodeId(0), NodeId(2)]);
        assert_eq!(topology.cables[0].loss.to_string(), "1%");
        assert_eq!(
            list(&[["tor", "c"]]).unwrap_err().to_string(),
            "cable 0: unknown node \"c\": add it to the nodes or correct the name"
        );
        let error = list(&[["tor", "a"]]).unwrap_err().to_string();
        assert!(error.starts_with("host b has 0 cables"), "{error}");
    }
}
