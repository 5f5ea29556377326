//! libfabric's verbs provider: Debian's fi_info and fi_pingpong.

use ferroce_interop::lab::{Lab, Ready, free_port};
use ferroce_testing::has;

/// The device is on loopback, which libfabric skips unless interfaces with these addresses are
/// listed.
#[test]
fn all_kinds_of_end_points_are_offered() {
    let lab = Lab::new("fi-info");
    for kind in ["FI_EP_MSG", "FI_EP_DGRAM", "FI_EP_RDM"] {
        let info = lab.run(format!("fi_info -p verbs -t {kind}")).success();
        for line in ["domain: fr0", kind] {
            assert!(info.contains(line), "no {line:?} for {kind} in\n{info}");
        }
    }
}

/// What libfabric tries on purpose is not reported.
#[test]
fn looking_for_devices_is_silent() {
    let lab = Lab::new("fi-silent");
    let finished = lab.run("fi_info -p verbs").finish();
    assert!(finished.status.success(), "{finished}");
    assert!(!finished.stderr.contains("ferroce:"), "{finished}");
}

/// Two ends of `fi_pingpong`, which exchange addresses over TCP first.
fn pingpong(provider: &str, end_point: &str) {
    let lab = Lab::new("fi-pingpong");
    let port = free_port();
    let port_text = port.to_string();
    let common = format!("fi_pingpong -p {provider} -e {end_point} -I 200 -S 4096 -c");
    let server = format!("{common} -B {port_text}");
    let client = format!("{common} -P {port_text} 127.0.0.1");
    let [_, output] = lab.pair(&server, Ready::Tcp(port), &client);
    has(&output, ["bytes"]);
}

#[test]
fn connected_end_points() {
    pingpong("verbs", "msg");
}

#[test]
fn reliable_datagrams() {
    pingpong("verbs;ofi_rxm", "rdm");
}

#[test]
fn datagrams() {
    pingpong("verbs", "dgram");
}
