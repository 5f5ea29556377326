//! The headers and pkg-config files that `ferroce install` provides. They are part of the program,
//! so that it can install them without its sources.

/// A file: its name and its content.
pub type File = (&'static str, &'static str);

macro_rules! files {
    ($directory:literal: $($name:literal)+) => {
        &[$(($name, include_str!(concat!("../", $directory, "/", $name)))),+]
    };
}

/// For `include/ferroce`.
pub const HEADERS: &[File] = files!("include":
    "doca_argp.h" "doca_buf.h" "doca_buf_inventory.h" "doca_compat.h" "doca_ctx.h" "doca_dev.h"
    "doca_error.h" "doca_log.h" "doca_mmap.h" "doca_pe.h" "doca_telemetry_adp_retx.h"
    "doca_types.h" "doca_version.h"
);

/// For `lib/ferroce/pkgconfig`; they find headers and libraries from where they are.
pub const PKG_CONFIG: &[File] = files!("pkgconfig":
    "doca-argp.pc" "doca-common.pc" "doca-telemetry.pc"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_laid_out_and_has_the_version_of_the_libraries() {
        for (directory, files) in [("include", HEADERS), ("pkgconfig", PKG_CONFIG)] {
            let path = format!("{}/{directory}", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(std::fs::read_dir(path).unwrap().count(), files.len());
        }
        let version = format!("Version: {}\n", crate::VERSION);
        assert!(PKG_CONFIG.iter().all(|(_, text)| text.contains(&version)));
        let header = HEADERS.iter().find(|(name, _)| *name == "doca_version.h");
        assert!(
            header
                .unwrap()
                .1
                .contains(&format!("\"{}\"", crate::VERSION))
        );
    }
}
