//! The vectors: profiles as register bytes and field values, with their traces.

mod common;

use common::{ns, qp};
use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{AckTimeoutFloor, Policy, PolicyKind, Profile};
use serde_json::Value;

#[test]
fn every_vector_agrees() {
    let vectors: Value = serde_json::from_str(include_str!("vectors/adp.json")).unwrap();
    let vectors = vectors.as_array().unwrap();
    assert_eq!(vectors.len(), 5);
    for vector in vectors {
        let name = vector["name"].as_str().unwrap();
        let mut register = [0; 0x30];
        for (chunk, word) in register
            .chunks_mut(4)
            .zip(vector["profile_words"].as_array().unwrap())
        {
            let word = u32::from_str_radix(word.as_str().unwrap(), 16).unwrap();
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        let profile = Profile::from_register(&register).unwrap();
        assert_eq!(profile.to_register(), register, "{name}");
        let hex: String = register.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(
            vector["set_payload"].as_str().unwrap()[0x20..].starts_with(&hex),
            "{name}"
        );

        let mut policy = Policy::new(PolicyKind::Profile(profile));
        if !vector["qp"]["min_limit_enforced"].as_bool().unwrap() {
            policy.floor = AckTimeoutFloor::Disabled;
        }
        let byte = |value: &Value| u8::try_from(value.as_u64().unwrap()).unwrap();
        let qp = qp(
            byte(&vector["qp"]["timeout"]),
            byte(&vector["qp"]["retry_cnt"]),
        );
        assert_eq!(
            ns(policy.ack_timeout(qp)),
            vector["ack_ns"].as_u64(),
            "{name}"
        );
        assert_eq!(ns(policy.total(qp)), vector["total_ns"].as_u64(), "{name}");

        let waits: Vec<_> = SilentPeer::with_draw(policy, qp, byte(&vector["draw"])).collect();
        let expected = vector["trace"].as_array().unwrap();
        assert_eq!(waits.len(), expected.len(), "{name}");
        for (wait, expected) in waits.iter().zip(expected) {
            assert_eq!(
                ns(wait.wait),
                expected["wait"].as_u64(),
                "{name} {expected}"
            );
            assert_eq!(ns(wait.at), expected["t"].as_u64(), "{name} {expected}");
            assert_eq!(
                Some(u64::from(wait.exponent)),
                expected["exp"].as_u64(),
                "{name}"
            );
            assert_eq!(
                wait.range.map(u64::from),
                expected["range"].as_u64(),
                "{name}"
            );
            assert_eq!(
                wait.range.is_none(),
                expected["phase"] == "initial",
                "{name}"
            );
            assert_eq!(
                wait.event == Event::Error,
                expected["kind"] == "error",
                "{name}"
            );
        }
    }
}
