//! The current state of the devices, for the page.

use std::time::{Duration, Instant};

use ferroce_adp::PolicyKind;
use ferroce_adp::file::to_toml;
use ferroce_device::{Counter, Direction};
use ferroce_registry::{
    DeviceSpec, FlowRow, Inquiry, Observer, Process, QpRow, Query, QueryError, Registry, Resource,
    ResourceRow,
};
use ferroce_sysfs::netdev_of;
use hyper::body::Bytes;
use serde_json::{Map, Value, json};

use crate::device::impair;
use crate::explain::recent_errors;
use crate::json::shared::Bin;
use crate::output::Failure;
use crate::policy::Policy;

/// The devices are sampled at most once in this time, however many pages ask.
const EVERY: Duration = Duration::from_millis(250);
/// How long the programs on all devices may take to report their queue pairs.
const PATIENCE: Duration = Duration::from_millis(100);
/// Error completions of a device that are listed, the last ones.
const ERRORS_MAX: usize = 10;
/// Queue pairs of a device that are listed.
const QPS_MAX: usize = 100;

/// Samples the devices.
#[derive(Debug, Default)]
pub(super) struct Live {
    inquiry: Inquiry,
    /// What was last seen, and when.
    seen: Option<(Instant, Bytes)>,
}

impl Live {
    /// All devices as JSON; `begun` is when the server was started.
    pub(super) fn look(&mut self, registry: &Registry, begun: Instant) -> Result<Bytes, Failure> {
        let now = Instant::now();
        if let Some((then, seen)) = &self.seen
            && now.duration_since(*then) < EVERY
        {
            return Ok(seen.clone());
        }
        let until = now + PATIENCE;
        let specs = registry.links().map_err(Failure::broken)?;
        let devices = specs.into_iter().map(|spec| {
            let observed = registry.observe_device(spec.clone());
            match observed {
                Ok(observer) => self.device(&observer, until),
                Err(error) => json!({"name": spec.name, "error": error.to_string()}),
            }
        });
        let devices: Vec<_> = devices.collect();
        let at_ms = u64::try_from(now.duration_since(begun).as_millis()).unwrap_or(u64::MAX);
        let text = json!({"at_ms": at_ms, "devices": devices}).to_string();
        let seen = Bytes::from(text);
        self.seen = Some((now, seen.clone()));
        Ok(seen)
    }

    /// Something was changed: the next look is a new one.
    pub(super) fn forget(&mut self) {
        self.seen = None;
    }

    fn device(&mut self, observer: &Observer, until: Instant) -> Value {
        let (spec, state) = (observer.spec(), observer.state());
        let port = observer.port();
        let counters = state.counters();
        let counters = Counter::TABLE.iter().map(|info| {
            let count = counters[info.counter as usize];
            (info.name.to_owned(), Value::from(count))
        });
        let (histogram, bins) = state.histogram_snapshot();
        let processes = observer.processes().unwrap_or_default();
        let qps = self.qps(observer, &processes, until);
        json!({
            "name": spec.name,
            "address": spec.address,
            "netdev": netdev_of(spec.address),
            "card": card(spec),
            "rate_bps": spec.speed.rate().bps(),
            "port": {
                "is_up": port.is_up,
                "downed": port.downed,
                "changes_in_ns": port.changes_in.map(|it| it.as_nanos()),
            },
            "policy": policy(observer),
            "impairment": {
                "egress": impair::in_words(state, Direction::Egress),
                "ingress": impair::in_words(state, Direction::Ingress),
            },
            "counters": counters.collect::<Map<_, _>>(),
            "histogram": {
                "is_counting": histogram.enabled,
                "bins": Bin::all(&histogram, &bins),
            },
            "processes": processes.iter().map(|it| json!({"pid": it.pid, "comm": it.comm})).collect::<Vec<_>>(),
            "qps": qps,
            "errors": {
                "count": state.errors().count(),
                "rows": recent_errors(state, ERRORS_MAX),
            },
        })
    }

    /// The queue pairs of all programs, with the rate of those that CNPs have slowed down.
    fn qps(&mut self, observer: &Observer, processes: &[Process], until: Instant) -> Value {
        let state = observer.state();
        let is_marked = |it: &&Process| state.counter_of(it.slot, Counter::RpCnpHandled) > 0;
        let marked: Vec<_> = processes.iter().filter(is_marked).collect();
        let (flows, _) = self.ask(observer, &marked, Query::Flow, until);
        let flows: Vec<_> = flows.iter().filter_map(FlowRow::of).collect();
        let all: Vec<_> = processes.iter().collect();
        let (rows, silent) = self.ask(observer, &all, Query::Qp, until);
        let rows: Vec<_> = rows.iter().filter_map(QpRow::of).collect();
        let line_bps = observer.spec().speed.rate().bps();
        let listed = rows
            .iter()
            .take(QPS_MAX)
            .map(|row| qp(row, &flows, line_bps));
        json!({
            "count": rows.len(),
            "silent": silent,
            "rows": listed.collect::<Vec<_>>(),
        })
    }

    /// What processes tell, and how many of them did not.
    fn ask(
        &mut self,
        observer: &Observer,
        processes: &[&Process],
        query: Query,
        until: Instant,
    ) -> (Vec<Resource>, usize) {
        let questions: Vec<_> = processes.iter().map(|it| (observer, *it)).collect();
        let (mut rows, mut silent) = (Vec::new(), 0);
        for answer in self.inquiry.ask(&questions, query, until) {
            match answer {
                Ok(told) => rows.extend(told),
                // It has ended since, and its queue pairs with it.
                Err(QueryError::Gone { .. }) => {}
                Err(_) => silent += 1,
            }
        }
        (rows, silent)
    }
}

fn qp(row: &QpRow, flows: &[&FlowRow], line_bps: u64) -> Value {
    let own = |it: &&&FlowRow| (it.lqpn, it.pid) == (row.lqpn, row.pid);
    let flow = flows.iter().find(own);
    let limit = flow.and_then(|it| it.limit.as_ref());
    json!({
        "lqpn": row.lqpn,
        "rqpn": row.rqpn,
        "type": row.qp_type,
        "state": row.state,
        "peer": row.peer,
        "timeout": row.timeout,
        "retry_cnt": row.retry_cnt,
        "wait_ns": row.wait_ns,
        "in_flight": row.in_flight,
        "rate_bps": limit.map_or(line_bps, |it| it.rate_bps),
        "is_limited": limit.is_some(),
        "cnps": flow.map_or(0, |it| it.cnps),
        "pid": row.pid,
        "comm": row.comm,
    })
}

/// Which card a VF belongs to.
fn card(spec: &DeviceSpec) -> Option<String> {
    spec.vf.is_some().then(|| spec.pf().name.clone())
}

fn policy(observer: &Observer) -> Value {
    let state = observer.state();
    let profile = match state.policy_kind() {
        PolicyKind::Profile(profile) => Some(to_toml(profile.raw())),
        _ => None,
    };
    json!({"by": Policy::of(state).to_string(), "profile": profile})
}
