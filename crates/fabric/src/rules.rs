//! Rules for single packets: a script, or anything else that inspects them.

use std::fmt;

use ferroce_base::time::Span;

/// What happens to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It does not.
    Lost,
    /// It arrives, and once more this many nanoseconds later.
    Twice(u64),
    /// It arrives this many nanoseconds later.
    Late(u64),
    /// Each copy arrives this many nanoseconds later.
    Copies([Option<u64>; 2]),
}

impl Fate {
    /// How much later each copy arrives.
    pub(crate) fn delays(self) -> impl Iterator<Item = Span> {
        let delays = match self {
            Self::Arrives => [Some(0), None],
            Self::Lost => [None; 2],
            Self::Twice(ns) => [Some(0), Some(ns)],
            Self::Late(ns) => [Some(ns), None],
            Self::Copies(delays) => delays,
        };
        delays.into_iter().flatten().map(Span::from_nanos)
    }
}

type Rule<P> = Box<dyn FnMut(&P) -> Option<Fate> + Send>;

/// Rules for packets: the first one that returns a fate decides.
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
    /// Appends a rule.
    pub fn add(&mut self, rule: impl FnMut(&P) -> Option<Fate> + Send + 'static) {
        self.0.push(Box::new(rule));
    }

    /// Appends a rule for the next `times` packets that match.
    pub fn strike(
        &mut self,
        times: usize,
        fate: Fate,
        matches: impl Fn(&P) -> bool + Send + 'static,
    ) {
        let mut left = times;
        self.add(move |packet| {
            if left == 0 || !matches(packet) {
                return None;
            }
            left -= 1;
            Some(fate)
        });
    }

    /// Removes all rules, so every packet arrives again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether there are no rules.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What happens to a packet.
    pub(crate) fn judge(&mut self, packet: &P) -> Fate {
        let mut rules = self.0.iter_mut();
        rules.find_map(|rule| rule(packet)).unwrap_or(Fate::Arrives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_says_something_decides() {
        let mut rules = Rules::default();
        rules.strike(2, Fate::Lost, |packet| packet % 2 == 0);
        rules.add(|packet| (*packet == 4).then_some(Fate::Twice(9)));
        let delays: Vec<Vec<u64>> = [2, 3, 4, 4]
            .iter()
            .map(|packet| rules.judge(packet).delays().map(Span::as_nanos).collect())
            .collect();
        assert_eq!(delays, [vec![], vec![0], vec![], vec![0, 9]]);
    }
}
