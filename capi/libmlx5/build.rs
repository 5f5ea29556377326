//! Turns `symbols.txt` into the exports and the linker's version script.

include!("../librdmacm/exports.rs");

fn main() {
    facade("libmlx5.so.1", "MLX5_");
}
