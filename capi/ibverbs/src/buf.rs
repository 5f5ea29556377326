//! Buffers that the library allocates for a program (ibv_alloc_buf(3)): pages of the heap.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ferroce_abi::border;

use crate::abi::{ibv_buf, ibv_mr, ibv_pd};
use crate::arena::Arena;
use crate::error::{Error, number, pointer};
use crate::{mr, pd};

/// To what buffers are aligned.
const PAGE: usize = 4096;

/// A buffer, and the program's domain that it was allocated for.
struct Buf {
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: usize,
}

// SAFETY: addresses of the program, which any of its threads may use.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: it came from `posix_memalign`.
        unsafe { libc::free(self.addr) }
    }
}

static BUFS: Arena<ibv_buf, Buf> = Arena::new("buffer");

/// Allocates a buffer that begins at a page.
#[border(pointer)]
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    pointer("ibv_alloc_buf", alloc(pd, size, buf))
}

fn alloc(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> Result<*mut c_void, Error> {
    pd::find(pd)?;
    if buf.is_null() {
        return Err(Error::Null("buf"));
    }
    let mut addr = null_mut();
    // SAFETY: a variable of this function.
    let error = unsafe { libc::posix_memalign(&mut addr, PAGE, size) };
    if error != 0 {
        return Err(std::io::Error::from_raw_os_error(error).into());
    }
    let own = Buf { pd, addr, size };
    // SAFETY: not null, and a variable that may be written to.
    unsafe { *buf = BUFS.insert(ibv_buf { opaque: 0 }, own) };
    Ok(addr)
}

/// Frees a buffer.
#[border(nothing)]
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    let freed = BUFS.find(buf).map(|_| BUFS.remove(buf));
    if let Err(error) = freed {
        crate::error::tell("ibv_free_buf", &error);
    }
}

/// Registers a part of a buffer.
#[border(pointer)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let made = check_inside(pd, buf, addr, length)
        .and_then(|()| mr::register(pd, addr, length, addr as u64, access as u32));
    pointer("ibv_reg_buf_mr", made)
}

/// A descriptor for the buffer: the heap has none.
#[border(number)]
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    let none = || std::io::Error::from_raw_os_error(libc::ENODATA).into();
    number(
        "ibv_export_buf_dmabuf_fd",
        BUFS.find(buf).and_then(|_| Err(none())),
    )
}

/// Refuses memory that is not in the buffer, or a buffer of another domain.
pub(crate) fn check_inside(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
) -> Result<(), Error> {
    let own = BUFS.find(buf)?.own();
    if own.pd != pd {
        return Err(Error::OtherContext("buffer"));
    }
    let offset = (addr as usize).checked_sub(own.addr as usize);
    let left = offset.and_then(|offset| own.size.checked_sub(offset));
    match left.is_some_and(|left| length <= left) {
        true => Ok(()),
        false => Err(Error::invalid(
            "length",
            length,
            "what the buffer has from addr",
        )),
    }
}
