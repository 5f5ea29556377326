//! A device's recorded errors.

use ferroce_hca::{Counter, DeviceState, ErrorRecord};
use ferroce_udp::wait::Clock;
use ferroce_udp::{Registry, WallClock};

use super::causes::{self, Cause, Signs};
use super::{add_cause, hex, short_name};
use crate::device;
use crate::json::explain as json;
use crate::lines::Lines;
use crate::naming;
use crate::output::{Failure, Output, Table};

/// A device of this user that is the peer of an error.
struct Peer {
    name: String,
    state: DeviceState,
}

pub(super) fn explain(name: &str, is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
    let registry = device::registry(to)?;
    let spec = naming::named(&registry, name)?;
    let (observer, name) = (device::observe(&registry, &spec)?, spec.name.as_str());
    let state = observer.state();
    let (errors, total) = (state.errors().last(), state.errors().count());
    let last = errors.last();
    let cause = last.and_then(cause_of);
    let peer = last.and_then(|error| peer_of(&registry, error));
    // Which of the two sides of the cause the device is.
    let is_requester = last.is_none_or(is_send);
    let sides = cause.map(|cause| match is_requester {
        true => [&cause.requester, &cause.responder],
        false => [&cause.responder, &cause.requester],
    });
    if is_json {
        let clock = WallClock::new(|| Clock.now());
        let values = |state: &DeviceState, signs: &Signs| values(state, signs).collect();
        return to.document(&json::Seen {
            device: name.to_owned(),
            total,
            errors: errors.iter().map(|it| error_json(it, clock)).collect(),
            cause: cause.map(Into::into),
            counters: sides.map_or_else(Vec::new, |[own, _]| values(state, own)),
            peer_counters: match (&peer, sides) {
                (Some(peer), Some([_, other])) => values(&peer.state, other),
                _ => Vec::new(),
            },
            peer_device: peer.map(|it| it.name),
        });
    }
    let Some(last) = last else {
        return to.text(&format!("{name} has seen no error\n"));
    };
    to.text(&table(&errors))?;
    if total > errors.len() as u64 {
        let kept = errors.len();
        to.remark(format_args!("the last {kept} of {total} errors are kept"))?;
    }
    let mut lines = Lines::default();
    lines.add("", "");
    lines.add("last error", &sentence(last, peer.as_ref()));
    if let (Some(cause), Some([own, other])) = (cause, sides) {
        add_cause(&mut lines, cause);
        lines.add("", "");
        add_values(&mut lines, name, state, own);
        if let Some(peer) = &peer {
            add_values(&mut lines, &peer.name, &peer.state, other);
        }
    }
    to.text(&lines.text)
}

fn cause_of(error: &ErrorRecord) -> Option<&'static Cause> {
    let exact = causes::of(error.status, Some(error.vendor_err)).next();
    exact.or_else(|| causes::of(error.status, None).next())
}

fn is_send(error: &ErrorRecord) -> bool {
    error.opcode.work_queue() == ferroce_hca::WorkQueue::Send
}

/// The device of this user that has the peer's address, which need not be of this host.
fn peer_of(registry: &Registry, error: &ErrorRecord) -> Option<Peer> {
    let (address, _) = error.peer?;
    let devices = registry.devices().ok()?;
    let spec = devices.into_iter().find(|spec| spec.address == address)?;
    let name = spec.name.clone();
    let observer = registry.observe_device(spec).ok()?;
    let state = observer.state().clone();
    Some(Peer { name, state })
}

fn error_json(error: &ErrorRecord, clock: WallClock) -> json::SeenError {
    json::SeenError {
        unix_ns: clock.at(error.at),
        qpn: error.qpn.value(),
        peer: error.peer.map(|(address, _)| address),
        peer_qpn: error.peer.map(|(_, qpn)| qpn.value()),
        wr_id: error.wr_id,
        request: error.opcode.name(),
        status: error.status as u32,
        name: error.status.name(),
        vendor_err: error.vendor_err,
        flushed: error.flushed,
    }
}

fn table(errors: &[ErrorRecord]) -> String {
    let now = Clock.now();
    let columns = [
        ">s ago",
        ">QP",
        "peer",
        ">its QP",
        "request",
        ">wr_id",
        "error, vendor_err",
        ">flush",
    ];
    let mut table = Table::new(&columns);
    for error in errors {
        let (address, qpn) = match error.peer {
            Some((address, qpn)) => (address.to_string(), qpn.value().to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let ago_ms = now.since(error.at).as_nanos() / 1_000_000;
        table.row(vec![
            format!("{}.{:03}", ago_ms / 1000, ago_ms % 1000),
            error.qpn.value().to_string(),
            address,
            qpn,
            error.opcode.name().to_owned(),
            error.wr_id.to_string(),
            format!("{} {}", short_name(error.status), hex(error.vendor_err)),
            error.flushed.to_string(),
        ]);
    }
    table.to_string()
}

fn sentence(error: &ErrorRecord, peer: Option<&Peer>) -> String {
    let mut text = format!(
        "{} {}, vendor_err {}, of QP {}",
        error.status as u32,
        error.status.name(),
        hex(error.vendor_err),
        error.qpn.value()
    );
    if let Some((address, qpn)) = error.peer {
        text += &format!(" to QP {} at {address}", qpn.value());
    }
    if let Some(peer) = peer {
        text += &format!(", which is {}", peer.name);
    }
    text
}

/// The counters that should have risen, each once.
fn values(state: &DeviceState, signs: &Signs) -> impl Iterator<Item = json::Value> {
    let value = |(counter, _): &(Counter, &str)| json::Value {
        name: counter.name(),
        value: state.counter(*counter),
    };
    signs.counters.iter().map(value)
}

/// What the device has counted since it was made, of all its queue pairs.
fn add_values(lines: &mut Lines, name: &str, state: &DeviceState, signs: &Signs) {
    let mut values = values(state, signs).peekable();
    if values.peek().is_some() {
        lines.add("counted", &format!("by {name}, for all its queue pairs"));
    }
    for value in values {
        lines.add("", &format!("{:<31} {}", value.name, value.value));
    }
}

/// The last errors of a device, the latest first.
pub(crate) fn recent_errors(state: &DeviceState, max: usize) -> Vec<json::SeenError> {
    let clock = WallClock::new(|| Clock.now());
    let errors = state.errors().last();
    let latest = errors.iter().rev().take(max);
    latest.map(|it| error_json(it, clock)).collect()
}
