//! Names the library, and has it load `libdoca_common.so.2`.

include!("../libdoca_common/beside.rs");

fn main() {
    link("libdoca_argp.so.2");
}
