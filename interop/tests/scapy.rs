//! Scapy's RoCE layer and ferroce read each other's packets.

use ferroce_interop::{Tool, build, meta, sample};
use ferroce_wire::{Opcode, Psn, Qpn};
use serde_json::{Value, json};

/// Debian's Python, because that is where python3-scapy goes.
const PYTHON: Tool = Tool {
    program: "/usr/bin/python3",
    debian_package: "python3-scapy",
};
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scapy_packets.py");
const VECTORS: &str = include_str!("../../crates/wire/tests/vectors/scapy.json");

fn scapy(command: &str, stdin: &Value) -> Value {
    let output = PYTHON.run(&[SCRIPT, command], stdin.to_string().as_bytes());
    serde_json::from_str(&output).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The packets of the installed Scapy are those of ferroce-wire's own tests.
#[test]
fn vectors_are_what_scapy_makes() {
    let live = scapy("generate", &Value::Null);
    let committed: Value = serde_json::from_str(VECTORS).unwrap();
    let names = |vectors: &Value| -> Vec<String> {
        let packets = vectors["packets"].as_array().unwrap();
        packets
            .iter()
            .map(|packet| packet["name"].to_string())
            .collect()
    };
    let advice = "run interop/scapy_packets.py generate > crates/wire/tests/vectors/scapy.json, \
                  then the tests of ferroce-wire";
    assert_eq!(names(&live), names(&committed), "{advice}");
    for (live, committed) in std::iter::zip(
        live["packets"].as_array().unwrap(),
        committed["packets"].as_array().unwrap(),
    ) {
        assert_eq!(live, committed, "{advice}");
    }
}

/// Scapy reads our packets and computes the same ICRC.
#[test]
fn scapy_agrees_with_our_icrc() {
    let mut packets = Vec::new();
    let mut expected = Vec::new();
    for (family, mut meta) in [
        ("v4", meta("10.1.2.3:50000", "10.4.5.6:4791")),
        ("v6", meta("[2001:db8::1]:50000", "[2001:db8::2]:4791")),
    ] {
        for (&opcode, number) in Opcode::ALL.iter().zip(0u8..) {
            for len in [0usize, 1, 2, 3, 4, 255, 1024] {
                if len > 0 && !opcode.has_payload() {
                    continue;
                }
                meta.tos = number;
                meta.ttl = 255 - number;
                meta.ip_id = if len.is_multiple_of(2) {
                    0
                } else {
                    0xfe00 + u16::from(number)
                };
                let psn = Psn::new(0xff_ff00 + u32::from(number));
                let headers = sample(opcode, Qpn::new(0x80_0000 + u32::from(number)), psn);
                let payload: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
                let mut datagram = Vec::new();
                meta.write_datagram(&build(headers, &payload, &meta), &mut datagram)
                    .unwrap();
                let name = format!("{family} {opcode} {len}");
                packets.push(json!({ "name": name, "hex": hex(&datagram) }));
                expected.push(json!({
                    "name": name,
                    "hex": hex(&datagram),
                    "opcode": opcode.as_u8(),
                    "psn": headers.psn.value(),
                    "dest_qp": headers.dest_qp.value(),
                }));
            }
        }
    }
    let answer = scapy("check", &json!({ "packets": packets }));
    let answers = answer["packets"].as_array().unwrap();
    assert_eq!(answers.len(), expected.len());
    for (answer, expected) in std::iter::zip(answers, &expected) {
        assert_eq!(answer, expected);
    }
}
