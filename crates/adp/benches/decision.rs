//! What the timeout decision costs: one expiry, judged and answered with the next wait.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ferroce_adp::{Policy, PolicyKind, Profile, QpTimeouts, RawProfile, RawRange, RetryState};
use ferroce_base::time::Time;

fn decision(c: &mut Criterion) {
    let mut raw = RawProfile {
        time_base: 4,
        range_num: 4,
        retx_total_timeout: 30,
        timeout_init_low_bound: 8,
        timeout_init_range_size: 3,
        ..RawProfile::EMPTY
    };
    for (range, low) in raw.timeout_range.iter_mut().zip([8, 11, 14, 17]) {
        *range = RawRange {
            range_low_bound: low,
            range_size: 2,
            timeout_retry_num: 3,
            ..*range
        };
    }
    let profile = Profile::try_from(raw).expect("the profile is valid");
    let qp = QpTimeouts {
        timeout: 18,
        retry_cnt: 7,
    };
    for (name, kind) in [
        ("ib", PolicyKind::IB),
        ("firmware", PolicyKind::FIRMWARE),
        ("profile", PolicyKind::Profile(profile)),
    ] {
        let policy = Policy::new(kind);
        // QPs at different places of their ladders, so that no branch is always the same.
        let states: Vec<_> = (0..64_u32)
            .map(|qpn| {
                let mut state = RetryState::new(&policy, qp, qpn);
                state.start(&policy, Time::ZERO);
                for _ in 0..qpn % 6 {
                    let _ = state.on_timeout(&policy, Time::from_nanos(1));
                }
                state
            })
            .collect();
        let mut next = 0;
        c.bench_function(&format!("timeout decision: {name}"), |b| {
            b.iter(|| {
                next = (next + 1) % states.len();
                let (mut state, policy) = (states[next], black_box(&policy));
                let expiry = state.on_timeout(policy, black_box(Time::from_nanos(1_000)));
                (
                    expiry,
                    state.wait(policy, black_box(Time::from_nanos(1_000))),
                    state,
                )
            });
        });
        c.bench_function(&format!("progress: {name}"), |b| {
            b.iter(|| {
                next = (next + 1) % states.len();
                let (mut state, policy) = (states[next], black_box(&policy));
                state.on_progress(policy, black_box(Time::from_nanos(1_000)));
                (
                    state.wait(policy, black_box(Time::from_nanos(1_000))),
                    state,
                )
            });
        });
        c.bench_function(&format!("new QP: {name}"), |b| {
            b.iter(|| RetryState::new(black_box(&policy), black_box(qp), black_box(7)));
        });
    }
}

criterion_group!(benches, decision);
criterion_main!(benches);
