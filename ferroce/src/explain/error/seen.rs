//! A device's recorded errors.

use ferroce_adp::{QpTimeouts, ack_timeout};
use ferroce_base::time::Span;
use ferroce_device::{Counter, DeviceState, ErrorRecord, WcStatus};
use ferroce_os::{Clock, WallClock};
use ferroce_registry::Registry;

use super::causes::{self, Cause, Signs};
use super::{REQUESTER, RESPONDER, add_cause, hex, short_name};
use crate::json::explain as json;
use crate::naming;
use crate::output::lines::Lines;
use crate::output::{Failure, Output, Table};

/// A device of this user that is the peer of an error.
struct Peer {
    name: String,
    state: DeviceState,
}

pub(super) fn explain(name: &str, is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
    let registry = naming::registry(to)?;
    let spec = naming::named(&registry, name)?;
    let (observer, name) = (naming::observe(&registry, &spec)?, spec.name.as_str());
    let state = observer.state();
    let (errors, total) = (state.errors().last(), state.errors().count());
    let last = errors.last();
    let cause = last.and_then(cause_of);
    let peer = last.and_then(|error| peer_of(&registry, error));
    // Which of the two sides of the cause the device is.
    let is_requester = last.is_none_or(is_send);
    let sides = match is_requester {
        true => [REQUESTER, RESPONDER],
        false => [RESPONDER, REQUESTER],
    };
    let signs = cause.map(|cause| match is_requester {
        true => [&cause.requester, &cause.responder],
        false => [&cause.responder, &cause.requester],
    });
    if is_json {
        let clock = WallClock::new(|| Clock.now());
        let values = |state: &DeviceState, signs: &Signs| values(state, signs).collect();
        return to.document(&json::Seen {
            device: name.to_owned(),
            total,
            side: last.map(|_| sides[0]),
            errors: errors.iter().map(|it| error_json(it, clock)).collect(),
            cause: cause.map(Into::into),
            counters: signs.map_or_else(Vec::new, |[own, _]| values(state, own)),
            peer_counters: match (&peer, signs) {
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
    if let Some(text) = patience(last) {
        lines.add("waited", &text);
    }
    if let (Some(cause), Some([own, other])) = (cause, signs) {
        let mut devices = [Some(name), peer.as_ref().map(|peer| &*peer.name)];
        if !is_requester {
            devices.reverse();
        }
        add_cause(&mut lines, cause, devices);
        lines.add("", "");
        add_values(&mut lines, (name, sides[0]), state, own);
        if let Some(peer) = &peer {
            add_values(&mut lines, (&peer.name, sides[1]), &peer.state, other);
        }
    }
    to.text(&lines.text)
}

fn cause_of(error: &ErrorRecord) -> Option<&'static Cause> {
    let exact = causes::of(error.status, Some(error.vendor_err)).next();
    exact.or_else(|| causes::of(error.status, None).next())
}

fn is_send(error: &ErrorRecord) -> bool {
    error.opcode.work_queue() == ferroce_device::WorkQueue::Send
}

/// The device of this user that has the peer's address, which need not be of this host.
fn peer_of(registry: &Registry, error: &ErrorRecord) -> Option<Peer> {
    let address = error.connection?.address;
    let devices = registry.devices().ok()?;
    let spec = devices.into_iter().find(|spec| spec.address == address)?;
    let name = spec.name.clone();
    let observer = registry.observe_device(spec).ok()?;
    let state = observer.state().clone();
    Some(Peer { name, state })
}

/// How long a queue pair waited for an answer before it gave up.
fn waited(error: &ErrorRecord) -> Option<Span> {
    let gave_up = error.status == WcStatus::RetryExcErr;
    error.connection.filter(|_| gave_up).map(|it| it.silent)
}

fn error_json(error: &ErrorRecord, clock: WallClock) -> json::SeenError {
    json::SeenError {
        unix_ns: clock.at(error.at),
        qpn: error.qpn.value(),
        peer: error.connection.map(|it| it.address),
        peer_qpn: error.connection.map(|it| it.qpn.value()),
        wr_id: error.wr_id,
        request: error.opcode.name(),
        status: error.status as u32,
        name: error.status.name(),
        vendor_err: error.vendor_err,
        timeout: error.connection.map(|it| it.timeouts.timeout),
        retry_cnt: error.connection.map(|it| it.timeouts.retry_cnt),
        waited_ns: waited(error).map(Span::as_nanos),
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
        let (address, qpn) = match error.connection {
            Some(it) => (it.address.to_string(), it.qpn.value().to_string()),
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
    if let Some(it) = error.connection {
        text += &format!(" to QP {} at {}", it.qpn.value(), it.address);
    }
    if let Some(peer) = peer {
        text += &format!(", which is {}", peer.name);
    }
    text
}

/// What the queue pair was set to wait, and how long it did.
fn patience(error: &ErrorRecord) -> Option<String> {
    let QpTimeouts { timeout, retry_cnt } = error.connection?.timeouts;
    let each = match ack_timeout(timeout) {
        Some(span) => span.about().to_string(),
        None => "without end".to_owned(),
    };
    let qp = format!("timeout {timeout} ({each}), retry_cnt {retry_cnt}");
    Some(match waited(error) {
        Some(span) => format!(
            "{} without an answer; the QP has {qp}: `ferroce explain timeout --timeout {timeout} \
             --retry-cnt {retry_cnt}` shows which outages it survives",
            span.about()
        ),
        None => format!("not until a timeout; the QP has {qp}"),
    })
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
fn add_values(lines: &mut Lines, (name, side): (&str, &str), state: &DeviceState, signs: &Signs) {
    let mut values = values(state, signs).peekable();
    if values.peek().is_some() {
        let who = format!("by {name}, the {side}, for all its queue pairs");
        lines.add("counted", &who);
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
