use std::collections::VecDeque;
use std::net::IpAddr;

use ferroce_hca::cm::{
    CmEventKind, CommId, ConnectReply, ConnectRequest, SidrReply, SidrRequest, Transport,
};
use ferroce_hca::{Data, Hca, HcaConfig, Mtu, Received, Secret, Span, Time};
use ferroce_wire::cm::{Mad, Private, RejectReason, ServiceId, headers};
use ferroce_wire::{Psn, Qpn};

use crate::Cursor;

const SERVICE: ServiceId = ServiceId(0x0106_1c06);

/// Two connection managers, programs that call them at any time, and a link that loses, repeats,
/// reorders and invents messages.
pub fn cm(data: &[u8]) {
    let mut input = Cursor::new(data);
    let mut world = World::new();
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end();
}

struct World {
    now: Time,
    hcas: [Hca; 2],
    /// Names that each program knows.
    comms: [Vec<CommId>; 2],
    /// Receiver and payload.
    link: VecDeque<(usize, Vec<u8>)>,
}

fn address(side: usize) -> IpAddr {
    IpAddr::from([127, 13, 1, 1 + side as u8])
}

impl World {
    fn new() -> Self {
        let hca = |key| {
            let mut hca = Hca::new(HcaConfig {
                slot: 1,
                secret: Some(Secret::new(key)),
                ..HcaConfig::default()
            });
            hca.cm_mut().listen(SERVICE, 8).expect("nobody listens yet");
            hca
        };
        Self {
            now: Time::ZERO,
            hcas: [hca(1), hca(1)],
            comms: [Vec::new(), Vec::new()],
            link: VecDeque::new(),
        }
    }

    fn step(&mut self, input: &mut Cursor<'_>) {
        let side = input.below(2);
        match input.below(12) {
            0..=4 => self.arrive(input),
            5 | 6 => self.invent(side, input),
            7 => {
                self.now = self
                    .now
                    .after(Span::from_nanos(u64::from(input.u8()) << input.below(32)));
                self.hcas[side].handle_timeout(self.now);
            }
            8 => self.connect(side, input),
            _ => self.call(side, input),
        }
        self.drain();
    }

    /// Lets a message arrive, or lose its way, or arrive and stay.
    fn arrive(&mut self, input: &mut Cursor<'_>) {
        if self.link.is_empty() {
            return;
        }
        let at = input.below(self.link.len().min(8));
        match input.below(8) {
            0 => drop(self.link.remove(at)),
            1 => {
                let (to, payload) = self.link[at].clone();
                self.give(to, &payload);
            }
            _ => {
                if let Some((to, payload)) = self.link.remove(at) {
                    self.give(to, &payload);
                }
            }
        }
    }

    /// A message that nobody sent: any bytes, or one that was sent with some changed.
    fn invent(&mut self, side: usize, input: &mut Cursor<'_>) {
        let mut payload = match self.link.front() {
            Some((_, payload)) if !input.one_in(4) => payload.clone(),
            _ => vec![0; 256],
        };
        payload[..4].copy_from_slice(&[1, 7, 2, 3]);
        if input.one_in(2) {
            payload[17] = 0x10 + input.below(12) as u8;
        }
        for _ in 0..input.below(4) {
            let at = input.below(256).min(payload.len() - 1);
            payload[at] = input.u8();
        }
        self.give(side, &payload);
    }

    fn give(&mut self, to: usize, payload: &[u8]) {
        let source = address(1 - to);
        let _ = self.hcas[to].cm().owner(source, payload);
        let packet = Received {
            source,
            dest: address(to),
            traffic_class: 0,
            headers: &headers(Psn::ZERO),
            data: Data::Bytes(payload),
        };
        self.hcas[to].handle_packet(self.now, &packet);
    }

    fn connect(&mut self, side: usize, input: &mut Cursor<'_>) {
        let (dest, source) = (address(1 - side), address(side));
        let (now, cm) = (self.now, self.hcas[side].cm_mut());
        let comm = if input.one_in(4) {
            let request = SidrRequest {
                dest,
                traffic_class: 0,
                service_id: SERVICE,
                packet_lifetime: 18,
                response_timeout: 20,
                max_retries: input.u8(),
                private: Private::default(),
            };
            cm.sidr_request(now, &request)
        } else {
            let request = ConnectRequest {
                dest,
                source,
                traffic_class: 0,
                service_id: SERVICE,
                ca_guid: 1,
                qpn: Qpn::new(input.u8().into()),
                starting_psn: Psn::ZERO,
                transport: Transport::Rc,
                srq: false,
                responder_resources: 1,
                initiator_depth: 1,
                flow_control: false,
                retry_count: 7,
                rnr_retry_count: 7,
                mtu: Mtu::Mtu1024,
                ack_timeout: input.u8() % 34,
                packet_lifetime: 18,
                response_timeout: input.u8() % 34,
                max_retries: input.u8() % 18,
                private: Private::default(),
            };
            cm.connect(now, &request)
        };
        self.comms[side].extend(comm.ok());
    }

    /// Some call about some connection; most do not fit its state.
    fn call(&mut self, side: usize, input: &mut Cursor<'_>) {
        let comms = &mut self.comms[side];
        if comms.is_empty() {
            return;
        }
        let at = input.below(comms.len().min(256));
        let comm = comms[at];
        let (now, cm) = (self.now, self.hcas[side].cm_mut());
        let qpn = Qpn::new(input.u8().into());
        let _ = match input.below(9) {
            0 | 1 => {
                let reply = ConnectReply {
                    qpn,
                    starting_psn: Psn::ZERO,
                    srq: false,
                    responder_resources: 1,
                    initiator_depth: 1,
                    flow_control: false,
                    rnr_retry_count: 7,
                    target_ack_delay: 16,
                    ca_guid: 1,
                    private: Private::default(),
                };
                cm.accept(now, comm, &reply)
            }
            2 | 3 => cm.ready(comm, Private::default()),
            4 => cm.reject(now, comm, RejectReason::CONSUMER, Private::default()),
            5 => cm.disconnect(now, comm, Private::default()),
            6 => cm.establish(comm),
            7 => {
                let reply = SidrReply {
                    status: 0,
                    qpn,
                    qkey: 1,
                    private: Private::default(),
                };
                cm.sidr_reply(comm, &reply)
            }
            _ => {
                comms.swap_remove(at);
                cm.destroy(now, comm).expect("the program knows it");
                assert!(cm.destroy(now, comm).is_err(), "destroyed twice");
                Ok(())
            }
        };
    }

    /// Takes everything the devices have to say. A program learns each name once.
    fn drain(&mut self) {
        for side in 0..2 {
            let hca = &mut self.hcas[side];
            while let Some(packet) = hca.poll_transmit(self.now) {
                let mut payload = vec![0; packet.transmit.payload_len as usize];
                assert!(hca.gather(&packet, &mut payload));
                Mad::parse(&payload).expect("a device sends good messages");
                if packet.path.dest == address(1 - side) && self.link.len() < 256 {
                    self.link.push_back((1 - side, payload));
                }
            }
            while let Some(event) = hca.poll_cm_event() {
                let comms = &mut self.comms[side];
                let known = comms.contains(&event.comm);
                match event.kind {
                    CmEventKind::Request { .. } | CmEventKind::SidrRequest { .. } => {
                        assert!(!known, "{event:?}");
                        comms.push(event.comm);
                    }
                    _ => assert!(known, "{event:?}"),
                }
            }
            while hca.poll_event().is_some() {}
            hca.audit();
        }
    }

    /// When the programs have let go of everything and time has passed, nothing is left.
    fn end(mut self) {
        for hca in &mut self.hcas {
            hca.cm_mut().destroy_all(self.now);
            for _ in 0..100_000 {
                let Some(deadline) = hca.poll_timeout() else {
                    break;
                };
                self.now = self.now.max(deadline);
                hca.handle_timeout(self.now);
                while hca.poll_transmit(self.now).is_some() {}
            }
            assert_eq!(hca.poll_timeout(), None, "it goes on for ever");
            assert_eq!(hca.cm().connections().count(), 0);
            assert_eq!(hca.poll_cm_event(), None);
        }
    }
}
