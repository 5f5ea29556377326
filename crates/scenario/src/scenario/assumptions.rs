//! What results rest on that no source documents.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_base::time::Span;
use ferroce_dcqcn::Param;

use super::{Finding, Scenario};

/// Two senders to a host get along with either scope of the interval between CNPs.
const SENDERS_MIN: usize = 3;

impl Scenario {
    /// Returns what the results rest on if switches mark packets, one sentence each with the line that could
    /// say otherwise: the behaviour of cards that no source documents and that the scenario does not state.
    ///
    /// The scope of the interval between CNPs is one. mlxconfig calls it the time between CNPs "sent from
    /// the port" and leaves the device's default of `ROCE_CC_CNP_MODERATION` open. Lumina's checker of
    /// captures (SIGCOMM 2023) tests for three scopes, because generations of cards differ. With an interval
    /// of the port, each of N flows to a host gets an N-th of the CNPs.
    #[must_use]
    pub fn assumptions(&self) -> Vec<Finding> {
        let line = self.line("device.dcqcn");
        let found = self.cnp_scope().map(|text| Finding { line, text });
        found.into_iter().collect()
    }

    fn cnp_scope(&self) -> Option<String> {
        let params = self.device.settings.congestion();
        let interval = Span::from_micros(params.get(Param::MinTimeBetweenCnps).into());
        let is_open = params.get(Param::CnpModeration) == 0 && interval > Span::ZERO;
        let is_marked = self.switch.ecn.is_some() && self.topology.switches() > 0;
        let senders = self.senders_max();
        (is_open && is_marked && senders >= SENDERS_MIN).then(|| {
            format!(
                "CNPs are limited to one in {interval} for each port, which up to {senders} senders to a host \
                 share; cards may limit them for each flow (ROCE_CC_CNP_MODERATION = 2)"
            )
        })
    }

    /// The most hosts that send to one host under congestion control.
    fn senders_max(&self) -> usize {
        let params = self.device.settings.congestion();
        let priority = |job: u16| self.jobs[usize::from(job)].priority(self.device.qos);
        let traffic = self.workload.traffic(self.device.mtu);
        let mut senders = BTreeMap::<u32, BTreeSet<u32>>::new();
        for it in traffic
            .iter()
            .filter(|it| params.heeds_cnps(priority(it.job)))
        {
            senders.entry(it.dst).or_default().insert(it.src);
        }
        senders.values().map(BTreeSet::len).max().unwrap_or(0)
    }
}
