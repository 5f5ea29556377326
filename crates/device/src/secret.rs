//! Numbers that outsiders cannot guess.

use std::fmt;

/// The key of everything that an outsider must not be able to guess: numbers of queue pairs, tags of
/// keys, names of connections, first PSNs. The host brings it, a random one unless a user wants the
/// same numbers again.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secret([u64; 2]);

/// What a number is drawn for. Draws for different things have nothing to do with each other.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Draw {
    QpNumbers,
    KeyTag,
    CommId,
    FirstPsn,
    MadPsn,
    DcIncarnation,
}

impl Secret {
    /// The secret with this key.
    pub const fn new(key: u128) -> Self {
        Self([key as u64, (key >> 64) as u64]) // the halves
    }

    /// Number `n` of its kind: the same each time, and without the key not to be told from a random
    /// one.
    pub(crate) fn draw(self, what: Draw, n: u64) -> u64 {
        siphash(self.0, [what as u64, n])
    }

    /// A secret that follows from this one.
    pub fn derive(self, a: u64, b: u64) -> Self {
        let half = |n| siphash([self.0[0], self.0[1] ^ n], [a, b]);
        Self([half(1), half(2)])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Rounds of a permutation.
pub(crate) const ROUNDS: usize = 4;

/// A permutation of the numbers of twice `HALF` bits, by a network of Feistel's: each round changes
/// one half by what `round` makes of the other.
#[inline]
pub(crate) fn shuffle<const HALF: u32>(value: u32, round: impl Fn(u32, u32) -> u32) -> u32 {
    let mask = (1 << HALF) - 1;
    let (mut left, mut right) = (value >> HALF, value & mask);
    for n in 0..ROUNDS as u32 {
        (left, right) = (right, left ^ round(n, right) & mask);
    }
    left << HALF | right
}

/// The inverse of [`shuffle`].
#[inline]
pub(crate) fn unshuffle<const HALF: u32>(value: u32, round: impl Fn(u32, u32) -> u32) -> u32 {
    let mask = (1 << HALF) - 1;
    let (mut left, mut right) = (value >> HALF, value & mask);
    for n in (0..ROUNDS as u32).rev() {
        (left, right) = (right ^ round(n, left) & mask, left);
    }
    left << HALF | right
}

/// SipHash-2-4 of 16 bytes.
fn siphash([k0, k1]: [u64; 2], message: [u64; 2]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word is the length.
    for word in message.into_iter().chain([16 << 56]) {
        v[3] ^= word;
        sip_round(&mut v);
        sip_round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        sip_round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn sip_round(v: &mut [u64; 4]) {
    let [a, b, c, d] = v;
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The example of the paper that defines it, one byte longer: key and message count up from 0.
    #[test]
    fn hashes_are_those_of_siphash() {
        let word = |first: u8| u64::from_le_bytes(std::array::from_fn(|n| first + n as u8));
        let key = [word(0), word(8)];
        assert_eq!(siphash(key, [word(0), word(8)]), 0x3f2a_cc7f_57c2_9bdb);
    }

    #[test]
    fn every_number_has_a_place_of_its_own() {
        let secret = Secret::new(7);
        let round = |n, half| secret.draw(Draw::CommId, u64::from(n << 8 | half)) as u32;
        let mut seen = HashSet::new();
        for value in 0..1 << 16 {
            let shuffled = shuffle::<8>(value, round);
            assert!(shuffled < 1 << 16 && seen.insert(shuffled));
            assert_eq!(unshuffle::<8>(shuffled, round), value);
        }
    }

    #[test]
    fn kinds_numbers_and_keys_all_matter() {
        let draws = [
            Secret::new(1).draw(Draw::KeyTag, 1),
            Secret::new(1).draw(Draw::KeyTag, 2),
            Secret::new(1).draw(Draw::FirstPsn, 1),
            Secret::new(2).draw(Draw::KeyTag, 1),
            Secret::new(1 << 64).draw(Draw::KeyTag, 1),
            Secret::new(1).derive(0, 0).draw(Draw::KeyTag, 1),
            Secret::new(1).derive(0, 1).draw(Draw::KeyTag, 1),
            Secret::new(1).derive(1, 0).draw(Draw::KeyTag, 1),
        ];
        assert_eq!(draws.iter().collect::<HashSet<_>>().len(), draws.len());
        assert_eq!(format!("{:?}", Secret::new(1)), "Secret");
    }
}
