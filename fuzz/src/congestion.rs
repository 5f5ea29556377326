//! Parameters of congestion control as bytes and as text.

use ferroce_dcqcn::{Param, Params, Target};
use ferroce_prm::Register;
use ferroce_prm::cong::LAYOUTS;

use crate::Cursor;

/// Parameters of congestion control: in records and commands, and as text.
pub fn congestion(data: &[u8]) {
    let mut input = Cursor::new(data);
    let layout: &'static Register = input.pick(LAYOUTS);
    let select = input.u32();
    let length = input.below(layout.size() + 8);
    let bytes = input.take(length);
    in_bytes(layout, bytes, select);
    as_text(&String::from_utf8_lossy(input.rest()));
}

/// What is taken is in range, and the same when it is written and read again.
fn in_bytes(layout: &'static Register, bytes: &[u8], select: u32) {
    let (mut strict, mut clipped) = (Params::default(), Params::default());
    let taken = strict.decode(layout, bytes, select);
    if clipped.decode_clipped(layout, bytes, select).is_err() {
        assert!(taken.is_err(), "both ask for the same length");
        return;
    }
    match taken {
        Ok(()) => assert_eq!(strict, clipped),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(strict, Params::default(), "all or nothing");
        }
    }
    in_range(&clipped);
    let mut copy = bytes.to_vec();
    clipped
        .encode(layout, &mut copy)
        .expect("the length was right");
    let mut again = clipped.clone();
    again
        .decode(layout, &copy, u32::MAX)
        .expect("values in range");
    assert_eq!(again, clipped);
}

/// Lines of `NAME=VALUE`. What a name means can be read back by that name.
fn as_text(text: &str) {
    let mut params = Params::default();
    for line in text.lines() {
        let before = params.clone();
        match params.assign(line) {
            Ok(()) => {
                let (name, _) = line.split_once('=').expect("an assignment");
                let target = Target::parse(name.trim()).expect("a known name");
                let value = params.read(target);
                let mut again = params.clone();
                again
                    .write(target, &value.to_string())
                    .expect("its own value");
                assert_eq!(again.get(target.param), params.get(target.param));
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(params, before);
            }
        }
        in_range(&params);
    }
}

fn in_range(params: &Params) {
    for param in Param::ALL {
        let value = params.get(*param);
        assert_eq!(value, param.clip(value), "{param}");
    }
}
