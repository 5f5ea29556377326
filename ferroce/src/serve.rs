//! `ferroce serve`: what devices have counted, for Prometheus.
//!
//! | module | does |
//! |---|---|
//! | `metrics` | the devices as OpenMetrics families |
//! | `congestion` | those of congestion control |
//! | `limited` | asks programs which of their queue pairs are slowed down |
//! | `http` | hands the text out |

mod congestion;
mod http;
mod limited;
mod metrics;

use std::net::{SocketAddr, TcpListener};

use clap::Args;

use self::limited::LimitedFlows;
use crate::device;
use crate::output::{Failure, Output};

/// Serve Prometheus metrics until interrupted
///
/// Every device of the user is in the answer, with what it has counted for all programs, also for
/// those that have ended. Counters that cards have, too, go by node_exporter's names.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub struct Command {
    /// Where to listen; port 0 takes a free one. Anyone who reaches the address can read the
    /// counters, so the default is reachable from this machine only
    #[arg(
        long,
        value_name = "ADDR:PORT",
        required = true,
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:9880"
    )]
    metrics: SocketAddr,
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let registry = device::registry(to)?;
        let address = self.metrics;
        let listener = TcpListener::bind(address).map_err(|error| {
            Failure::broken(format_args!(
                "cannot listen on {address}: {error}; choose another with --metrics ADDR:PORT"
            ))
        })?;
        let address = listener.local_addr().map_err(Failure::broken)?;
        to.remark(format_args!("metrics at http://{address}/metrics"))?;
        let mut flows = LimitedFlows::default();
        let metrics = move || metrics::text(&registry, &mut flows);
        http::serve(listener, metrics).map_err(Failure::broken)
    }
}
