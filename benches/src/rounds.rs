//! Arguments of the benchmarks with two devices in one process.

use ferroce_bench::bare::{PingPong, Stream};

/// How much is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct Rounds {
    /// Length of each measurement, in seconds
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Rounds; each takes every workload once, and the table shows medians
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// Round trips of each ping-pong
    #[arg(long, default_value_t = 50_000)]
    pub ping_rounds: u32,
    /// Only the workload with this place in the table, from 0
    #[arg(long)]
    pub only: Option<usize>,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

impl Rounds {
    /// Whether the workload at a place of the table is measured.
    pub fn wants(&self, place: usize) -> bool {
        self.only.is_none_or(|only| only == place)
    }

    /// A stream as long as asked for.
    pub fn stream(&self, stream: Stream) -> Stream {
        Stream {
            seconds: self.seconds,
            ..stream
        }
    }

    /// A ping-pong of messages of some bytes, as long as asked for.
    pub fn ping(&self, message_bytes: usize) -> PingPong {
        PingPong {
            message_bytes,
            rounds: self.ping_rounds,
            ..PingPong::default()
        }
    }
}
