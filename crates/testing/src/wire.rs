//! Packets under way, and what becomes of them.

use std::collections::BTreeMap;
use std::fmt;

use ferroce_hca::Time;

/// Packets under way, in the order in which they arrive.
#[derive(Debug)]
pub struct Wire<P> {
    flights: BTreeMap<(Time, u64), P>,
    order: u64,
}

impl<P> Default for Wire<P> {
    fn default() -> Self {
        Self {
            flights: BTreeMap::new(),
            order: 0,
        }
    }
}

impl<P> Wire<P> {
    /// Puts a packet on the wire. Those that arrive at the same time do so in the order in which they
    /// were sent.
    pub fn launch(&mut self, arrives: Time, packet: P) {
        self.order += 1;
        self.flights.insert((arrives, self.order), packet);
    }

    /// When the next one arrives.
    pub fn next(&self) -> Option<Time> {
        self.flights.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next one that has arrived by now.
    pub fn take_due(&mut self, now: Time) -> Option<P> {
        let entry = self.flights.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// Takes the one that is the `nth` to arrive.
    pub fn take(&mut self, nth: usize) -> Option<P> {
        let key = *self.flights.keys().nth(nth)?;
        self.flights.remove(&key)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.flights.values()
    }

    /// Loses those that come last, but for so many.
    pub fn truncate(&mut self, len: usize) {
        while self.flights.len() > len {
            self.flights.pop_last();
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Loses all of them.
    pub fn clear(&mut self) {
        self.flights.clear();
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It does not.
    Lost,
    /// It arrives, and once more so many nanoseconds later.
    Twice(u64),
    /// It arrives so many nanoseconds later.
    Late(u64),
    /// Each copy arrives so many nanoseconds later.
    Copies([Option<u64>; 2]),
}

impl Fate {
    /// How many nanoseconds later each copy arrives.
    pub fn delays(self) -> impl Iterator<Item = u64> {
        let delays = match self {
            Self::Arrives => [Some(0), None],
            Self::Lost => [None; 2],
            Self::Twice(ns) => [Some(0), Some(ns)],
            Self::Late(ns) => [Some(ns), None],
            Self::Copies(delays) => delays,
        };
        delays.into_iter().flatten()
    }
}

type Rule<P> = Box<dyn FnMut(&P) -> Option<Fate>>;

/// What decides on the fate of packets: the first rule that has an opinion.
pub struct Rules<P>(Vec<Rule<P>>);

impl<P> Default for Rules<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P> fmt::Debug for Rules<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.0.len()).finish()
    }
}

impl<P> Rules<P> {
    /// Another rule, behind those there are.
    pub fn add(&mut self, rule: impl FnMut(&P) -> Option<Fate> + 'static) {
        self.0.push(Box::new(rule));
    }

    /// A rule for the next `times` packets that match.
    pub fn strike(&mut self, times: usize, fate: Fate, matches: impl Fn(&P) -> bool + 'static) {
        let mut left = times;
        self.add(move |packet| {
            if left == 0 || !matches(packet) {
                return None;
            }
            left -= 1;
            Some(fate)
        });
    }

    /// Every packet arrives again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What becomes of a packet.
    pub fn judge(&mut self, packet: &P) -> Fate {
        let mut rules = self.0.iter_mut();
        rules.find_map(|rule| rule(packet)).unwrap_or(Fate::Arrives)
    }
}
