//! The topology files of HPCC's simulator, which conweave, SimAI and astra-sim's network also read.
//!
//! The first line has the numbers of nodes, switches and links; the second has the numbers of those
//! nodes that are switches. A line for each link follows: two nodes, rate, delay, and loss
//! probability. Everything after the last link is ignored.

use ferroce_base::time::Span;
use ferroce_base::units::{Decimal, Probability};
use ferroce_dcqcn::Rate;

use super::{
    CABLES_MAX, Cable, CableSpec, DELAY_MAX, HOSTS_MAX, NodeId, RATE_MIN, SWITCHES_MAX, Topology,
};
use crate::text::{ReadError, Words};

/// The contents of a topology file of HPCC's simulator.
#[derive(Clone, PartialEq, Debug)]
pub struct HpccTopology {
    /// The topology. Hosts and switches are named by their numbers in the file: h7, switch320.
    pub topology: Topology,
    /// The node of the topology for each node of the file; in a topology, hosts come first.
    pub nodes: Vec<NodeId>,
}

impl HpccTopology {
    /// Reads a file. The topology has yet to be [checked](Topology::check): in such files hosts may
    /// have several cables.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let mut words = Words::new(text);
        let nodes = words.integer("number of nodes", 1, HOSTS_MAX + SWITCHES_MAX)?;
        let switches = words.integer("number of switches", 0, SWITCHES_MAX.min(nodes))?;
        let links = words.integer("number of links", 0, CABLES_MAX)?;
        let mut is_switch = vec![false; nodes as usize];
        for _ in 0..switches {
            let number = words.integer("switch", 0, nodes - 1)?;
            if std::mem::replace(&mut is_switch[number as usize], true) {
                let message = format!("switch {number} is listed twice; list each switch once");
                return Err(ReadError::new(words.line(), message));
            }
        }
        let (nodes, mut topology) = arrange(&is_switch);
        for _ in 0..links {
            topology.cables.push(cable(&mut words, &nodes)?);
        }
        Ok(Self { topology, nodes })
    }

    /// Returns the host for a node of the file, if it is a host.
    #[must_use]
    pub fn host(&self, node: u32) -> Option<u32> {
        let id = *self.nodes.get(node as usize)?;
        self.topology.is_host(id).then_some(id.0)
    }
}

/// Puts hosts before switches.
fn arrange(is_switch: &[bool]) -> (Vec<NodeId>, Topology) {
    let mut nodes = vec![NodeId(0); is_switch.len()];
    let mut topology = Topology::default();
    for (kind, name) in [(false, "h"), (true, "switch")] {
        for (number, _) in is_switch.iter().enumerate().filter(|it| *it.1 == kind) {
            nodes[number] = NodeId(topology.nodes());
            topology.names.push(format!("{name}{number}"));
        }
        if !kind {
            topology.hosts = topology.nodes();
        }
    }
    (nodes, topology)
}

fn cable(words: &mut Words<'_>, nodes: &[NodeId]) -> Result<Cable, ReadError> {
    let last = nodes.len() as u32 - 1;
    let [a, b] = [
        words.integer("node", 0, last)?,
        words.integer("node", 0, last)?,
    ];
    let rate = words.next("a rate")?;
    let rate = read_rate(rate).ok_or_else(|| {
        let must = format!(
            "a rate from {RATE_MIN} to {}, for example 100Gbps",
            Rate::MAX
        );
        ReadError::invalid(words.line(), "rate", rate, must)
    })?;
    let delay = words.next("a delay")?;
    let delay = read_delay(delay).ok_or_else(|| {
        let must =
            format!("a time from 0 to {DELAY_MAX} in s, ms, us, ns or ps, for example 1000ns");
        ReadError::invalid(words.line(), "delay", delay, must)
    })?;
    let loss = words.next("an error rate")?;
    let loss = loss
        .parse()
        .map_err(|_| ReadError::invalid(words.line(), "error rate", loss, Probability::FORMS))?;
    let [a, b] = [a, b].map(|it| nodes[it as usize]);
    Ok(Cable {
        loss,
        ..Cable::new(a, b, CableSpec::new(rate, delay))
    })
}

/// A number and its unit.
fn split(text: &str) -> Option<(Decimal, &str)> {
    let unit = text
        .find(|it: char| it.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    Some((number.parse().ok()?, unit))
}

/// A rate as ns-3 writes it.
fn read_rate(text: &str) -> Option<Rate> {
    let (number, unit) = split(text)?;
    let bps_per_unit = match unit {
        "bps" | "b/s" => 1,
        "kbps" | "Kbps" | "kb/s" | "Kb/s" => 1_000,
        "Mbps" | "Mb/s" => 1_000_000,
        "Gbps" | "Gb/s" => 1_000_000_000,
        _ => return None,
    };
    let bps = number.times(bps_per_unit)?;
    (RATE_MIN.bps()..=Rate::MAX.bps())
        .contains(&bps)
        .then(|| Rate::from_bps(bps))
}

/// A time as ns-3 writes it; without a unit it is in seconds.
fn read_delay(text: &str) -> Option<Span> {
    let (number, unit) = split(text)?;
    let unit = match unit {
        "" | "s" => Span::from_secs(1),
        "ms" => Span::from_millis(1),
        "us" => Span::from_micros(1),
        "ns" => Span::from_nanos(1),
        "ps" => Span::from_picos(1),
        _ => return None,
    };
    let delay = Span::from_picos(number.times(unit.as_picos())?);
    (delay <= DELAY_MAX).then_some(delay)
}

#[cfg(test)]
mod tests {
    use ferroce_device::Pairing;

    use super::*;

    const FILE: &str = "\
5 2 4
0 3
1 0 100Gbps 1000ns 0.000000
2 0 100Gbps 0.001ms 0
4 3 25Mb/s 2us 0.001
0 3 400Gbps 1us 0
anything else
";

    #[test]
    fn hosts_come_first() {
        let it = HpccTopology::read(FILE).unwrap();
        assert_eq!(it.topology.check(), Ok(()));
        assert_eq!(it.topology.names, ["h1", "h2", "h4", "switch0", "switch3"]);
        assert_eq!(
            it.nodes.iter().map(|it| it.0).collect::<Vec<_>>(),
            [3, 0, 1, 4, 2]
        );
        assert_eq!(
            [1, 2, 4].map(|node| it.host(node)),
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!([0, 3, 5].map(|node| it.host(node)), [None; 3]);
        let cable = it.topology.cables[2];
        assert_eq!(cable.ends, [NodeId(2), NodeId(4)]);
        assert_eq!(
            (cable.rate, cable.delay),
            (Rate::from_mbps(25), Span::from_micros(2))
        );
        assert_eq!(cable.loss.parts(1_000), Some(1));
        assert_eq!(cable.loss_share(), 4_294_967);
        assert_eq!(it.topology.cables[1].delay, Span::from_micros(1));
    }

    #[test]
    fn mistakes_have_a_line() {
        let error = |from: &str, to: &str| {
            let text = FILE.replace(from, to);
            assert_ne!(text, FILE);
            HpccTopology::read(&text).unwrap_err().to_string()
        };
        assert_eq!(
            error("5 2 4", "5 6 4"),
            "line 1: invalid number of switches \"6\": must be an integer from 0 to 5"
        );
        assert_eq!(
            error("0 3\n1", "0 5\n1"),
            "line 2: invalid switch \"5\": must be an integer from 0 to 4"
        );
        assert_eq!(
            error("0 3\n1", "3 3\n1"),
            "line 2: switch 3 is listed twice; list each switch once"
        );
        assert_eq!(
            error("4 3 25", "4 x 25"),
            "line 5: invalid node \"x\": must be an integer from 0 to 4"
        );
        assert_eq!(
            error("25Mb/s", "0Mbps"),
            "line 5: invalid rate \"0Mbps\": must be a rate from 1 Mb/s to 4294967.295 Gb/s, \
             for example 100Gbps"
        );
        assert_eq!(
            error("2us", "2min"),
            "line 5: invalid delay \"2min\": must be a time from 0 to 1 s in s, ms, us, ns or ps, \
             for example 1000ns"
        );
        assert_eq!(
            error("0.001\n", "1.5\n"),
            "line 5: invalid error rate \"1.5\": must be a probability between 0 and 1 (or 0% to 100%)"
        );
        assert_eq!(
            error("5 2 4", "5 2 6"),
            "line 7: invalid node \"anything\": must be an integer from 0 to 4"
        );
        assert_eq!(
            error("1us 0\nanything else\n", "1us"),
            "line 6: the file ends where an error rate was expected"
        );
    }

    #[test]
    fn hosts_with_two_cables_are_read_and_their_links_must_be_said() {
        let it = HpccTopology::read("3 2 3\n1 2\n0 1 1Gbps 1us 0 0 2 1Gbps 1us 0 1 2 1Gbps 1us 0");
        let mut topology = it.unwrap().topology;
        let error = topology.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "host h0 has 2 cables: must be exactly 1, unless host_links says what a second one is"
        );
        topology.pairing = Some(Pairing::Bond);
        assert_eq!(topology.check(), Ok(()));
    }
}
