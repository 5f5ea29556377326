//! `ferroce serve`: metrics for Prometheus, and a web page.
//!
//! | module | purpose |
//! |---|---|
//! | `metrics` | the devices as OpenMetrics families |
//! | `congestion` | the families for congestion control |
//! | `policies` | the families for what is in force: retransmission policy, impairments |
//! | `census` | queries programs for the number of their queue pairs |
//! | `limited` | queries programs for queue pairs that are slowed down |
//! | `plain` | the metrics in the older text format |
//! | `live` | the devices as the page shows them |
//! | `history` | what the devices counted in the last minutes |
//! | `change` | changes that the page can make to devices |
//! | `gate` | access control for the page and for changes |
//! | `site` | the contents of each path |
//! | `reply` | an answer |
//! | `connections` | which connections are open, and which makes room for a new one |
//! | `http` | receives requests and sends answers |

mod census;
mod change;
mod congestion;
mod connections;
mod gate;
mod history;
mod http;
mod limited;
mod live;
mod metrics;
mod plain;
mod policies;
mod reply;
mod site;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};

use clap::Args;

use self::gate::{Gate, Token};
use self::site::Site;
use crate::naming;
use crate::output::{Failure, Output};

/// Serve Prometheus metrics and a web page until interrupted
///
/// The metrics are at /metrics. Every device of the user is in the answer, with what it has counted for
/// all programs, including those that have exited. Counters that cards have as well use
/// node_exporter's names.
///
/// The page is at /. It shows the devices live, and a designer of retransmission profiles. Only this
/// machine can open it, and it changes nothing, unless you say otherwise.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub struct Command {
    /// Where to listen: ADDR:PORT, HOST:PORT, a PORT of 127.0.0.1, or :PORT of all addresses. Port 0
    /// takes a free one. Anyone who reaches the address can read the metrics, so the default is
    /// reachable from this machine only
    #[arg(
        long,
        visible_alias = "metrics",
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        default_value = DEFAULT,
        default_missing_value = DEFAULT,
        value_parser = address
    )]
    listen: SocketAddr,
    /// Let other machines that reach the address open the page, too, by an address of this machine or
    /// by one of these names, comma-separated
    #[arg(long, value_name = "NAME", num_args = 0..=1, value_delimiter = ',', require_equals = true)]
    remote: Option<Vec<String>>,
    /// Let the page apply profiles, impair links and take ports down, if it is opened with the
    /// printed link, which contains a token
    #[arg(long)]
    allow_changes: bool,
}

/// This machine only, at a port that no one else is known for.
const DEFAULT: &str = "127.0.0.1:9880";

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
        let registry = naming::registry(to)?;
        let address = self.listen;
        let listener = TcpListener::bind(address).map_err(|error| {
            Failure::broken(format_args!(
                "cannot listen on {address}: {error}; choose another with --listen ADDR:PORT"
            ))
        })?;
        let token = self.allow_changes.then(Token::random);
        let token = token.transpose().map_err(Failure::broken)?;
        let address = listener.local_addr().map_err(Failure::broken)?;
        to.remark(format_args!("metrics at http://{address}/metrics"))?;
        to.remark(format_args!("page at {}", link(address, token.as_ref())))?;
        let gate = Gate {
            remote: self.remote,
            token,
        };
        http::serve(listener, Site::new(registry, gate)).map_err(Failure::broken)
    }
}

/// What opens the page on this machine. The token is not part of what a browser sends or tells other
/// sites.
fn link(mut address: SocketAddr, token: Option<&Token>) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    match token {
        Some(token) => format!("http://{address}/#token={}", token.reveal()),
        None => format!("http://{address}/"),
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
