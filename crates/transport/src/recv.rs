//! Receive queues, and scattering data over a list of memory.

use std::collections::VecDeque;

use crate::memory::{AccessError, Data, Key, Segment};
use crate::services::Services;
use crate::work::{PostError, RecvWqe, RecvWr, Sges};

impl RecvWqe {
    /// Bytes that fit.
    pub(crate) fn capacity(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// Writes `data` at byte `offset` of the scatter list.
    pub(crate) fn scatter<H: Services>(
        &self,
        host: &mut H,
        offset: u32,
        data: Data<'_>,
    ) -> Result<(), AccessError> {
        scatter(&self.sges, Key::Receive, host, offset, data)
    }
}

/// Writes `data` at byte `offset` of a scatter list that is long enough.
pub(crate) fn scatter<H: Services>(
    sges: &Sges,
    role: impl Fn(u32) -> Key,
    host: &mut H,
    offset: u32,
    data: Data<'_>,
) -> Result<(), AccessError> {
    let mut written = 0;
    for piece in pieces(sges, role, offset, data.len()) {
        host.write(piece.key, piece.va, data.slice(written, piece.len))?;
        written += piece.len;
    }
    Ok(())
}

/// The pieces of memory behind `len` bytes from `offset` of a scatter/gather list, with its keys
/// in the `role` of a work request of the list's kind.
#[inline]
pub(crate) fn pieces(
    sges: &Sges,
    role: impl Fn(u32) -> Key,
    offset: u32,
    len: u32,
) -> impl Iterator<Item = Segment> {
    let mut skip = offset;
    let mut left = len;
    sges.iter().filter_map(move |sge| {
        let skipped = skip.min(sge.length);
        skip -= skipped;
        let len = left.min(sge.length - skipped);
        left -= len;
        (len > 0).then(|| Segment {
            key: role(sge.lkey),
            va: sge.addr.wrapping_add(skipped.into()),
            len,
        })
    })
}

/// A bounded queue of receive WQEs: a QP's own, or a shared one.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    wqes: VecDeque<RecvWqe>,
    max_wr: u32,
    max_sge: u32,
}

impl ReceiveQueue {
    /// Creates a queue for `max_wr` requests of at most `max_sge` elements each.
    pub fn new(max_wr: u32, max_sge: u32) -> Self {
        Self {
            wqes: VecDeque::new(),
            max_wr,
            max_sge,
        }
    }

    /// Queues a request.
    pub fn post(&mut self, wr: RecvWr) -> Result<(), PostError> {
        if wr.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges {
                got: wr.sges.len(),
                max: self.max_sge,
            });
        }
        if self.wqes.len() >= self.max_wr as usize {
            return Err(PostError::QueueFull { max: self.max_wr });
        }
        self.wqes.push_back(RecvWqe {
            wr_id: wr.wr_id,
            sges: wr.sges,
        });
        Ok(())
    }

    /// Takes the oldest request.
    pub fn take(&mut self) -> Option<RecvWqe> {
        self.wqes.pop_front()
    }

    /// Puts a request taken back in front.
    pub(crate) fn give_back(&mut self, wqe: RecvWqe) {
        self.wqes.push_front(wqe);
    }

    /// Releases memory that it no longer needs.
    pub fn shrink(&mut self) {
        self.wqes.shrink_to_fit();
    }

    /// Returns the number of waiting requests.
    pub fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Returns whether no request is waiting.
    pub fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Returns its capacity in requests.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Changes its capacity, to no less than its current length.
    pub fn resize(&mut self, max_wr: u32) {
        self.max_wr = max_wr;
    }

    /// Returns the maximum number of elements per request.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    pub(crate) fn clear(&mut self) {
        self.wqes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sge;

    fn list() -> Sges {
        Sges::from_vec(vec![
            Sge {
                addr: 100,
                length: 3,
                lkey: 1,
            },
            Sge {
                addr: 200,
                length: 0,
                lkey: 2,
            },
            Sge {
                addr: 300,
                length: 5,
                lkey: 3,
            },
        ])
    }

    fn cut(offset: u32, len: u32) -> Vec<(u64, u32)> {
        pieces(&list(), Key::Local, offset, len)
            .map(|s| (s.va, s.len))
            .collect()
    }

    #[test]
    fn pieces_cross_elements_and_skip_empty_ones() {
        assert_eq!(cut(0, 8), [(100, 3), (300, 5)]);
        assert_eq!(cut(2, 3), [(102, 1), (300, 2)]);
        assert_eq!(cut(3, 5), [(300, 5)]);
        assert_eq!(cut(7, 1), [(304, 1)]);
        assert_eq!(cut(8, 0), []);
    }

    #[test]
    fn a_full_queue_and_a_long_list_are_refused() {
        let mut queue = ReceiveQueue::new(1, 2);
        let wr = |sges| RecvWr { wr_id: 1, sges };
        assert_eq!(
            queue.post(wr(list())),
            Err(PostError::TooManySges { got: 3, max: 2 })
        );
        queue.post(wr(Sges::new())).unwrap();
        assert_eq!(
            queue.post(wr(Sges::new())),
            Err(PostError::QueueFull { max: 1 })
        );
        assert_eq!(queue.take().unwrap().wr_id, 1);
        assert!(queue.is_empty());
    }
}
