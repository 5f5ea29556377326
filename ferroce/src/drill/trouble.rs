//! The arguments that say what happens in a drill.

use std::path::PathBuf;

use clap::Args;
use ferroce_base::units::Probability;
use ferroce_device::Span;

use super::plan::{self, BEFORE, Event, Length, Lost, Peer, Plan, Port, Rail, What};
use crate::output::Failure;

/// The host to which --peer happens.
const PEER: usize = 1;

/// What happens in a drill.
#[derive(Args, Debug)]
pub(super) struct Trouble {
    /// Lengths of outages, comma-separated: a run for each; forever is one without end
    #[arg(
        long,
        value_name = "TIME",
        value_delimiter = ',',
        default_value = "300ms,3s"
    )]
    outage: Vec<Length>,
    /// What the port does in an outage
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Port::Down)]
    port: Port,
    /// With --port up: which packets of the rail are lost
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Lost::Both)]
    direction: Lost,
    /// Rails that have the outage, comma-separated: h0r0 is the first rail of the first host
    #[arg(
        long,
        value_name = "RAIL",
        value_delimiter = ',',
        default_value = "h0r0"
    )]
    rail: Vec<Rail>,
    /// What happens to the second host, in place of an outage of rails
    #[arg(long, value_name = "WHAT", value_enum)]
    peer: Option<Peer>,
    /// Random loss on all rails from the beginning on, such as 0.1%
    #[arg(long, value_name = "P")]
    loss: Option<Probability>,
    /// A file of events, in place of outages: lines such as 1s h0r0 down for 300ms
    #[arg(long, value_name = "FILE", conflicts_with_all = ["peer"])]
    events: Vec<PathBuf>,
}

impl Trouble {
    /// The plans, which happen at places that there are.
    pub(super) fn plans(&self, hosts: usize, rails: usize) -> Result<Vec<Plan>, Failure> {
        let plans = match &self.events[..] {
            [] => self.of_outages(hosts, rails),
            files => files
                .iter()
                .map(|file| plan::of_file(file))
                .collect::<Result<_, _>>()?,
        };
        for plan in &plans {
            plan.check(hosts, rails)?;
        }
        Ok(plans)
    }

    /// A plan for each length of an outage.
    fn of_outages(&self, hosts: usize, rails: usize) -> Vec<Plan> {
        let lengths: &[Length] = match self.peer {
            Some(Peer::Kill) => &[Length(Span::NEVER)],
            _ => &self.outage,
        };
        let plan = |length: &Length| {
            let what: Vec<What> = match self.peer {
                Some(Peer::Stop) => vec![What::Stop(PEER, *length)],
                Some(Peer::Kill) => vec![What::Kill(PEER)],
                Some(Peer::Restart) => vec![What::Restart(PEER, *length)],
                None => {
                    let what = |rail: &Rail| match self.port {
                        Port::Down => What::Down(*rail, *length),
                        Port::Up => What::Silent(*rail, self.direction, *length),
                        Port::Flap => What::Flap(*rail, *length),
                    };
                    self.rail.iter().map(what).collect()
                }
            };
            let name = match self.peer {
                Some(Peer::Kill) => "kill".to_owned(),
                Some(Peer::Stop) => format!("stop {length}"),
                Some(Peer::Restart) => format!("restart {length}"),
                None => length.to_string(),
            };
            let at = BEFORE;
            let events = self
                .lossy(hosts, rails)
                .chain(what.into_iter().map(|what| Event { at, what }));
            let events = events.collect();
            Plan { name, events }
        };
        lengths.iter().map(plan).collect()
    }

    /// The loss that all rails have.
    fn lossy(&self, hosts: usize, rails: usize) -> impl Iterator<Item = Event> {
        let all = (0..hosts).flat_map(move |host| (0..rails).map(move |rail| Rail { host, rail }));
        let loss = self.loss;
        all.filter_map(move |rail| {
            let what = What::Loss(rail, loss?);
            Some(Event {
                at: Span::ZERO,
                what,
            })
        })
    }
}
