//! Objects for programs.

use ferroce_registry::{
    CmIdRow, Counts, CqRow, MrRow, PdRow, Process, QpRow, Query, Resource, SrqRow,
};

use super::super::ask::Replies;
use super::Wanted;
use super::kind::{context, object};
use crate::json::Document;
use crate::json::res as json;
use crate::output::{Failure, Output};

/// Prints the objects that are wanted, or how many there are of each kind.
pub(super) fn print(
    wanted: &Wanted<'_>,
    replies: &[Replies],
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let silent = replies.iter().flat_map(|device| {
        device.silent.iter().map(|silent| json::Silent {
            device: device.device.clone(),
            pid: silent.pid,
        })
    });
    let print = Print {
        wanted,
        replies,
        silent: silent.collect(),
    };
    let Some(kind) = wanted.kind else {
        let objects = replies.iter().map(counts).collect();
        return print.document(objects, to);
    };
    match kind.query {
        Some(Query::Qp) => print.rows(to, |device, row| match row {
            Resource::Qp(row) => Some(queue_pair(device, row)),
            _ => None,
        }),
        Some(Query::Mr) => print.rows(to, |device, row| match row {
            Resource::Mr(row) => Some(memory_region(device, row)),
            _ => None,
        }),
        Some(Query::Cq) => print.rows(to, |device, row| match row {
            Resource::Cq(row) => Some(completion_queue(device, row)),
            _ => None,
        }),
        Some(Query::Pd) => print.rows(to, |device, row| match row {
            Resource::Pd(row) => Some(protection_domain(device, row)),
            _ => None,
        }),
        Some(Query::Srq) => print.rows(to, |device, row| match row {
            Resource::Srq(row) => Some(shared_receive_queue(device, row)),
            _ => None,
        }),
        Some(Query::CmId) => print.rows(to, |device, row| match row {
            Resource::CmId(row) => Some(cm_id(device, row)),
            _ => None,
        }),
        _ => print.contexts(to),
    }
}

struct Print<'a> {
    wanted: &'a Wanted<'a>,
    replies: &'a [Replies],
    silent: Vec<json::Silent>,
}

impl Print<'_> {
    fn document<T>(self, objects: Vec<T>, to: &mut Output<'_>) -> Result<(), Failure>
    where
        json::Objects<T>: Document,
    {
        let silent = self.silent;
        let document = json::Objects { objects, silent };
        to.document(&document)
    }

    /// Prints what processes told of their objects.
    fn rows<T>(
        self,
        to: &mut Output<'_>,
        read: impl Fn(&str, &Resource) -> Option<T>,
    ) -> Result<(), Failure>
    where
        json::Objects<T>: Document,
    {
        let mut objects = Vec::new();
        for device in self.replies {
            let rows = device.rows.iter();
            let wanted = rows.filter(|row| self.wanted.takes(&object(row)));
            objects.extend(wanted.filter_map(|row| read(&device.device, row)));
        }
        self.document(objects, to)
    }

    /// Prints the processes themselves.
    fn contexts(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let mut objects = Vec::new();
        for device in self.replies {
            let processes = device.processes.iter();
            let wanted = processes.filter(|it| self.wanted.takes(&context(it)));
            objects.extend(wanted.map(|it| opening(&device.device, it)));
        }
        self.document(objects, to)
    }
}

/// How many objects there are on a device.
pub(super) fn counts(replies: &Replies) -> json::Counts {
    let (index, device) = replies.name();
    let counts = replies.rows.iter().filter_map(|resource| match resource {
        Resource::Count(counts) => Some(counts),
        _ => None,
    });
    let sum = |part: fn(&Counts) -> u64| counts.clone().map(part).sum();
    json::Counts {
        device: device.to_owned(),
        index,
        pd: sum(|it| it.pd),
        cq: sum(|it| it.cq),
        qp: sum(|it| it.qp),
        cm_id: sum(|it| it.cm_id),
        mr: sum(|it| it.mr),
        srq: sum(|it| it.srq),
        ctx: sum(|it| it.ctx),
    }
}

fn queue_pair(device: &str, row: &QpRow) -> json::QueuePair {
    json::QueuePair {
        device: device.to_owned(),
        lqpn: row.lqpn,
        rqpn: row.rqpn,
        r#type: row.qp_type.clone(),
        state: row.state.clone(),
        rq_psn: row.rq_psn,
        sq_psn: row.sq_psn,
        path_mig_state: row.path_mig_state.clone(),
        pdn: row.pdn,
        send_cqn: row.send_cqn,
        recv_cqn: row.recv_cqn,
        srqn: row.srqn,
        peer: row.peer,
        timeout: row.timeout,
        retry_cnt: row.retry_cnt,
        rnr_retry: row.rnr_retry,
        wait_ns: row.wait_ns,
        total_ns: row.total_ns,
        exponent: row.exponent,
        range: row.range,
        retries_left: row.retries_left,
        in_flight: row.in_flight,
        path_window_bytes: row.path_window,
        path_used_bytes: row.path_used,
        path_rtt_ns: row.path_rtt_ns,
        send_queue: row.send_queue,
        recv_queue: row.recv_queue,
        pid: row.pid,
        comm: row.comm.clone(),
    }
}

fn memory_region(device: &str, row: &MrRow) -> json::MemoryRegion {
    json::MemoryRegion {
        device: device.to_owned(),
        mrn: row.mrn,
        rkey: row.rkey,
        lkey: row.lkey,
        iova: row.iova,
        length_bytes: row.mrlen,
        pdn: row.pdn,
        pid: row.pid,
        comm: row.comm.clone(),
    }
}

fn completion_queue(device: &str, row: &CqRow) -> json::CompletionQueue {
    json::CompletionQueue {
        device: device.to_owned(),
        cqn: row.cqn,
        cqe: row.cqe,
        waiting: row.waiting,
        users: row.users,
        pid: row.pid,
        comm: row.comm.clone(),
    }
}

fn protection_domain(device: &str, row: &PdRow) -> json::ProtectionDomain {
    json::ProtectionDomain {
        device: device.to_owned(),
        pdn: row.pdn,
        users: row.users,
        pid: row.pid,
        comm: row.comm.clone(),
    }
}

fn shared_receive_queue(device: &str, row: &SrqRow) -> json::SharedReceiveQueue {
    json::SharedReceiveQueue {
        device: device.to_owned(),
        srqn: row.srqn,
        r#type: row.srq_type.clone(),
        pdn: row.pdn,
        max_wr: row.max_wr,
        waiting: row.waiting,
        users: row.users,
        pid: row.pid,
        comm: row.comm.clone(),
    }
}

fn cm_id(device: &str, row: &CmIdRow) -> json::CmId {
    // A listener has a port of its own; a connection does not say whose port it uses.
    let port = Some(row.service_port);
    let (src_port, service_port) = match row.state == "LISTEN" {
        true => (port, None),
        false => (None, port),
    };
    json::CmId {
        device: device.to_owned(),
        cm_idn: row.cm_idn,
        lqpn: row.lqpn,
        rqpn: row.rqpn,
        state: row.state.clone(),
        cm_state: row.cm_state.clone(),
        ps: row.ps.clone(),
        src_addr: row.src_addr,
        src_port,
        dst_addr: row.dst_addr,
        service_port,
        service_id: row.service_id,
        pid: row.pid,
        comm: row.comm.clone(),
    }
}

fn opening(device: &str, process: &Process) -> json::Context {
    json::Context {
        device: device.to_owned(),
        ctxn: process.slot,
        pid: process.pid,
        comm: process.comm.clone(),
    }
}
