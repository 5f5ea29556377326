//! Receives of UD.

use ferroce_wire::{Deth, Headers, Service};

use crate::counter::Counter;
use crate::fault::Fault;
use crate::memory::Data;
use crate::qp::Qp;
use crate::responder::{Context, Failed, complete_receive};
use crate::service::GRH_BYTES;
use crate::service::Grh;
use crate::services::Services;
use crate::work::{WcFlags, WcOpcode};

impl Qp {
    /// Handles a datagram for this QP, or for a group it is attached to, and stores it after its IP
    /// header. A datagram that cannot be received is dropped, and a counter shows why (IBA vol 1,
    /// 9.8.3).
    pub fn handle_datagram<H: Services>(
        &mut self,
        headers: &Headers,
        grh: &Grh,
        data: Data<'_>,
        host: &mut H,
    ) {
        let Some(deth) = headers.deth() else { return };
        if !self.takes_packets() || self.config().qp_type.service() != Service::Ud {
            return;
        }
        if deth.qkey != self.attr().qkey {
            host.count(Counter::RxWrongQkey, 1);
            return;
        }
        let (_, mut cx) = self.responder(host);
        if let Err(Failed) = receive(headers, deth, grh, data, &mut cx) {
            self.enter_error(host);
        }
    }
}

fn receive<H: Services>(
    headers: &Headers,
    deth: Deth,
    grh: &Grh,
    data: Data<'_>,
    cx: &mut Context<'_, H>,
) -> Result<(), Failed> {
    let Some(wqe) = cx.receives.take(cx.host) else {
        cx.host.count(Counter::OutOfBuffer, 1);
        return Ok(());
    };
    let byte_len = GRH_BYTES + data.len();
    if u64::from(byte_len) > wqe.capacity() {
        // An outsider must not be able to use up receives, still less to stop the queue pair.
        cx.host.count(Counter::RespLocalLengthError, 1);
        cx.receives.give_back(wqe);
        return Ok(());
    }
    let written = wqe
        .scatter(cx.host, 0, Data::Bytes(grh))
        .and_then(|()| wqe.scatter(cx.host, GRH_BYTES, data));
    if written.is_err() {
        cx.fail(&wqe, Fault::RECEIVE);
        return Err(Failed);
    }
    let mut completion = complete_receive(&wqe, WcOpcode::Recv, byte_len, headers, cx.qpn);
    completion.src_qp = deth.src_qp;
    completion.flags |= WcFlags::GRH;
    cx.complete(completion);
    Ok(())
}
