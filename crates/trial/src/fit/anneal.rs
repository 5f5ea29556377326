//! Simulated annealing: a walk that goes on to a worse place the more readily, the hotter it still is.

use crate::random::Dice;

/// Walks this many steps from `start` and returns the place with the lowest cost.
///
/// `next` proposes a step. A step to a lower cost is always taken, another with the probability of Barker's rule
/// (Austr. J. Phys. 18, 119, 1965), at most one half. The temperature, in units of the cost, is divided by the
/// number of the step.
///
/// # Errors
/// Returns the first error of `cost`.
pub(super) fn anneal<P: Copy, E>(
    start: P,
    steps: u32,
    temperature: f64,
    dice: &Dice,
    next: impl Fn(&P) -> P,
    cost: impl Fn(&P) -> Result<f64, E>,
) -> Result<P, E> {
    let mut here = (start, cost(&start)?);
    let mut best = here;
    for step in 1..=steps {
        let place = next(&here.0);
        let there = (place, cost(&place)?);
        let temperature = temperature / f64::from(step);
        let probability = 1.0 / (1.0 + ((there.1 - here.1) / temperature).exp());
        // Each step uses one number, so that later ones do not depend on it.
        let drawn = dice.share();
        if there.1 < here.1 || drawn < probability {
            here = there;
        }
        if here.1 < best.1 {
            best = here;
        }
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use super::*;

    /// Costs by place: the lowest lies behind a ridge, which a walk downhill never crosses.
    const COSTS: [f64; 9] = [3.0, 2.0, 1.0, 1.4, 1.6, 1.2, 0.5, 0.0, 2.0];

    /// The best place of a walk between neighbours, and all places whose cost was asked for.
    fn walk(temperature: f64, seed: u64) -> (usize, Vec<usize>) {
        let dice = Dice::new(seed);
        let seen = RefCell::new(Vec::new());
        let next = |at: &usize| match dice.below(2) {
            0 => at.saturating_sub(1),
            _ => (at + 1).min(COSTS.len() - 1),
        };
        let cost = |at: &usize| {
            seen.borrow_mut().push(*at);
            Ok::<_, Infallible>(COSTS[*at])
        };
        let Ok(best) = anneal(0, 400, temperature, &Dice::new(!seed), next, cost);
        (best, seen.into_inner())
    }

    #[test]
    fn heat_crosses_a_ridge_that_holds_a_cold_walk() {
        for seed in 0..50 {
            assert_eq!(walk(1e-9, seed).0, 2, "seed {seed}");
        }
        let crossed = (0..50).filter(|seed| walk(20.0, *seed).0 == 7).count();
        assert!(crossed >= 30, "{crossed} of 50");
    }

    #[test]
    fn the_best_place_seen_is_returned() {
        for seed in 0..50 {
            let (best, seen) = walk(20.0, seed);
            assert_eq!(seen.len(), 401);
            // The last one may have been refused, but a lower cost never is.
            let least = seen.iter().map(|at| COSTS[*at]).fold(f64::MAX, f64::min);
            assert!(COSTS[best] <= least, "seed {seed}");
        }
    }

    #[test]
    fn an_error_ends_the_walk() {
        let cost = |at: &u32| if *at < 3 { Ok(0.0) } else { Err(*at) };
        let walked = anneal(0, 100, 1.0, &Dice::new(1), |at| at + 1, cost);
        assert_eq!(walked, Err(3));
    }
}
