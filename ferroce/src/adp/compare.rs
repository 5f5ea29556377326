//! `ferroce adp compare`: how policies fare over many outages.

mod outages;

use std::path::Path;

use clap::Args;
use ferroce_adp::compare::{Fared, compare};
use ferroce_adp::{Policy, PolicyKind, builtin};
use ferroce_designer::figures::qp_name;
use ferroce_time::Span;
use serde::Serialize;

use self::outages::Outages;
use super::{CommonQpArgs, floor, load};
use crate::output::{Failure, Output, Table};

/// Compare how policies fare over many outages, in virtual time
///
/// Each outage is lived through by a queue pair of its own, which has something outstanding when
/// the link goes down, with its own draw of the first wait. It is back when the first
/// retransmission leaves on a link that is up. Losses on a link that is up are not part of it.
///
/// --outages takes
/// lognormal:median=300ms,p99=20s  lengths of this distribution;
/// list:300ms,2s,20s               these lengths;
/// flaps:down=2s,up=5s,count=10    a link that goes down as often as that;
/// FILE                            lengths, one on each line, in seconds or with a unit.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES, verbatim_doc_comment)]
pub(crate) struct Compare {
    /// Policies: firmware, ib, built-in profiles or profile files [default: all that are built in]
    #[arg(value_name = "POLICY")]
    policies: Vec<String>,
    /// The outages
    #[arg(long, value_name = "OUTAGES")]
    outages: String,
    #[command(flatten)]
    qp: CommonQpArgs,
    /// How many outages of a distribution, or how many queue pairs live through flaps
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Seed of what queue pairs draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take timeouts below 16 as they are, as the register field of this name does
    #[arg(long)]
    min_ack_timeout_limit_disabled: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Serialize)]
struct Comparison<'a> {
    timeout: u8,
    retry_cnt: u8,
    seed: u64,
    outages: usize,
    policies: Vec<PolicyJson<'a>>,
}

/// What dies has lost null.
#[derive(Serialize)]
struct PolicyJson<'a> {
    policy: &'a str,
    survived: f64,
    lost_p50_ns: Option<u64>,
    lost_p99_ns: Option<u64>,
    resumed_after_p50_ns: Option<u64>,
    resumed_after_p99_ns: Option<u64>,
    retransmissions: f64,
}

impl Compare {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let qp = self.qp.qp();
        if qp.timeout == 0 {
            return Err(Failure::input(
                "timeout 0 turns the timer off: nothing is sent again after an outage; write \
                 --timeout 1 or more",
            ));
        }
        let outages = Outages::read(&self.outages, self.count)?;
        let policies = self.policies()?;
        let fared: Vec<(&str, Fared)> = policies
            .iter()
            .map(|(name, policy)| (name.as_str(), compare(policy, qp, &outages.trains)))
            .collect();
        if self.json {
            let policies = fared
                .iter()
                .map(|(name, fared)| PolicyJson::new(name, fared));
            return to.json(&Comparison {
                timeout: qp.timeout,
                retry_cnt: qp.retry_cnt,
                seed: self.seed,
                outages: outages.trains.len(),
                policies: policies.collect(),
            });
        }
        to.text(&format!(
            "{}; QP {}; seed {}\n\n{}\n{}",
            outages.text,
            qp_name(qp),
            self.seed,
            table(&fared),
            "lost: time without progress, never = the job died; resume: after the link's return;\n\
             resent: retransmissions into the outage, on average\n"
        ))
    }

    /// The policies, by name.
    fn policies(&self) -> Result<Vec<(String, Policy)>, Failure> {
        let all = || {
            let names = builtin::all().iter().map(|it| it.name);
            ["ib", "firmware"]
                .into_iter()
                .chain(names)
                .map(str::to_owned)
        };
        let names = match self.policies.is_empty() {
            true => all().collect(),
            false => self.policies.clone(),
        };
        let policies = names.into_iter().map(|name| {
            let kind = match name.as_str() {
                "ib" => PolicyKind::IB,
                //= F14: as a device comes.
                "firmware" => PolicyKind::Firmware {
                    quantiser: true,
                    initial_exponent: None,
                },
                file => PolicyKind::Profile(load(Path::new(file))?),
            };
            let mut policy = Policy::new(kind);
            policy.floor = floor(self.min_ack_timeout_limit_disabled);
            policy.seed = self.seed;
            Ok((name, policy))
        });
        policies.collect()
    }
}

impl<'a> PolicyJson<'a> {
    fn new(policy: &'a str, fared: &Fared) -> Self {
        let ns = |span: Span| (span != Span::NEVER).then_some(span.as_nanos());
        let ([lost_p50, lost_p99], [resumed_p50, resumed_p99]) = (fared.lost, fared.resumed_after);
        Self {
            policy,
            survived: fared.survived,
            lost_p50_ns: ns(lost_p50),
            lost_p99_ns: ns(lost_p99),
            resumed_after_p50_ns: ns(resumed_p50),
            resumed_after_p99_ns: ns(resumed_p99),
            retransmissions: fared.retransmissions,
        }
    }
}

fn table(fared: &[(&str, Fared)]) -> Table {
    let header = [
        "policy",
        ">survive",
        ">lost p50",
        ">p99",
        ">resume p50",
        ">p99",
        ">resent",
    ];
    let mut table = Table::new(&header);
    for (name, fared) in fared {
        let ([lost_p50, lost_p99], [resumed_p50, resumed_p99]) = (fared.lost, fared.resumed_after);
        table.row(vec![
            (*name).to_owned(),
            percent(fared.survived),
            lost_p50.about().to_string(),
            lost_p99.about().to_string(),
            resumed_p50.about().to_string(),
            resumed_p99.about().to_string(),
            format!("{:.0}", fared.retransmissions),
        ]);
    }
    table
}

/// A share, never rounded up to all of it.
fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1_000.0).floor() / 10.0)
}
