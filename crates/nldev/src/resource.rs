//! Programs' objects on a device.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ferroce_registry::{
    CmIdRow, Counts, DeviceSpec, Inquiry, Observer, Process, QpRow, Query, Registry, Resource,
    ResourceRow, SrqRow,
};

use crate::abi::{Kind, attr};
use crate::message::Message;
use crate::{Errno, Reply, port_index, put_device};

/// How long processes have to tell what they have; those that are stopped are left out.
const PATIENCE: Duration = Duration::from_secs(1);

/// An object, or a process that has the device open.
enum Row {
    Object(Box<Resource>),
    Context(Process),
}

/// How many objects of each kind there are.
pub(crate) fn summary(
    reply: &mut Reply<'_>,
    registry: &Registry,
    devices: &[DeviceSpec],
) -> Result<(), Errno> {
    if !reply.request.is_dump() {
        let (index, spec) = reply.device(devices)?;
        return count(reply, registry, index, spec);
    }
    let mut all = (0..).zip(devices);
    all.try_for_each(|(index, spec)| count(reply, registry, index, spec))
}

fn count(
    reply: &mut Reply<'_>,
    registry: &Registry,
    index: u32,
    spec: &DeviceSpec,
) -> Result<(), Errno> {
    let (rows, processes) = ask(registry, spec, Query::Count)?;
    let counts: Vec<_> = rows.iter().filter_map(Counts::of).collect();
    let mut message = reply.message();
    put_device(&mut message, index, spec);
    let table = message.open(attr::RES_SUMMARY);
    for (name, total) in [
        ("pd", counts.iter().map(|it| it.pd).sum()),
        ("cq", counts.iter().map(|it| it.cq).sum()),
        ("qp", counts.iter().map(|it| it.qp).sum()),
        ("cm_id", counts.iter().map(|it| it.cm_id).sum()),
        ("mr", counts.iter().map(|it| it.mr).sum()),
        ("ctx", processes.len() as u64),
        ("srq", counts.iter().map(|it| it.srq).sum()),
    ] {
        let entry = message.open(attr::RES_SUMMARY_ENTRY);
        message.text(attr::RES_SUMMARY_ENTRY_NAME, name);
        message.u64(attr::RES_SUMMARY_ENTRY_CURR, total);
        message.close(entry);
    }
    message.close(table);
    reply.send(message);
    Ok(())
}

/// The objects of a kind on a device, in as many messages as it takes, or the one of a number.
pub(crate) fn objects(
    reply: &mut Reply<'_>,
    registry: &Registry,
    devices: &[DeviceSpec],
    kind: Kind,
) -> Result<(), Errno> {
    let (index, spec) = reply.device(devices)?;
    let ports = reply.ports(spec)?;
    let (table, entry, number) = kind.attributes();
    let mut rows = rows(registry, spec, kind)?;
    rows.retain(|row| port_of(row).is_none_or(|it| ports.iter().any(|p| port_index(p) == it)));
    let begin = |reply: &Reply<'_>| {
        let mut message = reply.message();
        put_device(&mut message, index, spec);
        message
    };
    if !reply.request.is_dump() {
        let wanted = reply.request.u32(number).ok_or(Errno::INVAL)?;
        let found = rows.iter().find(|row| number_of(row) == Some(wanted));
        let mut message = begin(reply);
        put_row(&mut message, found.ok_or(Errno::NOENT)?);
        reply.send(message);
        return Ok(());
    }
    let mut left = rows.iter().peekable();
    loop {
        let mut message = begin(reply);
        message.fill(table, &mut left, |message, row| {
            let entry = message.open(entry);
            put_row(message, row);
            message.close(entry);
        });
        reply.send(message);
        if left.peek().is_none() {
            return Ok(());
        }
    }
}

/// All objects of a kind.
fn rows(registry: &Registry, spec: &DeviceSpec, kind: Kind) -> Result<Vec<Row>, Errno> {
    let query = match kind {
        Kind::Qp => Query::Qp,
        Kind::CmId => Query::CmId,
        Kind::Cq => Query::Cq,
        Kind::Mr => Query::Mr,
        Kind::Pd => Query::Pd,
        Kind::Srq => Query::Srq,
        Kind::Ctx => {
            let processes = processes(&observe(registry, spec)?)?;
            return Ok(processes.into_iter().map(Row::Context).collect());
        }
    };
    let (rows, _) = ask(registry, spec, query)?;
    Ok(rows
        .into_iter()
        .map(|row| Row::Object(Box::new(row)))
        .collect())
}

/// Asks all processes on a device.
fn ask(
    registry: &Registry,
    spec: &DeviceSpec,
    query: Query,
) -> Result<(Vec<Resource>, Vec<Process>), Errno> {
    let observer = observe(registry, spec)?;
    let processes = processes(&observer)?;
    let questions: Vec<_> = processes
        .iter()
        .map(|process| (&observer, process))
        .collect();
    let answers = Inquiry::default().ask(&questions, query, Instant::now() + PATIENCE);
    let rows = answers.into_iter().flatten().flatten().collect();
    Ok((rows, processes))
}

fn observe(registry: &Registry, spec: &DeviceSpec) -> Result<Observer, Errno> {
    let observer = registry.observe_device(spec.clone());
    observer.map_err(|_| Errno::IO)
}

fn processes(observer: &Observer) -> Result<Vec<Process>, Errno> {
    observer.processes().map_err(|_| Errno::IO)
}

/// The number by which an object is asked for.
/// The port that an object is on, if it is on one.
fn port_of(row: &Row) -> Option<u32> {
    let Row::Object(resource) = row else {
        return None;
    };
    match &**resource {
        Resource::Qp(row) => Some(row.port.into()),
        Resource::CmId(row) => Some(row.port.into()),
        _ => None,
    }
}

fn number_of(row: &Row) -> Option<u32> {
    let resource = match row {
        Row::Context(process) => return Some(process.slot.into()),
        Row::Object(resource) => resource,
    };
    match &**resource {
        Resource::Qp(row) => Some(row.lqpn),
        Resource::CmId(row) => row.cm_idn,
        Resource::Cq(row) => Some(row.cqn),
        Resource::Mr(row) => Some(row.mrn),
        Resource::Pd(row) => Some(row.pdn),
        Resource::Srq(row) => Some(row.srqn),
        Resource::Count(_) | Resource::Flow(_) | Resource::Peer(_) => None,
    }
}

fn put_row(message: &mut Message, row: &Row) {
    match row {
        Row::Context(process) => {
            message.u32(attr::RES_CTXN, process.slot.into());
            message.u32(attr::RES_PID, process.pid);
        }
        Row::Object(resource) => put_object(message, resource),
    }
}

fn put_object(message: &mut Message, resource: &Resource) {
    match resource {
        Resource::Qp(row) => put_qp(message, row),
        Resource::CmId(row) => put_cm_id(message, row),
        Resource::Srq(row) => put_srq(message, row),
        Resource::Cq(row) => {
            message.u32(attr::RES_CQE, row.cqe);
            message.u64(attr::RES_USECNT, row.users.into());
            message.u32(attr::RES_CQN, row.cqn);
            message.u32(attr::RES_PID, row.pid);
        }
        Resource::Mr(row) => {
            message.u32(attr::RES_RKEY, row.rkey);
            message.u32(attr::RES_LKEY, row.lkey);
            message.u64(attr::RES_IOVA, row.iova);
            message.u64(attr::RES_MRLEN, row.mrlen);
            message.u32(attr::RES_MRN, row.mrn);
            message.u32(attr::RES_PDN, row.pdn);
            message.u32(attr::RES_PID, row.pid);
        }
        Resource::Pd(row) => {
            message.u64(attr::RES_USECNT, row.users.into());
            message.u32(attr::RES_PDN, row.pdn);
            message.u32(attr::RES_PID, row.pid);
        }
        Resource::Count(_) | Resource::Flow(_) | Resource::Peer(_) => {}
    }
}

fn put_qp(message: &mut Message, row: &QpRow) {
    const MIGRATED: u8 = 0;
    const UD: u8 = 4;
    const DRIVER: u8 = 0xff;
    let (kind, is_connected) = match row.qp_type.as_str() {
        "RC" => (2, true),
        "UC" => (3, true),
        "XRC_SEND" => (9, false),
        "XRC_RECV" => (10, false),
        "DCI" | "DCT" => (DRIVER, false),
        _ => (UD, false),
    };
    let states = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE"];
    let state = (0..).zip(states).find(|(_, name)| *name == row.state);
    // A queue pair belongs to a port from INIT on.
    if row.state != "RESET" {
        message.u32(attr::PORT_INDEX, row.port.into());
    }
    message.u32(attr::RES_LQPN, row.lqpn);
    if is_connected {
        message.u32(attr::RES_RQPN, row.rqpn.unwrap_or(0));
        message.u32(attr::RES_RQ_PSN, row.rq_psn);
    }
    message.u32(attr::RES_SQ_PSN, row.sq_psn);
    if !matches!(kind, UD | DRIVER) {
        message.u8(attr::RES_PATH_MIG_STATE, MIGRATED);
    }
    message.u8(attr::RES_TYPE, kind);
    message.u8(attr::RES_STATE, state.map_or(6, |(number, _)| number));
    if let Some(pdn) = row.pdn {
        message.u32(attr::RES_PDN, pdn);
    }
    message.u32(attr::RES_PID, row.pid);
}

fn put_cm_id(message: &mut Message, row: &CmIdRow) {
    message.u32(attr::PORT_INDEX, row.port.into());
    if let Some(lqpn) = row.lqpn {
        message.u32(attr::RES_LQPN, lqpn);
        message.u8(attr::RES_TYPE, 2);
    }
    let ps = match row.ps.as_deref() {
        Some("UDP") => 0x0111,
        Some("IB") => 0x013f,
        Some("IPOIB") => 0x0002,
        _ => 0x0106, // TCP
    };
    message.u32(attr::RES_PS, ps);
    let state = match row.state.as_str() {
        "CONNECT" => 5,
        "DISCONNECT" => 6,
        "LISTEN" => 8,
        _ => 0, // IDLE
    };
    message.u8(attr::RES_STATE, state);
    if let Some(number) = row.cm_idn {
        message.u32(attr::RES_CM_IDN, number);
    }
    let source = (row.src_addr, row.src_port.unwrap_or(0));
    put_address(message, attr::RES_SRC_ADDR, source.into());
    if let Some(peer) = row.dst_addr {
        put_address(message, attr::RES_DST_ADDR, (peer, 0).into());
    }
    message.u32(attr::RES_PID, row.pid);
}

fn put_srq(message: &mut Message, row: &SrqRow) {
    message.u32(attr::RES_SRQN, row.srqn);
    message.u8(attr::RES_TYPE, (row.srq_type == "XRC").into());
    message.u32(attr::RES_PDN, row.pdn);
    message.u32(attr::RES_PID, row.pid);
}

/// A `sockaddr_storage`.
fn put_address(message: &mut Message, kind: u16, address: SocketAddr) {
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let mut bytes = [0; 128];
    let (family, at, ip) = match address.ip() {
        IpAddr::V4(v4) => (INET, 4, v4.octets().to_vec()),
        IpAddr::V6(v6) => (INET6, 8, v6.octets().to_vec()),
    };
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    bytes[at..at + ip.len()].copy_from_slice(&ip);
    message.bytes(kind, &bytes);
}
