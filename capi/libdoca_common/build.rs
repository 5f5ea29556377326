//! Compiles the one function that takes any number of arguments, and names the library.

fn main() {
    println!("cargo:rerun-if-changed=src/format.c");
    cc::Build::new()
        .file("src/format.c")
        .warnings_into_errors(true)
        .compile("ferroce_doca_format");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdoca_common.so.2");
    // What a program has registered with atexit may log.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
