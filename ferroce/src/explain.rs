//! `ferroce explain`: explains device behaviour.

mod app;
mod error;
mod survive;
mod timeout;

use clap::{Args, Subcommand};

pub(crate) use self::error::recent_errors;
pub(crate) use self::timeout::endurance_of;
use crate::output::{Failure, Output};

/// The commands that explain.
#[derive(Args, Debug)]
pub struct Command {
    #[command(subcommand)]
    topic: Topic,
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.topic {
            Topic::Error(args) => args.run(to),
            Topic::Timeout(args) => args.run(to),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Topic {
    Error(error::Error),
    Timeout(timeout::Timeout),
}
