//! cargo-fuzz target; without the fuzzer, a program that replays files.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ferroce_fuzz::chakra(data));

#[cfg(not(fuzzing))]
fn main() {
    ferroce_fuzz::replay(ferroce_fuzz::chakra);
}
