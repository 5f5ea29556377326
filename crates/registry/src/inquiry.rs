//! Queries many processes at a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::observer::Observer;
use crate::question::{Pending, QueryError};
use crate::resource::{Query, Resource};
use crate::shared::Process;

/// Asked at a time; each question takes two descriptors until it is answered.
const AT_A_TIME: usize = 128;
/// What room in a mailbox is waited for, and answers at least if that has used up the time.
const GRACE: Duration = Duration::from_millis(10);
/// Silent processes that are kept in mind, two descriptors each. Further ones are asked again.
const OWED_MAX: usize = 128;

/// An answer, or why there is none.
pub type Answer = Result<Vec<Resource>, QueryError>;

/// A process: the address of its device, its slot and its number.
type Key = (IpAddr, u16, u8, u32);

/// Questions to many processes at a time. Who has not answered one is not asked another before it
/// has, so one that stays stopped is waited for only once, and its mailbox does not fill.
#[derive(Debug, Default)]
pub struct Inquiry {
    /// Questions whose answers were not waited for any longer.
    owed: HashMap<Key, Pending>,
}

impl Inquiry {
    /// Asks each of the processes, and returns their answers in the same order. Those that come in
    /// time are waited for, at the longest until `until`; and if others have used that up, 10 ms for
    /// each 128 processes.
    pub fn ask(
        &mut self,
        processes: &[(&Observer, &Process)],
        query: Query,
        until: Instant,
    ) -> Vec<Answer> {
        self.owed.retain(|_, pending| !pending.is_over());
        let some = processes.chunks(AT_A_TIME);
        some.flat_map(|some| self.ask_some(some, query, until))
            .collect()
    }

    fn ask_some(
        &mut self,
        processes: &[(&Observer, &Process)],
        query: Query,
        until: Instant,
    ) -> Vec<Answer> {
        let ask = |&(observer, process): &(&Observer, &Process)| {
            let slot = process.slot;
            match self.owed.contains_key(&key(observer, process)) {
                true => Err(QueryError::Silent { slot }),
                false => observer.ask(slot, query, until.min(Instant::now() + GRACE)),
            }
        };
        // All think at the same time.
        let asked: Vec<_> = processes.iter().map(ask).collect();
        let until = until.max(Instant::now() + GRACE);
        let answers = processes
            .iter()
            .zip(asked)
            .map(|(&(observer, process), asked)| {
                let mut pending = asked?;
                let answer = pending.answer(until);
                if let Err(QueryError::Silent { .. }) = answer
                    && self.owed.len() < OWED_MAX
                {
                    self.owed.insert(key(observer, process), pending);
                }
                answer
            });
        answers.collect()
    }
}

fn key(observer: &Observer, process: &Process) -> Key {
    let device = observer.spec();
    (device.address, device.port, process.slot, process.pid)
}
