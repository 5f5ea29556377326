//! One-sided writes: data, a flush, then a flag that the receiver waits for.

use std::ops::Range;

use ferroce_dynlib::Buffer;
use ferroce_ucx::{CallError, Endpoint, Region, RemoteRegion, Request, Worker};

use super::host::Link;
use crate::drill::worker::{Totals, WINDOW, WORDS};

/// What the host before writes into: steps, then a flag for each, then one that it writes first of all.
///
/// Steps are not acknowledged. The place of one is used again by a step that begins once the ring has gone
/// round: each host is at most a window ahead of the host before it, so that the places of as many windows
/// as there are hosts suffice.
pub(super) struct Inbox {
    pub(super) region: Region,
    steps: usize,
}

impl Inbox {
    pub(super) fn new(worker: &Worker, hosts: usize) -> Result<Self, CallError> {
        let steps = hosts * WINDOW;
        let region = worker.share(Buffer::zeroed(steps * (WORDS + 1) + 1))?;
        Ok(Self { region, steps })
    }

    /// The place of a step.
    fn slot(&self, step: u64) -> usize {
        (step % self.steps as u64) as usize
    }

    /// The words of a step, and of its flag.
    fn words(&self, step: u64) -> (Range<usize>, Range<usize>) {
        let slot = self.slot(step);
        let flag = self.steps * WORDS + slot;
        (slot * WORDS..(slot + 1) * WORDS, flag..flag + 1)
    }

    /// The word of the greeting.
    fn greeting(&self) -> Range<usize> {
        let word = self.steps * (WORDS + 1);
        word..word + 1
    }

    fn has(&self, flag: Range<usize>, value: u64) -> bool {
        self.region.buffer.differing(flag, |_| value) == 0
    }
}

/// Writes of a channel, of which a window is under way.
pub(super) struct Put {
    inbox: Inbox,
    outbox: RemoteRegion,
    greeting: (Buffer, Request),
    outgoing: Vec<Outgoing>,
}

struct Outgoing {
    data: Buffer,
    flag: Buffer,
    state: State,
}

enum State {
    Idle,
    /// The data is being written, and the write is being flushed.
    Data(u64, [Request; 2]),
    /// So is the flag.
    Flag(Request),
}

impl Put {
    /// Begins with a word into the next host's inbox.
    pub(super) fn greet(
        worker: &Worker,
        endpoint: &Endpoint,
        inbox: Inbox,
        key: &[u8],
    ) -> Result<Self, CallError> {
        let outbox = worker.remote(endpoint, key)?;
        let mut greeting = Buffer::zeroed(1);
        greeting.fill(|_| GREETING);
        let at = bytes(&inbox.greeting());
        let request = worker.put(endpoint, &greeting, &outbox, at)?;
        let outgoing = |_| Outgoing {
            data: Buffer::zeroed(WORDS),
            flag: Buffer::zeroed(1),
            state: State::Idle,
        };
        Ok(Self {
            inbox,
            outbox,
            greeting: (greeting, request),
            outgoing: (0..WINDOW).map(outgoing).collect(),
        })
    }

    /// Whether the greeting has left, and the one of the host before is there.
    pub(super) fn has_greeted(&mut self, worker: &Worker) -> Result<bool, CallError> {
        let has_left = worker.is_complete(&mut self.greeting.1)?;
        Ok(has_left && self.inbox.has(self.inbox.greeting(), GREETING))
    }

    /// Drives the channel; whether anything moved.
    pub(super) fn drive(
        &mut self,
        worker: &Worker,
        link: &mut Link,
        totals: &mut Totals,
    ) -> Result<bool, CallError> {
        let mut has_moved = false;
        for outgoing in &mut self.outgoing {
            has_moved |= outgoing.advance(worker, link, &self.inbox, &self.outbox)?;
        }
        let next = (link.pacer.filled % WINDOW as u64) as usize;
        let outgoing = &mut self.outgoing[next];
        if matches!(outgoing.state, State::Idle)
            && let Some(step) = link.pacer.begin(&link.arrivals)
        {
            outgoing.data.fill(link.own.word(step, 0));
            outgoing.flag.fill(|_| flag_of(step));
            let at = bytes(&self.inbox.words(step).0);
            let put = worker.put(&link.endpoint, &outgoing.data, &self.outbox, at)?;
            let flush = worker.flush(&link.endpoint)?;
            outgoing.state = State::Data(step, [put, flush]);
            has_moved = true;
        }
        let step = link.arrivals.received;
        let (words, flag) = self.inbox.words(step);
        if self.inbox.has(flag, flag_of(step)) {
            let first = words.start as u64;
            let word = link.theirs.word(step, 0);
            totals.bytes += (WORDS * size_of::<u64>()) as u64;
            let buffer = &self.inbox.region.buffer;
            totals.wrong_words += buffer.differing(words, |at| word(at - first));
            link.arrivals.step();
            has_moved = true;
        }
        Ok(has_moved)
    }

    pub(super) fn is_at_rest(&self) -> bool {
        let mut all = self.outgoing.iter();
        all.all(|it| matches!(it.state, State::Idle))
    }
}

impl Outgoing {
    /// Goes on with what is complete. The next host's inbox is like this one's.
    fn advance(
        &mut self,
        worker: &Worker,
        link: &Link,
        inbox: &Inbox,
        outbox: &RemoteRegion,
    ) -> Result<bool, CallError> {
        match &mut self.state {
            State::Idle => Ok(false),
            State::Data(step, [put, flush]) => {
                if !(worker.is_complete(put)? & worker.is_complete(flush)?) {
                    return Ok(false);
                }
                let at = bytes(&inbox.words(*step).1);
                let flag = worker.put(&link.endpoint, &self.flag, outbox, at)?;
                self.state = State::Flag(flag);
                Ok(true)
            }
            State::Flag(flag) => {
                if !worker.is_complete(flag)? {
                    return Ok(false);
                }
                self.state = State::Idle;
                Ok(true)
            }
        }
    }
}

/// What the greeting says.
const GREETING: u64 = 1;

/// Where words begin, in bytes.
fn bytes(words: &Range<usize>) -> usize {
    words.start * size_of::<u64>()
}

/// The flag of a step, which no other step has in the same place.
fn flag_of(step: u64) -> u64 {
    step + 1
}
