//! The device does the bare program's work, too; how fast is for the benchmark to say.

use std::sync::Mutex;

use ferroce_bench::bare::{PingPong, Stream};
use ferroce_bench::pair::{Carrier, Operation, ping_pong, stream};

/// The devices of a process have the same addresses each time.
static ADDRESSES: Mutex<()> = Mutex::new(());

#[test]
fn a_stream_arrives_and_words_bounce() {
    let _turn = ADDRESSES.lock();
    works_over(Carrier::Udp);
    works_over(Carrier::Shm);
}

fn works_over(carrier: Carrier) {
    for (operation, message_bytes) in [
        (Operation::Write, 64 << 10),
        (Operation::Write, 8),
        (Operation::Read, 1 << 20),
        (Operation::FetchAdd, 8),
    ] {
        let short = Stream {
            message_bytes,
            seconds: 0.05,
            ..Stream::default()
        };
        // A busy machine may have no core for it at once.
        let streams = |_| {
            stream(carrier, operation, &short)
                .unwrap()
                .messages_per_second
                > 0.0
        };
        assert!((0..20).any(streams), "{operation:?}");
    }
    for message_bytes in [8, 64 << 10] {
        let few = PingPong {
            message_bytes,
            rounds: 50,
            warm_up_rounds: 5,
            seconds_max: None,
        };
        assert_eq!(ping_pong(carrier, &few).unwrap().rounds, 50);
    }
}

#[test]
fn a_ping_pong_ends_in_time() {
    let _turn = ADDRESSES.lock();
    let endless = PingPong {
        message_bytes: 8,
        rounds: u32::MAX,
        warm_up_rounds: 5,
        seconds_max: Some(0.05),
    };
    for carrier in [Carrier::Udp, Carrier::Shm] {
        let latency = ping_pong(carrier, &endless).unwrap();
        assert!((1..100_000_000).contains(&latency.rounds));
    }
}
