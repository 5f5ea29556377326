//! UCX over its verbs transports.

use ferroce_interop::lab::{Lab, Ready, free_port, until};
use ferroce_testing::has;

/// A UCX test between two processes; returns what the client printed.
fn perftest(transport: &str, test: &str) -> String {
    perftest_in("poll", transport, test)
}

/// The same in another mode of waiting.
fn perftest_in(mode: &str, transport: &str, test: &str) -> String {
    let mut lab = Lab::new("ucx");
    lab.set("UCX_TLS", transport)
        .set("UCX_NET_DEVICES", "fr0:1")
        .set("UCX_IB_GID_INDEX", "1")
        .set("UCX_LOG_LEVEL", "warn");
    let port = free_port();
    let port_text = port.to_string();
    let server = format!("ucx_perftest -p {port_text} -E {mode}");
    let client = format!("{server} 127.0.0.1 {test}");
    let [_, output] = lab.pair(&server, Ready::Tcp(port), &client);
    has(&output, ["Final:"]);
    output
}

#[test]
fn both_transports_are_offered() {
    let lab = Lab::new("ucx-info");
    let info = lab.run("ucx_info -d").success();
    for transport in ["rc_verbs", "ud_verbs"] {
        let line = format!("Transport: {transport}");
        assert!(info.contains(&line), "no {transport} in\n{info}");
    }
}

// Alias `rc_v`: rc_verbs, wired up over ud_verbs.
#[test]
fn reliable_connections() {
    for test in [
        "-t tag_lat -n 1000 -w 100",
        "-t tag_bw -n 500 -w 50 -s 65536",
        "-t ucp_put_bw -n 200 -w 20 -s 1048576",
        "-t ucp_get -n 200 -w 20 -s 65536",
        "-t ucp_fadd -n 500 -w 50",
    ] {
        perftest("rc_v,self", test);
    }
}

#[test]
fn datagrams() {
    perftest("ud_v,self", "-t tag_lat -n 500 -w 50");
    perftest("ud_v,self", "-t tag_bw -n 200 -w 20 -s 8192");
}

/// UCX arms its completion queues and sleeps without another poll.
#[test]
fn sleeping() {
    for transport in ["rc_v,self", "ud_v,self"] {
        for test in [
            "-t tag_lat -n 1000 -w 100",
            "-t tag_bw -n 200 -w 20 -s 65536",
        ] {
            perftest_in("sleep", transport, test);
        }
    }
}

/// Two devices, both of which carry parts of each message, while the port of one flaps.
#[test]
fn two_rails() {
    let mut lab = Lab::new("ucx-rails");
    lab.two_devices()
        .set("UCX_TLS", "rc_v,self")
        .set("UCX_NET_DEVICES", "fr0:1,fr1:1")
        .set("UCX_MAX_RNDV_RAILS", "2")
        .set("UCX_RNDV_SCHEME", "put_zcopy")
        .set("UCX_IB_GID_INDEX", "1")
        .set("UCX_LOG_LEVEL", "warn");
    let port = free_port();
    let port_text = port.to_string();
    let server = format!("ucx_perftest -p {port_text}");
    let test = "127.0.0.1 -t tag_bw -n 1000 -w 10 -s 1048576";
    let client = format!("{server} {test}");
    let server = Ready::Tcp(port).wait(&lab, lab.run(&server));
    let client = lab.run(&client);
    // UCX ignores ports that are down when it starts.
    until("all rails are connected", || {
        let shown = lab.ferroce("-j res show qp").success();
        let rows: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        let is_rail = |row: &&serde_json::Value| row["type"] == "RC" && row["state"] == "RTS";
        (rows["objects"].as_array()?.iter().filter(is_rail).count() >= 4).then_some(())
    });
    lab.ferroce("link set fr1 flap 20x 20ms/200ms").success();
    let output = client.success();
    has(&output, ["Final:"]);
    server.success();
    let shown = lab.ferroce("-j stat show").success();
    let rows: serde_json::Value = serde_json::from_str(&shown).unwrap();
    for row in rows["devices"].as_array().unwrap() {
        let bytes = row["counters"]["rdma_tx_bytes"].as_u64().unwrap_or(0);
        assert!(bytes > 100 << 20, "one rail carried {bytes} bytes: {shown}");
    }
}
