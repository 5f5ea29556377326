//! Bytes that tell where they come from.

use std::sync::LazyLock;

use ferroce_base::random::Dice;

/// Largest message of a script, in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Places at which a source may begin, in bytes.
const STARTS: usize = 256 << 10;

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dice = Dice::new(0x70_72_74);
    let words = (STARTS + MESSAGE_MAX) / 8;
    (0..words)
        .flat_map(|_| dice.next().to_le_bytes())
        .collect()
});

/// All bytes that a source of a message can be part of.
pub(crate) fn bytes() -> &'static [u8] {
    &BYTES
}

/// Where in [`bytes`] that request's payload begins which has this number. Requests whose numbers are close have
/// nothing in common.
pub(crate) fn start(request: usize) -> usize {
    (request * 4_099) % STARTS
}

/// Largest region of a script, in bytes.
pub(crate) const REGION_MAX: usize = 256 << 10;

/// What the nth region holds at first.
pub(crate) fn initial(region: usize, len: usize) -> &'static [u8] {
    let from = (region * 129 + 1) % (MESSAGE_MAX / 2);
    &BYTES[from..][..len]
}
