//! `ferroce serve`: what devices have counted, for Prometheus.
//!
//! | module | does |
//! |---|---|
//! | `metrics` | the devices as OpenMetrics families |
//! | `congestion` | those of congestion control |
//! | `policies` | those of what is in force: retransmission policy, impairments |
//! | `census` | asks programs how many queue pairs they have |
//! | `limited` | asks programs which of their queue pairs are slowed down |
//! | `plain` | the same as text of the older format |
//! | `http` | hands the text out |

mod census;
mod congestion;
mod http;
mod limited;
mod metrics;
mod plain;
mod policies;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};

use clap::Args;

use crate::device;
use crate::output::{Failure, Output};

/// Serve Prometheus metrics until interrupted
///
/// Every device of the user is in the answer, with what it has counted for all programs, also for
/// those that have ended. Counters that cards have, too, go by node_exporter's names.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub struct Command {
    /// Where to listen: ADDR:PORT, HOST:PORT, a PORT of 127.0.0.1, or :PORT of all addresses. Port 0
    /// takes a free one. Anyone who reaches the address can read the counters, so the default is
    /// reachable from this machine only
    #[arg(
        long,
        value_name = "ADDR:PORT",
        required = true,
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:9880",
        value_parser = address
    )]
    metrics: SocketAddr,
}

/// An address to listen on, as people write it.
fn address(text: &str) -> Result<SocketAddr, String> {
    let of_port = |port: &str, ip: IpAddr| Some(SocketAddr::new(ip, port.parse().ok()?));
    let found = match text.strip_prefix(':') {
        Some(port) => of_port(port, Ipv4Addr::UNSPECIFIED.into()),
        None => of_port(text, Ipv4Addr::LOCALHOST.into()),
    };
    if let Some(address) = found {
        return Ok(address);
    }
    match text.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(address)) => Ok(address),
        _ => Err(
            "must be ADDR:PORT, HOST:PORT, :PORT or PORT, with a port from 0 to 65535".to_owned(),
        ),
    }
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
        let mut asked = metrics::Asked::default();
        let metrics = move || metrics::text(&registry, &mut asked);
        http::serve(listener, metrics).map_err(Failure::broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, expected) in [
            ("9999", "127.0.0.1:9999"),
            (":9999", "0.0.0.0:9999"),
            ("127.0.0.2:80", "127.0.0.2:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(address(text), Ok(expected.parse().unwrap()), "{text}");
        }
        assert!(address("localhost:9999").unwrap().ip().is_loopback());
        for text in ["", ":", "99999", ":99999", "127.0.0.1", "no such host:1"] {
            assert!(address(text).unwrap_err().contains("ADDR:PORT"), "{text}");
        }
    }
}
