//! Files that scenarios refer to.

use std::path::Path;
use std::{fs, io};

/// The bytes of a file that a scenario refers to; those of a directory are the names of its files, in order. Hidden
/// ones are left out.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return fs::read(path);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| io::Error::other("has a file whose name is not UTF-8"))?;
        if !name.starts_with('.') && entry.path().is_file() {
            names.push(name + "\n");
        }
    }
    names.sort();
    Ok(names.concat().into_bytes())
}
