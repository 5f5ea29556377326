//! Packets that no correct peer sends: they cause the right NAK or counter, and never a panic, a
//! hang or an access outside the memory.

use ferroce_transport::{Counter, QpEvent, QpState, SendOp, WcStatus};
use ferroce_wire::{
    Aeth, AtomicEth, BthFlags, CreditCode, ExtensionValues, Headers, NakCode, Opcode, Psn, Reth,
    Service, Syndrome,
};
use proptest::prelude::*;

use crate::common::{A, B, Pair, Setup};

/// A request to B, `ahead` packets after the one it expects.
fn request(pair: &Pair, opcode: Opcode, ahead: u32) -> Headers {
    let psn = pair[B].qp.expected_psn().wrapping_add(ahead);
    let (va, rkey) = pair.target(A);
    let length = 8;
    let values = ExtensionValues {
        reth: Reth { va, rkey, length },
        imm: 1,
        ieth: rkey,
        atomic: AtomicEth {
            va,
            rkey,
            swap_or_add: 1,
            compare: 0,
        },
        ..ExtensionValues::default()
    };
    Headers::with_values(opcode, &values).to(pair[B].qp.qpn(), psn)
}

/// A response to A, `ahead` packets after its oldest unacknowledged one.
fn response(pair: &Pair, opcode: Opcode, psn: u32, syndrome: Syndrome) -> Headers {
    let psn = pair.attr(A).sq_psn.wrapping_add(psn);
    let values = ExtensionValues {
        aeth: Aeth { syndrome, msn: 1 },
        atomic_ack: 7,
        ..ExtensionValues::default()
    };
    Headers::with_values(opcode, &values).to(pair[A].qp.qpn(), psn)
}

fn zeros(opcode: Opcode) -> Headers {
    Headers::with_values(opcode, &ExtensionValues::default())
}

const ACK: Syndrome = Syndrome::Ack {
    credit: CreditCode::INVALID,
};

fn requests() -> impl Iterator<Item = Opcode> {
    rc().filter(|o| o.is_request())
}

fn responses() -> impl Iterator<Item = Opcode> {
    rc().filter(|o| o.is_response())
}

fn rc() -> impl Iterator<Item = Opcode> {
    let rc = |o: &Opcode| o.service() == Service::Rc;
    Opcode::ALL.iter().copied().filter(rc)
}

fn ready() -> Pair {
    let mut pair = Setup::default().connect();
    for wr_id in 0..4 {
        pair.recv(B, wr_id, 10_000);
    }
    pair
}

#[track_caller]
fn expect_invalid(pair: &Pair) {
    let last = pair.sent(B).pop();
    assert!(
        last.as_ref()
            .is_some_and(|line| line.starts_with("NAK invalid")),
        "{last:?}"
    );
    assert_eq!(pair[B].qp.state(), QpState::Err);
    assert_eq!(pair[B].host.events, [QpEvent::RequestError]);
}

#[test]
fn a_message_cannot_begin_in_the_middle() {
    for opcode in requests().filter(|o| !o.starts_message()) {
        let mut pair = ready();
        let headers = request(&pair, opcode, 0);
        pair.forge(B, headers, &[0; 8]);
        expect_invalid(&pair);
    }
}

#[test]
fn a_message_cannot_begin_inside_another_nor_change_its_kind() {
    for first in [Opcode::RcSendFirst, Opcode::RcWriteFirst] {
        for opcode in requests() {
            let continues = !opcode.starts_message() && opcode.is_send() == first.is_send();
            if continues {
                continue;
            }
            let mut pair = ready();
            let mut headers = request(&pair, first, 0);
            if let Some(reth) = headers.reth_mut() {
                reth.length = 5000;
            }
            pair.forge(B, headers, &[0; 1024]);
            assert_eq!(pair[B].qp.state(), QpState::Rts);
            let headers = request(&pair, opcode, 0);
            let payload: &[u8] = if opcode.ends_message() {
                &[0; 8]
            } else {
                &[0; 1024]
            };
            pair.forge(B, headers, payload);
            expect_invalid(&pair);
            if first.is_send() {
                assert_eq!(pair.recvs(B)[0], (0, WcStatus::RemInvReqErr));
            }
        }
    }
}

#[test]
fn packets_that_do_not_end_a_message_are_full() {
    for opcode in requests().filter(|o| !o.ends_message() && o.starts_message()) {
        for len in [0, 1, 1023, 1025, 4096] {
            let mut pair = ready();
            let mut headers = request(&pair, opcode, 0);
            if let Some(reth) = headers.reth_mut() {
                reth.length = 5000;
            }
            pair.forge(B, headers, &vec![0; len]);
            expect_invalid(&pair);
        }
    }
}

#[test]
fn a_last_packet_is_neither_empty_nor_longer_than_the_mtu() {
    for len in [0, 1025] {
        let mut pair = ready();
        let headers = request(&pair, Opcode::RcSendFirst, 0);
        pair.forge(B, headers, &[0; 1024]);
        let headers = request(&pair, Opcode::RcSendLast, 0);
        pair.forge(B, headers, &vec![0; len]);
        expect_invalid(&pair);
    }
}

#[test]
fn a_write_has_the_length_it_announced() {
    // The announced length, then the lengths of its packets, the last of which is wrong.
    let cases: [(u32, &[usize]); 6] = [
        (8, &[7]),
        (8, &[9]),
        (0, &[1]),
        (2000, &[1024, 977]),
        (2000, &[1024, 975]),
        (1024, &[1024]),
    ];
    for (length, packets) in cases {
        let mut pair = ready();
        let ends_too_late = length == 1024;
        for (index, &len) in packets.iter().enumerate() {
            let last = index + 1 == packets.len() && !ends_too_late;
            let opcode = match (index == 0, last) {
                (true, true) => Opcode::RcWriteOnly,
                (true, false) => Opcode::RcWriteFirst,
                _ => Opcode::RcWriteLast,
            };
            let mut headers = request(&pair, opcode, 0);
            if let Some(reth) = headers.reth_mut() {
                reth.length = length;
            }
            pair.forge(B, headers, &vec![0; len]);
        }
        expect_invalid(&pair);
    }
}

#[test]
fn no_message_is_longer_than_2_gib() {
    for opcode in [Opcode::RcWriteFirst, Opcode::RcReadRequest] {
        for length in [(1 << 31) + 1, u32::MAX] {
            let mut pair = ready();
            let mut headers = request(&pair, opcode, 0);
            headers.reth_mut().unwrap().length = length;
            let payload = if opcode.is_write() {
                vec![0; 1024]
            } else {
                vec![]
            };
            pair.forge(B, headers, &payload);
            expect_invalid(&pair);
        }
    }
}

#[test]
fn an_atomic_must_be_aligned() {
    for opcode in [Opcode::RcCompareSwap, Opcode::RcFetchAdd] {
        let mut pair = ready();
        let mut headers = request(&pair, opcode, 0);
        headers.atomic_mut().unwrap().va += 4;
        pair.forge(B, headers, &[]);
        expect_invalid(&pair);
        assert_eq!(pair[B].host.atomics, 0);
    }
}

#[test]
fn headers_of_zeros_make_an_invalid_request_or_nothing() {
    for opcode in requests() {
        let mut pair = ready();
        let psn = pair[B].qp.expected_psn();
        let bare = zeros(opcode).to(pair[B].qp.qpn(), psn);
        pair.forge(B, bare, &[]);
        let mut duplicate = bare;
        duplicate.psn = psn.wrapping_sub(1);
        pair.forge(B, duplicate, &[]);
        pair.run();
    }
    for opcode in responses() {
        let mut pair = ready();
        pair.silence(A);
        pair.write(A, 1, 10);
        pair.transmit();
        let bare = zeros(opcode).to(pair[A].qp.qpn(), pair.attr(A).sq_psn);
        pair.forge(A, bare, &[]);
    }
}

#[test]
fn far_ahead_is_a_gap_and_far_behind_a_duplicate() {
    for (ahead, counter) in [
        (1, Counter::OutOfSequence),
        (0x7f_ffff, Counter::OutOfSequence),
        (0x80_0000, Counter::DuplicateRequest),
        (0xff_ffff, Counter::DuplicateRequest),
    ] {
        for opcode in requests() {
            let mut pair = ready();
            let mut headers = request(&pair, opcode, ahead);
            headers.flags |= BthFlags::ACK_REQ;
            let expected = pair[B].qp.expected_psn();
            pair.forge(B, headers, &[0; 8]);
            assert_eq!(pair.count(B, counter), 1, "{opcode} {ahead:#x}");
            assert_eq!(pair[B].qp.expected_psn(), expected);
            assert_eq!(pair[B].qp.state(), QpState::Rts);
            // And the correct peer continues.
            pair.send(A, 1, 2000);
            pair.run();
            pair.expect_sent(A, [1]);
        }
    }
}

#[test]
fn responses_to_nothing_are_counted() {
    for opcode in responses() {
        let mut pair = ready();
        for psn in [0, 1, 1000] {
            let headers = response(&pair, opcode, psn, ACK);
            pair.forge(A, headers, &[]);
        }
        assert_eq!(pair.count(A, Counter::RxUnexpectedResponse), 3);
        pair.write(A, 1, 10);
        pair.run();
        pair.expect_sent(A, [1]);
    }
}

#[test]
fn naks_for_what_is_done_change_nothing() {
    for code in 0..32 {
        let mut pair = ready();
        pair.write(A, 1, 10);
        pair.run();
        pair.silence(A);
        pair.write(A, 2, 10);
        pair.transmit();
        let nak = Syndrome::Nak(NakCode::from_u8(code));
        let headers = response(&pair, Opcode::RcAcknowledge, 0, nak);
        pair.forge(A, headers, &[]);
        pair.heal();
        pair.run();
        pair.expect_sent(A, [1, 2]);
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 0);
    }
}

/// Every possible syndrome byte, for an outstanding WRITE and an outstanding READ.
#[test]
fn every_syndrome_has_a_meaning() {
    for byte in 0..=u8::MAX {
        for read in [false, true] {
            let mut pair = ready();
            pair.silence(A);
            if read {
                pair.read(A, 1, 10);
            } else {
                pair.write(A, 1, 10);
            }
            pair.transmit();
            let syndrome = Syndrome::from_u8(byte);
            let headers = response(&pair, Opcode::RcAcknowledge, 0, syndrome);
            pair.forge(A, headers, &[]);
            let status = pair.sends(A).pop().map(|(_, status)| status);
            let expected = match syndrome {
                Syndrome::Ack { .. } if read => None,
                Syndrome::Ack { .. } => Some(WcStatus::Success),
                Syndrome::Nak(NakCode::SequenceError) => None,
                Syndrome::Nak(NakCode::RemoteAccess) => Some(WcStatus::RemAccessErr),
                Syndrome::Nak(NakCode::RemoteOperational) => Some(WcStatus::RemOpErr),
                Syndrome::Nak(_) => Some(WcStatus::RemInvReqErr),
                Syndrome::Rnr { .. } => None,
                Syndrome::Reserved(_) => {
                    assert_eq!(pair.count(A, Counter::RxUnexpectedResponse), 1);
                    None
                }
            };
            assert_eq!(status, expected, "{syndrome:?}, read: {read}");
            // The outstanding requests complete.
            pair.run();
            assert_eq!(pair[A].qp.send_queue_len(), 0);
        }
    }
}

#[test]
fn a_read_response_of_wrong_length_or_place_is_a_bad_response() {
    use Opcode::*;
    let cases = [
        (RcReadResponseFirst, 1023),
        (RcReadResponseFirst, 0),
        (RcReadResponseFirst, 1025),
        (RcReadResponseMiddle, 8),
        (RcReadResponseOnly, 1024),
        (RcReadResponseLast, 1024),
        (RcAtomicAcknowledge, 0),
    ];
    for (opcode, len) in cases {
        let mut pair = ready();
        pair.silence(A);
        pair.read(A, 1, 3000);
        pair.transmit();
        let headers = response(&pair, opcode, 0, ACK);
        let before = pair.bytes(A, pair[A].local.part(0, 4096));
        pair.forge(A, headers, &vec![0xaa; len]);
        assert_eq!(pair.sends(A), [(1, WcStatus::BadRespErr)], "{opcode} {len}");
        assert_eq!(pair.bytes(A, pair[A].local.part(0, 4096)), before);
    }
}

#[test]
fn data_for_a_write_is_a_bad_response() {
    let acknowledges = [Opcode::RcAcknowledge, Opcode::RcAcknowledgeReport];
    for opcode in responses().filter(|o| !acknowledges.contains(o)) {
        let mut pair = ready();
        pair.silence(A);
        pair.write(A, 1, 10);
        pair.transmit();
        let headers = response(&pair, opcode, 0, ACK);
        pair.forge(A, headers, &[0; 10]);
        assert_eq!(pair.sends(A), [(1, WcStatus::BadRespErr)]);
    }
}

#[test]
fn read_data_for_an_atomic_is_a_bad_response() {
    let mut pair = ready();
    pair.silence(A);
    pair.fetch_add(A, 1, 1);
    pair.transmit();
    let headers = response(&pair, Opcode::RcReadResponseOnly, 0, ACK);
    pair.forge(A, headers, &[0; 8]);
    assert_eq!(pair.sends(A), [(1, WcStatus::BadRespErr)]);
}

#[test]
fn packets_of_other_services_are_ignored() {
    let mut pair = ready();
    for &opcode in Opcode::ALL.iter().filter(|o| o.as_u8() >= 0x20) {
        let headers = zeros(opcode).to(pair[B].qp.qpn(), pair[B].qp.expected_psn());
        pair.forge(B, headers, &[0; 8]);
    }
    assert!(pair.log.is_empty());
    pair.send(A, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
}

#[derive(Clone, Debug)]
struct Forgery {
    to_a: bool,
    opcode: Opcode,
    near: i32,
    psn: Option<u32>,
    ack_req: bool,
    aeth: (u8, u32),
    reth: (u32, u32, bool),
    atomic_at: u32,
    atomic_ack: u64,
    imm: u32,
    ieth: u32,
    len: usize,
    after_ns: u64,
}

fn forgery() -> impl Strategy<Value = Forgery> {
    let length = prop_oneof![0..6000_u32, Just(1 << 31), any::<u32>()];
    let len = prop_oneof![Just(0_usize), Just(8), Just(1024), 0..4200_usize];
    (
        (any::<bool>(), prop::sample::select(Opcode::ALL), -8..8_i32),
        (prop::option::weighted(0.1, any::<u32>()), any::<bool>()),
        (any::<u8>(), prop_oneof![0..8_u32, any::<u32>()]),
        (any::<u32>(), length, any::<bool>()),
        any::<u32>(),
        any::<u64>(),
        (any::<u32>(), any::<u32>()),
        (len, prop_oneof![Just(0_u64), 0..4000_u64]),
    )
        .prop_map(
            |(a, (psn, ack_req), aeth, reth, atomic_at, atomic_ack, (imm, ieth), b)| Forgery {
                to_a: a.0,
                opcode: a.1,
                near: a.2,
                psn,
                ack_req,
                aeth,
                reth,
                atomic_at,
                atomic_ack,
                imm,
                ieth,
                len: b.0,
                after_ns: b.1,
            },
        )
}

impl Forgery {
    fn headers(&self, pair: &Pair) -> Headers {
        let to = if self.to_a { A } else { B };
        let near = if self.opcode.is_response() {
            pair.attr(to).sq_psn
        } else {
            pair[to].qp.expected_psn()
        };
        let psn = match self.psn {
            Some(psn) => Psn::new(psn),
            None => near.wrapping_add(self.near as u32),
        };
        let remote = pair[to].remote;
        let va = |offset: u32| remote.va + u64::from(offset % 0x1_0000);
        let (syndrome, msn) = self.aeth;
        let (reth_at, length, known) = self.reth;
        let values = ExtensionValues {
            aeth: Aeth {
                syndrome: Syndrome::from_u8(syndrome),
                msn,
            },
            reth: Reth {
                va: va(reth_at),
                rkey: if known { remote.key } else { reth_at },
                length,
            },
            atomic: AtomicEth {
                va: va(self.atomic_at),
                rkey: remote.key,
                swap_or_add: 1,
                compare: 2,
            },
            atomic_ack: self.atomic_ack,
            imm: self.imm,
            ieth: self.ieth,
            ..ExtensionValues::default()
        };
        let mut headers = Headers::with_values(self.opcode, &values).to(pair[to].qp.qpn(), psn);
        headers.flags.set(BthFlags::ACK_REQ, self.ack_req);
        headers
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever packets are forged, every request completes.
    #[test]
    fn forged_packets_never_cause_a_panic_or_a_hang(
        forgeries in prop::collection::vec(forgery(), 1..40),
        srq in any::<bool>(),
    ) {
        let mut pair = Setup { srq, steps: 100_000, ..Setup::default() }.connect();
        for id in [A, B] {
            for wr_id in 0..8 {
                pair.recv(id, wr_id, 5000);
            }
            pair.send(id, 1, 2000);
            pair.read(id, 2, 5000);
            pair.fetch_add(id, 3, 1);
            let (va, rkey) = pair.target(id);
            pair.op(id, 4, SendOp::Write { va, rkey, imm: Some(1) }, 3000);
            pair.read(id, 5, 0);
        }
        for forgery in &forgeries {
            pair.run_for(forgery.after_ns);
            let headers = forgery.headers(&pair);
            let to = if forgery.to_a { A } else { B };
            pair.forge(to, headers, &vec![0x5a; forgery.len]);
        }
        pair.run();
        for id in [A, B] {
            prop_assert_eq!(pair[id].qp.send_queue_len(), 0);
            prop_assert_eq!(pair[id].qp.poll_timeout(), None);
            prop_assert_eq!(pair.sends(id).len(), 5);
        }
    }
}
