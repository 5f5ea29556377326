//! Combinations of the axes' values.

use ferroce_base::random::{mix, share};
use toml::Value;

use crate::file::{Axis, Choice, Choices, Design};
use crate::random::permutation;

/// One combination.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Combination {
    /// One for each axis.
    pub(crate) labels: Vec<String>,
    /// Fields and their values; those of later axes win.
    pub(crate) set: Vec<(String, Value)>,
}

/// How many combinations a design has.
pub(crate) fn count(design: Design, axes: &[Axis]) -> u64 {
    let listed = |axis: &Axis| match &axis.choices {
        Choices::Listed(choices) => choices.len() as u64,
        Choices::Range(_) => 1,
    };
    match design {
        Design::Grid => axes.iter().map(listed).fold(1, u64::saturating_mul),
        Design::List => axes.first().map_or(1, listed),
        Design::Random(samples) | Design::LatinHypercube(samples) => samples.into(),
    }
}

/// All combinations, the first axis changing slowest.
pub(crate) fn combinations(design: Design, axes: &[Axis], seed: u64) -> Vec<Combination> {
    let count = count(design, axes);
    let columns: Vec<Vec<Choice>> = match design {
        Design::Grid => grid(axes, count),
        Design::List => axes.iter().map(|axis| listed(axis).to_vec()).collect(),
        Design::Random(_) | Design::LatinHypercube(_) => {
            let is_even = matches!(design, Design::LatinHypercube(_));
            let seeds = (0..).map(|number| mix(seed, number));
            let drawn = axes.iter().zip(seeds);
            drawn
                .map(|(axis, seed)| draw(axis, count, is_even, seed))
                .collect()
        }
    };
    let combine = |row: u64| {
        let row = columns.iter().map(|column| &column[row as usize]);
        Combination {
            labels: row.clone().map(|choice| choice.label.clone()).collect(),
            set: row.flat_map(|choice| choice.set.clone()).collect(),
        }
    };
    (0..count).map(combine).collect()
}

fn listed(axis: &Axis) -> &[Choice] {
    match &axis.choices {
        Choices::Listed(choices) => choices,
        Choices::Range(_) => &[],
    }
}

/// The values of each axis, row by row.
fn grid(axes: &[Axis], rows: u64) -> Vec<Vec<Choice>> {
    let mut repeats = rows;
    let mut column = |axis: &Axis| {
        let choices = listed(axis);
        repeats /= choices.len().max(1) as u64;
        let at = |row: u64| choices[(row / repeats) as usize % choices.len()].clone();
        (0..rows).map(at).collect()
    };
    axes.iter().map(&mut column).collect()
}

/// Values at random; evenly: one from each of as many equal parts, in random order.
fn draw(axis: &Axis, count: u64, is_even: bool, seed: u64) -> Vec<Choice> {
    let shares = (0..count).map(|row| share(mix(seed, row)));
    let shares: Vec<f64> = match is_even {
        true => {
            let parts = permutation(count as usize, mix(seed, count));
            let within = parts.into_iter().zip(shares);
            within
                .map(|(part, share)| (part as f64 + share) / count as f64)
                .collect()
        }
        false => shares.collect(),
    };
    let choice = |share: f64| match &axis.choices {
        Choices::Listed(choices) => choices[(share * choices.len() as f64) as usize].clone(),
        Choices::Range(range) => Choice::of(&axis.name, range.draw(share)),
    };
    shares.into_iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Sweep;

    fn labels(head: &str, axes: &str) -> Vec<Vec<String>> {
        let sweep = Sweep::parse(&format!("scenario = 's'\n{head}\n{axes}")).unwrap();
        let all = combinations(sweep.design, &sweep.axes, 7);
        assert_eq!(all.len() as u64, count(sweep.design, &sweep.axes));
        all.into_iter().map(|it| it.labels).collect()
    }

    const LISTS: &str = "
        [[axis]]
        field = 'a'
        values = [1, 2, 3]
        [[axis]]
        field = 'b'
        values = ['x', 'y', 'z']
    ";
    const RANGES: &str = "
        [[axis]]
        field = 'a'
        range = ['0', '1s']
        [[axis]]
        field = 'b'
        values = ['x', 'y']
    ";

    #[test]
    fn a_grid_has_each_with_each() {
        let grid = labels("", LISTS);
        assert_eq!(grid.len(), 9);
        assert_eq!(grid[1], ["1", "y"]);
        assert_eq!(grid[3], ["2", "x"]);
        assert_eq!(labels("", "").len(), 1);
    }

    #[test]
    fn a_list_has_one_of_each_at_a_time() {
        assert_eq!(
            labels("design = 'list'", LISTS),
            [["1", "x"], ["2", "y"], ["3", "z"]]
        );
    }

    #[test]
    fn a_latin_hypercube_has_one_in_each_part() {
        let points = labels("design = 'latin-hypercube'\nsamples = 50", RANGES);
        let mut parts: Vec<_> = points
            .iter()
            .map(|it| (crate::number(&it[0]).unwrap() * 50.0) as u32)
            .collect();
        parts.sort_unstable();
        assert!(parts.into_iter().eq(0..50));
        assert_eq!(points.iter().filter(|it| it[1] == "x").count(), 25);
    }

    #[test]
    fn random_points_are_the_same_for_the_same_seed() {
        let points = labels("design = 'random'\nsamples = 200", RANGES);
        assert_eq!(points, labels("design = 'random'\nsamples = 200", RANGES));
        let low = points
            .iter()
            .filter(|it| crate::number(&it[0]).unwrap() < 0.5);
        assert!((60..140).contains(&low.count()));
    }
}
