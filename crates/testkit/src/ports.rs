//! TCP ports, by which many programs exchange addresses.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;

/// A TCP port that no program uses.
///
/// # Errors
///
/// If the system has none.
pub fn free_port() -> Result<u16, Error> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = probe.and_then(|probe| probe.local_addr());
    Ok(address.map_err(Error::system("find a free port"))?.port())
}

/// Whether a program listens on a TCP port. Unlike a connection, the look does not disturb it.
pub fn listens(port: u16) -> bool {
    let is_listener = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        let state = fields.nth(1).unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && state == "0A"
    };
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .any(|table| table.lines().any(is_listener))
}
