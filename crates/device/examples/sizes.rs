//! Prints how much memory devices and queue pairs take; `tests/at_rest` holds them to it.

#[path = "../tests/at_rest/used.rs"]
#[allow(dead_code, reason = "the tests need more of it")]
mod used;

fn main() {
    for (what, bytes) in used::Sizes::measured().rows() {
        println!("{what:<36}{bytes:>8} bytes");
    }
}
