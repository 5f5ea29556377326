//! `ferroce explain timeout --survive`: from outages to settings.

use ferroce_adp::builtin::{self, BuiltIn};
use ferroce_adp::{Answer, Demand, Endurance, Policy, PolicyKind, Profile, QpTimeouts};
use ferroce_base::time::Span;
use ferroce_designer::figures::{qp_name, sentence, span_range};

use super::app::App;
use crate::adp::Chosen;
use crate::json::explain as json;
use crate::output::lines::Lines;
use crate::output::{Failure, Output, Table};

/// The question.
pub(super) struct Survive<'a> {
    pub(super) demand: Demand,
    pub(super) app: Option<App>,
    /// The policy in question.
    pub(super) chosen: &'a Chosen,
    /// Whether it was asked for; if not, built-in profiles are proposed beside it.
    pub(super) is_chosen: bool,
    /// What a profile that has its own total meets: the application's QP.
    pub(super) qp: QpTimeouts,
}

/// One way to meet the demand.
struct Proposal {
    policy: Under,
    answer: Answer,
}

/// The policy of a proposal.
enum Under {
    /// The one in question.
    Chosen,
    /// A built-in profile.
    BuiltIn(&'static str),
    /// A built-in profile with a total of its own: this exponent.
    OwnTotal(&'static str, u8),
}

impl Survive<'_> {
    pub(super) fn run(&self, json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        self.possible()?;
        let mut proposals: Vec<Proposal> = self.attributes().into_iter().collect();
        if !self.is_chosen {
            proposals.extend(builtin::all().iter().filter_map(|it| self.built_in(it)));
            proposals.extend(self.lengthened());
        }
        if proposals.is_empty() {
            return Err(self.nothing());
        }
        // The policy in question leads; beside it the soonest back.
        let first = usize::from(matches!(proposals[0].policy, Under::Chosen));
        proposals[first..].sort_by_key(|it| it.answer.endurance.resumes_within);
        if json {
            return to.document(&self.json(proposals));
        }
        to.text(&self.text(&proposals))
    }

    /// An outage that lasts longer than a dead peer may go unnoticed is one.
    fn possible(&self) -> Result<(), Failure> {
        let Demand {
            survive,
            detect_within,
        } = self.demand;
        if survive < detect_within {
            return Ok(());
        }
        let (survive, detect) = (survive.about(), detect_within.about());
        Err(Failure::input(format_args!(
            "nothing survives {survive} and detects in {detect}: choose one; a dead peer looks \
             like an outage until the outage is over"
        )))
    }

    /// The policy in question, with the smallest attributes that do.
    fn attributes(&self) -> Option<Proposal> {
        let answer = self.answer(&self.chosen.policy)?;
        let policy = Under::Chosen;
        Some(Proposal { policy, answer })
    }

    /// A built-in profile: with the application's QP as it is, or with the smallest that does.
    fn built_in(&self, built_in: &BuiltIn) -> Option<Proposal> {
        let policy = self.under(&built_in.profile);
        let as_it_is = self.demand.met_by(&policy, self.qp);
        let answer = as_it_is.or_else(|| self.answer(&policy))?;
        let policy = Under::BuiltIn(built_in.name);
        Some(Proposal { policy, answer })
    }

    /// The smallest attributes; where the profile alone decides, or the application, those that it has.
    fn answer(&self, policy: &Policy) -> Option<Answer> {
        match has_own_total(policy) || self.is_fixed() {
            true => self.demand.met_by(policy, self.qp),
            false => self.demand.smallest(policy),
        }
    }

    /// The profile that is back soonest, with a total of its own.
    fn lengthened(&self) -> Option<Proposal> {
        let built_in = builtin::named("link-flap")?;
        let (profile, policy) = (&built_in.profile, &self.chosen.policy);
        let owned = self.demand.own_total(profile, policy, self.qp)?;
        let total = owned.profile.raw().retx_total_timeout;
        Some(Proposal {
            policy: Under::OwnTotal(built_in.name, total),
            answer: owned.answer,
        })
    }

    /// Whether the QP's attributes are what the application makes them.
    fn is_fixed(&self) -> bool {
        self.app.is_some_and(App::is_fixed)
    }

    fn under(&self, profile: &Profile) -> Policy {
        let mut policy = self.chosen.policy;
        policy.kind = PolicyKind::Profile(*profile);
        policy
    }

    fn assignments(&self, qp: QpTimeouts) -> String {
        match self.app {
            Some(app) => app.assignments(qp),
            None => format!("timeout {}, retry_cnt {}", qp.timeout, qp.retry_cnt),
        }
    }

    /// Why there is no answer, and what to ask for.
    fn nothing(&self) -> Failure {
        let survive = self.demand.survive.about();
        let policy = &self.chosen.policy;
        let nearest = match has_own_total(policy) || self.is_fixed() {
            true => None,
            false => self.demand.soonest(policy),
        };
        match nearest {
            None if has_own_total(policy) => Failure::input(format_args!(
                "{} survives less, whatever the attributes of the QP: it {}; change its \
                 retx_total_timeout, or leave --profile out for proposals",
                self.chosen.name,
                sentence(Endurance::of(policy, self.qp).as_ref())
            )),
            None if self.is_fixed() => Failure::input(format_args!(
                "nothing survives {survive} with timeout {} and retry_cnt {}, and the application \
                 has no setting for them; leave --profile and --personality out for profiles that do",
                self.qp.timeout, self.qp.retry_cnt
            )),
            None => Failure::input(format_args!(
                "nothing survives {survive}: timeout 31 with retry_cnt 7 does not; timeout 0 waits \
                 without end"
            )),
            Some(answer) => Failure::input(format_args!(
                "nothing survives {survive} and detects in {}: choose one, or allow --detect-within \
                 {}s, with {}",
                self.demand.detect_within.about(),
                answer
                    .endurance
                    .gives_up_last
                    .as_nanos()
                    .div_ceil(1_000_000_000),
                self.assignments(answer.qp)
            )),
        }
    }

    fn json(&self, proposals: Vec<Proposal>) -> json::Survive {
        let Demand {
            survive,
            detect_within,
        } = self.demand;
        let proposals = proposals.into_iter().map(|Proposal { policy, answer }| {
            let (profile, retx_total_timeout) = match policy {
                Under::Chosen => (None, None),
                Under::BuiltIn(name) => (Some(name), None),
                Under::OwnTotal(name, total) => (Some(name), Some(total)),
            };
            json::Proposal {
                settings: self.assignments(answer.qp),
                queue_pair: answer.qp.into(),
                profile,
                retx_total_timeout,
                endurance: answer.endurance.into(),
            }
        });
        json::Survive {
            survive_ns: survive.as_nanos(),
            detect_within_ns: (detect_within != Span::NEVER).then_some(detect_within.as_nanos()),
            proposals: proposals.collect(),
        }
    }

    fn text(&self, proposals: &[Proposal]) -> String {
        let mut lines = Lines::default();
        let Proposal { policy, answer } = &proposals[0];
        let with = match policy {
            Under::Chosen => String::new(),
            Under::BuiltIn(name) => format!(", profile {name}"),
            Under::OwnTotal(name, total) => {
                format!(", profile {name} with retx_total_timeout = {total}")
            }
        };
        lines.across(&format!(
            "{}{with}: {}",
            self.assignments(answer.qp),
            sentence(Some(&answer.endurance))
        ));
        lines.across("");
        lines.text += &self.table(proposals).to_string();
        lines.across("");
        lines.text += &self.settings(proposals).to_string();
        for Proposal { policy, .. } in proposals {
            if let Under::OwnTotal(name, total) = policy {
                lines.across("");
                lines.across(&format!(
                    "[1] as `ferroce adp profile show {name}` prints it, with qp_total_timeout = false \
                     and retx_total_timeout = {total}"
                ));
            }
        }
        lines.text
    }

    /// What each proposal does.
    fn table(&self, proposals: &[Proposal]) -> Table {
        let header = [
            "policy",
            ">QP",
            ">survives",
            ">resumes within",
            ">gives up after",
        ];
        let mut table = Table::new(&header);
        for Proposal { policy, answer } in proposals {
            let (policy, qp) = match policy {
                Under::Chosen => (self.chosen.name.clone(), qp_name(answer.qp)),
                Under::BuiltIn(name) => (format!("profile {name}"), qp_name(answer.qp)),
                Under::OwnTotal(name, _) => (format!("{name}, own total [1]"), "any".to_owned()),
            };
            let found = &answer.endurance;
            table.row(vec![
                policy,
                qp,
                found.survives.at_least().to_string(),
                found.resumes_within.at_most().to_string(),
                span_range(found.gives_up_first, found.gives_up_last),
            ]);
        }
        table
    }

    /// What applications set for the QPs in the table.
    fn settings(&self, proposals: &[Proposal]) -> Table {
        let is_any = |it: &&Proposal| matches!(it.policy, Under::OwnTotal(..));
        let mut qps: Vec<QpTimeouts> = Vec::new();
        for proposal in proposals.iter().filter(|it| !is_any(it)) {
            if !qps.contains(&proposal.answer.qp) {
                qps.push(proposal.answer.qp);
            }
        }
        let apps = match self.app {
            Some(app) => vec![app],
            None => vec![App::Nccl, App::Ucx],
        };
        let names: Vec<_> = apps.iter().map(|app| app.name()).collect();
        let mut table = Table::new(&[&["QP"], &names[..]].concat());
        for qp in qps {
            let settings = apps.iter().map(|app| app.assignments(qp));
            table.row(std::iter::once(qp_name(qp)).chain(settings).collect());
        }
        table
    }
}

/// Whether the QP's attributes have no say in when it gives up.
fn has_own_total(policy: &Policy) -> bool {
    matches!(&policy.kind, PolicyKind::Profile(profile) if !profile.raw().qp_total_timeout)
}
