//! The bare programs move real data; how fast is for the benchmark to say.

use ferroce_bench::bare::{Error, PingPong, Stream, ping_pong, stream};

#[test]
fn every_standard_workload_streams_and_is_verified() {
    for config in Stream::standard() {
        let short = Stream {
            seconds: 0.05,
            ..config
        };
        assert!(stream(&short).unwrap().gbps > 0.0, "{short:?}");
    }
}

#[test]
fn odd_shapes_stream_too() {
    // One packet, a short last packet, more segments than a call takes, no segmentation.
    for (message_bytes, mtu_bytes, segmentation) in [
        (4, 256, true),
        (5000, 4096, true),
        (1 << 20, 256, true),
        (65_536, 1024, false),
    ] {
        let config = Stream {
            message_bytes,
            mtu_bytes,
            segmentation,
            seconds: 0.05,
            ..Stream::default()
        };
        assert!(
            stream(&config).unwrap().messages_per_second > 0.0,
            "{config:?}"
        );
    }
}

#[test]
fn impossible_streams_are_refused() {
    for config in [
        Stream {
            mtu_bytes: 1500,
            ..Stream::default()
        },
        Stream {
            message_bytes: 0,
            ..Stream::default()
        },
        Stream {
            message_bytes: 7,
            ..Stream::default()
        },
        Stream {
            window_bytes: 100,
            ..Stream::default()
        },
        Stream {
            outstanding: 0,
            ..Stream::default()
        },
    ] {
        assert!(
            matches!(stream(&config), Err(Error::Config(_))),
            "{config:?}"
        );
    }
}

#[test]
fn ping_pong_orders_its_percentiles() {
    let config = PingPong {
        rounds: 2000,
        warm_up_rounds: 100,
        ..PingPong::default()
    };
    let latency = ping_pong(&config).unwrap();
    assert_eq!(latency.rounds, 2000);
    assert!(latency.min_ns > 0.0);
    assert!(latency.min_ns <= latency.p50_ns && latency.p50_ns <= latency.p99_ns);
    assert!(latency.p99_ns <= latency.max_ns);
}
