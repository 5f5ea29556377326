//! Rules.

use ferroce_base::random::{mix, share};
use ferroce_base::units::Probability;

use crate::effect::Effect;
use crate::target::Target;

/// What happens, to what, and when.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// What it happens to.
    pub target: Target,
    /// What happens.
    pub effect: Effect,
    /// To which of the targets that the rule meets.
    pub when: When,
    /// Which targets the rule meets.
    pub scope: Scope,
}

/// To which of the targets that a rule meets it happens. A rule counts them from 1, in each process from
/// when the process has the rule, and over all that is in its scope.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum When {
    /// To all.
    Always,
    /// To one.
    Nth(u64),
    /// To each that has a number divisible by this one.
    Every(u64),
    /// To some, by chance; the seed decides to which.
    Chance {
        /// Of each.
        probability: Probability,
        /// Where the random numbers come from.
        seed: u64,
    },
}

impl When {
    /// Whether it happens to the one with this number; the first has 1.
    pub fn is_due(self, number: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(n) => number == n,
            Self::Every(n) => number.is_multiple_of(n),
            Self::Chance { probability, seed } => share(mix(seed, number)) < probability.as_f64(),
        }
    }
}

/// Which targets a rule meets: those that have all that is given.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Scope {
    /// Of programs with this name.
    pub program: Option<String>,
    /// On this device.
    pub device: Option<String>,
    /// On the queue pair with this number.
    pub qp: Option<u32>,
}

/// Of longer names of programs the kernel keeps so much.
const COMM_MAX: usize = 15;

impl Scope {
    /// Whether the rule is for a program: one with this name as `ps` and `ferroce res` show it, which
    /// are the first 15 bytes.
    pub fn is_of(&self, comm: &str) -> bool {
        let kept = |name: &str| Vec::from(&name.as_bytes()[..name.len().min(COMM_MAX)]);
        let program = self.program.as_deref();
        program.is_none_or(|program| kept(program) == kept(comm))
    }

    /// Whether all that is in another scope is in this one.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        /// Whether a condition, if there is one, is the other's as well.
        fn holds<T: PartialEq>(own: &Option<T>, other: &Option<T>) -> bool {
            own.is_none() || own == other
        }
        holds(&self.program, &other.program)
            && holds(&self.device, &other.device)
            && holds(&self.qp, &other.qp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_what_the_kernel_keeps_of_their_names() {
        let of = |program: &str| Scope {
            program: Some(program.to_owned()),
            ..Scope::default()
        };
        assert!(Scope::default().is_of("job"));
        assert!(of("job").is_of("job") && !of("job").is_of("jobs"));
        assert!(of("ib_atomic_latency").is_of("ib_atomic_laten"));
        assert!(!of("ib_atomic_lat").is_of("ib_atomic_laten"));
    }
}
