//! temp
use crate::topology::{NodeId, Topology};
use ferroce_hca::Qpn;
use std::collections::VecDeque;
#[derive(Debug)]
pub(crate) struct Routes {
    hosts: u32,
    table: Vec<Vec<Vec<u16>>>,
}
impl Routes {
    pub(crate) fn new(t: &Topology, up: impl Fn(usize) -> bool) -> Self {
        let n = t.nodes() as usize;
        let mut adj = vec![Vec::new(); n];
        for (i, c) in t.cables.iter().enumerate() {
            let [a, b] = c.ends.map(|e| e.0 as usize);
            let (pa, pb) = (adj[a].len(), adj[b].len());
            adj[a].push((b, i, pa));
            adj[b].push((a, i, pb));
        }
        let mut table = vec![Vec::new(); n - t.hosts as usize];
        for h in 0..t.hosts as usize {
            let mut dist = vec![u32::MAX; n];
            dist[h] = 0;
            let mut q = VecDeque::from([h]);
            while let Some(x) = q.pop_front() {
                if x != h && x < t.hosts as usize {
                    continue;
                }
                for (y, c, _) in &adj[x] {
                    if up(*c) && dist[*y] == u32::MAX {
                        dist[*y] = dist[x] + 1;
                        q.push_back(*y);
                    }
                }
            }
            for s in t.hosts as usize..n {
                let p = adj[s]
                    .iter()
                    .filter(|(y, c, _)| up(*c) && dist[*y] != u32::MAX && dist[*y] + 1 == dist[s])
                    .map(|(_, _, p)| *p as u16)
                    .collect();
                table[s - t.hosts as usize].push(p);
            }
        }
        Self {
            hosts: t.hosts,
            table,
        }
    }
    pub(crate) fn ports(&self, s: NodeId, dest: u32) -> &[u16] {
        &self.table[(s.0 - self.hosts) as usize][dest as usize]
    }
}
pub(crate) fn pick(ports: &[u16], flow: u32, salt: u32) -> Option<u16> {
    match ports {
        [] => None,
        [one] => Some(*one),
        _ => {
            let h = crate::seed::sub_seed(flow.into(), salt.into()) >> 32;
            Some(ports[(h * ports.len() as u64 >> 32) as usize])
        }
    }
}
pub(crate) fn udp_source_port(a: Qpn, b: Qpn) -> u16 {
    let v = u64::from(u32::from(a)) * u64::from(u32::from(b));
    0xc000 | (v ^ v >> 20) as u16 & 0x3fff
}
