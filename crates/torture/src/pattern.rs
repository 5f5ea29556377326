//! Bytes that tell where they come from.

use std::sync::LazyLock;

use ferroce_base::random::Dice;

/// Largest message of a script, in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Largest region of a script, in bytes.
pub(crate) const REGION_MAX: usize = 256 << 10;
/// Places at which the payload of a request may begin, in bytes.
const STARTS: usize = 256 << 10;
/// Places at which the first content of a region may begin.
const REGION_STARTS: usize = 32 << 10;

static SOURCES: LazyLock<Vec<u8>> = LazyLock::new(|| random(1, STARTS + MESSAGE_MAX));
static REGIONS: LazyLock<Vec<u8>> = LazyLock::new(|| random(2, REGION_STARTS + REGION_MAX));

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    let words = (0..len / 8).map(|_| dice.next().to_le_bytes());
    words.flatten().collect()
}

/// All bytes that a payload can be part of.
pub(crate) fn bytes() -> &'static [u8] {
    &SOURCES
}

/// Where in [`bytes`] that request's payload begins which has this number. Requests whose numbers are close have
/// nothing in common.
pub(crate) fn start(request: usize) -> usize {
    (request * 4_099) % STARTS
}

/// What the nth region holds at first: nothing of any payload.
pub(crate) fn initial(region: usize, len: usize) -> &'static [u8] {
    let from = (region * 129 + 1) % REGION_STARTS;
    &REGIONS[from..][..len]
}
