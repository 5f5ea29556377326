//! Tagged messages.

use ferroce_dynlib::Buffer;
use ferroce_ucx::{CallError, Endpoint, Request, Worker};

use super::host::Link;
use crate::drill::worker::{Totals, WINDOW, WORDS};

/// In the tag of a message that only connects.
const GREETING: u64 = 1 << 63;

/// Messages of a channel, of which a window is under way.
pub(super) struct Tag {
    channel: u64,
    greetings: [Message; 2],
    outgoing: Vec<Message>,
    incoming: Vec<Message>,
    posted: u64,
}

struct Message {
    buffer: Buffer,
    request: Option<Request>,
}

impl Tag {
    /// Begins with a small message in each direction of the ring.
    pub(super) fn greet(
        worker: &Worker,
        endpoint: &Endpoint,
        channel: usize,
    ) -> Result<Self, CallError> {
        let messages = || (0..WINDOW).map(|_| Message::of(WORDS)).collect();
        let channel = channel as u64;
        let mut greetings = [Message::of(1), Message::of(1)];
        let [receive, send] = &mut greetings;
        receive.request = Some(worker.receive(&receive.buffer, GREETING | channel)?);
        send.request = Some(worker.send(endpoint, &send.buffer, GREETING | channel)?);
        Ok(Self {
            channel,
            greetings,
            outgoing: messages(),
            incoming: messages(),
            posted: 0,
        })
    }

    /// Whether both of these have arrived.
    pub(super) fn has_greeted(&mut self, worker: &Worker) -> Result<bool, CallError> {
        for greeting in &mut self.greetings {
            greeting.is_complete(worker)?;
        }
        Ok(self.greetings.iter().all(|it| it.request.is_none()))
    }

    /// Drives the channel; whether anything moved.
    pub(super) fn drive(
        &mut self,
        worker: &Worker,
        link: &mut Link,
        totals: &mut Totals,
    ) -> Result<bool, CallError> {
        let mut has_moved = false;
        let channel = self.channel;
        let tag = |step: u64| channel << 48 | step;
        while self.posted < link.arrivals.received + WINDOW as u64 {
            let incoming = &mut self.incoming[slot(self.posted)];
            incoming.request = Some(worker.receive(&incoming.buffer, tag(self.posted))?);
            self.posted += 1;
        }
        for outgoing in &mut self.outgoing {
            has_moved |= outgoing.is_complete(worker)?;
        }
        let next = slot(link.pacer.filled);
        if self.outgoing[next].request.is_none()
            && let Some(step) = link.pacer.begin(&link.arrivals)
        {
            let Message { buffer, request } = &mut self.outgoing[next];
            buffer.fill(link.own.word(step, 0));
            *request = Some(worker.send(&link.endpoint, buffer, tag(step))?);
            has_moved = true;
        }
        let step = link.arrivals.received;
        let incoming = &mut self.incoming[slot(step)];
        if incoming.is_complete(worker)? {
            let word = link.theirs.word(step, 0);
            totals.bytes += incoming.buffer.bytes() as u64;
            totals.wrong_words += incoming.buffer.differing(0..WORDS, word);
            link.arrivals.step();
            has_moved = true;
        }
        Ok(has_moved)
    }

    pub(super) fn is_at_rest(&self) -> bool {
        let mut all = self.outgoing.iter().chain(&self.incoming);
        all.all(|it| it.request.is_none())
    }
}

impl Message {
    fn of(words: usize) -> Self {
        Self {
            buffer: Buffer::zeroed(words),
            request: None,
        }
    }

    /// Whether its request has become complete.
    fn is_complete(&mut self, worker: &Worker) -> Result<bool, CallError> {
        let Some(request) = &mut self.request else {
            return Ok(false);
        };
        let is_complete = worker.is_complete(request)?;
        if is_complete {
            self.request = None;
        }
        Ok(is_complete)
    }
}

/// The place of a step in the window.
fn slot(step: u64) -> usize {
    (step % WINDOW as u64) as usize
}
