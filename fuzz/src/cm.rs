//! Connection managers under any calls and any link.

use ferroce_device::cm::{
    CmEventKind, CommId, ConnectReply, ConnectRequest, SidrReply, SidrRequest, Transport,
};
use ferroce_device::{Data, Ece, Hca, HcaConfig, Mtu, Secret, Span};
use ferroce_testing::{Side, World};
use ferroce_wire::cm::{Mad, Private, RejectReason, ServiceId, headers};
use ferroce_wire::{Psn, Qpn};

use crate::Cursor;

const SERVICE: ServiceId = ServiceId(0x0106_1c06);

/// Two connection managers, programs that call them at any time, and a link that loses, repeats,
/// reorders and invents messages.
pub fn cm(data: &[u8]) {
    let mut input = Cursor::new(data);
    let mut stage = Stage::new();
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        stage.step(&mut input);
    }
    stage.end();
}

/// Messages on the way at a time; what is sent beyond is lost.
const LINK_MAX: usize = 256;

struct Stage {
    /// Nothing arrives by itself: an input says what arrives next. Of each side, the names that its
    /// program knows.
    world: World<Vec<CommId>>,
}

impl Stage {
    fn new() -> Self {
        let side = |number| {
            let mut hca = Hca::new(HcaConfig {
                slot: 1,
                secret: Some(Secret::new(1)),
                ..HcaConfig::default()
            });
            hca.cm_mut().listen(SERVICE, 8).expect("nobody listens yet");
            Side::with(number, hca, Vec::new())
        };
        let mut world = World::of([side(1), side(2)]);
        world.net().rules.add(|flight| {
            Mad::parse(flight.payload()).expect("a device sends good messages");
            None
        });
        Self { world }
    }

    fn step(&mut self, input: &mut Cursor<'_>) {
        let side = input.below(2);
        match input.below(12) {
            0..=4 => self.arrive(input),
            5 | 6 => self.invent(side, input),
            7 => {
                let later = Span::from_nanos(u64::from(input.u8()) << input.below(32));
                self.world.now = self.world.now.after(later);
                let Self { world } = self;
                world.sides[side].hca.handle_timeout(world.now);
            }
            8 => self.connect(side, input),
            _ => self.call(side, input),
        }
        self.drain();
    }

    /// Lets a message arrive, or lose its way, or arrive and stay.
    fn arrive(&mut self, input: &mut Cursor<'_>) {
        let under_way = self.world.net().under_way().take(8).count();
        if under_way == 0 {
            return;
        }
        let at = input.below(under_way);
        let flight = self.world.net().under_way().nth(at);
        let flight = flight.expect("one of them").1.clone();
        let what = input.below(8);
        if what != 1 {
            let mut numbers = 0..;
            self.world.net().retain(|_, _| numbers.next() != Some(at));
        }
        if what != 0 {
            self.give(flight.to, flight.payload());
        }
    }

    /// A message that was never sent: any bytes, or one that was sent with some changed.
    fn invent(&mut self, side: usize, input: &mut Cursor<'_>) {
        let sent = self.world.net().under_way().next();
        let mut payload = match sent {
            Some((_, flight)) if !input.one_in(4) => flight.payload().to_vec(),
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
        let source = self.world.sides[1 - to].address;
        let _ = self.world.sides[to].hca.cm().owner(source, payload);
        let data = Data::Bytes(payload);
        self.world.give(to, 0, &headers(Psn::ZERO), data);
    }

    fn connect(&mut self, side: usize, input: &mut Cursor<'_>) {
        let [source, dest] = [side, 1 - side].map(|id| self.world.sides[id].address);
        let now = self.world.now;
        let Side { hca, own, .. } = &mut self.world.sides[side];
        let cm = hca.cm_mut();
        let comm = if input.one_in(4) {
            let request = SidrRequest {
                dest,
                traffic_class: 0,
                sl: input.u8() & 7,
                service_id: SERVICE,
                packet_lifetime: 18,
                response_timeout: 20,
                max_retries: input.u8(),
                private: Private::default(),
                port: 1,
            };
            cm.sidr_request(now, &request)
        } else {
            let request = ConnectRequest {
                dest,
                source,
                traffic_class: 0,
                sl: input.u8() & 7,
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
                ece: Ece::default(),
                private: Private::default(),
                port: 1,
            };
            cm.connect(now, &request)
        };
        own.extend(comm.ok());
    }

    /// Some call about some connection; most do not fit its state.
    fn call(&mut self, side: usize, input: &mut Cursor<'_>) {
        let now = self.world.now;
        let Side {
            hca, own: comms, ..
        } = &mut self.world.sides[side];
        if comms.is_empty() {
            return;
        }
        let at = input.below(comms.len().min(256));
        let comm = comms[at];
        let cm = hca.cm_mut();
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
                    ece: Ece::default(),
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
        self.world.settle();
        let mut numbers = 0..;
        let net = self.world.net();
        net.retain(|_, _| numbers.next() < Some(LINK_MAX));
        for Side {
            hca, own: comms, ..
        } in &mut self.world.sides
        {
            while let Some(event) = hca.poll_cm_event() {
                let known = comms.contains(&event.comm);
                match event.kind {
                    CmEventKind::Request { .. } | CmEventKind::SidrRequest { .. } => {
                        assert!(!known, "{event:?}");
                        comms.push(event.comm);
                        if event.comm.0 & 1 == 0 {
                            hca.cm_mut().take_request(event.comm);
                        }
                    }
                    _ => assert!(known, "{event:?}"),
                }
            }
            hca.audit();
        }
    }

    /// When the programs have let go of everything and time has passed, nothing is left.
    fn end(self) {
        let mut now = self.world.now;
        for Side { mut hca, .. } in self.world.sides {
            hca.cm_mut().destroy_all(now);
            for _ in 0..100_000 {
                let Some(deadline) = hca.poll_timeout() else {
                    break;
                };
                now = now.max(deadline);
                hca.handle_timeout(now);
                while hca.poll_transmit(now).is_some() {}
            }
            assert_eq!(hca.poll_timeout(), None, "it goes on for ever");
            assert_eq!(hca.cm().connections().count(), 0);
            assert_eq!(hca.poll_cm_event(), None);
        }
    }
}
