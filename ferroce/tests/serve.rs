//! `ferroce serve`: what it refuses. Its answers are tested with a real Prometheus.

use std::net::TcpListener;

use crate::common::{has, run};

#[test]
fn a_port_in_use_is_named_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, text) = run(format!("serve --metrics {address}"));
    assert_eq!(code, 1, "{text}");
    has(&text, [&*address, "in use", "choose another with --listen"]);
}
