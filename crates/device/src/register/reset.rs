//! MFRL: resets the device to the firmware's own timeouts (D21).

use ferroce_prm::mfrl::{self as reg, MFRL};
use ferroce_prm::{Field, Image};

use super::{RegisterError, parse, whole};

/// What a query shows: a reset by toggling the link is possible, and none is under way.
pub(super) fn bytes() -> [u8; MFRL.size()] {
    let mut bytes = [0; MFRL.size()];
    let mut image = Image::new(&MFRL, &mut bytes[..]).expect("the whole register");
    for (field, value) in [
        (&reg::RESET_TRIGGER, reg::TRIGGER_LINK),
        (&reg::RESET_TYPE, reg::FULL_CHIP_RESET),
    ] {
        image.set(field, value).expect("8 bits");
    }
    bytes
}

/// A field, its largest value, and what is said about larger ones.
const LIMITS: &[(&Field, u32, &str)] = &[
    (
        &reg::RST_TYPE_SEL,
        0,
        "0 (full chip reset) is the only kind there is",
    ),
    (
        &reg::PCI_RESET_REQ_METHOD,
        1,
        "must be 0 (link disable) or 1 (hot reset)",
    ),
    (
        &reg::PCI_SYNC_FOR_FW_UPDATE_RESP,
        0,
        "no driver was asked for an answer; write 0",
    ),
    (
        &reg::PCI_SYNC_FOR_FW_UPDATE_START,
        2,
        "must be 0 (legacy), 1 (driver) or 2 (tool)",
    ),
];

/// Whether a set asks for a reset that there is.
pub(super) fn check(data: &[u8]) -> Result<(), RegisterError> {
    whole(&MFRL, data, MFRL.size())?;
    let request = parse(&MFRL, data)?;
    let bad = |field: &Field, reason| RegisterError::BadParam {
        field: field.name(),
        value: request.get(field),
        reason,
    };
    if request.get(&reg::RESET_TRIGGER) != reg::TRIGGER_LINK {
        let reason = "the only trigger there is has the value 8 (link toggle)";
        return Err(bad(&reg::RESET_TRIGGER, reason));
    }
    match LIMITS
        .iter()
        .find(|(field, max, _)| request.get(field) > *max)
    {
        Some((field, _, reason)) => Err(bad(field, reason)),
        None => Ok(()),
    }
}
