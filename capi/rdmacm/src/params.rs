//! Connection parameters given by programs.

use std::ffi::c_void;

use ferroce_ibverbs::error::Error;

use crate::abi::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, rdma_conn_param};
use crate::id::Id;

/// What a program says of a connection, made complete.
pub(crate) struct Params<'a> {
    pub(crate) private: &'a [u8],
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) qpn: u32,
    pub(crate) srq: bool,
}

/// Transport and RNR retries have three bits.
const RETRIES_MAX: u8 = 7;

impl<'a> Params<'a> {
    /// What `given` says; without it, or where it asks for the most, what `most` allows of READs
    /// and atomics taken and outstanding.
    ///
    /// # Safety
    /// `given` is null or points to a structure whose private data is there.
    pub(crate) unsafe fn new(
        id: &Id,
        given: *const rdma_conn_param,
        most: (u8, u8),
    ) -> Result<Self, Error> {
        let device = id.device()?;
        // SAFETY: as the caller promises.
        let given = unsafe { given.as_ref() };
        let limited = |field, value, any, most, limit| match value {
            None => Ok(most),
            Some(value) if value == any => Ok(most),
            Some(value) if value <= limit => Ok(value),
            Some(value) => Err(Error::invalid(
                field,
                value,
                "0 to what the device has, and 255",
            )),
        };
        // SAFETY: a live object, and its queue pair one too.
        let (own_qpn, own_srq) = unsafe {
            let qp = (*id.abi()).qp;
            match qp.is_null() {
                true => (None, false),
                false => (Some((*qp).qp_num), !(*qp).srq.is_null()),
            }
        };
        if given.is_none() && own_qpn.is_none() {
            return Err(Error::Null("conn_param of an id without queue pair"));
        }
        let private = match given {
            Some(given) if !given.private_data.is_null() => {
                // SAFETY: as the caller promises.
                unsafe { bytes(given.private_data, given.private_data_len) }
            }
            _ => &[],
        };
        Ok(Self {
            private,
            responder_resources: limited(
                "responder_resources",
                given.map(|given| given.responder_resources),
                RDMA_MAX_RESP_RES,
                most.0,
                device.max_responder_resources,
            )?,
            initiator_depth: limited(
                "initiator_depth",
                given.map(|given| given.initiator_depth),
                RDMA_MAX_INIT_DEPTH,
                most.1,
                device.max_initiator_depth,
            )?,
            flow_control: given.is_some_and(|given| given.flow_control != 0),
            retry_count: retries(given.map(|given| given.retry_count)),
            rnr_retry_count: retries(given.map(|given| given.rnr_retry_count)),
            qpn: own_qpn
                .or_else(|| given.map(|given| given.qp_num))
                .unwrap_or(0),
            srq: match own_qpn {
                Some(_) => own_srq,
                None => given.is_some_and(|given| given.srq != 0),
            },
        })
    }
}

/// A count of retries as the wire has room for it; as many as there are unless the program says.
fn retries(given: Option<u8>) -> u8 {
    given.map_or(RETRIES_MAX, |given| given.min(RETRIES_MAX))
}

/// # Safety
/// `length` bytes are there.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, length: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(data.cast(), length.into()) }
}

#[cfg(test)]
mod tests {
    use super::retries;

    #[test]
    fn more_retries_than_fit_the_wire_are_as_many_as_fit() {
        let given: Vec<u8> = (0..=9).chain([255]).map(|n| retries(Some(n))).collect();
        assert_eq!(given, [0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7]);
        assert_eq!(retries(None), 7);
    }
}
