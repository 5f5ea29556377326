//! Copies to and from registered memory beside those of the C library. They can fail, where nothing
//! is mapped, and must cost no more for it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferroce_device::Buffer;

fn copies(criterion: &mut Criterion) {
    for len in [8, 256, 1024, 4096, 65_536, 1 << 20] {
        let mut group = criterion.benchmark_group(format!("copy/{len}"));
        group.throughput(Throughput::Bytes(len as u64));
        let buffer = Buffer::zeroed(len);
        let (from, mut to) = (vec![1_u8; len], vec![0_u8; len]);
        group.bench_function("plain", |bencher| {
            bencher.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
        });
        group.bench_function("to-memory", |bencher| {
            bencher.iter(|| black_box(&buffer).write(0, black_box(&from)));
        });
        group.bench_function("from-memory", |bencher| {
            bencher.iter(|| black_box(&buffer).read(0, black_box(&mut to)));
        });
        group.finish();
    }
}

criterion_group!(benches, copies);
criterion_main!(benches);
