//! `ferroce adp`: adaptive retransmission.

mod check;
mod codec;
mod compare;
mod emit;
mod fit;
mod import;
mod input;
mod live;
pub(crate) mod plot;
mod profiles;
mod progress;
mod trace;
mod trial_args;

pub(crate) use live::deadly;

pub(crate) use self::input::{
    Chosen, DeviceArgs, ExtendedRetryArgs, Personality, PersonalityArgs, choose, load, parse,
    profile_of, retry_count,
};

use clap::{Args, Subcommand};

use crate::output::{Failure, Output};

/// The commands about adaptive retransmission.
#[derive(Args, Debug)]
pub struct Command {
    #[command(subcommand)]
    verb: Verb,
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Check(args) => args.run(to),
            Verb::Trace(args) => args.run(to),
            Verb::Encode(args) => args.run(to),
            Verb::Decode(args) => args.run(to),
            Verb::Plot(args) => args.run(to),
            Verb::Apply(args) => args.run(to),
            Verb::Show(args) => args.run(to),
            Verb::Reset(args) => args.run(to),
            Verb::Emit(args) => args.run(to),
            Verb::Profile(args) => args.run(to),
            Verb::Profiles(args) => args.run(to),
            Verb::Import(args) => args.run(to),
            Verb::Compare(args) => args.run(to),
            Verb::Fit(args) => args.run(to),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    Check(check::Check),
    Trace(trace::Trace),
    Encode(codec::Encode),
    Decode(codec::Decode),
    Plot(plot::Plot),
    Apply(live::Apply),
    Show(live::Show),
    Reset(live::Reset),
    Emit(emit::Emit),
    Profile(profiles::Profile),
    /// What `ferroce adp profile` was called
    #[command(hide = true)]
    Profiles(profiles::Old),
    Import(import::Import),
    Compare(compare::Compare),
    Fit(fit::Fit),
}
