//! Chains of work requests, and the memory that these name.

use std::ffi::c_int;

use ferroce_abi::border::uncancelled;
use ferroce_device::{Bytes, PostError, RecvWr, Sge, Sges, limits};

use crate::abi::{ibv_recv_wr, ibv_sge};
use crate::error::{Error, status};

/// Walks a chain of work requests and remembers where it stands.
pub(crate) struct Chain<W> {
    next: *mut W,
    /// The request given out last.
    current: *mut W,
    /// Requests that may follow. In ERR nothing fills a queue, and a chain may be a circle.
    left: u32,
    refused: Option<Box<Error>>,
}

impl<W> Chain<W> {
    pub(crate) fn new(first: *mut W) -> Self {
        Self {
            next: first,
            current: first,
            left: limits::MAX_WR,
            refused: None,
        }
    }

    /// The chain's work requests, until there have been too many.
    pub(crate) fn walk<'w>(
        &mut self,
        following: impl Fn(&W) -> *mut W,
    ) -> impl Iterator<Item = &'w W>
    where
        W: 'w,
    {
        std::iter::from_fn(move || self.step(&following))
    }

    /// The same as those of the device, up to one that makes no sense.
    pub(crate) fn requests<R>(
        &mut self,
        following: impl Fn(&W) -> *mut W,
        mut convert: impl FnMut(&W) -> Result<R, Error>,
    ) -> impl Iterator<Item = R> {
        std::iter::from_fn(move || {
            let converted = convert(self.step(&following)?);
            let refuse = |error| self.refused = Some(Box::new(error));
            converted.map_err(refuse).ok()
        })
    }

    #[inline]
    fn step<'w>(&mut self, following: &impl Fn(&W) -> *mut W) -> Option<&'w W> {
        if self.next.is_null() {
            return None;
        }
        self.current = self.next;
        if self.left == 0 {
            let max = limits::MAX_WR;
            self.refused = Some(PostError::QueueFull { max }.into());
            return None;
        }
        self.left -= 1;
        // SAFETY: not null, and valid during the call, as the header requires.
        let request = unsafe { &*self.current };
        self.next = following(request);
        Some(request)
    }

    /// The chain's outcome; tells the program which request was refused.
    ///
    /// # Safety
    /// `bad` is null or can be written to.
    pub(crate) unsafe fn finish(
        self,
        call: &str,
        posted: Result<(), Box<Error>>,
        bad: *mut *mut W,
    ) -> c_int {
        let result = posted.and_then(|()| self.refused.map_or(Ok(()), Err));
        if result.is_ok() {
            return 0;
        }
        if !bad.is_null() {
            // SAFETY: as the caller promises.
            unsafe { bad.write(self.current) };
        }
        uncancelled(|| status(call, result.map_err(|error| *error)))
    }
}

pub(crate) fn recv_request(wr: &ibv_recv_wr) -> Result<RecvWr, Error> {
    Ok(RecvWr {
        wr_id: wr.wr_id,
        // SAFETY: an array of `num_sge` elements, as the header requires.
        sges: unsafe { sges(wr.sg_list, wr.num_sge)? },
    })
}

/// The elements of a list. It need not be aligned, as with cards: libiscsi has it in a packed structure.
///
/// # Safety
/// `list` points to `count` elements, if `count` is one that the device takes.
pub(crate) unsafe fn elements(
    list: *const ibv_sge,
    count: c_int,
) -> Result<impl Iterator<Item = ibv_sge> + Clone, Error> {
    if count > 0 && list.is_null() {
        return Err(Error::Null("sg_list"));
    }
    let count = match usize::try_from(count) {
        Ok(count) if count <= limits::MAX_SGE as usize => count,
        _ => {
            let allowed = "0 to max_sge of the queue pair";
            return Err(Error::invalid("num_sge", count, allowed));
        }
    };
    // SAFETY: as the caller promises.
    Ok((0..count).map(move |index| unsafe { list.add(index).read_unaligned() }))
}

/// # Safety
/// As for [`elements`].
unsafe fn sges(list: *const ibv_sge, count: c_int) -> Result<Sges, Error> {
    // SAFETY: as the caller promises.
    let elements = unsafe { elements(list, count)? };
    Ok(elements.map(sge).collect())
}

pub(crate) fn sge(sge: ibv_sge) -> Sge {
    Sge {
        addr: sge.addr,
        length: sge.length,
        lkey: sge.lkey,
    }
}

/// Copies the bytes themselves of inline data, at most `max`, to where they stay until they are sent.
///
/// # Safety
/// The pieces are null or valid for reads.
#[inline]
pub(crate) unsafe fn inline(
    pieces: impl Iterator<Item = (*const u8, usize)> + Clone,
    max: usize,
    to: &mut Option<Bytes>,
) -> Result<(), Error> {
    let filled = pieces.filter(|(_, length)| *length > 0);
    let mut starts = filled.clone().map(|(start, _)| start);
    if starts.any(<*const u8>::is_null) {
        return Err(Error::Null("the address of inline data"));
    }
    let lengths = filled.clone().map(|(_, length)| length);
    let length = lengths.fold(0, usize::saturating_add);
    if length > max {
        let allowed = "0 to max_inline_data of the queue pair";
        return Err(Error::invalid("inline bytes", length, allowed));
    }
    to.insert(Bytes::zeroed(length)).fill(|mut rest| {
        for (start, length) in filled {
            let (piece, tail) = rest.split_at_mut(length);
            // SAFETY: as the caller promises.
            piece.copy_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
            rest = tail;
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_need_not_be_aligned() {
        #[repr(C, packed)]
        struct Packed {
            before: u8,
            list: [ibv_sge; 2],
        }
        let sge = |addr| ibv_sge {
            addr,
            length: 3,
            lkey: 4,
        };
        let packed = Packed {
            before: 0,
            list: [sge(1), sge(2)],
        };
        // SAFETY: two elements.
        let sges = unsafe { sges((&raw const packed.list).cast(), 2) }
            .ok()
            .unwrap();
        assert_eq!(sges.iter().map(|it| it.addr).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(packed.before, 0);
    }
}
