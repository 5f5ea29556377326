//! Access registers with arbitrary contents.

use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{QpTimeouts, RetryState};
use ferroce_base::time::Span;
use ferroce_device::{Hca, HcaConfig, Method, Status};
use ferroce_prm::adp_retx_histogram::ADP_RETX_HISTOGRAM;
use ferroce_prm::{Image, REGISTERS, Register, by_id, roce_accl};

use crate::Cursor;

/// Access registers: their codec, and what a device makes of them.
pub fn register(data: &[u8]) {
    let mut input = Cursor::new(data);
    if input.one_in(4) {
        codec(input);
    } else {
        device(input);
    }
}

/// Whatever lies under a register's fields, reading and writing one of them loses nothing.
fn codec(mut input: Cursor<'_>) {
    let register: &'static Register = input.pick(REGISTERS);
    let value = input.u32();
    let bytes = input.rest().to_vec();
    let mut image = match Image::new(register, bytes.clone()) {
        Ok(image) => image,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for field in register.fields() {
        let before = image.get(field);
        assert!(before <= field.max());
        if field.offset() + 4 > bytes.len() {
            assert_eq!(before, 0);
            assert!(image.set(field, 0).is_err());
            continue;
        }
        let fits = value <= field.max();
        assert_eq!(image.set(field, value).is_ok(), fits);
        assert_eq!(image.get(field), if fits { value } else { before });
        image.set(field, before).expect("a value that was there");
        assert_eq!(image.get(field), before);
    }
    assert_eq!(image.into_inner(), bytes);
}

fn device(mut input: Cursor<'_>) {
    let mut hca = Hca::new(HcaConfig::default());
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        let method = if input.one_in(3) {
            Method::Query
        } else {
            Method::Write
        };
        let (id, mut bytes) = if input.one_in(8) {
            let id = input.u16();
            (id, arbitrary_bytes(&mut input))
        } else if input.one_in(4) {
            let register: &'static Register = input.pick(REGISTERS);
            (register.id(), arbitrary_bytes(&mut input))
        } else if input.one_in(3) {
            let register: &'static Register = input.pick(REGISTERS);
            (register.id(), changed_bytes(&mut hca, register, &mut input))
        } else {
            (roce_accl::ROCE_ACCL.id(), sensible_bytes(&mut input))
        };
        access(&mut hca, id, method, &mut bytes);
    }
}

fn arbitrary_bytes(input: &mut Cursor<'_>) -> Vec<u8> {
    let len = input.below(140);
    let mut bytes = input.take(len).to_vec();
    bytes.resize(len, 0);
    bytes
}

/// What a query says, with a few fields changed, as mlxreg writes a register.
fn changed_bytes(hca: &mut Hca, register: &'static Register, input: &mut Cursor<'_>) -> Vec<u8> {
    let mut bytes = vec![0; register.size()];
    if hca
        .access_register(register.id(), Method::Query, &mut bytes)
        .is_err()
    {
        // A histogram that is cleared by reads wants to be read as a whole.
        assert_eq!(register.name(), ADP_RETX_HISTOGRAM.name());
    }
    let mut image = Image::new(register, bytes).expect("a whole register");
    for _ in 0..input.below(4) {
        let field = input.pick(register.fields());
        let value = input.u16();
        let value = u32::from(value) & field.max();
        image.set(field, value).expect("it fits");
    }
    image.into_inner()
}

/// ROCE_ACCL with fields that are mostly small numbers, as those of a good profile are.
pub(crate) fn sensible_bytes(input: &mut Cursor<'_>) -> Vec<u8> {
    let register = &roce_accl::ROCE_ACCL;
    let mut image = Image::new(register, vec![0; register.size()]).expect("a whole register");
    let base = 4 << input.below(6);
    let (small, bits) = (input.take(40), input.u64());
    for (n, field) in register.fields().iter().enumerate() {
        let value = if field.width() == 1 {
            u32::from(bits >> (n % 64) & 1 != 0)
        } else {
            u32::from(small.get(n % 40).copied().unwrap_or(0) & 15)
        };
        image.set(field, value.min(field.max())).expect("it fits");
    }
    for (field, value) in [
        (&roce_accl::TIME_BASE, base),
        (&roce_accl::TIME_UNIT, 1),
        (&roce_accl::ADP_RETX_PROFILE_ID, 1),
    ] {
        image.set(field, value).expect("it fits");
    }
    // A device refuses what it does not have; most inputs are to come further than that.
    if !input.one_in(8) {
        for select in [
            &roce_accl::DC_HALF_HANDSHAKE_EN_FIELD_SELECT,
            &roce_accl::CC_PER_PLANE_EN_FIELD_SELECT,
            &roce_accl::CC_PROBE_MP_MODE_FIELD_SELECT,
        ] {
            image.set(select, 0).expect("it fits");
        }
        let burst = u32::from(bits & 1 != 0);
        let burst = image.set(&roce_accl::CC_BURST_SIZE, burst);
        burst.expect("it fits");
    }
    image.into_inner()
}

/// All that registers tell and a read does not change.
fn snapshot(hca: &Hca) -> Vec<u8> {
    let state = hca.state();
    let mut all = format!("{:?} {:?}", state.histogram_config(), state.histogram()).into_bytes();
    for register in REGISTERS {
        let mut bytes = vec![0; register.size()];
        if register.id() == ADP_RETX_HISTOGRAM.id() {
            continue; // reads may clear it
        }
        state
            .access_register(register.id(), Method::Query, &mut bytes)
            .expect("a whole query of index 0");
        all.extend(bytes);
    }
    all
}

fn access(hca: &mut Hca, id: u16, method: Method, bytes: &mut [u8]) {
    let before = snapshot(hca);
    let policy_before = *hca.policy();
    let request = bytes.to_vec();
    match hca.access_register(id, method, bytes) {
        Ok(()) => {
            assert!(by_id(id).is_some());
            if method == Method::Write {
                assert_eq!(bytes, request, "a write answers nothing");
                // The same again changes nothing.
                let after = snapshot(hca);
                let policy = *hca.policy();
                hca.access_register(id, method, bytes).expect("once more");
                assert_eq!(snapshot(hca), after);
                assert_eq!(*hca.policy(), policy);
            }
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_ne!(error.status(), Status::OK);
            assert_eq!(bytes, request, "an error answers nothing");
            assert_eq!(snapshot(hca), before, "an error changes nothing");
        }
    }
    if method == Method::Query {
        assert_eq!(snapshot(hca), before, "a query changes nothing");
        assert_eq!(*hca.policy(), policy_before);
    }
    policy_is_usable(hca);
}

/// Whatever policy was written, a queue pair whose peer is silent knows what to do next.
fn policy_is_usable(hca: &Hca) {
    let policy = *hca.policy();
    for timeout in [1, 14, 31] {
        let qp = QpTimeouts {
            timeout,
            retry_cnt: 7,
        };
        let state = RetryState::new(&policy, qp, 0x11);
        for wait in SilentPeer::new(policy, state).take(200) {
            let runs = wait.wait.is_some_and(|wait| wait > Span::ZERO);
            assert!(runs || wait.event != (Event::Retransmit { adaptive: true }));
        }
    }
}
