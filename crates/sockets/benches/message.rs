//! What a short message costs, step by step: two devices on two sockets of this host, driven by one thread, which
//! reads the clock between the steps.
//!
//! A batch is posted, leaves with one system call, arrives with one, and is answered in the same way. Each figure is
//! the median over rounds, for one message of a batch, in nanoseconds. Two threads would do the two sides' parts at
//! the same time, and would wait for each other; a polling program checks its socket and reads the clock as well.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ferroce_device::{
    Buffer, Data, Hca, Memory, Outgoing, QpAttr, Received, SendOp, SendWr, Time, WcStatus,
};
use ferroce_sockets::{Exit, Faults, Options, RecvBuffers, Socket, Stage, Trailers};
use ferroce_testing::direct::{self, End, connected};
use ferroce_wire::{Flows, IcrcVerifier, IdPolicy, Packet, Qpn};

const ROUNDS: usize = 2000;
/// At first, caches are cold and tables small.
const WARM_UP: usize = 200;

/// The steps of a batch of requests, and of its answers.
const STEPS: [&str; 7] = [
    "post",
    "make packets",
    "write and seal them",
    "send call",
    "receive call",
    "read and check them",
    "take them",
];

/// One end.
struct Side {
    hca: Hca,
    end: End,
    qpn: Qpn,
    socket: Socket,
    stage: Stage,
    flows: Flows,
    trailers: Trailers,
    buffers: RecvBuffers,
    verifier: IcrcVerifier,
    faults: Faults,
    packets: Vec<Outgoing>,
}

impl Side {
    fn new(own: SocketAddr, peer: IpAddr, mut hca: Hca, attr: QpAttr) -> Self {
        let end = End::new(&mut hca, 1024, Memory::Buffer(Buffer::zeroed(64 << 10)));
        let qpn = connected(&mut hca, &end.init, peer, attr);
        let socket = Socket::bind(own, &Options::default()).unwrap();
        Self {
            hca,
            end,
            qpn,
            stage: Stage::new(socket.address()),
            flows: Flows::new(socket.address()),
            trailers: Trailers::new(0),
            buffers: RecvBuffers::new(1),
            verifier: IcrcVerifier::new(IdPolicy::AnyId),
            faults: Faults::default(),
            packets: Vec::new(),
            socket,
        }
    }

    /// All that the device has to send, made, written and sent; the times of these.
    fn transmit(&mut self, now: Time) -> [u64; 3] {
        let mut clock = Lap::start();
        let mut count = 0;
        loop {
            if self.packets.len() == count {
                self.packets.push(Outgoing::empty());
            }
            if !self.hca.poll_transmit_into(now, &mut self.packets[count]) {
                break;
            }
            count += 1;
        }
        let made = clock.lap();
        for packet in &self.packets[..count] {
            let exit = Exit {
                number: 0,
                socket: &self.socket,
                flows: &mut self.flows,
            };
            let pushed = self.stage.push(&self.hca, packet, exit, &mut self.trailers);
            pushed.expect("a batch takes all");
        }
        let written = clock.lap();
        let flushed = self
            .stage
            .flush(&self.socket, &mut self.hca, None, &mut self.faults);
        flushed.expect("the socket takes it");
        [made, written, clock.lap()]
    }

    /// All that one call brings, read and taken; the times of these.
    fn receive(&mut self, now: Time) -> [u64; 3] {
        let mut clock = Lap::start();
        let messages = self.socket.recv(&mut self.buffers).unwrap();
        assert_eq!(messages, 1, "a batch is one message");
        let received = clock.lap();
        let own = self.socket.address().ip();
        let (mut checked, mut taken) = (0, 0);
        for message in self.buffers.messages() {
            let flow = self.flows.get(message.source).unwrap().from_peer;
            let packets: Vec<_> = message
                .datagrams()
                .map(|datagram| {
                    let packet = Packet::new_checked(datagram.bytes).unwrap();
                    let verdict = self.verifier.verify(&flow, datagram.index, packet.bytes());
                    assert!(verdict.is_ok());
                    packet
                })
                .collect();
            checked += clock.lap();
            for packet in &packets {
                let received = Received {
                    source: message.source.ip(),
                    dest: own,
                    traffic_class: message.tos,
                    sl: 0,
                    headers: packet.headers(),
                    data: Data::Bytes(packet.payload()),
                    port: 1,
                };
                self.hca.handle_packet(now, black_box(&received));
            }
            taken += clock.lap();
        }
        [received, checked, taken]
    }
}

/// Reads the clock between steps.
struct Lap(Instant);

impl Lap {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the last call.
    fn lap(&mut self) -> u64 {
        let last = std::mem::replace(&mut self.0, Instant::now());
        self.0.duration_since(last).as_nanos() as u64
    }
}

/// What rounds of a workload take: the steps of requests and of answers, and the poll.
#[derive(Default)]
struct Costs {
    steps: [[Vec<u64>; 2]; STEPS.len()],
    poll: Vec<u64>,
}

impl Costs {
    fn measure(sides: &mut [Side; 2], batch: u32, len: u32, op: impl Fn(&End) -> SendOp) -> Self {
        let mut costs = Self::default();
        let [near, far] = sides;
        for round in 0..WARM_UP + ROUNDS {
            let now = Time::from_nanos((round as u64 + 1) * 100_000);
            let mut clock = Lap::start();
            for _ in 0..batch {
                let request = SendWr::new(0, op(&far.end), near.end.sge(len));
                near.hca.post_send(near.qpn, request).unwrap();
            }
            let post = clock.lap();
            let (mut steps, mut poll, mut done) = ([[0; 2]; STEPS.len()], 0, 0);
            steps[0][0] = post;
            // At first the window has not room for all.
            while done < batch {
                let requests = [near.transmit(now), far.receive(now)].concat();
                let answers = [far.transmit(now), near.receive(now)].concat();
                for (step, times) in steps[1..].iter_mut().zip(requests.iter().zip(&answers)) {
                    step[0] += times.0;
                    step[1] += times.1;
                }
                let mut clock = Lap::start();
                while let Some(completion) = near.hca.poll_completion(near.end.cq()).unwrap() {
                    assert_eq!(completion.status, WcStatus::Success);
                    done += 1;
                }
                poll += clock.lap();
            }
            if round < WARM_UP {
                continue;
            }
            for (step, times) in costs.steps.iter_mut().zip(steps) {
                step[0].push(times[0]);
                step[1].push(times[1]);
            }
            costs.poll.push(poll);
        }
        costs
    }
}

/// The median, for one message of a batch.
fn each(times: &[u64], batch: u32) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |it| *it as f64) / f64::from(batch)
}

fn main() {
    let own = |host: u8, port| SocketAddr::new([127, 87, 1, host].into(), port);
    let attr = QpAttr {
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ..direct::attr()
    };
    let [one, other] = direct::devices();
    let near = Side::new(own(1, 0), own(2, 0).ip(), one, attr);
    let port = near.socket.address().port();
    let far = Side::new(own(2, port), own(1, 0).ip(), other, attr);
    let mut sides = [near, far];
    let remote = |end: &End| (end.memory.va, end.memory.key.rkey());
    let write = |end: &End| {
        let (va, rkey) = remote(end);
        SendOp::Write {
            va,
            rkey,
            imm: None,
        }
    };
    let read = |end: &End| {
        let (va, rkey) = remote(end);
        SendOp::Read { va, rkey }
    };
    let all = [
        (
            "WRITE 8 B, 32 at a time",
            32,
            Costs::measure(&mut sides, 32, 8, write),
        ),
        (
            "WRITE 4 KiB, 8 at a time",
            8,
            Costs::measure(&mut sides, 8, 4096, write),
        ),
        (
            "READ 8 B, 16 at a time",
            16,
            Costs::measure(&mut sides, 16, 8, read),
        ),
    ];
    for (name, batch, costs) in all {
        println!("{name}: nanoseconds a message\n");
        println!("| step | request | answer |\n|---|---:|---:|");
        let mut sum = each(&costs.poll, batch);
        for (step, [requests, answers]) in STEPS.iter().zip(&costs.steps) {
            let (request, answer) = (each(requests, batch), each(answers, batch));
            sum += request + answer;
            println!("| {step} | {request:.1} | {answer:.1} |");
        }
        println!(
            "| poll | {:.1} | |\n| all | {sum:.0} | |\n",
            each(&costs.poll, batch)
        );
    }
}
