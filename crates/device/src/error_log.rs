//! The last errors of a device, for diagnosis afterwards.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ferroce_adp::QpTimeouts;
use ferroce_transport::{Completion, Span, Time, WcOpcode, WcStatus};
use ferroce_wire::Qpn;

/// Errors that are kept.
pub const ERRORS_MAX: usize = 64;

const WORDS: usize = 9;

/// An error completion, and what was flushed behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorRecord {
    /// When, in the host's time.
    pub at: Time,
    /// The queue pair.
    pub qpn: Qpn,
    /// What its connection was like, if it was connected.
    pub connection: Option<Connection>,
    /// From the work request.
    pub wr_id: u64,
    /// Status.
    pub status: WcStatus,
    /// Vendor syndrome.
    pub vendor_err: u32,
    /// What completed.
    pub opcode: WcOpcode,
    /// Requests of the queue pair that were flushed (0xf9) after it, in both its queues.
    pub flushed: u32,
}

/// The connection of a queue pair that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The address at its other end.
    pub address: IpAddr,
    /// The queue pair there.
    pub qpn: Qpn,
    /// How long and how often the queue pair was to wait.
    pub timeouts: QpTimeouts,
    /// How long there had been no progress.
    pub silent: Span,
}

/// The last [`ERRORS_MAX`] errors of a device, of all its processes. What is flushed behind an error
/// is counted there; it has no place of its own, or the cause would soon be gone.
///
/// Only atomics in C layout, and zeros are a valid content. Several processes write at once, and none
/// waits: each error has a place of its own, whose stamp says whether it is complete.
#[derive(Debug)]
#[repr(C)]
pub struct ErrorLog {
    /// How many there have been.
    count: AtomicU64,
    places: [[AtomicU64; WORDS]; ERRORS_MAX],
}

/// What the words of a place hold.
mod word {
    /// The number of the error, from 1; 0 while it is written.
    pub(super) const STAMP: usize = 0;
    pub(super) const AT_NS: usize = 1;
    pub(super) const WR_ID: usize = 2;
    /// From the lowest bit up: the queue pair, its peer's, timeout, retry count. The highest bit says
    /// that it was connected.
    pub(super) const QPNS: usize = 3;
    /// Vendor syndrome, status and opcode, from the lowest bit up: 32, 16, 16.
    pub(super) const WHAT: usize = 4;
    pub(super) const FLUSHED: usize = 5;
    /// The peer's address, and the word after it.
    pub(super) const ADDRESS: usize = 6;
    pub(super) const SILENT_NS: usize = 8;
}

const IS_CONNECTED: u64 = 1 << 63;
const QPN: u64 = 0xff_ffff;

impl Default for ErrorLog {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            places: [const { [const { AtomicU64::new(0) }; WORDS] }; ERRORS_MAX],
        }
    }
}

impl ErrorLog {
    /// Notes an error, or counts it as flushed behind the last one of its queue pair. Whether it is
    /// a new one, which [`Self::set_connection`] is to complete.
    pub(crate) fn note(&self, completion: &Completion, now: Time) -> bool {
        let qpn = completion.qpn;
        let is_flushed = completion.status == WcStatus::WrFlushErr
            && completion.vendor_err == WcStatus::WrFlushErr.vendor_err();
        if is_flushed {
            if let Some(place) = self.last_of(qpn) {
                place[word::FLUSHED].fetch_add(1, Ordering::Relaxed);
            }
            return false;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let place = &self.places[number as usize % ERRORS_MAX];
        place[word::STAMP].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let what = u64::from(completion.vendor_err)
            | (completion.status as u64) << 32
            | (completion.opcode as u64) << 48;
        for (index, value) in [
            (word::AT_NS, now.as_nanos()),
            (word::WR_ID, completion.wr_id),
            (word::QPNS, qpn.value().into()),
            (word::WHAT, what),
            (word::FLUSHED, 0),
        ] {
            place[index].store(value, Ordering::Relaxed);
        }
        place[word::STAMP].store(number.wrapping_add(1), Ordering::Release);
        true
    }

    /// Says what the connection of a queue pair was like whose error was noted.
    pub(crate) fn set_connection(&self, qpn: Qpn, connection: Connection) {
        let Some(place) = self.last_of(qpn) else {
            return;
        };
        let address = match connection.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let bits = address.to_bits();
        place[word::ADDRESS].store((bits >> 64) as u64, Ordering::Relaxed);
        place[word::ADDRESS + 1].store(bits as u64, Ordering::Relaxed);
        place[word::SILENT_NS].store(connection.silent.as_nanos(), Ordering::Relaxed);
        let QpTimeouts { timeout, retry_cnt } = connection.timeouts;
        let qpns = u64::from(qpn.value())
            | u64::from(connection.qpn.value()) << 24
            | u64::from(timeout & 31) << 48
            | u64::from(retry_cnt) << 53
            | IS_CONNECTED;
        place[word::QPNS].store(qpns, Ordering::Release);
    }

    /// How many errors there have been, flushed requests not counted.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The last errors, oldest first. One that is written meanwhile is left out, and what makes no
    /// sense, too: other processes of the user can write the memory.
    pub fn last(&self) -> Vec<ErrorRecord> {
        let numbers = self.numbers();
        numbers.filter_map(|number| self.read(number)).collect()
    }

    fn numbers(&self) -> impl DoubleEndedIterator<Item = u64> {
        let count = self.count();
        count.saturating_sub(ERRORS_MAX as u64)..count
    }

    fn read(&self, number: u64) -> Option<ErrorRecord> {
        let place = &self.places[number as usize % ERRORS_MAX];
        let stamp = number.wrapping_add(1);
        if place[word::STAMP].load(Ordering::Acquire) != stamp {
            return None;
        }
        let words = place.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = place[word::STAMP].load(Ordering::Relaxed) == stamp;
        is_whole.then(|| decode(&words)).flatten()
    }

    fn last_of(&self, qpn: Qpn) -> Option<&[AtomicU64; WORDS]> {
        let places = self.numbers().rev();
        let mut places = places.map(|number| &self.places[number as usize % ERRORS_MAX]);
        places.find(|place| place[word::QPNS].load(Ordering::Relaxed) & QPN == qpn.value().into())
    }
}

fn decode(words: &[u64; WORDS]) -> Option<ErrorRecord> {
    let what = words[word::WHAT];
    let bits = u128::from(words[word::ADDRESS]) << 64 | u128::from(words[word::ADDRESS + 1]);
    let address = Ipv6Addr::from_bits(bits).to_canonical();
    let qpns = words[word::QPNS];
    let qpn = |shift: u32| Qpn::new((qpns >> shift & QPN) as u32);
    let connection = || Connection {
        address,
        qpn: qpn(24),
        timeouts: QpTimeouts {
            timeout: (qpns >> 48 & 31) as u8,
            retry_cnt: (qpns >> 53) as u8,
        },
        silent: Span::from_nanos(words[word::SILENT_NS]),
    };
    Some(ErrorRecord {
        at: Time::from_nanos(words[word::AT_NS]),
        qpn: qpn(0),
        connection: (qpns & IS_CONNECTED != 0).then(connection),
        wr_id: words[word::WR_ID],
        status: WcStatus::from_number((what >> 32) as u16 as u32)?,
        vendor_err: what as u32,
        opcode: WcOpcode::from_number((what >> 48) as u32)?,
        flushed: u32::try_from(words[word::FLUSHED]).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(qpn: u32, wr_id: u64, status: WcStatus) -> Completion {
        Completion::error(wr_id, status, WcOpcode::Send, Qpn::new(qpn))
    }

    #[test]
    fn an_error_is_logged_with_its_connection_and_flushed_requests() {
        let log = ErrorLog::default();
        let now = Time::from_nanos(7);
        let flushed = failed(3, 2, WcStatus::WrFlushErr);
        assert!(!log.note(&flushed, now), "of nothing that is known");
        assert_eq!(log.last(), []);
        assert!(log.note(&failed(3, 1, WcStatus::RetryExcErr), now));
        let connection = Connection {
            address: "10.0.0.2".parse().unwrap(),
            qpn: Qpn::new(0xff_fffe),
            timeouts: QpTimeouts {
                timeout: 31,
                retry_cnt: 255,
            },
            silent: Span::from_nanos(u64::MAX / 1_000_000),
        };
        log.set_connection(Qpn::new(3), connection);
        assert!(log.note(&failed(4, 5, WcStatus::RemOpErr), now));
        log.note(&flushed, now);
        let [retry, other] = log.last()[..] else {
            panic!("two errors: {log:?}");
        };
        let expected = ErrorRecord {
            at: now,
            qpn: Qpn::new(3),
            connection: Some(connection),
            wr_id: 1,
            status: WcStatus::RetryExcErr,
            vendor_err: 0x81,
            opcode: WcOpcode::Send,
            flushed: 1,
        };
        assert_eq!(retry, expected);
        assert_eq!((other.wr_id, other.connection, other.flushed), (5, None, 0));
    }

    #[test]
    fn the_last_ones_are_kept() {
        let log = ErrorLog::default();
        let total = 3 * ERRORS_MAX as u64 + 5;
        for wr_id in 0..total {
            log.note(&failed(1, wr_id, WcStatus::RemOpErr), Time::ZERO);
        }
        let kept: Vec<_> = log.last().iter().map(|error| error.wr_id).collect();
        assert!(kept.into_iter().eq(total - ERRORS_MAX as u64..total));
        assert_eq!(log.count(), total);
    }

    #[test]
    fn garbage_is_left_out() {
        let log = ErrorLog::default();
        log.note(&failed(1, 1, WcStatus::RemOpErr), Time::ZERO);
        log.places[0][word::WHAT].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(log.last(), []);
        log.count.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(log.last(), []);
        log.note(&failed(1, 1, WcStatus::RemOpErr), Time::ZERO);
    }
}
