//! The assignment of points to workers.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::plan::Id;

/// One of several equal parts of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    index: u64,
    count: u64,
}

/// The reason why the shard cannot be determined.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum ShardError {
    /// A text is not one.
    #[error("must be i/S with i from 0 to S-1, for example 0/8")]
    Text,
    /// The number in the environment is invalid or too large.
    #[error("{variable} = {value}: must be a number from 0 to {}; or say which shard: --shard 0/{count}", .count - 1)]
    Index {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Shards that there are.
        count: u64,
    },
    /// The environment specifies the shard, but not the number of shards.
    #[error("{0} says which shard this is, and nothing says of how many; add --shards S")]
    Count(&'static str),
}

/// Where schedulers say which of their tasks this is, and of how many, if they do.
const SCHEDULERS: &[(&str, Option<&str>)] = &[
    // The number of tasks is no use: a part of an array may be submitted again.
    ("SLURM_ARRAY_TASK_ID", None),
    ("JOB_COMPLETION_INDEX", None),
    ("HQ_TASK_ID", None),
    ("OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE")),
    ("PMI_RANK", Some("PMI_SIZE")),
];

impl Shard {
    /// The only shard: everything.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Creates a shard, given its index and the number of shards.
    #[must_use]
    pub fn new(index: u64, count: u64) -> Option<Self> {
        (index < count).then_some(Self { index, count })
    }

    /// Reads the shard from the environment of any supported scheduler. `count` is the number of
    /// shards, if it is known otherwise. Returns `None` if no scheduler's variables are set.
    ///
    /// # Errors
    /// Returns an error if what it says is of no use.
    pub fn of_environment(
        variable: impl Fn(&str) -> Option<String>,
        count: Option<u64>,
    ) -> Result<Option<Self>, ShardError> {
        let known = SCHEDULERS.iter();
        let mut known = known.filter_map(|(index, size)| Some((*index, variable(index)?, *size)));
        let Some((name, value, size)) = known.next() else {
            return Ok(None);
        };
        let size = || variable(size?)?.parse().ok();
        let count = count.or_else(size).ok_or(ShardError::Count(name))?;
        let index = value.trim().parse().ok();
        match index.and_then(|index| Self::new(index, count)) {
            Some(shard) => Ok(Some(shard)),
            None => Err(ShardError::Index {
                variable: name,
                value,
                count,
            }),
        }
    }

    /// Returns whether a point belongs to this shard.
    #[must_use]
    pub fn has(&self, id: Id) -> bool {
        id.0 % self.count == self.index
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let (index, count) = text.split_once('/').ok_or(ShardError::Text)?;
        let number = |text: &str| text.trim().parse().map_err(|_| ShardError::Text);
        Self::new(number(index)?, number(count)?).ok_or(ShardError::Text)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_point_is_of_one_shard(id: u64, count in 1_u64..300) {
            let shards = (0..count).filter_map(|index| Shard::new(index, count));
            prop_assert_eq!(shards.filter(|shard| shard.has(Id(id))).count(), 1);
        }
    }

    fn environment(
        variables: &[(&str, &str)],
        count: Option<u64>,
    ) -> Result<Option<Shard>, ShardError> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Shard::of_environment(get, count)
    }

    #[test]
    fn schedulers_say_which_shard() {
        assert_eq!(environment(&[("HOME", "/")], Some(3)), Ok(None));
        for (variables, count, expected) in [
            (&[("SLURM_ARRAY_TASK_ID", "3")][..], Some(8), "3/8"),
            (&[("JOB_COMPLETION_INDEX", "0")], Some(2), "0/2"),
            (&[("HQ_TASK_ID", "1")], Some(2), "1/2"),
            (
                &[("OMPI_COMM_WORLD_RANK", "4"), ("OMPI_COMM_WORLD_SIZE", "5")],
                None,
                "4/5",
            ),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "1")], None, "0/1"),
        ] {
            let shard = environment(variables, count).unwrap().unwrap();
            assert_eq!(shard.to_string(), expected);
        }
        let error = environment(&[("SLURM_ARRAY_TASK_ID", "8")], Some(8)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "SLURM_ARRAY_TASK_ID = 8: must be a number from 0 to 7; or say which shard: --shard 0/8"
        );
        let error = environment(&[("HQ_TASK_ID", "8")], None).unwrap_err();
        assert!(error.to_string().ends_with("add --shards S"));
    }

    #[test]
    fn shards_are_written_as_fractions() {
        assert_eq!("7/8".parse::<Shard>().unwrap().to_string(), "7/8");
        for text in ["8/8", "1", "/", "-1/2", "0/0", "a/b"] {
            assert_eq!(text.parse::<Shard>(), Err(ShardError::Text), "{text}");
        }
    }
}
