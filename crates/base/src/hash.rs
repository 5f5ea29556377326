//! FNV-1a, 64 bits: short, and the same on every machine and in every version.

/// The hash of the bytes given to it so far.
///
/// ```
/// use ferroce_base::hash::Fnv;
///
/// let mut hash = Fnv::of(b"ferr");
/// hash.add(b"oce");
/// assert_eq!(hash, Fnv::of(b"ferroce"));
/// assert_eq!(hash.value(), 0x5311_66b7_e405_ac0d);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fnv(u64);

impl Fnv {
    /// Hashes bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hash = Self(0xcbf2_9ce4_8422_2325);
        hash.add(bytes);
        hash
    }

    /// Adds bytes behind those that it has.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Returns the hash.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}
