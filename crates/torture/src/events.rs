//! What is due, in the order of its time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_device::Time;

use crate::network::Flight;

/// Something that is due.
#[derive(Debug)]
pub(crate) enum Event {
    /// A packet reaches a host.
    Arrival(usize, Flight),
    /// A host's device has a deadline.
    Deadline(usize),
    /// A program that was idle polls.
    Poll(usize),
    /// A host that was stopped goes on.
    Resume(usize),
    /// The program of a host looks at the events of its connections again.
    Look(usize),
    /// A program has thought about a request for a connection.
    Answer(usize),
}

/// Events by time; those of the same time in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Events {
    due: BinaryHeap<Reverse<(Time, u64, usize)>>,
    places: Vec<Option<Event>>,
    free: Vec<usize>,
    added: u64,
}

impl Events {
    pub(crate) fn add(&mut self, at: Time, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(event);
        self.added += 1;
        self.due.push(Reverse((at, self.added, place)));
    }

    /// Packets under way.
    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.places.iter().filter_map(|event| match event {
            Some(Event::Arrival(_, flight)) => Some(flight),
            _ => None,
        })
    }

    /// When the next event is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        let Reverse((at, _, place)) = self.due.pop()?;
        self.free.push(place);
        let event = self.places[place].take();
        Some((at, event.expect("an event in its place")))
    }
}
