//! The other end of a connection as Linux implements it. Two of our own devices agree about any
//! meaning that both give a field. This end shares nothing with them except the tables of the
//! standard (IBA vol 1, 12.6: the position of each field) and the rules by which the kernel's
//! `cm.c` reads them.

use std::net::IpAddr;

use ferroce_wire::cm::MAD_LEN;

/// A field: first byte after the MAD header, first bit in it from the most significant one, width.
pub(crate) type Field = (usize, usize, usize);

const LOCAL_COMM_ID: Field = (0, 0, 32);
const REMOTE_COMM_ID: Field = (4, 0, 32);

pub(crate) const REQ_SERVICE_ID: Field = (8, 0, 64);
pub(crate) const REQ_CA_GUID: Field = (16, 0, 64);
pub(crate) const REQ_QPN: Field = (32, 0, 24);
pub(crate) const REQ_RESPONDER_RESOURCES: Field = (35, 0, 8);
pub(crate) const REQ_INITIATOR_DEPTH: Field = (39, 0, 8);
pub(crate) const REQ_REMOTE_RESPONSE_TIMEOUT: Field = (43, 0, 5);
pub(crate) const REQ_TRANSPORT: Field = (43, 5, 2);
pub(crate) const REQ_STARTING_PSN: Field = (44, 0, 24);
pub(crate) const REQ_LOCAL_RESPONSE_TIMEOUT: Field = (47, 0, 5);
pub(crate) const REQ_RETRY_COUNT: Field = (47, 5, 3);
pub(crate) const REQ_PKEY: Field = (48, 0, 16);
pub(crate) const REQ_MTU: Field = (50, 0, 4);
pub(crate) const REQ_RNR_RETRY_COUNT: Field = (50, 5, 3);
pub(crate) const REQ_MAX_CM_RETRIES: Field = (51, 0, 4);
pub(crate) const REQ_SRQ: Field = (51, 4, 1);
pub(crate) const REQ_EXTENDED_TRANSPORT: Field = (51, 5, 3);
pub(crate) const REQ_LOCAL_GID_V4: Field = (68, 0, 32);
pub(crate) const REQ_REMOTE_GID_V4: Field = (84, 0, 32);
pub(crate) const REQ_ACK_TIMEOUT: Field = (95, 0, 5);

pub(crate) const REP_QPN: Field = (12, 0, 24);
pub(crate) const REP_EECN: Field = (16, 0, 24);
pub(crate) const REP_STARTING_PSN: Field = (20, 0, 24);
pub(crate) const REP_RESPONDER_RESOURCES: Field = (24, 0, 8);
pub(crate) const REP_INITIATOR_DEPTH: Field = (25, 0, 8);
pub(crate) const REP_TARGET_ACK_DELAY: Field = (26, 0, 5);
pub(crate) const REP_RNR_RETRY_COUNT: Field = (27, 0, 3);
pub(crate) const REP_SRQ: Field = (27, 3, 1);
pub(crate) const REP_CA_GUID: Field = (28, 0, 64);

const REJ_MESSAGE_REJECTED: Field = (8, 0, 2);
const REJ_INFO_LEN: Field = (9, 0, 7);
const REJ_REASON: Field = (10, 0, 16);
const REJ_INFO: Field = (12, 0, 64);
const MRA_SERVICE_TIMEOUT: Field = (9, 0, 5);
const DREQ_REMOTE_QPN: Field = (8, 0, 24);

const REASON_TIMEOUT: u64 = 4;
const REASON_STALE: u64 = 10;

/// A message as it is on the wire.
#[derive(Clone, Copy)]
pub(crate) struct Bytes(pub(crate) [u8; MAD_LEN]);

impl Bytes {
    pub(crate) fn new(attribute: u8, tid: u64) -> Self {
        let mut bytes = [0; MAD_LEN];
        // Version, class and its version, method.
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[8..16].copy_from_slice(&tid.to_be_bytes());
        bytes[17] = attribute;
        Self(bytes)
    }

    pub(crate) fn attribute(&self) -> u16 {
        u16::from_be_bytes([self.0[16], self.0[17]])
    }

    pub(crate) fn tid(&self) -> u64 {
        u64::from_be_bytes(self.0[8..16].try_into().unwrap())
    }

    pub(crate) fn get(&self, (byte, bit, width): Field) -> u64 {
        let bits = 8 * (24 + byte) + bit..8 * (24 + byte) + bit + width;
        bits.fold(0, |value, at| {
            value << 1 | u64::from(self.0[at / 8] >> (7 - at % 8) & 1)
        })
    }

    pub(crate) fn with(mut self, (byte, bit, width): Field, value: u64) -> Self {
        for n in 0..width {
            let at = 8 * (24 + byte) + bit + n;
            let mask = 0x80 >> (at % 8);
            self.0[at / 8] &= !mask;
            if value >> (width - 1 - n) & 1 == 1 {
                self.0[at / 8] |= mask;
            }
        }
        self
    }
}

/// States of `enum ib_cm_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Idle,
    ReqSent,
    ReqReceived,
    RepSent,
    Established,
    DreqSent,
    TimeWait,
}

/// `struct cm_id_private`: the state of a connection and the attributes of its queue pair.
#[derive(Debug)]
pub(crate) struct Linux {
    pub(crate) state: State,
    pub(crate) address: IpAddr,
    pub(crate) guid: u64,
    pub(crate) local_id: u64,
    pub(crate) remote_id: u64,
    pub(crate) remote_guid: u64,
    tid: u64,
    pub(crate) xrc: bool,
    pub(crate) local_qpn: u64,
    pub(crate) remote_qpn: u64,
    pub(crate) rq_psn: u64,
    pub(crate) sq_psn: u64,
    pub(crate) responder_resources: u64,
    pub(crate) initiator_depth: u64,
    pub(crate) retry_count: u64,
    pub(crate) rnr_retry_count: u64,
    pub(crate) timeout: u64,
    pub(crate) path_mtu: u64,
}

impl Linux {
    /// An end that has only a queue pair so far.
    pub(crate) fn new(address: IpAddr, local_qpn: u64) -> Self {
        Self {
            state: State::Idle,
            address,
            guid: 0x5054_00ff_fe12_3451,
            local_id: 0x5913_8000 + local_qpn,
            remote_id: 0,
            remote_guid: 0,
            tid: 0x2_8680_0000 + local_qpn,
            xrc: false,
            local_qpn,
            remote_qpn: 0,
            rq_psn: 0x91_4076,
            sq_psn: 0,
            responder_resources: 5,
            initiator_depth: 6,
            retry_count: 0,
            rnr_retry_count: 0,
            timeout: 0,
            path_mtu: 3,
        }
    }

    /// `ib_send_cm_req` as rdma_cm calls it.
    pub(crate) fn connect(&mut self, to: IpAddr, service: u64) -> Bytes {
        let v4 = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(_) => 0,
        };
        self.state = State::ReqSent;
        self.timeout = 19;
        self.retry_count = 7;
        let mut req = Bytes::new(0x10, self.tid)
            .with(LOCAL_COMM_ID, self.local_id)
            .with(REQ_SERVICE_ID, service)
            .with(REQ_CA_GUID, self.guid)
            .with(REQ_QPN, self.local_qpn)
            .with(REQ_INITIATOR_DEPTH, self.initiator_depth)
            .with(REQ_REMOTE_RESPONSE_TIMEOUT, 20)
            .with(REQ_STARTING_PSN, self.rq_psn)
            .with(REQ_LOCAL_RESPONSE_TIMEOUT, 20)
            .with(REQ_PKEY, 0xffff)
            .with(REQ_MTU, self.path_mtu)
            .with(REQ_MAX_CM_RETRIES, 15)
            .with((52, 0, 32), 0xffff_ffff)
            .with((66, 0, 16), 0xffff)
            .with(REQ_LOCAL_GID_V4, v4(self.address))
            .with((82, 0, 16), 0xffff)
            .with(REQ_REMOTE_GID_V4, v4(to))
            .with((93, 0, 8), 64)
            .with(REQ_ACK_TIMEOUT, 19);
        if self.xrc {
            req = req.with(REQ_TRANSPORT, 3).with(REQ_EXTENDED_TRANSPORT, 1);
        } else {
            req = req
                .with(REQ_RESPONDER_RESOURCES, self.responder_resources)
                .with(REQ_RETRY_COUNT, self.retry_count)
                .with(REQ_RNR_RETRY_COUNT, 6);
        }
        req
    }

    /// `ib_send_cm_rep`.
    pub(crate) fn accept(&mut self, responder_resources: u64, initiator_depth: u64) -> Bytes {
        assert_eq!(self.state, State::ReqReceived);
        self.state = State::RepSent;
        self.responder_resources = responder_resources;
        self.initiator_depth = initiator_depth;
        let rep = Bytes::new(0x13, self.tid)
            .with(LOCAL_COMM_ID, self.local_id)
            .with(REMOTE_COMM_ID, self.remote_id)
            .with(REP_STARTING_PSN, self.rq_psn)
            .with(REP_RESPONDER_RESOURCES, responder_resources)
            .with(REP_TARGET_ACK_DELAY, 15)
            .with(REP_RNR_RETRY_COUNT, 7)
            .with(REP_CA_GUID, self.guid);
        if self.xrc {
            rep.with(REP_SRQ, 1).with(REP_EECN, self.local_qpn)
        } else {
            rep.with(REP_INITIATOR_DEPTH, initiator_depth)
                .with(REP_QPN, self.local_qpn)
        }
    }

    /// `ib_send_cm_mra`: the program needs time for a request.
    pub(crate) fn ask_for_patience(&self) -> Bytes {
        assert_eq!(self.state, State::ReqReceived);
        Bytes::new(0x11, self.tid)
            .with(LOCAL_COMM_ID, self.local_id)
            .with(REMOTE_COMM_ID, self.remote_id)
            .with(MRA_SERVICE_TIMEOUT, 24)
    }

    /// `cm_destroy_id` while a request is pending.
    pub(crate) fn give_up(&mut self) -> Bytes {
        assert_eq!(self.state, State::ReqSent);
        self.state = State::Idle;
        Bytes::new(0x12, self.tid)
            .with(LOCAL_COMM_ID, self.local_id)
            .with(REJ_MESSAGE_REJECTED, 2)
            .with(REJ_INFO_LEN, 8)
            .with(REJ_REASON, REASON_TIMEOUT)
            .with(REJ_INFO, self.guid)
    }

    /// `ib_send_cm_dreq`.
    pub(crate) fn disconnect(&mut self) -> Bytes {
        assert_eq!(self.state, State::Established);
        self.state = State::DreqSent;
        self.both(0x15, self.tid)
            .with(DREQ_REMOTE_QPN, self.remote_qpn)
    }

    fn both(&self, attribute: u8, tid: u64) -> Bytes {
        Bytes::new(attribute, tid)
            .with(LOCAL_COMM_ID, self.local_id)
            .with(REMOTE_COMM_ID, self.remote_id)
    }

    /// `cm_recv_handler`: takes a message, and answers it where the kernel does so by itself.
    pub(crate) fn take(&mut self, message: Bytes) -> Option<Bytes> {
        let (of_peer, mine) = (message.get(LOCAL_COMM_ID), message.get(REMOTE_COMM_ID));
        // `cm_acquire_id`, with and without the peer's name.
        let by_name = mine == self.local_id && self.state != State::Idle;
        let by_both = by_name && of_peer == self.remote_id;
        match message.attribute() {
            0x10 => {
                if self.remote_id == of_peer && self.state != State::Idle {
                    return None; // a duplicate
                }
                let stale = self.state == State::Established
                    && self.remote_guid == message.get(REQ_CA_GUID)
                    && self.remote_qpn == message.get(REQ_QPN);
                if stale {
                    let rej = Bytes::new(0x12, message.tid());
                    return Some(
                        rej.with(REMOTE_COMM_ID, of_peer)
                            .with(REJ_REASON, REASON_STALE),
                    );
                }
                self.state = State::ReqReceived;
                self.tid = message.tid();
                self.remote_id = of_peer;
                self.remote_guid = message.get(REQ_CA_GUID);
                self.remote_qpn = message.get(REQ_QPN);
                self.xrc = message.get(REQ_TRANSPORT) == 3;
                self.sq_psn = message.get(REQ_STARTING_PSN);
                self.initiator_depth = message.get(REQ_RESPONDER_RESOURCES);
                self.responder_resources = message.get(REQ_INITIATOR_DEPTH);
                self.retry_count = message.get(REQ_RETRY_COUNT);
                self.rnr_retry_count = message.get(REQ_RNR_RETRY_COUNT);
                self.path_mtu = message.get(REQ_MTU);
                let lifetime = message.get(REQ_ACK_TIMEOUT).saturating_sub(1);
                self.timeout = lifetime + 1;
                None
            }
            0x13 if by_name && self.state == State::ReqSent => {
                self.remote_id = of_peer;
                self.remote_guid = message.get(REP_CA_GUID);
                let place = if self.xrc { REP_EECN } else { REP_QPN };
                self.remote_qpn = message.get(place);
                self.initiator_depth = message.get(REP_RESPONDER_RESOURCES);
                self.responder_resources = message.get(REP_INITIATOR_DEPTH);
                self.sq_psn = message.get(REP_STARTING_PSN);
                self.rnr_retry_count = message.get(REP_RNR_RETRY_COUNT);
                self.timeout = ack_timeout(message.get(REP_TARGET_ACK_DELAY), 18);
                self.state = State::Established;
                Some(self.both(0x14, self.tid))
            }
            0x13 if by_both && self.state == State::Established => Some(self.both(0x14, self.tid)),
            0x14 if by_both && self.state == State::RepSent => {
                self.state = State::Established;
                None
            }
            0x12 => {
                let found = if message.get(REJ_REASON) == REASON_TIMEOUT {
                    message.get(REJ_INFO) == self.remote_guid && of_peer == self.remote_id
                } else if message.get(REJ_MESSAGE_REJECTED) == 0 {
                    by_name
                } else {
                    by_both
                };
                if found {
                    self.state = State::Idle;
                }
                None
            }
            0x15 if !by_both => Some(
                Bytes::new(0x16, message.tid())
                    .with(LOCAL_COMM_ID, mine)
                    .with(REMOTE_COMM_ID, of_peer),
            ),
            0x15 if message.get(DREQ_REMOTE_QPN) != self.local_qpn => None,
            0x15 => {
                self.state = State::TimeWait;
                Some(self.both(0x16, message.tid()))
            }
            0x16 if by_both && self.state == State::DreqSent => {
                self.state = State::TimeWait;
                None
            }
            _ => None,
        }
    }
}

/// `cm_ack_timeout`.
fn ack_timeout(delay: u64, lifetime: u64) -> u64 {
    let both_ways = lifetime + 1;
    let timeout = if both_ways >= delay {
        both_ways + u64::from(delay + 1 >= both_ways)
    } else {
        delay + u64::from(both_ways + 1 >= delay)
    };
    timeout.min(31)
}
