//! Two devices on sockets.

use ferroce_admission::Bounds;
use ferroce_device::{AccessFlags, Counter, HcaConfig, QpAttr, SendWr, Span, Time};
use ferroce_testing::{A, B, Fate, Region, Side, Socket, World, attr};
use ferroce_wire::{Psn, Qpn};

pub(crate) use ferroce_testing::{Receiver, Stalls};

/// Events between two audits of thousands of queue pairs.
const AUDIT_EVERY: u64 = 1_000;

/// Two devices; each may have queue pairs to the other and to itself.
pub(crate) struct Link {
    pub pair: World,
}

impl Link {
    /// Devices that are alike, each with its receiver.
    pub(crate) fn new(config: HcaConfig, bounds: Bounds, receivers: [Receiver; 2]) -> Self {
        let mut pair = World::within([0, 1].map(|_| (config.clone(), bounds)));
        pair.carries_bytes = false;
        pair.audit_every = AUDIT_EVERY;
        pair.sockets = receivers.map(Socket::new).into();
        Self { pair }
    }

    /// Loses every `n`th packet.
    pub(crate) fn lose_every(&mut self, n: u64) {
        let mut sent = 0_u64;
        self.pair.net().rules.add(move |_| {
            sent += 1;
            sent.is_multiple_of(n).then_some(Fate::Lost)
        });
    }

    /// Queue pairs of A, each connected to one of `to`.
    pub(crate) fn connect(&mut self, to: usize, qps: usize, attr: QpAttr) -> Vec<[Qpn; 2]> {
        self.connect_from(A, to, qps, attr)
    }

    /// The same for queue pairs of `from`.
    pub(crate) fn connect_from(
        &mut self,
        from: usize,
        to: usize,
        qps: usize,
        attr: QpAttr,
    ) -> Vec<[Qpn; 2]> {
        let sides = &mut self.pair.sides;
        let pairs: Vec<_> = (0..qps)
            .map(|_| [sides[from].create_qp(), sides[to].create_qp()])
            .collect();
        for [a, b] in &pairs {
            let addresses = [sides[from].address, sides[to].address];
            for (id, own, peer, dest) in [(from, a, b, addresses[1]), (to, b, a, addresses[0])] {
                let attr = QpAttr {
                    dest_qpn: *peer,
                    rq_psn: Psn::new(7),
                    sq_psn: Psn::new(7),
                    ..attr
                };
                sides[id].connect(*own, dest, attr);
            }
        }
        pairs
    }

    pub(crate) fn regions(&mut self, to: usize, len: usize) -> [Region; 2] {
        let own = self.pair.sides[A].register(len, AccessFlags::all());
        [own, self.pair.sides[to].register(len, AccessFlags::all())]
    }

    pub(crate) fn post(&mut self, qpn: Qpn, wr: SendWr) {
        self.pair.post(A, qpn, wr);
    }

    pub(crate) fn side(&self) -> &Side {
        &self.pair.sides[A]
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.pair.count(A, counter)
    }

    /// Packets that were dropped for lack of room.
    pub(crate) fn drops(&self) -> u64 {
        [A, B].map(|id| self.pair.sockets[id].drops).iter().sum()
    }

    /// The most bytes that a buffer has held.
    pub(crate) fn peak(&self) -> u64 {
        let peaks = [A, B].map(|id| self.pair.sockets[id].peak);
        peaks[A].max(peaks[B])
    }

    /// A device reads nothing for this time.
    pub(crate) fn stop(&mut self, id: usize, span: Span) {
        self.pair.sockets[id].stop(self.pair.now.after(span));
    }

    /// Runs until nothing happens any more.
    pub(crate) fn run(&mut self) {
        self.pair.run();
    }

    pub(crate) fn run_until(&mut self, until: Time) {
        self.pair.run_until(until);
    }
}

/// Attributes of queue pairs without a timeout.
pub(crate) fn without_timeout() -> QpAttr {
    QpAttr {
        timeout: 0,
        ..attr()
    }
}
