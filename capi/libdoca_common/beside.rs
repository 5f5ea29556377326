// What the build scripts of the libraries beside libdoca_common.so.2 share; they include it.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// Names the library, and has it load `libdoca_common.so.2` from its own directory.
fn link(soname: &str) {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../libdoca_common/beside.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    for argument in [
        // What programs hold of it does not end with a dlclose.
        "-z,nodelete",
        "-rpath,$ORIGIN",
        "--no-as-needed",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rustc-cdylib-link-arg={}", common().display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
}

/// An empty library with the name of the one that is loaded, which cargo may build after this one.
fn common() -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (source, library) = (out.join("empty.c"), out.join("libdoca_common.so"));
    fs::write(&source, "").expect("OUT_DIR can be written to");
    let compiler = cc::Build::new().get_compiler();
    let built = Command::new(compiler.path())
        .args([
            "-shared",
            "-nostdlib",
            "-Wl,-soname,libdoca_common.so.2",
            "-o",
        ])
        .args([&library, &source])
        .status()
        .expect("there is a C compiler, as for any linking");
    assert!(
        built.success(),
        "{} cannot make a shared library",
        compiler.path().display()
    );
    library
}
