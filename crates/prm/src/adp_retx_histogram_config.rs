//! ADP_RETX_HISTOGRAM_CONFIG: how adaptive retransmission waits are sorted into bins, and whether
//! they are counted.

use crate::Register;

/// The register and its fields, in the order in which tools print them.
pub const ADP_RETX_HISTOGRAM_CONFIG: Register =
    Register::new("ADP_RETX_HISTOGRAM_CONFIG", 0xc01d, 0x80, FIELDS)
        .about("The bins of ADP_RETX_HISTOGRAM, and whether it counts.");

define_fields! {
    table FIELDS;
    /// The units that time_unit may name: bit k stands for unit k.
    TIME_UNIT_CAP = "time_unit_cap", (0x0, 20, 4), Ro;
    /// How the bins after the first grow: all as wide as bin 1, or each twice as wide as the one
    /// before it.
    BIN_WIDTH_MODE = "bin_width_mode", (0x0, 24, 2), Rw,
        values &[(0, "BIN_FIXED"), (1, "BIN_DOUBLE")];
    /// Unit of bin0_width and bin1_width.
    TIME_UNIT = "time_unit", (0x0, 26, 2), Rw,
        values &[(0, "TIME_NSEC"), (1, "TIME_USEC"), (2, "TIME_USEC_100"), (3, "TIME_MSEC")];
    /// Only the function of vhca_id is counted, not this one and all that belong to it.
    VHCA_ID_VALID = "vhca_id_valid", (0x0, 29, 1), Rw;
    /// Each read of the histogram sets it to zero.
    CLEAR_ON_READ = "clear_on_read", (0x0, 30, 1), Rw;
    /// Waits are counted. Switching it keeps the counts.
    COUNT_ENABLE = "count_enable", (0x0, 31, 1), Rw;
    /// The function that is counted, if vhca_id_valid is set.
    VHCA_ID = "vhca_id", (0x4, 0, 16), Rw;
    /// The largest bin_num.
    BIN_NUM_MAX = "bin_num_max", (0x4, 16, 8), Ro;
    /// Number of bins, at least 1.
    BIN_NUM = "bin_num", (0x4, 24, 8), Rw;
    /// Width of bin 1 in time_unit, from which that of the later ones follows; not 0 if there is a
    /// bin 1.
    BIN1_WIDTH = "bin1_width", (0x8, 0, 16), Rw;
    /// Width of bin 0 in time_unit, not 0.
    BIN0_WIDTH = "bin0_width", (0x8, 16, 16), Rw;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;

    /// What the real tool makes of these values.
    #[test]
    fn the_published_example_is_encoded_byte_for_byte() {
        let mut bytes = [0; 0x80];
        let mut image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, &mut bytes[..]).unwrap();
        for (name, value) in [("bin_width_mode", "BIN_DOUBLE"), ("time_unit", "TIME_MSEC")] {
            let field = ADP_RETX_HISTOGRAM_CONFIG.field(name).unwrap();
            image.set(field, field.value_named(value).unwrap()).unwrap();
        }
        for (field, value) in [
            (&COUNT_ENABLE, 1),
            (&BIN_NUM, 5),
            (&BIN0_WIDTH, 50),
            (&BIN1_WIDTH, 100),
        ] {
            image.set(field, value).unwrap();
        }
        assert_eq!(bytes[..12], [0x8d, 0, 0, 0, 5, 0, 0, 0, 0, 0x32, 0, 0x64]);
        assert_eq!(bytes[12..], [0; 0x74]);
    }

    #[test]
    fn capabilities_and_function_lie_where_they_are_published() {
        let mut bytes = [0; 12];
        let mut image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, &mut bytes[..]).unwrap();
        image.set(&TIME_UNIT_CAP, 0xf).unwrap();
        image.set(&VHCA_ID_VALID, 1).unwrap();
        image.set(&CLEAR_ON_READ, 1).unwrap();
        image.set(&VHCA_ID, 0x1234).unwrap();
        image.set(&BIN_NUM_MAX, 64).unwrap();
        assert_eq!(bytes, [0x60, 0xf0, 0, 0, 0, 64, 0x12, 0x34, 0, 0, 0, 0]);
    }
}
