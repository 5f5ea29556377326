//! A device's files in sysfs that programs read through the library.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use ferroce_abi::border;

use crate::devices;
use crate::error::{Error, number};

/// The root of sysfs; of the tree that `ferroce run` makes, if there is one.
#[border(pointer)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static ROOT: OnceLock<CString> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let own = std::env::var_os("FERROCE_SYSFS").map(|root| Path::new(&root).join("sys"));
        let own = own.and_then(|root| CString::new(root.as_os_str().as_bytes()).ok());
        own.unwrap_or_else(|| c"/sys".into())
    });
    root.as_ptr()
}

/// Reads a file without its last line break; returns its length, or -1. The device's own attributes
/// are known without a file.
#[border(number)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    if dir.is_null() || file.is_null() || buf.is_null() {
        return number("ibv_read_sysfs_file", Err(Error::Null("dir, file or buf")));
    }
    // SAFETY: not null, and C strings that stay as they are during the call.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let mut text = match attribute(dir, file) {
        Some(text) => text.into_bytes(),
        None => {
            let path = Path::new(OsStr::from_bytes(dir.to_bytes()))
                .join(OsStr::from_bytes(file.to_bytes()));
            match std::fs::read(path) {
                Ok(text) => text,
                // Whether there is such a file is the program's question.
                Err(error) => {
                    crate::error::set_errno(error.raw_os_error().unwrap_or(libc::EIO));
                    return -1;
                }
            }
        }
    };
    text.truncate(size);
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    // SAFETY: not null, and `size` bytes may be written to. A text that fills them has no end mark, as
    // with a file.
    unsafe {
        buf.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        if text.len() < size {
            buf.add(text.len()).write(0);
        }
    }
    text.len() as c_int
}

/// A file in the directory of one of our devices.
fn attribute(dir: &CStr, file: &CStr) -> Option<String> {
    let name = Path::new(dir.to_str().ok()?)
        .strip_prefix("/sys/class/infiniband")
        .ok()?;
    let spec = devices::spec(name.to_str()?)?;
    Some(match file.to_str().ok()? {
        "board_id" if !spec.board_id.is_empty() => spec.board_id.clone(),
        "fw_ver" => spec.fw_ver.clone(),
        "hw_rev" => format!("{:x}", spec.hw_ver),
        "node_type" => "1: CA".to_owned(),
        "node_guid" | "sys_image_guid" => {
            let guid = spec.guid();
            let part = |shift: u32| guid >> shift & 0xffff;
            format!(
                "{:04x}:{:04x}:{:04x}:{:04x}",
                part(48),
                part(32),
                part(16),
                part(0)
            )
        }
        _ => return None,
    })
}

/// For drivers of other cards, which find no card.
#[border(number)]
pub extern "C" fn ibv_read_ibdev_sysfs_file() -> c_int {
    crate::error::set_errno(libc::ENOENT);
    -1
}
