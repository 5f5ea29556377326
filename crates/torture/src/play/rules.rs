//! Rules of `ferroce fault`: calls of the program that fail and do nothing, queue pairs that go to ERR before a call
//! or with a completion, while traffic runs.
//!
//! The player is the border at which rules act. It counts for itself what each rule has met, and so knows which call
//! must fail.

use ferroce_device::QpState;
use ferroce_fault::{Effect, Rule, Target};

use super::Play;
use super::border::{Border, Due, Set};
use crate::script::{FAULT_TARGETS, Step};

/// What rules can be about, with what can happen to it.
const TARGETS: [(Target, &[&str]); FAULT_TARGETS] = [
    (Target::PostSend, &["ENOMEM", "qp-error"]),
    (Target::PostRecv, &["EIO", "qp-error"]),
    (Target::ModifyQp, &["EINVAL", "qp-error"]),
    (Target::RegMr, &["ENOMEM"]),
    (Target::CreateQp, &["ENOMEM"]),
    (Target::Completion, &["BAD_RESP_ERR", "RETRY_EXC_ERR:0x81"]),
];

impl Play {
    /// Sets a rule; one of the same number is replaced.
    pub(super) fn set_rule(&mut self, host: usize, step: &Step) {
        let Step::Fault {
            id,
            target,
            effect,
            nth,
            every,
            percent,
            seed,
            qp,
        } = *step
        else {
            return;
        };
        let (target, effects) = TARGETS[target as usize % TARGETS.len()];
        let effect = effects[effect as usize % effects.len()];
        let it = self.host(host);
        let qpn = it.qp(qp).map(|qp| it.qps[qp].qpn);
        let qpn = qpn.filter(|_| target.kind().has_qp());
        let (when, due) = match (nth, every, percent) {
            (0, 0, 0) => (String::new(), Due::Always),
            (0, 0, percent) => {
                let percent = percent.min(100);
                (format!(",p={percent}%,seed={seed}"), Due::Chance)
            }
            (0, every, _) => (format!(",every={every}"), Due::Every(every)),
            (nth, ..) => (format!(",nth={nth}"), Due::Nth(nth)),
        };
        let scope = qpn.map_or(String::new(), |qpn| format!(",qp={}", qpn.value()));
        let text = format!("{}={effect}{when}{scope}", target.name());
        let rule: Rule = match text.parse() {
            Ok(rule) => rule,
            Err(error) => return self.found("rule", || format!("{text}: {error}")),
        };
        if rule.to_string().parse().as_ref() != Ok(&rule) {
            return self.found("rule", || format!("{text} reads back as {rule}"));
        }
        let border = &mut self.host(host).border;
        border.count += 1;
        let mut set = border.set.clone();
        set.retain(|it| it.id != id);
        set.push(Set {
            id,
            identity: border.count,
            rule,
            due,
            qpn,
            met: 0,
        });
        border.put(set);
    }

    /// Withdraws a rule.
    pub(super) fn withdraw_rule(&mut self, host: usize, id: u64) {
        let border = &mut self.host(host).border;
        let mut set = border.set.clone();
        set.retain(|it| it.id != id);
        border.put(set);
    }

    /// Withdraws all rules.
    pub(super) fn withdraw_rules(&mut self) {
        let hosts = self.hosts.iter_mut().flatten();
        hosts.for_each(|it| it.border = Border::default());
    }

    /// What rules do to something that the program does or takes, on a queue pair or on none.
    fn meet(&mut self, host: usize, target: Target, qp: Option<usize>) -> Option<Effect> {
        let it = self.host(host);
        if it.border.set.is_empty() {
            return None;
        }
        let qpn = qp.map(|qp| it.qps[qp].qpn);
        let (effect, expected) = it.border.meet(target, qpn);
        if let Some(expected) = expected.filter(|expected| *expected != effect) {
            let what = format!(
                "host {host}: {effect:?}, not {expected:?}: {:?}",
                it.border.set
            );
            self.found("rule", || what);
        }
        if effect.is_some() {
            self.coverage.injected += 1;
        }
        effect
    }

    /// Whether a call fails before it does anything. Its queue pair may go to ERR before a call that does not.
    pub(super) fn call_fails(&mut self, host: usize, target: Target, qp: Option<usize>) -> bool {
        match (self.meet(host, target, qp), qp) {
            (Some(Effect::QpError), Some(qp)) => {
                self.move_to(host, qp, QpState::Err);
                // On the way to another state, completions of the failure may go before they are polled.
                self.host(host).forgets |= target == Target::ModifyQp;
                // The call comes after what the failure tells.
                self.drain(host);
                false
            }
            (effect, _) => effect.is_some(),
        }
    }

    /// The program takes a completion of a queue pair, which a rule may make a failure: then the queue pair goes to
    /// ERR.
    pub(super) fn completion_is_taken(&mut self, host: usize, qp: usize) {
        if self.meet(host, Target::Completion, Some(qp)).is_some() {
            self.move_to(host, qp, QpState::Err);
            self.host(host).border.has_acted = true;
        }
    }

    /// Whether a rule has acted on a completion since this was last asked.
    pub(super) fn has_acted_on_completion(&mut self, host: usize) -> bool {
        let it = self.hosts[host].as_mut();
        it.is_some_and(|it| std::mem::take(&mut it.border.has_acted))
    }
}
