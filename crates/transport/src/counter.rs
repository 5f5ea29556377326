/// What the device counts.
///
/// One table feeds every output: the names are those of mlx5's `hw_counters` where that driver
/// has one, so that operators and exporters find what they know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(usize)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each counter is described once, in the table below"
)]
pub enum Counter {
    LocalAckTimeoutErr,
    PacketSeqErr,
    ImpliedNakSeqErr,
    RnrNakRetryErr,
    OutOfSequence,
    DuplicateRequest,
    OutOfBuffer,
    RoceAdpRetrans,
    RoceAdpRetransTo,
    RxIcrcEncapsulated,
    RxWriteRequests,
    RxReadRequests,
    RxAtomicRequests,
    ReqCqeError,
    ReqCqeFlushError,
    RespCqeError,
    RespCqeFlushError,
    ReqRemoteAccessErrors,
    ReqRemoteInvalidRequest,
    RespRemoteAccessErrors,
    RespLocalLengthError,
    ReqTransportRetriesExceeded,
    ReqRnrRetriesExceeded,
    NpEcnMarkedRocePackets,
    RdmaTxPackets,
    RdmaTxBytes,
    RdmaRxPackets,
    RdmaRxBytes,
    RetransmittedPackets,
    RxMalformed,
    RxUnknownQp,
    RxWrongState,
    RxWrongPeer,
    RxWrongPkey,
    RxWrongQkey,
    RxWrongService,
    RxUnexpectedResponse,
    RxForwarded,
    TxDropped,
    ImpairLost,
    ImpairBlackout,
    ImpairDuplicated,
    ImpairReordered,
    ImpairCorrupted,
    ImpairEcnMarked,
}

/// How a [`Counter`] is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterInfo {
    /// Which counter this row describes.
    pub counter: Counter,
    /// Name, as in `/sys/class/infiniband/DEV/ports/1/hw_counters/`.
    pub name: &'static str,
    /// One sentence for help texts and exporters.
    pub help: &'static str,
}

macro_rules! table {
    ($($variant:ident $name:literal $help:literal;)*) => {
        impl Counter {
            /// Every counter in the order of its index.
            pub const TABLE: &'static [CounterInfo] = &[
                $(CounterInfo { counter: Self::$variant, name: $name, help: $help },)*
            ];
        }
    };
}

table! {
    LocalAckTimeoutErr "local_ack_timeout_err" "ACK timer of a requester expired outside adaptive retransmission.";
    PacketSeqErr "packet_seq_err" "Sequence-error NAKs received, retry limit not exceeded.";
    ImpliedNakSeqErr "implied_nak_seq_err" "Responses that revealed a lost READ or atomic response.";
    RnrNakRetryErr "rnr_nak_retry_err" "RNR NAKs received, retry limit not exceeded.";
    OutOfSequence "out_of_sequence" "Requests that arrived ahead of the expected PSN.";
    DuplicateRequest "duplicate_request" "Requests that had been executed already.";
    OutOfBuffer "out_of_buffer" "Requests that found no receive WQE.";
    RoceAdpRetrans "roce_adp_retrans" "Retransmissions by adaptive retransmission.";
    RoceAdpRetransTo "roce_adp_retrans_to" "QPs that failed on a timeout of adaptive retransmission.";
    RxIcrcEncapsulated "rx_icrc_encapsulated" "Packets dropped for a wrong ICRC.";
    RxWriteRequests "rx_write_requests" "RDMA WRITE requests received.";
    RxReadRequests "rx_read_requests" "RDMA READ requests received.";
    RxAtomicRequests "rx_atomic_requests" "Atomic requests received.";
    ReqCqeError "req_cqe_error" "Send completions with an error.";
    ReqCqeFlushError "req_cqe_flush_error" "Send completions flushed.";
    RespCqeError "resp_cqe_error" "Receive completions with an error.";
    RespCqeFlushError "resp_cqe_flush_error" "Receive completions flushed.";
    ReqRemoteAccessErrors "req_remote_access_errors" "Remote-access NAKs received.";
    ReqRemoteInvalidRequest "req_remote_invalid_request" "Invalid-request NAKs received.";
    RespRemoteAccessErrors "resp_remote_access_errors" "Requests refused for key, range or permission.";
    RespLocalLengthError "resp_local_length_error" "Messages longer than the receive WQE they met.";
    ReqTransportRetriesExceeded "req_transport_retries_exceeded" "QPs that failed with IBV_WC_RETRY_EXC_ERR.";
    ReqRnrRetriesExceeded "req_rnr_retries_exceeded" "QPs that failed with IBV_WC_RNR_RETRY_EXC_ERR.";
    NpEcnMarkedRocePackets "np_ecn_marked_roce_packets" "Packets received with the CE mark.";
    RdmaTxPackets "rdma_tx_packets" "Packets handed to the link.";
    RdmaTxBytes "rdma_tx_bytes" "Payload bytes handed to the link.";
    RdmaRxPackets "rdma_rx_packets" "Packets taken from the link for a QP.";
    RdmaRxBytes "rdma_rx_bytes" "Payload bytes taken from the link for a QP.";
    RetransmittedPackets "retransmitted_packets" "Request packets sent again.";
    RxMalformed "rx_malformed" "Packets dropped because they do not parse.";
    RxUnknownQp "rx_unknown_qp" "Packets dropped because their QP does not exist.";
    RxWrongState "rx_wrong_state" "Packets dropped because the QP is not ready to receive.";
    RxWrongPeer "rx_wrong_peer" "Packets dropped because they come from another address than the peer's.";
    RxWrongPkey "rx_wrong_pkey" "Packets dropped because their partition key does not match.";
    RxWrongQkey "rx_wrong_qkey" "Datagrams dropped because their queue key is not that of the QP.";
    RxWrongService "rx_wrong_service" "Packets dropped because their opcode belongs to another service.";
    RxUnexpectedResponse "rx_unexpected_response" "Responses dropped because they answer nothing outstanding.";
    RxForwarded "rx_forwarded" "Packets for another process of the device, handed on to it.";
    TxDropped "tx_dropped" "Packets the link refused to take.";
    ImpairLost "impair_lost" "Packets the impairment dropped at random.";
    ImpairBlackout "impair_blackout" "Packets the impairment dropped in a blackout.";
    ImpairDuplicated "impair_duplicated" "Packets the impairment sent twice.";
    ImpairReordered "impair_reordered" "Packets the impairment held back past later ones.";
    ImpairCorrupted "impair_corrupted" "Packets the impairment flipped a bit in.";
    ImpairEcnMarked "impair_ecn_marked" "Packets the impairment marked CE.";
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = Self::TABLE.len();

    /// Name, as in `hw_counters/`.
    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_index_order_and_names_are_unique() {
        for (index, row) in Counter::TABLE.iter().enumerate() {
            assert_eq!(row.counter as usize, index, "{}", row.name);
            assert!(
                Counter::TABLE[..index].iter().all(|r| r.name != row.name),
                "{}",
                row.name
            );
        }
    }
}
