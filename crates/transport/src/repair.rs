//! What of a requester's packets in flight has arrived, and what must be sent again: selective repeat.

use std::collections::VecDeque;

use ferroce_base::time::{Span, Time};

/// Packets in flight, from the oldest not acknowledged on, while they arrive out of order or are lost.
///
/// A network without reordering has lost whatever was sent before something that has arrived. This is why
/// each packet has the number of the request that sent it last. One with many paths has lost it if it does
/// not arrive soon after.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    /// One for each PSN.
    slots: VecDeque<Slot>,
    /// How many PSNs came before the first of them since this began.
    passed: u64,
    /// The number of the next request.
    next: u64,
    /// The latest that is known to have arrived.
    newest: Sent,
    /// Slots in each state.
    counts: [u32; State::COUNT],
    /// When the next packet that was overtaken counts as lost.
    due: Option<Time>,
    /// The first request that left after a loss was found.
    since_loss: u64,
}

/// PSNs that have turned out to be lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Lost {
    pub(crate) packets: u32,
    /// There are responses among them.
    pub(crate) responses: bool,
    /// Something is among them that left after the loss before this one was found: the network has lost
    /// packets anew.
    pub(crate) is_new: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Number of the request that sent it last, or asked for it.
    request: u64,
    state: State,
    /// It stands for a response: to a READ or an atomic.
    is_response: bool,
    /// When it counts as lost, if something that was sent later has arrived.
    lost_at: Time,
}

/// When something was sent: request by request, and within a READ response by response.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Sent {
    request: u64,
    place: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing is known of it.
    UnderWay,
    /// It is to be sent again.
    Lost,
    /// The peer has it, and waits for what comes before.
    Kept,
    /// The peer has executed it; the response is here if it has one.
    Done,
}

impl State {
    const COUNT: usize = 4;
}

impl Repair {
    /// Nothing is known of what is in flight: requests with the PSNs that they stand for, and whether
    /// these are responses.
    pub(crate) fn new(requests: impl Iterator<Item = (u32, bool)>) -> Self {
        let mut repair = Self {
            slots: VecDeque::new(),
            passed: 0,
            next: 0,
            newest: Sent::default(),
            counts: [0; State::COUNT],
            due: None,
            since_loss: 0,
        };
        for (span, is_response) in requests {
            repair.on_sent(repair.len(), span, is_response);
        }
        repair
    }

    /// How many PSNs are in flight.
    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32 // at most a window and a READ
    }

    /// Whether it knows no more than that everything is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts[State::UnderWay as usize] == self.len()
    }

    /// A request leaves that stands for `span` PSNs from `offset` on.
    pub(crate) fn on_sent(&mut self, offset: u32, span: u32, is_response: bool) {
        let slot = Slot {
            request: self.next,
            state: State::UnderWay,
            is_response,
            lost_at: Time::NEVER,
        };
        self.next += 1;
        for offset in offset..offset + span {
            match self.slots.get(offset as usize) {
                Some(_) => {
                    self.slots[offset as usize].request = slot.request;
                    self.set(offset, State::UnderWay);
                }
                None => {
                    self.slots.push_back(slot);
                    self.counts[State::UnderWay as usize] += 1;
                }
            }
        }
    }

    /// The peer has acknowledged the first `count` PSNs, which arrived.
    pub(crate) fn on_acknowledged(&mut self, count: u32) {
        for _ in 0..count {
            self.note_arrival(0);
            if let Some(slot) = self.slots.pop_front() {
                self.counts[slot.state as usize] -= 1;
            }
            self.passed += 1;
        }
    }

    /// The response at `offset` is here. False if it was before.
    pub(crate) fn on_response(&mut self, offset: u32) -> bool {
        if self.state(offset) == Some(State::Done) {
            return false;
        }
        self.note_arrival(offset);
        self.set(offset, State::Done);
        true
    }

    /// The peer has executed everything before `offset`, and sent its responses.
    pub(crate) fn on_executed(&mut self, offset: u32) {
        for offset in 0..offset.min(self.len()) {
            let slot = self.slots[offset as usize];
            match (slot.is_response, slot.state) {
                (false, _) => {
                    self.note_arrival(offset);
                    self.set(offset, State::Done);
                }
                (true, State::Kept) => self.set(offset, State::UnderWay),
                (true, _) => {}
            }
        }
    }

    /// The peer says of each packet from `offset` on whether it keeps it. False if it speaks of packets
    /// that were never sent.
    pub(crate) fn on_report(&mut self, offset: u32, kept: impl Iterator<Item = bool>) -> bool {
        let mut kept = kept;
        // A READ is one packet, whatever the number of its responses.
        let mut read = None;
        for offset in offset..self.len() {
            let slot = self.slots[offset as usize];
            let says = kept.next() == Some(true);
            let is_kept = match read {
                Some((request, is_kept)) if slot.is_response && request == slot.request => is_kept,
                _ => says,
            };
            read = slot.is_response.then_some((slot.request, is_kept));
            match slot.state {
                State::Done => {}
                _ if is_kept => {
                    self.note_arrival(offset);
                    self.set(offset, State::Kept);
                }
                State::Kept => self.set(offset, State::UnderWay),
                State::UnderWay | State::Lost => {}
            }
        }
        !kept.any(|is_kept| is_kept)
    }

    /// Takes what was sent before anything that has arrived for lost, once it has been overtaken for so
    /// long. Of packets that the peer may have received since its report, only the first: the answer to that tells
    /// more. Of responses it is known here, and with `is_told` the peer has just told.
    pub(crate) fn find_lost(&mut self, now: Time, tolerance: Span, is_told: bool) -> Lost {
        let mut lost = Lost::default();
        let knows_all = is_told || tolerance == Span::ZERO;
        self.due = None;
        for offset in 0..self.len() {
            let slot = self.slots[offset as usize];
            if slot.state != State::UnderWay || self.sent(offset) >= self.newest {
                continue;
            }
            let mut lost_at = slot.lost_at.min(now.after(tolerance));
            let is_known = knows_all || slot.is_response || lost.packets == 0;
            if lost_at <= now && !is_known {
                lost_at = now.after(tolerance);
            }
            if lost_at <= now {
                self.set(offset, State::Lost);
                lost.packets += 1;
                lost.responses |= slot.is_response;
                lost.is_new |= slot.request >= self.since_loss;
            } else {
                self.slots[offset as usize].lost_at = lost_at;
                self.due = Some(self.due.map_or(lost_at, |due| due.min(lost_at)));
            }
        }
        if lost.is_new {
            self.since_loss = self.next;
        }
        lost
    }

    /// When something counts as lost that has been overtaken: time to look again.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Only the packet at `offset` is lost.
    pub(crate) fn lose(&mut self, offset: u32) {
        if self.state(offset) == Some(State::UnderWay) {
            self.set(offset, State::Lost);
        }
    }

    /// Takes what is under way from `offset` on for lost.
    pub(crate) fn lose_from(&mut self, offset: u32) {
        (offset..self.len()).for_each(|at| self.lose(at));
    }

    /// Takes everything for lost but the responses that are here. What the peer kept it may have had to
    /// forget; its next report says so.
    pub(crate) fn lose_all(&mut self) {
        self.change(State::UnderWay, State::Lost);
        self.change(State::Kept, State::Lost);
    }

    /// Takes nothing for lost, until something arrives that is sent from now on.
    pub(crate) fn lose_nothing(&mut self) {
        self.change(State::Lost, State::UnderWay);
        self.newest = Sent::default();
    }

    /// The first that is to be sent again, from `offset` on.
    pub(crate) fn next_lost(&self, offset: u32) -> Option<u32> {
        if self.counts[State::Lost as usize] == 0 {
            return None;
        }
        (offset..self.len()).find(|at| self.state(*at) == Some(State::Lost))
    }

    /// Whether the response at `offset` may come without being asked for again.
    pub(crate) fn is_awaited(&self, offset: u32) -> bool {
        matches!(self.state(offset), Some(State::UnderWay | State::Kept))
    }

    /// How many PSNs from `offset` on, at most `max`, are to be sent again one after the other.
    pub(crate) fn lost_run(&self, offset: u32, max: u32) -> u32 {
        let mut run = offset..offset + max;
        let end = run.find(|at| self.state(*at) != Some(State::Lost));
        end.map_or(max, |end| end - offset)
    }

    /// How many PSNs have arrived.
    pub(crate) fn arrived(&self) -> u32 {
        self.counts[State::Kept as usize] + self.counts[State::Done as usize]
    }

    /// How many PSNs are to be sent again.
    pub(crate) fn lost(&self) -> u32 {
        self.counts[State::Lost as usize]
    }

    /// How many PSNs at the front are done.
    pub(crate) fn done(&self) -> u32 {
        let is_done = |slot: &&Slot| slot.state == State::Done;
        self.slots.iter().take_while(is_done).count() as u32
    }

    fn state(&self, offset: u32) -> Option<State> {
        self.slots.get(offset as usize).map(|slot| slot.state)
    }

    fn sent(&self, offset: u32) -> Sent {
        Sent {
            request: self.slots[offset as usize].request,
            place: self.passed + u64::from(offset),
        }
    }

    fn note_arrival(&mut self, offset: u32) {
        if self.state(offset).is_some_and(|state| state != State::Done) {
            self.newest = self.newest.max(self.sent(offset));
        }
    }

    fn set(&mut self, offset: u32, state: State) {
        let slot = &mut self.slots[offset as usize];
        self.counts[slot.state as usize] -= 1;
        self.counts[state as usize] += 1;
        (slot.state, slot.lost_at) = (state, Time::NEVER);
    }

    fn change(&mut self, from: State, to: State) {
        for offset in 0..self.len() {
            if self.state(offset) == Some(from) {
                self.set(offset, to);
            }
        }
    }

    /// Checks the books.
    ///
    /// # Panics
    /// Panics if they are wrong.
    pub(crate) fn audit(&self, in_flight: u32) {
        assert_eq!(self.len(), in_flight, "{self:?}");
        let mut counts = [0; State::COUNT];
        for slot in &self.slots {
            counts[slot.state as usize] += 1;
        }
        assert_eq!(counts, self.counts, "{self:?}");
        assert_eq!(
            self.done(),
            0,
            "what is done at the front is passed: {self:?}"
        );
    }
}
