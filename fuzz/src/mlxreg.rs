//! Register contents as text.

use ferroce_device::{Hca, HcaConfig, Method};
use ferroce_prm::mlxreg::{apply, apply_raw, number};
use ferroce_prm::{Access, Image, REGISTERS, Register};

use crate::Cursor;

/// Register contents as text: index fields, a line end, data.
pub fn mlxreg(data: &[u8]) {
    let mut input = Cursor::new(data);
    let register: &'static Register = input.pick(REGISTERS);
    let fill = input.u8();
    let text = String::from_utf8_lossy(input.rest());
    let (indexes, values) = text.split_once('\n').unwrap_or(("", &text));
    let _ = number(values);
    known(register, fill, indexes, values);
    raw(register, fill, indexes, values);
}

/// What is applied touches fields that may be written and nothing else; and applying it again
/// changes nothing.
fn known(register: &'static Register, fill: u8, indexes: &str, values: &str) {
    let before = vec![fill; register.size()];
    let mut bytes = before.clone();
    match apply(register, &mut bytes, indexes, values) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(()) => {
            let mut again = bytes.clone();
            assert_eq!(apply(register, &mut again, indexes, values), Ok(()));
            assert_eq!(again, bytes);
            let mut restored = Image::new(register, bytes.clone()).expect("a whole register");
            let old = Image::new(register, before.clone()).expect("a whole register");
            for field in register.fields() {
                let is_read_only = field.access() == Access::Ro;
                assert!(!is_read_only || restored.get(field) == old.get(field));
                restored
                    .set(field, old.get(field))
                    .expect("a value that was there");
            }
            assert_eq!(restored.into_inner(), before, "bits of no field");
            let mut hca = Hca::new(HcaConfig::default());
            if let Err(error) = hca.access_register(register.id(), Method::Write, &mut bytes) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

fn raw(register: &'static Register, fill: u8, indexes: &str, values: &str) {
    let mut bytes = vec![fill; register.size()];
    match apply_raw(&mut bytes, indexes, values) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(()) => {
            let mut again = bytes.clone();
            assert_eq!(apply_raw(&mut again, indexes, values), Ok(()));
            assert_eq!(again, bytes);
        }
    }
}
