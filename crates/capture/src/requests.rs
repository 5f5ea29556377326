//! The requests of one queue pair, in the order of capture: what is missing, what was
//! retransmitted, and how long the waits before that were.

use std::collections::VecDeque;

use ferroce_base::time::Span;
use ferroce_wire::{Headers, Opcode, Psn};

use crate::ladder::{End, Ladder, Start};
use crate::offload::MTUS;

/// Holes that may still be filled.
const HOLES_MAX: usize = 64;
/// New packets whose time is remembered: what is likely to be outstanding.
const RECENT_MAX: usize = 64;
/// Ladders kept of a queue pair: those that say most. The others are counted.
const LADDERS_MAX: usize = 64;
/// A packet after so long a silence was not waiting for an acknowledgement: its timer began with it.
const IDLE_NS: u64 = 20_000_000;
/// A packet that others overtake comes this soon after them.
const OVERTAKEN_NS: u64 = 1_000_000;
/// How far behind the newest PSN an acknowledgement may be.
const OUTSTANDING_MAX: u32 = 1 << 16;

/// The contents of a queue pair's requests.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Packets, including retransmissions.
    pub packets: u64,
    /// The first PSN.
    pub first: Option<Psn>,
    /// Packets that were seen before.
    pub repeated: u64,
    /// How often the queue pair went back.
    pub rounds: u64,
    /// How often it did so after a captured NAK.
    pub rounds_after_nak: u64,
    /// How often it did so after a captured RNR NAK.
    pub rounds_after_rnr: u64,
    /// Packets that were missing when a later one arrived: lost before the point of capture, or by
    /// the capture.
    pub missing: u64,
    /// Those of them that arrived later.
    pub late: u64,
    /// The first missing packet, and when it was found missing.
    pub first_missing: Option<(Psn, u64)>,
    /// Packets in order whose opcodes cannot follow the one before.
    pub out_of_sequence: u64,
    /// The first of these.
    pub first_out_of_sequence: Option<(Psn, Opcode)>,
    /// The payload of packets that are not the last of their message, in bytes.
    pub mtu: Option<u32>,
    /// The newest acknowledged PSN, if responses were captured.
    pub acknowledged: Option<Psn>,
    /// Waits that ended with a retransmission.
    pub ladders: Vec<Ladder>,
    /// Sequences of waits that were not kept.
    pub ladders_dropped: u64,
    captured_from: u64,
    first_at: Option<u64>,
    next: Next,
    last: Option<Psn>,
    last_at: u64,
    holes: Vec<(Psn, u32)>,
    recent: VecDeque<(Psn, u64)>,
    open: Option<Ladder>,
    refused: Option<Refusal>,
    message: Message,
}

/// The PSN of the next new packet.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    #[default]
    Any,
    Exactly(Psn),
    /// After a READ of this many bytes; the number of responses depends on the MTU.
    AfterRead {
        psn: Psn,
        length: u32,
    },
}

/// Where in a message the last packet in order was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Message {
    #[default]
    Unknown,
    Between,
    Inside,
}

/// A NAK that was captured since the last packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refusal {
    Sequence,
    NotReady,
}

impl Requests {
    /// Creates those of a queue pair in a capture that begins at this time.
    pub(crate) fn new(captured_from: u64) -> Self {
        Self {
            captured_from,
            ..Self::default()
        }
    }

    /// The next packet.
    pub(crate) fn sent(&mut self, at: u64, headers: &Headers, payload: u32) {
        self.packets += 1;
        self.first_at.get_or_insert(at);
        let psn = headers.psn;
        self.learn_mtu(headers.opcode(), payload);
        let ahead = self.ahead(psn);
        if ahead >= 0 {
            self.new_packet(at, headers, ahead.unsigned_abs());
        } else {
            let is_late = self.fill_hole(psn);
            self.repeated += u64::from(!is_late);
            self.message = Message::Unknown;
            // A packet that others have overtaken comes soon; one that was lost is sent again later.
            let was_lost = !is_late
                || self.refused.is_some()
                || at.saturating_sub(self.last_at) >= OVERTAKEN_NS;
            if was_lost && self.last.is_none_or(|last| !psn.is_after(last)) {
                self.new_round(at, psn);
            }
        }
        self.last = Some(psn);
        self.last_at = at;
        self.refused = None;
    }

    /// What a response says that was captured: everything before `psn` has arrived, and if `up_to` says so
    /// the packet itself.
    pub(crate) fn answered(&mut self, at: u64, psn: Psn, includes: bool, refusal: Option<Refusal>) {
        if !self.is_outstanding(psn) {
            return;
        }
        let newest = if includes { psn } else { psn.wrapping_sub(1) };
        let is_progress = self.acknowledged.is_none_or(|old| newest.is_after(old));
        if is_progress {
            self.acknowledged = Some(newest);
            if self
                .open
                .as_ref()
                .is_some_and(|open| !open.psn.is_after(newest))
            {
                self.close(End::Answered { at });
            }
            for (sent, since) in &mut self.recent {
                // The timer of what is now the oldest begins anew.
                if sent.is_after(newest) {
                    *since = (*since).max(at);
                }
            }
        }
        self.refused = refusal.or(self.refused);
    }

    /// Whether a response with this PSN may be one to these requests.
    pub(crate) fn is_outstanding(&self, psn: Psn) -> bool {
        let Some(first) = self.first else {
            return false;
        };
        let end = match self.next {
            Next::Any => return false,
            Next::Exactly(psn) => psn,
            Next::AfterRead { psn, length } => psn.wrapping_add(responses(length, MTUS[0])),
        };
        psn.is_before(end) && end.since(psn) <= OUTSTANDING_MAX && !psn.is_before(first)
    }

    /// The capture ends.
    pub(crate) fn finish(&mut self, at: u64) {
        let for_ns = at.saturating_sub(self.last_at);
        // If an answer was captured that did not arrive, there may have been another one.
        let is_unanswered =
            |open: &Ladder| self.acknowledged.is_some_and(|it| open.psn.is_after(it));
        let end = match self.open.as_ref().is_some_and(is_unanswered) {
            true => End::Silent { for_ns },
            false => End::Unknown { for_ns },
        };
        self.close(end);
    }

    /// Returns how many packets were not acknowledged, if responses were captured.
    #[must_use]
    pub fn unanswered(&self) -> Option<u32> {
        let Next::Exactly(next) = self.next else {
            return None;
        };
        Some(next.since(self.acknowledged?) - 1)
    }

    /// Returns the newest PSN.
    #[must_use]
    pub fn newest(&self) -> Option<Psn> {
        match self.next {
            Next::Any => None,
            Next::Exactly(next) => Some(next.wrapping_sub(1)),
            Next::AfterRead { psn, .. } => Some(psn),
        }
    }

    /// How far `psn` lies ahead of the next one that is expected; below 0 for a packet seen before.
    fn ahead(&mut self, psn: Psn) -> i32 {
        match self.next {
            Next::Any => {
                self.first = Some(psn);
                0
            }
            Next::Exactly(next) => psn.delta(next),
            Next::AfterRead { psn: read, .. } if !psn.is_after(read) => -1,
            Next::AfterRead { psn: read, length } => {
                let distance = psn.since(read);
                let fitting = |mtu: &u32| responses(length, *mtu) == distance;
                let mut mtus = MTUS.into_iter().filter(fitting);
                match (mtus.next(), mtus.next()) {
                    (Some(mtu), None) => self.mtu = Some(mtu),
                    (None, _) if distance < responses(length, MTUS[4]) => return -1,
                    _ => {}
                }
                0
            }
        }
    }

    fn new_packet(&mut self, at: u64, headers: &Headers, ahead: u32) {
        let psn = headers.psn;
        if ahead > 0 {
            self.missing += u64::from(ahead);
            let from = psn.wrapping_sub(ahead);
            self.first_missing.get_or_insert((from, at));
            if self.holes.len() == HOLES_MAX {
                self.holes.remove(0);
            }
            self.holes.push((from, ahead));
            self.message = Message::Unknown;
        }
        self.follow(headers);
        let is_fresh = self.last.is_none() || at.saturating_sub(self.last_at) >= IDLE_NS;
        if is_fresh {
            self.recent.clear();
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((psn, at));
        self.next = match headers.opcode() {
            Opcode::RcReadRequest | Opcode::XrcReadRequest => {
                let length = headers.reth().map_or(0, |reth| reth.length);
                match self.mtu {
                    _ if length <= MTUS[0] => Next::Exactly(psn.next()),
                    Some(mtu) => Next::Exactly(psn.wrapping_add(responses(length, mtu))),
                    None => Next::AfterRead { psn, length },
                }
            }
            _ => Next::Exactly(psn.next()),
        };
    }

    /// Whether this opcode may follow the last one.
    fn follow(&mut self, headers: &Headers) {
        let opcode = headers.opcode();
        let fits = match self.message {
            Message::Unknown => true,
            Message::Between => opcode.starts_message(),
            Message::Inside => !opcode.starts_message(),
        };
        if !fits {
            self.out_of_sequence += 1;
            let first = (headers.psn, opcode);
            self.first_out_of_sequence.get_or_insert(first);
        }
        self.message = match opcode.ends_message() {
            true => Message::Between,
            false => Message::Inside,
        };
    }

    fn learn_mtu(&mut self, opcode: Opcode, payload: u32) {
        if !opcode.ends_message() && MTUS.contains(&payload) {
            self.mtu = Some(payload);
        }
    }

    fn fill_hole(&mut self, psn: Psn) -> bool {
        let lies_in = |(from, len): &(Psn, u32)| !psn.is_before(*from) && psn.since(*from) < *len;
        let Some(at) = self.holes.iter().position(lies_in) else {
            return false;
        };
        let (from, len) = self.holes.swap_remove(at);
        let before = psn.since(from);
        for (from, len) in [(from, before), (psn.next(), len - before - 1)] {
            if len > 0 && self.holes.len() < HOLES_MAX {
                self.holes.push((from, len));
            }
        }
        self.late += 1;
        true
    }

    fn new_round(&mut self, at: u64, psn: Psn) {
        self.rounds += 1;
        match self.refused {
            Some(Refusal::Sequence) => self.rounds_after_nak += 1,
            Some(Refusal::NotReady) => self.rounds_after_rnr += 1,
            None => return self.waited(at, psn),
        }
        self.close(End::Answered { at });
        self.restart(at);
    }

    /// The queue pair goes back because nothing came.
    fn waited(&mut self, at: u64, psn: Psn) {
        if let Some(open) = &mut self.open
            && open.psn == psn
        {
            open.push(at);
            return;
        }
        self.close(End::Answered { at });
        let since = self.recent.iter().find(|(sent, _)| *sent == psn);
        let oldest = self.recent.front().is_some_and(|(sent, _)| *sent == psn);
        let (start, since) = match since {
            // Its timer ran from then, if nothing older was outstanding.
            Some((_, since)) if oldest || self.acknowledged.is_some() => (Start::Known, *since),
            Some((_, since)) => (Start::NotBefore, *since),
            None => (Start::Unknown, self.last_at),
        };
        let mut open = Ladder::new(psn, start, since, at);
        open.is_midway = self.is_midway(&open);
        self.open = Some(open);
        self.restart(at);
    }

    /// Whether a ladder may have begun before the capture. If so, the packet that the capture begins with
    /// was sent again already, and the wait before that was not longer than the next one.
    fn is_midway(&self, ladder: &Ladder) -> bool {
        let Some((first, at)) = self.first.zip(self.first_at) else {
            return false;
        };
        let unseen = Span::from_nanos(at.saturating_sub(self.captured_from));
        !ladder.psn.is_after(first) && ladder.waits.first().is_some_and(|wait| unseen <= *wait)
    }

    /// Timers of what is sent again begin anew.
    fn restart(&mut self, at: u64) {
        for (_, since) in &mut self.recent {
            *since = at;
        }
    }

    fn close(&mut self, end: End) {
        let Some(mut ladder) = self.open.take() else {
            return;
        };
        ladder.end = end;
        if self.ladders.len() == LADDERS_MAX {
            self.ladders_dropped += 1;
            let weights = self.ladders.iter().map(Ladder::weight).enumerate();
            let least = weights.min_by_key(|(_, weight)| *weight);
            match least {
                Some((at, weight)) if weight < ladder.weight() => self.ladders.remove(at),
                _ => return,
            };
        }
        self.ladders.push(ladder);
    }
}

/// Packets of the answer to a READ.
fn responses(length: u32, mtu: u32) -> u32 {
    length.div_ceil(mtu).max(1)
}
