//! The border of a part of a network: what leaves it, and what comes from other parts.
//!
//! A line between two parts has a half in each: frames leave by the first and arrive by the second. What has left is
//! kept in order, for each other part, until it is taken there; that is early enough before anything can arrive that
//! was sent in the meantime, see [`Fabric::lookahead`](crate::Fabric::lookahead).

use ferroce_base::time::Time;

use super::Network;
use crate::frame::{Frame, Parcel};
use crate::line::Item;
use crate::topology::Part;

/// In place of a node of another part.
pub(super) const ELSEWHERE: u32 = u32::MAX;

/// A part's border.
pub(crate) struct Border<P> {
    /// The numbers in the whole network of what is here.
    pub(crate) part: Part,
    /// Where lines lead, by their numbers here: a part, and the line's number there.
    pub(super) exits: Vec<(u16, u32)>,
    /// What has left for each part.
    leaving: Vec<Batch<P>>,
    /// The parts that something has left for.
    used: Vec<u16>,
    /// What has come from others, to be put on lines.
    arriving: Vec<Batch<P>>,
    /// Batches that are not used.
    spare: Vec<Batch<P>>,
}

/// What has left one part for another one, in order.
pub(crate) struct Batch<P> {
    /// When the first of it arrives.
    first: Time,
    crossings: Vec<Crossing<P>>,
}

/// Something between two parts.
struct Crossing<P> {
    at: Time,
    /// The line's number where it arrives.
    line: u32,
    item: Item,
    /// Of a frame.
    packet: Option<P>,
}

impl<P> Default for Batch<P> {
    fn default() -> Self {
        Self {
            first: Time::NEVER,
            crossings: Vec::new(),
        }
    }
}

impl<P> Border<P> {
    pub(super) fn new(part: Part, parts: usize) -> Self {
        Self {
            part,
            exits: Vec::new(),
            leaving: (0..parts).map(|_| Batch::default()).collect(),
            used: Vec::new(),
            arriving: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// When the first of what has come from other parts arrives.
    pub(super) fn next(&self) -> Option<Time> {
        self.arriving.iter().map(|batch| batch.first).min()
    }

    /// A part that something has left for, and what; none of it is left here.
    pub(crate) fn hand_over(&mut self) -> Option<(usize, Batch<P>)> {
        let to = usize::from(self.used.pop()?);
        let empty = self.spare.pop().unwrap_or_default();
        Some((to, std::mem::replace(&mut self.leaving[to], empty)))
    }

    /// Takes what has left another part for this one.
    pub(crate) fn take(&mut self, batch: Batch<P>) {
        self.arriving.push(batch);
    }

    /// Whether nothing is between this part and others.
    pub(super) fn is_empty(&self) -> bool {
        self.arriving.is_empty() && self.used.is_empty()
    }
}

impl<P: Parcel> Network<P> {
    /// Frames between this part and others, and their packets.
    pub(crate) fn crossing(&self) -> impl Iterator<Item = (&Frame, &P)> {
        let batches = self.border.leaving.iter().chain(&self.border.arriving);
        let crossings = batches.flat_map(|batch| &batch.crossings);
        crossings.filter_map(|it| match (&it.item, &it.packet) {
            (Item::Frame(frame), Some(packet)) => Some((frame, packet)),
            _ => None,
        })
    }

    /// What was put on a line last leaves this part.
    #[inline]
    pub(super) fn export(&mut self, line: u32) {
        let Some((at, item)) = self.lines[line as usize].take_last() else {
            return;
        };
        let (part, line) = self.border.exits[line as usize];
        let packet = match item {
            Item::Frame(frame) => {
                let packet = self.packets.get(frame.packet).clone();
                self.packets.give_back(frame.packet);
                Some(packet)
            }
            Item::Pause(_) => None,
        };
        let batch = &mut self.border.leaving[usize::from(part)];
        if batch.crossings.is_empty() {
            self.border.used.push(part);
        }
        batch.first = batch.first.min(at);
        batch.crossings.push(Crossing {
            at,
            line,
            item,
            packet,
        });
    }

    /// Puts on lines what has come from other parts.
    pub(crate) fn import(&mut self) {
        for mut batch in std::mem::take(&mut self.border.arriving) {
            for it in batch.crossings.drain(..) {
                let mut item = it.item;
                if let (Item::Frame(frame), Some(packet)) = (&mut item, it.packet) {
                    frame.packet = self.packets.take();
                    *self.packets.get_mut(frame.packet) = packet;
                }
                let line = &mut self.lines[it.line as usize];
                line.admit(it.at, item);
                let next = line.next();
                self.events.set(self.arrival(it.line), next);
            }
            batch.first = Time::NEVER;
            self.border.spare.push(batch);
        }
    }
}
