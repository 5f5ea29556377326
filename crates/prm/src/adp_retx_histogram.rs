//! ADP_RETX_HISTOGRAM, the histogram's counts. It has no index and as many bins as
//! ADP_RETX_HISTOGRAM_CONFIG specifies; the field table has the first one, [`bins`] and
//! [`put_bins`] have all of them.

use crate::Register;

/// Offset of the first bin, bytes.
pub const BINS_OFFSET: usize = 0x10;

/// Size of a bin: a big-endian number of 64 bits.
pub const BIN_SIZE: usize = 8;

/// The register and its fields, in the order in which tools print them.
pub const ADP_RETX_HISTOGRAM: Register =
    Register::new("ADP_RETX_HISTOGRAM", 0xc01e, size(1), FIELDS)
        .up_to(size(u8::MAX))
        .about("How often adaptive retransmission waited how long.");

define_fields! {
    table FIELDS;
    /// Number of bins.
    BIN_NUM = "bin_num", (0x0, 24, 8), Ro;
    /// Upper half of the count in bin 0.
    HISTOGRAM_BIN_HI = "histogram_bin[0]_hi", (0x10, 0, 32), Rw, at "histogram_bin[0].hi";
    /// Lower half of the count in bin 0.
    HISTOGRAM_BIN_LO = "histogram_bin[0]_lo", (0x14, 0, 32), Rw, at "histogram_bin[0].lo";
}

/// Returns the size of the register with this many bins, bytes.
#[must_use]
pub const fn size(bins: u8) -> usize {
    BINS_OFFSET + bins as usize * BIN_SIZE
}

/// Returns the bins that are completely in `data`.
pub fn bins(data: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (bins, _) = data.get(BINS_OFFSET..).unwrap_or_default().as_chunks();
    bins.iter().copied().map(u64::from_be_bytes)
}

/// Writes as many bins as `data` has room for.
pub fn put_bins(data: &mut [u8], counts: impl IntoIterator<Item = u64>) {
    let room = data.get_mut(BINS_OFFSET..).unwrap_or_default();
    for (cell, count) in room.as_chunks_mut().0.iter_mut().zip(counts) {
        *cell = count.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::Image;

    #[test]
    fn bins_are_big_endian_and_begin_at_byte_16() {
        let mut data = [0; size(2)];
        put_bins(&mut data, [0x0102_0304_0506_0708, 9]);
        assert_eq!(data[..16], [0; 16]);
        assert_eq!(data[16..24], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(data[24..], [0, 0, 0, 0, 0, 0, 0, 9]);
        let first = Image::new(&ADP_RETX_HISTOGRAM, &data[..]).unwrap();
        assert_eq!(first.get(&HISTOGRAM_BIN_HI), 0x0102_0304);
        assert_eq!(first.get(&HISTOGRAM_BIN_LO), 0x0506_0708);
        assert_eq!(bins(&data).collect::<Vec<_>>(), [0x0102_0304_0506_0708, 9]);
    }

    #[test]
    fn data_that_ends_early_has_fewer_bins() {
        for (len, whole) in [(0, 0), (16, 0), (20, 0), (24, 1), (28, 1), (32, 2)] {
            let mut data = [0; 32];
            put_bins(&mut data[..len], [u64::MAX; 3]);
            assert_eq!(bins(&data[..len]).count(), whole);
            assert_eq!(data.iter().filter(|byte| **byte != 0).count(), whole * 8);
        }
    }

    #[test]
    fn the_register_is_as_long_as_its_bins() {
        assert_eq!(ADP_RETX_HISTOGRAM.size(), 0x18);
        assert_eq!(ADP_RETX_HISTOGRAM.max_size(), 0x808);
        assert!(Image::new(&ADP_RETX_HISTOGRAM, &[0; 0x808][..]).is_ok());
        assert!(Image::new(&ADP_RETX_HISTOGRAM, &[0; 0x80c][..]).is_err());
    }
}
