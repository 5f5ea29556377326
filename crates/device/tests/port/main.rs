//! A port with a rate: when packets leave, in which order, and which timers wait for them.

mod priority;
mod serializer;
mod timers;

use ferroce_device::{AccessFlags, HcaConfig, Mtu, Path, QpAttr, QpType, SendWr, Sge};
use ferroce_testing::flight::Sent;
use ferroce_testing::{A, B, Region, World, attr, card};
use ferroce_wire::Qpn;

/// The largest message.
const MESSAGE: usize = 256 << 10;

/// Two devices with connected queue pairs, and memory that all of them write from A to B.
struct Cards {
    pair: World,
    qpns: Vec<[Qpn; 2]>,
    regions: [Region; 2],
}

impl Cards {
    /// With ports of `mbps` Mb/s.
    fn new(mbps: u32, qps: usize) -> Self {
        Self::with(card(mbps), qps)
    }

    fn with(config: HcaConfig, qps: usize) -> Self {
        let mut pair = World::pair(config);
        pair.audit_every = 1;
        pair.log = Some(Vec::new());
        let all = AccessFlags::all();
        let regions = [A, B].map(|id| pair.sides[id].register(MESSAGE, all));
        let mut cards = Self {
            pair,
            qpns: Vec::new(),
            regions,
        };
        for _ in 0..qps {
            cards.add(attr(), 0);
        }
        cards
    }

    /// Another queue pair at each, whose packets have this traffic class; returns its number.
    fn add(&mut self, attr: QpAttr, traffic_class: u8) -> usize {
        self.add_with(attr, traffic_class, 0)
    }

    /// The same with a service level.
    fn add_with(&mut self, attr: QpAttr, traffic_class: u8, sl: u8) -> usize {
        let qpns = [A, B].map(|id| self.pair.sides[id].create_qp());
        for own in [A, B] {
            let attr = QpAttr {
                path_mtu: Mtu::Mtu4096,
                dest_qpn: qpns[1 - own],
                ..attr
            };
            let dest = self.pair.sides[1 - own].address;
            let path = Path {
                dest,
                traffic_class,
                sl,
                port: 1,
            };
            self.pair.sides[own].ready(qpns[own], QpType::Rc, attr, Some(path));
        }
        self.qpns.push(qpns);
        self.qpns.len() - 1
    }

    /// Posts a WRITE from A to B.
    fn write(&mut self, qp: usize, length: u32) {
        let sge = Sge {
            length,
            ..self.regions[A].whole()
        };
        let wr = SendWr::new(qp as u64, self.regions[B].write(), sge);
        self.pair.post(A, self.qpns[qp][A], wr);
    }

    /// What A has sent for a queue pair.
    fn sent(&self, qp: usize) -> Vec<&Sent> {
        let log = self.pair.log.as_ref().unwrap();
        let is_its = |sent: &&Sent| sent.from == A && sent.headers.dest_qp == self.qpns[qp][B];
        log.iter().filter(is_its).collect()
    }

    /// The queue pairs of the packets that A has sent, in their order.
    fn order(&self) -> Vec<usize> {
        let log = self.pair.log.as_ref().unwrap();
        let qp = |sent: &Sent| {
            self.qpns
                .iter()
                .position(|it| it[B] == sent.headers.dest_qp)
        };
        log.iter()
            .filter(|sent| sent.from == A)
            .filter_map(qp)
            .collect()
    }
}
