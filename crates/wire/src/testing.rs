//! Values for this crate's unit tests.

use proptest::prelude::*;

use crate::{
    Aeth, AtomicEth, Bth, Deth, Headers, IcrcFlow, IpPair, Opcode, Psn, Qpn, ROCE_V2_PORT, Reth,
    Srqn, Syndrome,
};

/// Headers with exactly the extensions of the opcode, every field distinct.
pub(crate) fn sample(opcode: Opcode) -> Headers {
    let bth = Bth {
        pkey: 0x8001,
        ..Bth::request(opcode, Qpn::new(0x12_3456), Psn::new(0xab_cdef))
    };
    Headers {
        bth,
        reth: opcode.has_reth().then_some(Reth {
            va: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
            length: 0x0d0e_0f10,
        }),
        aeth: opcode.has_aeth().then_some(Aeth {
            syndrome: Syndrome::from_u8(0x1f),
            msn: 0x11_2233,
        }),
        atomic: opcode.has_atomic_eth().then_some(AtomicEth {
            va: 0x2122_2324_2526_2728,
            rkey: 0x292a_2b2c,
            swap_or_add: 0x3132_3334_3536_3738,
            compare: 0x4142_4344_4546_4748,
        }),
        atomic_ack: opcode.has_atomic_ack().then_some(0x5152_5354_5556_5758),
        imm: opcode.has_imm().then_some(0x6162_6364),
        ieth: opcode.has_ieth().then_some(0x7172_7374),
        deth: opcode.has_deth().then_some(Deth {
            qkey: 0x8182_8384,
            src_qp: Qpn::new(0x91_9293),
        }),
        xrceth: opcode.has_xrceth().then_some(Srqn::new(0xa1_a2a3)),
    }
}

pub(crate) fn flow_v4() -> IcrcFlow {
    let ip = IpPair::V4 {
        src: [192, 0, 2, 1],
        dst: [198, 51, 100, 7],
    };
    IcrcFlow::new(ip, 0xc123, ROCE_V2_PORT)
}

pub(crate) fn flow_v6() -> IcrcFlow {
    let mut src = [0; 16];
    src[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    let mut dst = src;
    src[15] = 1;
    dst[15] = 2;
    IcrcFlow::new(IpPair::V6 { src, dst }, 0xc123, ROCE_V2_PORT)
}

/// Any headers that can be emitted.
pub(crate) fn any_headers() -> impl Strategy<Value = Headers> {
    prop::sample::select(Opcode::ALL).prop_flat_map(|opcode| {
        let bth = (any::<[bool; 5]>(), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
            move |([solicited, mig_req, fecn, becn, ack_req], pkey, dest_qp, psn)| Bth {
                opcode,
                solicited,
                mig_req,
                pad: 0,
                version: 0,
                pkey,
                fecn,
                becn,
                dest_qp: Qpn::new(dest_qp),
                ack_req,
                psn: Psn::new(psn),
            },
        );
        let reth = any::<(u64, u32, u32)>().prop_map(move |(va, rkey, length)| {
            opcode.has_reth().then_some(Reth { va, rkey, length })
        });
        let aeth = (any::<u8>(), 0..1u32 << 24).prop_map(move |(syndrome, msn)| {
            let syndrome = Syndrome::from_u8(syndrome);
            opcode.has_aeth().then_some(Aeth { syndrome, msn })
        });
        let atomic =
            any::<(u64, u32, u64, u64)>().prop_map(move |(va, rkey, swap_or_add, compare)| {
                opcode.has_atomic_eth().then_some(AtomicEth {
                    va,
                    rkey,
                    swap_or_add,
                    compare,
                })
            });
        let deth = any::<(u32, u32)>().prop_map(move |(qkey, src_qp)| {
            opcode.has_deth().then_some(Deth {
                qkey,
                src_qp: Qpn::new(src_qp),
            })
        });
        let words = any::<(u64, u32, u32, u32)>();
        (bth, reth, aeth, atomic, deth, words).prop_map(
            move |(bth, reth, aeth, atomic, deth, (original, imm, rkey, srqn))| Headers {
                bth,
                reth,
                aeth,
                atomic,
                atomic_ack: opcode.has_atomic_ack().then_some(original),
                imm: opcode.has_imm().then_some(imm),
                ieth: opcode.has_ieth().then_some(rkey),
                deth,
                xrceth: opcode.has_xrceth().then_some(Srqn::new(srqn)),
            },
        )
    })
}

/// Headers together with a payload that the opcode may carry.
pub(crate) fn any_packet() -> impl Strategy<Value = (Headers, Vec<u8>)> {
    any_headers().prop_flat_map(|headers| {
        let len_max = if headers.bth.opcode.has_payload() {
            300
        } else {
            0
        };
        (
            Just(headers),
            proptest::collection::vec(any::<u8>(), 0..=len_max),
        )
    })
}
