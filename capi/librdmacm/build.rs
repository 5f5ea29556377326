//! Turns `symbols.txt` into the exports and the linker's version script.

include!("exports.rs");

fn main() {
    facade("librdmacm.so.1", "RDMACM_");
}
