//! Values for this crate's unit tests.

use proptest::prelude::*;

use crate::{
    Aeth, AtomicEth, BthFlags, DcConnect, Dceth, Deth, ExtensionValues, Headers, IcrcFlow, IpPair,
    Opcode, Psn, Qpn, ROCE_V2_PORT, Reth, Srqn, Syndrome,
};

/// Headers with the extensions of the opcode, every field distinct.
pub(crate) fn sample(opcode: Opcode) -> Headers {
    let values = ExtensionValues {
        reth: Reth {
            va: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
            length: 0x0d0e_0f10,
        },
        aeth: Aeth {
            syndrome: Syndrome::from_u8(0x1f),
            msn: 0x11_2233,
        },
        atomic: AtomicEth {
            va: 0x2122_2324_2526_2728,
            rkey: 0x292a_2b2c,
            swap_or_add: 0x3132_3334_3536_3738,
            compare: 0x4142_4344_4546_4748,
        },
        atomic_ack: 0x5152_5354_5556_5758,
        imm: 0x6162_6364,
        ieth: 0x7172_7374,
        deth: Deth {
            qkey: 0x8182_8384,
            src_qp: Qpn::new(0x91_9293),
        },
        xrceth: Srqn::new(0xa1_a2a3),
        dceth: Dceth {
            connection: 0xb0,
            initiator: Qpn::new(0xb1_b2b3),
        },
        dc_connect: DcConnect {
            key: 0xc1c2_c3c4_c5c6_c7c8,
            incarnation: 0xd1d2_d3d4,
        },
    };
    let mut headers = Headers::with_values(opcode, &values);
    headers.pkey = 0x8001;
    headers.to(Qpn::new(0x12_3456), Psn::new(0xab_cdef))
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

/// Any headers.
pub(crate) fn any_headers() -> impl Strategy<Value = Headers> {
    let opcode = prop::sample::select(Opcode::ALL);
    let bth = (any::<u8>(), any::<u16>(), any::<u32>(), any::<u32>());
    let reth = any::<(u64, u32, u32)>().prop_map(|(va, rkey, length)| Reth { va, rkey, length });
    let aeth = (any::<u8>(), 0..1u32 << 24).prop_map(|(syndrome, msn)| Aeth {
        syndrome: Syndrome::from_u8(syndrome),
        msn,
    });
    let atomic =
        any::<(u64, u32, u64, u64)>().prop_map(|(va, rkey, swap_or_add, compare)| AtomicEth {
            va,
            rkey,
            swap_or_add,
            compare,
        });
    let deth = any::<(u32, u32)>().prop_map(|(qkey, src_qp)| Deth {
        qkey,
        src_qp: Qpn::new(src_qp),
    });
    let words = any::<(u64, u32, u32, u32)>();
    (opcode, bth, reth, aeth, atomic, deth, words).prop_map(
        |(opcode, (flags, pkey, dest_qp, psn), reth, aeth, atomic, deth, words)| {
            let (atomic_ack, imm, ieth, srqn) = words;
            let values = ExtensionValues {
                reth,
                aeth,
                atomic,
                atomic_ack,
                imm,
                ieth,
                deth,
                xrceth: Srqn::new(srqn),
                dceth: Dceth {
                    connection: flags,
                    initiator: Qpn::new(srqn),
                },
                dc_connect: DcConnect {
                    key: atomic_ack,
                    incarnation: imm,
                },
            };
            let mut headers = Headers::with_values(opcode, &values);
            headers.pkey = pkey;
            headers.flags = BthFlags::from_bits_truncate(flags);
            headers.to(Qpn::new(dest_qp), Psn::new(psn))
        },
    )
}

/// Headers together with a payload that the opcode may carry.
pub(crate) fn any_packet() -> impl Strategy<Value = (Headers, Vec<u8>)> {
    any_headers().prop_flat_map(|headers| {
        let len_max = if headers.opcode().has_payload() {
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
