use std::io;
use std::net::SocketAddr;

use ferroce_hca::{Counter, Data, Hca, Outgoing, Received, Time};
use ferroce_wire::{IcrcVerifier, IdPolicy, Packet};

use crate::flow::Flows;
use crate::socket::{RecvBuffers, Socket};
use crate::stage::{Refused, Stage, WouldBlock};
use crate::tap::Tap;
use crate::wait::Clock;

/// Moves packets between a socket and a device.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) hca: Hca,
    clock: Clock,
    buffers: RecvBuffers,
    flows: Flows,
    verifier: IcrcVerifier,
    stage: Stage,
    /// A packet that did not fit the batch before it.
    next: Option<Outgoing>,
    tap: Option<Tap>,
}

impl Engine {
    pub(crate) fn new(hca: Hca, own: SocketAddr, clock: Clock, tap: Option<Tap>) -> Self {
        Self {
            hca,
            clock,
            buffers: RecvBuffers::new(1),
            flows: Flows::new(own),
            verifier: IcrcVerifier::new(IdPolicy::AnyId),
            stage: Stage::new(own),
            next: None,
            tap,
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(self.clock.now_ns())
    }

    /// Takes what one receive call brings; returns the number of packets.
    pub(crate) fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        if socket.recv(&mut self.buffers)? == 0 {
            return Ok(0);
        }
        let now = self.now();
        let mut packets = 0;
        for message in self.buffers.messages() {
            let Some(flow) = self.flows.get(message.source) else {
                continue;
            };
            for datagram in message.datagrams() {
                packets += 1;
                let Ok(packet) = Packet::new_checked(datagram.bytes) else {
                    self.hca.count(Counter::RxMalformed, 1);
                    continue;
                };
                let verdict = self
                    .verifier
                    .verify(&flow.from_peer, datagram.index, packet.bytes());
                if !verdict.is_ok() {
                    self.hca.count(Counter::RxIcrcEncapsulated, 1);
                    continue;
                }
                let received = Received {
                    source: message.source.ip(),
                    traffic_class: message.tos,
                    headers: &packet.headers(),
                    data: Data::Bytes(packet.payload()),
                };
                self.hca.handle_packet(now, &received);
            }
        }
        Ok(packets)
    }

    /// Lets timers run out that are due.
    pub(crate) fn run_timers(&mut self) {
        if let Some(deadline) = self.hca.poll_timeout() {
            let now = self.now();
            if deadline <= now {
                self.hca.handle_timeout(now);
            }
        }
    }

    /// Sends what the device has to send. False if the socket did not take all of it: nothing is
    /// lost, and the queue pairs keep their work until it does.
    pub(crate) fn transmit(&mut self, socket: &Socket) -> bool {
        let now = self.now();
        loop {
            let Some(packet) = self.next.take().or_else(|| self.hca.poll_transmit(now)) else {
                return self.flush(socket).is_ok();
            };
            match self.stage.push(&self.hca, &packet, &mut self.flows, socket) {
                Ok(()) => {}
                Err(Refused::Never) => self.hca.count(Counter::TxDropped, 1),
                Err(Refused::NotNow) => {
                    self.next = Some(packet);
                    if self.flush(socket).is_err() {
                        return false;
                    }
                }
            }
        }
    }

    /// Whether something waits for the socket to become writable.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.stage.is_empty()
    }

    fn flush(&mut self, socket: &Socket) -> Result<(), WouldBlock> {
        self.stage.flush(socket, &mut self.hca, self.tap.as_ref())
    }
}
