//! The rules of `ferroce fault` that a host has, and what each must do, counted a second time.

use ferroce_device::Qpn;
use ferroce_fault::{Effect, Occasion, Rule, Rules, Target};

/// The name of each host's device, for rules.
const DEVICE: &str = "fr0";

/// The rules of a host.
#[derive(Debug, Default)]
pub(crate) struct Border {
    rules: Rules,
    pub(super) set: Vec<Set>,
    /// Rules that there have been.
    pub(super) count: u64,
    /// A completion has moved a queue pair, which may have something to send and to complete.
    pub(super) has_acted: bool,
}

/// A rule that is in force, and what it has met.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// In the script.
    pub(super) id: u64,
    /// Among all rules that the host has had.
    pub(super) identity: u64,
    pub(super) rule: Rule,
    pub(super) due: Due,
    pub(super) qpn: Option<Qpn>,
    pub(super) met: u64,
}

/// When a rule applies, as the script has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    Always,
    Nth(u64),
    Every(u64),
    /// By chance, which is not known here.
    Chance,
}

impl Border {
    /// Puts these rules in force; those that stay go on counting.
    pub(super) fn put(&mut self, set: Vec<Set>) {
        let rules = set.iter().map(|it| (it.identity, it.rule.clone()));
        self.rules = self.rules.followed_by(rules);
        self.set = set;
    }

    /// What happens to something, and what must, as far as that is known.
    pub(super) fn meet(
        &mut self,
        target: Target,
        qpn: Option<Qpn>,
    ) -> (Option<Effect>, Option<Option<Effect>>) {
        let occasion = Occasion::on(target, DEVICE);
        let occasion = qpn.map_or(occasion, |qpn| occasion.of_qp(qpn.value()));
        let effect = self.rules.meet(occasion, |_, _| ());
        let (mut first, mut is_known) = (None, true);
        for it in &mut self.set {
            if it.rule.target != target || it.qpn.is_some() && it.qpn != qpn {
                continue;
            }
            it.met += 1;
            let is_due = match it.due {
                Due::Always => true,
                Due::Nth(n) => it.met == n,
                Due::Every(n) => it.met % n == 0,
                Due::Chance => {
                    is_known &= first.is_some();
                    false
                }
            };
            if is_due && first.is_none() {
                first = Some(it.rule.effect);
            }
        }
        (effect, is_known.then_some(first))
    }
}
