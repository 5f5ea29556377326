//! Two rails that fail over and back while ports flap, as in programs with two ports; and a card
//! that is removed.

use std::env;
use std::time::Duration;

use ferroce_interop::lab::{Lab, Ready, free_port, until};
use ferroce_testing::has;

/// The devices of [`two_rails`](../programs/two_rails.c): from and to, of each rail.
const DEVICES: [&str; 4] = ["from0", "to0", "from1", "to1"];
/// From flap to flap, by device, so that different ports are down together each time.
const EVERY_MS: [u32; 4] = [310, 370, 430, 490];
const DOWN: &str = "90ms";

/// Bytes and flaps. `FERROCE_RAILS=10000000000:100` is the full size.
fn sizes() -> (u64, u32) {
    let Ok(text) = env::var("FERROCE_RAILS") else {
        return (300_000_000, 20);
    };
    let (bytes, flaps) = text.split_once(':').expect("FERROCE_RAILS=BYTES:FLAPS");
    (bytes.parse().expect("bytes"), flaps.parse().expect("flaps"))
}

/// Devices with these names at the lab's addresses.
fn devices(lab: &Lab, names: &[&str]) -> String {
    let named = names.iter().zip(lab.addresses());
    let named = named.map(|(name, address)| format!("{name}@{address}"));
    named.collect::<Vec<_>>().join(",")
}

#[test]
fn data_stays_intact_while_all_ports_flap() {
    let (bytes, flaps) = sizes();
    let mut lab = Lab::new("rails");
    let listed = devices(&lab, &DEVICES);
    lab.set("FERROCE_DEVICES", &listed);
    let program = lab.compile("two_rails");
    let each = flaps.div_ceil(4);
    let (bytes_text, flaps_text) = (bytes.to_string(), (4 * each).to_string());
    let head = [program.to_str().unwrap(), &bytes_text, &flaps_text];
    let running = lab.run([&head[..], &DEVICES].concat());
    until("the program opens its devices", || {
        let shown = lab.ferroce("-j res show qp").success();
        let rows: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        (rows["objects"].as_array()?.len() >= 4).then_some(())
    });
    for (name, every) in DEVICES.iter().zip(EVERY_MS) {
        let (times, lengths) = (format!("{each}x"), format!("{DOWN}/{every}ms"));
        lab.ferroce(format!("link set {name} flap {times} {lengths}"))
            .success();
    }
    let more = Duration::from_secs(bytes / 10_000_000 + u64::from(each));
    let output = running.patiently(more).success();
    println!("{output}");
    let downs = format!("bytes, {} downs;", 4 * each);
    has(&output, [&downs]);
    for name in DEVICES {
        let shown = lab.ferroce(format!("link show {name}")).success();
        let downed = format!("link_downed {each}\n");
        assert!(
            shown.contains(" state ACTIVE ") && shown.ends_with(&downed),
            "{shown}"
        );
    }
}

#[test]
fn programs_are_told_of_a_removed_card() {
    let mut lab = Lab::new("pulled-out");
    lab.set("FERROCE_DEVICES", "");
    let address = lab.address();
    lab.ferroce(format!("dev add fr1 {address}")).success();
    let port = free_port();
    let server = format!("rping -s -P -a {address} -p {}", port);
    let server = Ready::Cm(port).wait(&lab, lab.run(&server));
    let refused = lab.ferroce("dev del fr1").finish().to_string();
    has(&refused, ["fr1 is in use"]);
    lab.ferroce("dev del fr1 --force").success();
    let told = server.finish().to_string();
    has(&told, ["cma detected device removal"]);
}
