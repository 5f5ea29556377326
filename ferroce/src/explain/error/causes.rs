//! The meaning of each error completion: one table for the command, its JSON and the manual.

use ferroce_device::{Counter, WcStatus};

/// A cause of error completions.
#[derive(Debug)]
pub(super) struct Cause {
    pub(super) status: WcStatus,
    /// The vendor syndrome of ConnectX; 0 where none is known.
    pub(super) vendor_err: u32,
    /// In a few words.
    pub(super) summary: &'static str,
    /// In full.
    pub(super) cause: &'static str,
    /// The side whose send request it was.
    pub(super) requester: Signs,
    /// The side that the request was sent to.
    pub(super) responder: Signs,
    /// What to check, the likeliest first.
    pub(super) next: &'static [&'static str],
}

/// What a side shows.
#[derive(Debug)]
pub(super) struct Signs {
    /// Counters that rise, and by how much.
    pub(super) counters: &'static [(Counter, &'static str)],
    /// Events, completions, and the state of the queue pair afterwards.
    pub(super) shows: &'static str,
}

const NOTHING: Signs = Signs {
    counters: &[],
    shows: "nothing",
};

/// The cause of a status and a vendor error; without one, all causes of the status.
pub(super) fn of(
    status: WcStatus,
    vendor_err: Option<u32>,
) -> impl Iterator<Item = &'static Cause> {
    let is_asked = move |cause: &&Cause| {
        cause.status == status && vendor_err.is_none_or(|it| it == cause.vendor_err)
    };
    CAUSES.iter().filter(is_asked)
}

/// By status, and what is seen most comes first.
pub(super) const CAUSES: &[Cause] = &[
    Cause {
        status: WcStatus::LocLenErr,
        vendor_err: 0,
        summary: "a length that does not fit",
        cause: "A received message is longer than its receive, a datagram is longer than the MTU, or \
                an atomic is not of 8 bytes.",
        requester: Signs {
            counters: &[
                (Counter::ReqCqeError, "+1"),
                (Counter::ReqRemoteInvalidRequest, "+1"),
            ],
            shows: "its own request with this status (datagram, atomic; nothing is sent), or \
                    REM_INV_REQ_ERR 0x8a if the peer's receive was too short",
        },
        responder: Signs {
            counters: &[
                (Counter::RespCqeError, "+1"),
                (Counter::RespLocalLengthError, "+1"),
            ],
            shows: "its receive with this status, and IBV_EVENT_QP_REQ_ERR",
        },
        next: &[
            "compare the length that was sent with the sum of the receive's elements",
            "for UD: the MTU of the port, and 40 bytes for the GRH at the receiver",
        ],
    },
    Cause {
        status: WcStatus::LocQpOpErr,
        vendor_err: 0x61,
        summary: "an operation that this queue pair may not post",
        cause: "A READ or an atomic on a queue pair whose max_rd_atomic is 0.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "nothing is sent; the queue pair is in ERR",
        },
        responder: NOTHING,
        next: &["set max_rd_atomic at RTR to RTS, and max_dest_rd_atomic at the peer"],
    },
    Cause {
        status: WcStatus::LocProtErr,
        vendor_err: 0x53,
        summary: "a send reaches beyond its memory region",
        cause: "An element of a SEND or RDMA WRITE reaches beyond the memory region of its local key.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "packets before the refused one were sent; the queue pair is in ERR",
        },
        responder: NOTHING,
        next: &[
            "compare address and length of each element with what ibv_reg_mr was given",
            "`ferroce res show mr --details` lists the regions of running programs",
        ],
    },
    Cause {
        status: WcStatus::LocProtErr,
        vendor_err: 0x52,
        summary: "the local key of a send is not valid",
        cause: "The local key of a SEND or RDMA WRITE does not exist any more, never did, or belongs \
                to another protection domain.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "packets before the refused one were sent; the queue pair is in ERR",
        },
        responder: NOTHING,
        next: &[
            "was the region deregistered before the request completed?",
            "are region and queue pair of one protection domain?",
            "is it an rkey, or a key of another device?",
        ],
    },
    Cause {
        status: WcStatus::LocProtErr,
        vendor_err: 0x33,
        summary: "a response cannot be put where it belongs",
        cause: "The response to a READ or an atomic is there, and the memory for it cannot be written: a wrong \
                local key or range, or no IBV_ACCESS_LOCAL_WRITE. An atomic has been executed.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "the queue pair is in ERR",
        },
        responder: Signs {
            counters: &[
                (Counter::RxReadRequests, "+1, of a READ"),
                (Counter::RxAtomicRequests, "+1, of an atomic"),
            ],
            shows: "nothing: it has answered",
        },
        next: &[
            "register the memory with IBV_ACCESS_LOCAL_WRITE",
            "keep it registered until the request completes",
        ],
    },
    Cause {
        status: WcStatus::LocProtErr,
        vendor_err: 0x32,
        summary: "a receive's memory cannot be written",
        cause: "A message has arrived and cannot be put where its receive says: a wrong local key or \
                range, or no IBV_ACCESS_LOCAL_WRITE.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "its request with REM_OP_ERR 0x89; the queue pair is in ERR",
        },
        responder: Signs {
            counters: &[(Counter::RespCqeError, "+1")],
            shows: "this status at the receive, IBV_EVENT_QP_REQ_ERR; the queue pair is in ERR",
        },
        next: &[
            "look at the receive with this wr_id: its keys, and whether its memory is registered",
            "with a shared receive queue the keys are those of its protection domain",
        ],
    },
    Cause {
        status: WcStatus::WrFlushErr,
        vendor_err: 0xf9,
        summary: "flushed behind an error, or posted in ERR",
        cause: "The queue pair was in ERR already. This completion is not the cause: an \
                earlier one of the same queue pair is, or the program moved it there.",
        requester: Signs {
            counters: &[
                (Counter::ReqCqeError, "+1 each"),
                (Counter::ReqCqeFlushError, "+1 each"),
            ],
            shows: "one completion for each outstanding request, in their order, unsignalled ones \
                    included",
        },
        responder: Signs {
            counters: &[
                (Counter::RespCqeError, "+1 each"),
                (Counter::RespCqeFlushError, "+1 each"),
            ],
            shows: "one completion for each receive on the queue pair's own queue, or \
                    IBV_EVENT_QP_LAST_WQE_REACHED with a shared one",
        },
        next: &[
            "find the first completion of this queue pair that is not 0xf9",
            "if there is none and only receives are flushed: the peer's request was refused \
             (events of this queue pair say so), or the program closed the connection",
        ],
    },
    Cause {
        status: WcStatus::WrFlushErr,
        vendor_err: 0xf5,
        summary: "the program moved the queue pair to ERR",
        cause: "This was the oldest unfinished send when the program moved the queue pair to ERR. \
                Nothing was wrong with it.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "the others follow with 0xf9; ibv_query_qp still reports the PSNs",
        },
        responder: NOTHING,
        next: &[
            "find what calls ibv_modify_qp with IBV_QPS_ERR, rdma_disconnect or a recovery routine",
        ],
    },
    Cause {
        status: WcStatus::MwBindErr,
        vendor_err: 0,
        summary: "a memory window cannot be bound or invalidated",
        cause: "A bind or a local invalidation was refused: the region lacks IBV_ACCESS_MW_BIND, the \
                range is not in it, or the window is another queue pair's.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "the queue pair is in ERR",
        },
        responder: NOTHING,
        next: &["compare the bind with its region: access flags, range, protection domain"],
    },
    Cause {
        status: WcStatus::BadRespErr,
        vendor_err: 0,
        summary: "an unexpected response",
        cause: "The peer answered a READ or an atomic with something else, or with another length. A \
                healthy peer does not.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "the queue pair is in ERR",
        },
        responder: NOTHING,
        next: &[
            "do both sides have one path MTU?",
            "capture it: `ferroce run --capture`",
        ],
    },
    Cause {
        status: WcStatus::LocAccessErr,
        vendor_err: 0,
        summary: "a message with a key that the peer may not use",
        cause: "The receive was taken by immediate data whose RDMA WRITE was refused for its key or \
                range, or by a SEND that invalidates a key which is not a type 2 memory window bound \
                to this queue pair.",
        requester: Signs {
            counters: &[
                (Counter::ReqCqeError, "+1"),
                (Counter::ReqRemoteAccessErrors, "+1 for the WRITE"),
            ],
            shows: "the WRITE with REM_ACCESS_ERR 0x88; the SEND, which is not answered, with \
                    RETRY_EXC_ERR 0x81",
        },
        responder: Signs {
            counters: &[(Counter::RespCqeError, "+1")],
            shows: "this status at the receive, IBV_EVENT_QP_ACCESS_ERR; the queue pair is in ERR",
        },
        next: &[
            "as for REM_ACCESS_ERR 0x88: the rkey and the range that the peer used",
            "a SEND with invalidate: was the window invalidated before, or bound to another queue pair?",
        ],
    },
    Cause {
        status: WcStatus::RemInvReqErr,
        vendor_err: 0x8a,
        summary: "the peer's queue pair takes no such request",
        cause: "The peer's queue pair does not permit the operation, the message is longer than its \
                receive, or it has fewer resources for READs and atomics than are used.",
        requester: Signs {
            counters: &[
                (Counter::ReqRemoteInvalidRequest, "+1"),
                (Counter::ReqCqeError, "+1"),
            ],
            shows: "no event; the queue pair is in ERR, and its sq_psn is the refused packet's",
        },
        responder: Signs {
            counters: &[(
                Counter::RespLocalLengthError,
                "+1 if its receive was too short",
            )],
            shows: "IBV_EVENT_QP_REQ_ERR; the queue pair is in ERR",
        },
        next: &[
            "qp_access_flags of the peer's queue pair: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC",
            "the length of the peer's receives",
            "max_rd_atomic here against max_dest_rd_atomic there",
        ],
    },
    Cause {
        status: WcStatus::RemAccessErr,
        vendor_err: 0x88,
        summary: "the peer's memory does not permit this request",
        cause: "The rkey is not valid at the peer, does not cover this range, or does not permit \
                this operation. Whole packets of a WRITE before the refused one have landed.",
        requester: Signs {
            counters: &[
                (Counter::ReqRemoteAccessErrors, "+1"),
                (Counter::ReqCqeError, "+1"),
            ],
            shows: "no event; the queue pair is in ERR, and its sq_psn is the refused packet's",
        },
        responder: Signs {
            counters: &[
                (Counter::RespRemoteAccessErrors, "+1, but +0 for a WRITE"),
                (Counter::RxWriteRequests, "+1, of a WRITE"),
            ],
            shows: "IBV_EVENT_QP_ACCESS_ERR; the queue pair is in ERR",
        },
        next: &[
            "has the peer deregistered the memory, or is it ending? A process that is killed may lose \
             its memory before its queue pairs",
            "was the rkey sent for this region, and address and length as the peer registered them?",
            "access flags of the peer's region: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC",
        ],
    },
    Cause {
        status: WcStatus::RemOpErr,
        vendor_err: 0x89,
        summary: "the peer could not execute it",
        cause: "The peer took the request and could not finish it: most often its receive names memory \
                that cannot be written.",
        requester: Signs {
            counters: &[(Counter::ReqCqeError, "+1")],
            shows: "no event; the queue pair is in ERR",
        },
        responder: Signs {
            counters: &[(Counter::RespCqeError, "+1")],
            shows: "its receive with LOC_PROT_ERR 0x32, IBV_EVENT_QP_REQ_ERR",
        },
        next: &["the completions of the peer: the receive that failed has the cause"],
    },
    Cause {
        status: WcStatus::RetryExcErr,
        vendor_err: 0x81,
        summary: "the peer did not acknowledge",
        cause: "The peer did not acknowledge the request within the timeout, however often it was \
                repeated: it is gone, its queue pair is not ready or in ERR (it does not say so), or \
                the path there or back is broken.",
        requester: Signs {
            counters: &[
                (
                    Counter::RoceAdpRetrans,
                    "+4 to 8 with the firmware's own timeouts",
                ),
                (Counter::LocalAckTimeoutErr, "+6 at retry_cnt 7"),
                (
                    Counter::RpCnpHandled,
                    "+1 for each of these but the last, without any CNP",
                ),
                (Counter::RoceSlowRestartCnps, "the same"),
                (Counter::ReqTransportRetriesExceeded, "+1"),
                (Counter::ReqCqeError, "+1"),
            ],
            shows: "no event; the queue pair is in ERR, and its sq_psn is behind what was sent",
        },
        responder: Signs {
            counters: &[
                (
                    Counter::RxWrongState,
                    "rises if its queue pair is in RESET, INIT or ERR",
                ),
                (Counter::RxUnknownQp, "rises if the queue pair is gone"),
                (
                    Counter::DuplicateRequest,
                    "rises if only its answers are lost",
                ),
            ],
            shows: "nothing",
        },
        next: &[
            "is the peer's process alive, and its queue pair in RTR or RTS? `ferroce res show qp`",
            "counters of the peer: does anything arrive?",
            "PSNs of both sides: does the peer's rq_psn equal this side's sq_psn?",
            "how long it took: `ferroce explain timeout` says what to expect",
        ],
    },
    Cause {
        status: WcStatus::RnrRetryExcErr,
        vendor_err: 0x87,
        summary: "the peer had no receive",
        cause: "The peer had no receive for the request, rnr_retry + 1 times.",
        requester: Signs {
            counters: &[
                (Counter::RnrNakRetryErr, "+rnr_retry + 1"),
                (Counter::ReqRnrRetriesExceeded, "+1"),
                (Counter::ReqCqeError, "+1"),
            ],
            shows: "no event; the queue pair is in ERR",
        },
        responder: Signs {
            counters: &[(Counter::OutOfBuffer, "+rnr_retry + 1")],
            shows: "nothing: its queue pair keeps working",
        },
        next: &[
            "does the receiver post receives before the sender needs them?",
            "rnr_retry 7 retries without limit; min_rnr_timer of the peer says how long each wait is",
            "a shared receive queue: IBV_EVENT_SRQ_LIMIT_REACHED warns in time",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reported_status_has_exactly_one_cause_for_each_code() {
        for status in WcStatus::ALL {
            let causes: Vec<_> = of(status, None).map(|cause| cause.vendor_err).collect();
            assert_eq!(causes.is_empty(), status == WcStatus::Success, "{status:?}");
            let usual = status.vendor_err();
            assert!(usual == 0 || causes.contains(&usual), "{status:?}");
            for vendor_err in causes {
                assert_eq!(of(status, Some(vendor_err)).count(), 1, "{status:?}");
            }
        }
        assert!(CAUSES.is_sorted_by_key(|cause| cause.status as u32));
    }
}
