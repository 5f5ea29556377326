//! The device does the bare program's work, too; how fast is for the benchmark to say.

use ferroce_benches::bare::{PingPong, Stream};
use ferroce_benches::pair::{Carrier, ping_pong, stream};

#[test]
fn a_stream_arrives_and_words_bounce() {
    works_over(Carrier::Udp);
    works_over(Carrier::Shm);
}

fn works_over(carrier: Carrier) {
    let short = Stream {
        seconds: 0.05,
        ..Stream::default()
    };
    // A busy machine may have no core for it at once.
    let streams = |_| stream(carrier, &short).unwrap().messages_per_second > 0.0;
    assert!((0..20).any(streams));
    let few = PingPong {
        rounds: 50,
        warm_up_rounds: 5,
        ..PingPong::default()
    };
    assert_eq!(ping_pong(carrier, &few).unwrap().rounds, 50);
}
