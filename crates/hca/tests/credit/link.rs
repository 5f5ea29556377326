//! Devices on sockets whose receive buffers end somewhere, and which take their time to empty them.

use std::collections::VecDeque;

use ferroce_hca::{
    AccessFlags, Counter, Data, HcaConfig, Outgoing, Path, QpAttr, Received, SendWr, Span, Time,
};
use ferroce_wire::{Headers, Psn, Qpn};

use ferroce_testing::{A, B, LATENCY_NS, Region, Side, World, attr};

/// Packets that a socket hands over in one call.
const BATCH: usize = 32;
/// A receiver that needs longer for a packet hands them over one by one.
const BATCH_PACKET_NS: u64 = 10_000;

/// How a socket takes packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    /// What the receive buffer takes, in bytes as the kernel counts them.
    pub buffer: u64,
    /// How long each packet takes.
    pub packet_ns: u64,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            buffer: 4 << 20,
            packet_ns: 500,
        }
    }
}

#[derive(Debug)]
struct Flight {
    arrives: Time,
    to: usize,
    from: usize,
    headers: Headers,
    payload_len: u32,
    truesize: u64,
}

#[derive(Debug)]
struct Socket {
    receiver: Receiver,
    queue: VecDeque<Flight>,
    used: u64,
    free_at: Time,
}

/// Two devices; each may have queue pairs towards the other and towards itself.
pub(crate) struct Link {
    pub pair: World,
    sockets: [Socket; 2],
    wire: VecDeque<Flight>,
    /// Packets that found no room.
    pub drops: u64,
    /// The most bytes that a buffer has held.
    pub peak: u64,
    rounds: u64,
    /// Packets that came to the end of the wire, and which of them are lost there.
    arrived: u64,
    pub(crate) lose_every: Option<u64>,
}

impl Link {
    pub(crate) fn new(configs: [HcaConfig; 2], receivers: [Receiver; 2]) -> Self {
        let mut pair = World::new(configs);
        pair.carries_bytes = false;
        Self {
            pair,
            sockets: receivers.map(|receiver| Socket {
                receiver,
                queue: VecDeque::new(),
                used: 0,
                free_at: Time::ZERO,
            }),
            wire: VecDeque::new(),
            drops: 0,
            peak: 0,
            rounds: 0,
            arrived: 0,
            lose_every: None,
        }
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
        self.pair.sides[A].hca.post_send(qpn, wr).unwrap();
    }

    pub(crate) fn side(&self) -> &Side {
        &self.pair.sides[A]
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.pair.count(A, counter)
    }

    /// Lives until nothing happens any more.
    pub(crate) fn run(&mut self) {
        self.run_while(|_| true);
    }

    pub(crate) fn run_until(&mut self, until: Time) {
        self.run_while(|next| next <= until);
    }

    fn run_while(&mut self, goes_on: impl Fn(Time) -> bool) {
        self.settle(A);
        self.settle(B);
        while let Some(next) = self.next().filter(|next| goes_on(*next)) {
            self.pair.now = self.pair.now.max(next);
            self.live();
        }
    }

    fn next(&self) -> Option<Time> {
        let timers = self
            .pair
            .sides
            .iter()
            .filter_map(|it| it.hca.poll_timeout());
        let served = self.sockets.iter().filter(|it| !it.queue.is_empty());
        let served = served.map(|socket| socket.free_at);
        let arrives = self.wire.front().map(|flight| flight.arrives);
        timers.chain(served).chain(arrives).min()
    }

    fn live(&mut self) {
        let now = self.pair.now;
        while self.wire.front().is_some_and(|it| it.arrives <= now) {
            let Some(flight) = self.wire.pop_front() else {
                break;
            };
            let socket = &mut self.sockets[flight.to];
            self.arrived += 1;
            if self
                .lose_every
                .is_some_and(|n| self.arrived.is_multiple_of(n))
            {
                continue;
            }
            if socket.used > socket.receiver.buffer {
                self.drops += 1; // as Linux has it: the last one may stick out
                continue;
            }
            socket.used += flight.truesize;
            self.peak = self.peak.max(socket.used);
            socket.free_at = socket.free_at.max(now);
            socket.queue.push_back(flight);
        }
        for id in [A, B] {
            self.serve(id);
            let hca = &mut self.pair.sides[id].hca;
            if hca.poll_timeout().is_some_and(|at| at <= now) {
                hca.handle_timeout(now);
            }
            self.settle(id);
        }
        self.rounds += 1;
        if self.rounds.is_multiple_of(1_000) {
            self.pair.sides.iter().for_each(|side| side.hca.audit());
        }
    }

    /// Takes what one receive call brings.
    fn serve(&mut self, id: usize) {
        let now = self.pair.now;
        if self.sockets[id].free_at > now {
            return;
        }
        let batch = match self.sockets[id].receiver.packet_ns {
            0..BATCH_PACKET_NS => BATCH,
            _ => 1,
        };
        for _ in 0..batch {
            let socket = &mut self.sockets[id];
            let Some(flight) = socket.queue.pop_front() else {
                break;
            };
            socket.used -= flight.truesize;
            socket.free_at = socket
                .free_at
                .after(Span::from_nanos(socket.receiver.packet_ns));
            let received = Received {
                source: self.pair.sides[flight.from].address,
                dest: self.pair.sides[id].address,
                traffic_class: 2,
                headers: &flight.headers,
                data: Data::Length(flight.payload_len),
            };
            self.pair.sides[id].hca.handle_packet(now, &received);
        }
    }

    fn settle(&mut self, id: usize) {
        let mut before: Option<(Path, u32)> = None;
        let now = self.pair.now;
        while let Some(packet) = self.pair.sides[id].hca.poll_transmit(now) {
            let batch = Some((packet.path, packet.transmit.payload_len));
            self.launch(id, &packet, before == batch);
            before = batch;
        }
        self.pair.sides[id].collect(None, now);
    }

    fn launch(&mut self, from: usize, packet: &Outgoing, in_batch: bool) {
        let len = packet.transmit.payload_len;
        let alone = u64::from(len + 420).next_power_of_two() + 256;
        let dest = packet.path.dest;
        let to = usize::from(self.pair.sides[A].address != dest);
        self.wire.push_back(Flight {
            arrives: self.pair.now.after(Span::from_nanos(LATENCY_NS)),
            to,
            from,
            headers: packet.transmit.headers,
            payload_len: len,
            truesize: if in_batch { u64::from(len) + 32 } else { alone },
        });
    }
}

/// Attributes of queue pairs that wait for ever.
pub(crate) fn without_timeout() -> QpAttr {
    QpAttr {
        timeout: 0,
        ..attr()
    }
}
