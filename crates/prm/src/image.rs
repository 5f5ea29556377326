//! A register over a byte buffer.

use crate::{Field, Register};

/// A register over a byte buffer. Single fields are read and written; all other bits, including
/// reserved ones, stay unchanged.
///
/// The buffer may be shorter than the register, because older tools send only the part they know.
/// Fields beyond its end read as zero and cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<B> {
    bytes: B,
}

impl<B: AsRef<[u8]>> Image<B> {
    /// Lays `register` over `bytes`, whose length must be a multiple of four, not zero and at most
    /// [`Register::max_size`].
    pub fn new(register: &'static Register, bytes: B) -> Result<Self, LengthError> {
        let len = bytes.as_ref().len();
        if len == 0 || !len.is_multiple_of(4) || len > register.max_size() {
            return Err(LengthError {
                register: register.name(),
                len,
                max: register.max_size(),
            });
        }
        Ok(Self { bytes })
    }

    /// Returns the value of a field, or zero if the field is beyond the end of the buffer.
    pub fn get(&self, field: &Field) -> u32 {
        let dword = self.bytes.as_ref().get(field.offset()..field.offset() + 4);
        let Some(Ok(dword)) = dword.map(<[u8; 4]>::try_from) else {
            return 0;
        };
        (u32::from_be_bytes(dword) & field.mask()) >> field.lsb()
    }

    /// Returns whether a one-bit field is set.
    pub fn is_set(&self, field: &Field) -> bool {
        self.get(field) != 0
    }

    /// Returns the buffer.
    pub const fn as_inner(&self) -> &B {
        &self.bytes
    }

    /// Returns the buffer by value.
    pub fn into_inner(self) -> B {
        self.bytes
    }
}

impl<B: AsMut<[u8]>> Image<B> {
    /// Writes a field and leaves every other bit unchanged.
    pub fn set(&mut self, field: &Field, value: u32) -> Result<(), SetError> {
        if value > field.max() {
            return Err(SetError::TooLarge {
                field: field.name(),
                value,
                max: field.max(),
            });
        }
        let dword = self
            .bytes
            .as_mut()
            .get_mut(field.offset()..field.offset() + 4);
        let Some(Ok(dword)) = dword.map(<&mut [u8; 4]>::try_from) else {
            return Err(SetError::Beyond {
                field: field.name(),
                offset: field.offset(),
            });
        };
        let rest = u32::from_be_bytes(*dword) & !field.mask();
        *dword = (rest | value << field.lsb()).to_be_bytes();
        Ok(())
    }
}

/// The buffer does not fit the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{register} takes 4 to {max} bytes in multiples of 4, not {len}")]
pub struct LengthError {
    /// Name of the register.
    pub register: &'static str,
    /// The length that was given.
    pub len: usize,
    /// The largest valid length.
    pub max: usize,
}

/// A field could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The value is too large for the field.
    #[error("{field} = {value} does not fit: the largest value is {max} ({max:#x})")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// The value that was given.
        value: u32,
        /// The largest value the field can hold.
        max: u32,
    },
    /// The buffer ends before the field.
    #[error("{field} lies at byte {offset:#x}, beyond the end of the register data")]
    Beyond {
        /// Name of the field.
        field: &'static str,
        /// Byte offset of its dword.
        offset: usize,
    },
}

#[cfg(test)]
mod tests {
    extern crate std;

    use proptest::prelude::*;

    use super::*;
    use crate::REGISTERS;
    use crate::roce_accl::{DEC_MODE, RANGE_SIZE, ROCE_ACCL, TIME_BASE, TIMEOUT_RETRY_NUM};

    /// Of the longest table.
    const MAX_SIZE: usize = 0xa0;

    fn any_field() -> impl Strategy<Value = (&'static Register, &'static Field)> {
        (0..REGISTERS.len()).prop_flat_map(|r| {
            let register = REGISTERS[r];
            (0..register.fields().len()).prop_map(move |f| (register, register.fields()[f]))
        })
    }

    proptest! {
        #[test]
        fn set_changes_its_bits_and_no_other(
            (register, field) in any_field(),
            value: u32,
            fill in prop::collection::vec(any::<u8>(), MAX_SIZE),
        ) {
            let value = value & field.max();
            let mut bytes = fill.clone();
            bytes.truncate(register.size());
            let before = bytes.clone();
            let mut image = Image::new(register, &mut bytes[..]).unwrap();
            image.set(field, value).unwrap();
            let after = Image::new(register, &bytes[..]).unwrap();
            prop_assert_eq!(after.get(field), value);
            for (i, (old, new)) in before.chunks(4).zip(bytes.chunks(4)).enumerate() {
                let mask = if i * 4 == field.offset() { !field.mask() } else { u32::MAX };
                let old = u32::from_be_bytes(old.try_into().unwrap());
                let new = u32::from_be_bytes(new.try_into().unwrap());
                prop_assert_eq!(old & mask, new & mask);
            }
        }

        #[test]
        fn a_value_that_does_not_fit_is_refused((register, field) in any_field(), value: u32) {
            let mut bytes = std::vec![0; register.size()];
            let outcome = Image::new(register, &mut bytes[..]).unwrap().set(field, value);
            prop_assert_eq!(outcome.is_ok(), value <= field.max());
            prop_assert!(outcome.is_ok() || bytes.iter().all(|&byte| byte == 0));
        }

        #[test]
        fn reading_every_field_and_writing_it_back_is_lossless(
            fill in prop::collection::vec(any::<u8>(), MAX_SIZE),
        ) {
            for register in REGISTERS {
                let mut bytes = fill[..register.size()].to_vec();
                let before = bytes.clone();
                let mut image = Image::new(register, &mut bytes[..]).unwrap();
                for field in register.fields() {
                    let value = image.bytes_get(field);
                    image.set(field, value).unwrap();
                }
                prop_assert_eq!(&bytes, &before);
            }
        }
    }

    impl Image<&mut [u8]> {
        fn bytes_get(&self, field: &Field) -> u32 {
            Image {
                bytes: &*self.bytes,
            }
            .get(field)
        }
    }

    #[test]
    fn errors_name_field_value_and_limit() {
        let mut bytes = [0; 0x80];
        let mut image = Image::new(&ROCE_ACCL, &mut bytes[..]).unwrap();
        let error = image.set(&TIMEOUT_RETRY_NUM[2], 1024).unwrap_err();
        assert_eq!(
            std::format!("{error}"),
            "timeout_retry_num_2 = 1024 does not fit: the largest value is 1023 (0x3ff)"
        );
        assert!(
            image.set(&DEC_MODE[0], 3).is_ok(),
            "the codec knows widths, not meanings"
        );
    }

    #[test]
    fn a_short_image_reads_zero_beyond_its_end() {
        let mut bytes = [0xff; 0x14];
        let mut image = Image::new(&ROCE_ACCL, &mut bytes[..]).unwrap();
        assert_eq!(image.bytes_get(&TIME_BASE), 0xffff);
        assert_eq!(image.bytes_get(&RANGE_SIZE[0]), 0);
        assert_eq!(
            image.set(&RANGE_SIZE[0], 1),
            Err(SetError::Beyond {
                field: "range_size_0",
                offset: 0x18
            })
        );
    }

    #[test]
    fn lengths_that_cannot_be_a_register_are_refused() {
        for len in [0, 3, 0x7f, 0x84] {
            assert!(Image::new(&ROCE_ACCL, &[0; 0x100][..len]).is_err(), "{len}");
        }
        assert!(Image::new(&ROCE_ACCL, &[0; 0x40][..]).is_ok());
    }
}
