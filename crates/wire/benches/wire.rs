//! Costs per packet: parsing, emitting, and the ICRC next to a bare CRC of the same payload.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferroce_wire::{
    Aeth, Connection, CreditCode, Headers, IcrcFlow, IcrcVerifier, IdPolicy, IpPair, Packet, Place,
    Psn, Qpn, ROCE_V2_PORT, Reth, Syndrome,
};

const PAYLOAD_LEN: usize = 4096;

fn flow_v4() -> IcrcFlow {
    IcrcFlow::new(
        IpPair::V4 {
            src: [127, 0, 0, 1],
            dst: [127, 0, 0, 2],
        },
        0xc123,
        ROCE_V2_PORT,
    )
}

fn flow_v6() -> IcrcFlow {
    IcrcFlow::new(
        IpPair::V6 {
            src: [1; 16],
            dst: [2; 16],
        },
        0xc123,
        ROCE_V2_PORT,
    )
}

fn examples() -> [(&'static str, Headers, usize); 3] {
    let reth = Reth {
        va: 0x7f00_0000_1000,
        rkey: 0x1234,
        length: 1 << 20,
    };
    let aeth = Aeth {
        syndrome: Syndrome::Ack {
            credit: CreditCode::INVALID,
        },
        msn: 7,
    };
    let write = |place| Headers::write(Connection::Rc, place, reth, None);
    [
        ("write_middle", write(Place::Middle), PAYLOAD_LEN),
        ("write_first", write(Place::First), PAYLOAD_LEN),
        ("acknowledge", Headers::acknowledge(aeth), 0),
    ]
    .map(|(name, headers, payload_len)| {
        let headers = headers.to(Qpn::new(0x12_3456), Psn::new(0xab_cdef));
        (name, headers, payload_len)
    })
}

fn packet(headers: Headers, payload_len: usize, ip_id: u16) -> Vec<u8> {
    let mut buffer = vec![0; payload_len + 64];
    let payload: Vec<u8> = (0..=u8::MAX).cycle().take(payload_len).collect();
    let len = headers
        .emit_packet(&payload, &flow_v4(), ip_id, &mut buffer)
        .unwrap();
    buffer.truncate(len);
    buffer
}

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    for (name, headers, payload_len) in examples() {
        let bytes = packet(headers, payload_len, 0);
        group.bench_function(name, |b| {
            b.iter(|| Packet::new_checked(black_box(&bytes)).unwrap());
        });
    }
    group.finish();

    let mut group = c.benchmark_group("emit");
    for (name, headers, payload_len) in examples() {
        let mut buffer = [0; 64];
        group.bench_function(name, |b| {
            b.iter(|| {
                black_box(&headers)
                    .emit(payload_len, black_box(&mut buffer))
                    .unwrap()
            });
        });
    }
    group.finish();
}

fn icrc(c: &mut Criterion) {
    let (_, headers, payload_len) = examples()[0];
    let bytes = packet(headers, payload_len, 0);
    let transport = &bytes[..bytes.len() - 4];
    let (header, payload) = transport.split_at(headers.header_len());

    let mut group = c.benchmark_group("icrc_4096");
    group.throughput(Throughput::Bytes(PAYLOAD_LEN as u64));
    group.bench_function("bare_crc32fast", |b| {
        b.iter(|| crc32fast::hash(black_box(payload)));
    });
    for (name, flow) in [("v4", flow_v4()), ("v6", flow_v6())] {
        group.bench_function(format!("compute_{name}"), |b| {
            b.iter(|| black_box(&flow).compute(0, black_box(transport)));
        });
        group.bench_function(format!("compute_gathered_{name}"), |b| {
            b.iter(|| {
                let pieces = [black_box(payload)];
                black_box(&flow).compute_gathered(0, black_box(header), pieces, 0)
            });
        });
    }
    let flow = flow_v4();
    let mut verifier = IcrcVerifier::new(IdPolicy::AnyId);
    group.bench_function("verify_expected_id", |b| {
        b.iter(|| verifier.verify(&flow, 0, black_box(&bytes)));
    });
    let counted = packet(headers, payload_len, 0x1234);
    group.bench_function("verify_unexpected_id", |b| {
        b.iter(|| verifier.verify(&flow, 0, black_box(&counted)));
    });
    group.bench_function("verify_unexpected_id_uncached", |b| {
        b.iter(|| flow.verify(0, black_box(&counted)));
    });
    group.finish();
}

criterion_group!(benches, headers, icrc);
criterion_main!(benches);
