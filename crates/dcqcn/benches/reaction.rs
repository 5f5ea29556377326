//! What congestion control costs: the rate of a packet about to be sent, a packet sent, a CNP, a
//! packet received, a packet that leaves a switch's queue.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ferroce_base::time::Time;
use ferroce_dcqcn::np::{Arrival, CnpTimer, NotificationPoint, Timers};
use ferroce_dcqcn::presets::PAPER_RED;
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, PaperConfig, PaperParams, PaperRp, ReactionPoint};
use ferroce_dcqcn::{AlphaPrecision, Params, Rate, Switches};

const LINE: Rate = Rate::from_mbps(100_000);

fn reaction_point<R: ReactionPoint>(c: &mut Criterion, name: &str, config: &R::Config) {
    // Flows at different places of their recovery, so that no branch is always the same. A power of
    // two of them, so that choosing one costs next to nothing.
    let mut flows: [R; 64] = core::array::from_fn(|index| {
        let mut flow = R::new(config);
        for cnp in 0..index as u64 % 7 {
            flow.on_cnp(config, Time::from_nanos(cnp * 50_000));
        }
        let _ = flow.rate(config, Time::from_nanos(400_000));
        flow
    });
    let mut group = c.benchmark_group(name);
    let mut next = 0;
    group.bench_function("rate", |b| {
        b.iter(|| {
            next = (next + 1) % 64;
            flows[next].rate(black_box(config), black_box(Time::from_nanos(400_000)))
        });
    });
    group.bench_function("bytes sent", |b| {
        b.iter(|| {
            next = (next + 1) % 64;
            flows[next].on_bytes_sent(
                black_box(config),
                black_box(Time::from_nanos(400_000)),
                black_box(0),
            );
        });
    });
    // CNPs as far apart as a receiver leaves them, so that each finds a cut and updates of alpha to
    // make up for.
    for gap_ns in [4_000, 50_000] {
        let (mut flow, mut now_ns) = (R::new(config), 0);
        group.bench_function(format!("cnp every {} us", gap_ns / 1_000), |b| {
            b.iter(|| {
                now_ns += gap_ns;
                flow.on_cnp(black_box(config), black_box(Time::from_nanos(now_ns)));
            });
        });
    }
    group.finish();
}

fn reaction_points(c: &mut Criterion) {
    let params = Params::default();
    let config = NvidiaConfig::new(&params, &Switches::default(), LINE);
    reaction_point::<NvidiaRp>(c, "nvidia", &config);
    let fine = Switches {
        alpha_precision: AlphaPrecision::Bits26,
        ..Switches::default()
    };
    let config = NvidiaConfig::new(&params, &fine, LINE);
    reaction_point::<NvidiaRp>(c, "nvidia, fine alpha", &config);
    let config = PaperConfig::new(&PaperParams::default(), LINE).expect("the defaults are valid");
    reaction_point::<PaperRp>(c, "paper", &config);
}

fn other_points(c: &mut Criterion) {
    let np = NotificationPoint::new(&Params::default());
    let (port, flow) = (CnpTimer::default(), CnpTimer::default());
    let timers = Timers {
        port: &port,
        flow: &flow,
    };
    for ce in [false, true] {
        let packet = Arrival {
            ce,
            ..Arrival::default()
        };
        let name = if ce { "marked" } else { "unmarked" };
        let mut now_ns = 0;
        c.bench_function(&format!("notification point: {name}"), |b| {
            b.iter(|| {
                now_ns += 80;
                np.on_packet(
                    black_box(Time::from_nanos(now_ns)),
                    black_box(packet),
                    timers,
                )
            });
        });
    }
    let mut random = 0_u32;
    c.bench_function("congestion point", |b| {
        b.iter(|| {
            random = random.wrapping_add(0x9e37_79b9);
            PAPER_RED.mark(black_box(100_000), random)
        });
    });
}

criterion_group!(benches, reaction_points, other_points);
criterion_main!(benches);
