//! The device's counters, each with its name and meaning.

/// How a [`Counter`] is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterInfo {
    /// The counter.
    pub counter: Counter,
    /// Name, as in `/sys/class/infiniband/DEV/ports/1/hw_counters/`.
    pub name: &'static str,
    /// Name of the OpenMetrics family, without the `_total` of its samples: node_exporter's if it
    /// has one (in release 1.12), otherwise our own.
    pub metric: &'static str,
    /// The name of the same counter in the kernel's software RoCE (rdma_rxe), for comparisons.
    pub rxe: Option<&'static str>,
    /// One sentence for help texts and exporters.
    pub help: &'static str,
}

macro_rules! alias {
    () => {
        None
    };
    ($name:literal) => {
        Some($name)
    };
}

macro_rules! counters {
    ($(
        $variant:ident $name:literal $prefix:ident $metric:literal $(rxe $rxe:literal)? $help:literal;
    )*) => {
        /// The device's counters.
        ///
        /// One table feeds every output. The names are those of mlx5's `hw_counters` if that driver
        /// has one, so that operators and exporters find familiar names.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(usize)]
        #[non_exhaustive]
        pub enum Counter {
            $(#[doc = $help] $variant,)*
        }

        impl Counter {
            /// Every counter in the order of its index.
            pub const TABLE: &'static [CounterInfo] = &[
                $(CounterInfo {
                    counter: Self::$variant,
                    name: $name,
                    metric: concat!(stringify!($prefix), "_", $metric),
                    rxe: alias!($($rxe)?),
                    help: $help,
                },)*
            ];
        }
    };
}

counters! {
    LocalAckTimeoutErr "local_ack_timeout_err" node_infiniband "local_ack_timeout_errors" "ACK timer of a requester expired outside adaptive retransmission.";
    PacketSeqErr "packet_seq_err" node_infiniband "packet_sequence_errors" rxe "rcvd_seq_err" "Sequence-error NAKs received, retry limit not exceeded.";
    ImpliedNakSeqErr "implied_nak_seq_err" node_infiniband "implied_nak_seq_errors" "Responses that revealed a lost READ or atomic response.";
    RnrNakRetryErr "rnr_nak_retry_err" node_infiniband "rnr_nak_retry_packets_received" rxe "rcvd_rnr_err" "RNR NAKs received.";
    OutOfSequence "out_of_sequence" node_infiniband "out_of_sequence_packets_received" rxe "out_of_seq_request" "Requests that arrived ahead of the expected PSN.";
    DuplicateRequest "duplicate_request" node_infiniband "duplicate_requests_packets" rxe "duplicate_request" "Requests that had been executed already.";
    EarlyDuplicateRequest "early_duplicate_request" ferroce "early_duplicate_requests" "Duplicate requests that arrived before the answer to the first copy was sent.";
    OutOfBuffer "out_of_buffer" node_infiniband "out_of_buffer_drops" rxe "send_rnr_err" "Requests that found no receive WQE.";
    RoceAdpRetrans "roce_adp_retrans" node_infiniband "roce_adp_retransmits" "Retransmissions by adaptive retransmission.";
    RoceAdpRetransWaitNs "roce_adp_retrans_wait_ns" ferroce "roce_adp_retrans_wait_seconds" "Sum of the waits before retransmissions by adaptive retransmission; the file counts nanoseconds.";
    RoceAdpRetransTo "roce_adp_retrans_to" node_infiniband "roce_adp_retransmits_timeout" "QPs that failed on a timeout of adaptive retransmission.";
    RoceSlowRestart "roce_slow_restart" node_infiniband "roce_slow_restart_used" "Slow restarts of QPs that had been silent.";
    RoceSlowRestartCnps "roce_slow_restart_cnps" node_infiniband "roce_slow_restart_cnps" "Retransmissions that slow restart counts as CNPs.";
    RoceSlowRestartTrans "roce_slow_restart_trans" node_infiniband "roce_slow_restart" "Changes of QPs at full rate to slow restart, after a silence.";
    RxIcrcEncapsulated "rx_icrc_encapsulated" node_infiniband "rx_icrc_encapsulated_errors" "Packets dropped for a wrong ICRC.";
    RxWriteRequests "rx_write_requests" node_infiniband "rx_write_requests" "RDMA WRITE requests received that the queue pair permits, also those refused for their key.";
    RxReadRequests "rx_read_requests" node_infiniband "rx_read_requests" "RDMA READ requests received.";
    RxAtomicRequests "rx_atomic_requests" node_infiniband "rx_atomic_requests" "Atomic requests received.";
    RxDctConnect "rx_dct_connect" node_infiniband "rx_dct_connect_requests" "Connect requests that a DC target has accepted.";
    ReqCqeError "req_cqe_error" node_infiniband "req_cqes_errors" "Send completions with an error, flushed ones included.";
    ReqCqeFlushError "req_cqe_flush_error" node_infiniband "req_cqes_flush_errors" "Send completions flushed after another error.";
    RespCqeError "resp_cqe_error" node_infiniband "resp_cqes_errors" "Receive completions with an error, flushed ones included.";
    RespCqeFlushError "resp_cqe_flush_error" node_infiniband "resp_cqes_flush_errors" "Receive completions flushed.";
    ReqRemoteAccessErrors "req_remote_access_errors" node_infiniband "req_remote_access_errors" "Remote-access NAKs received.";
    ReqRemoteInvalidRequest "req_remote_invalid_request" node_infiniband "req_remote_invalid_request_errors" "Invalid-request NAKs received.";
    RespRemoteAccessErrors "resp_remote_access_errors" node_infiniband "resp_remote_access_errors" "Requests other than RDMA WRITE refused for key, range or permission.";
    RespLocalLengthError "resp_local_length_error" node_infiniband "resp_local_length_errors" "Messages longer than the receive WQE they met.";
    ReqTransportRetriesExceeded "req_transport_retries_exceeded" ferroce "req_transport_retries_exceeded" rxe "retry_exceeded_err" "QPs that failed with IBV_WC_RETRY_EXC_ERR.";
    ReqRnrRetriesExceeded "req_rnr_retries_exceeded" ferroce "req_rnr_retries_exceeded" rxe "retry_rnr_exceeded_err" "QPs that failed with IBV_WC_RNR_RETRY_EXC_ERR.";
    NpEcnMarkedRocePackets "np_ecn_marked_roce_packets" node_infiniband "np_ecn_marked_roce_packets_received" "Packets received with the CE mark.";
    NpCnpSent "np_cnp_sent" node_infiniband "np_cnp_packets_sent" "CNPs sent to the peers of marked packets.";
    RpCnpHandled "rp_cnp_handled" node_infiniband "rp_cnp_packets_handled" "CNPs received that slowed a QP down, and those of slow restart.";
    RpCnpIgnored "rp_cnp_ignored" node_infiniband "rp_cnp_ignored_packets_received" "CNPs received that are not from a live QP's peer, or with congestion control off.";
    RdmaTxPackets "rdma_tx_packets" ferroce "rdma_tx_packets" rxe "sent_pkts" "Packets handed to the link.";
    RdmaTxBytes "rdma_tx_bytes" ferroce "rdma_tx_bytes" "Payload bytes handed to the link.";
    RdmaRxPackets "rdma_rx_packets" ferroce "rdma_rx_packets" rxe "rcvd_pkts" "Packets taken from the link for a QP.";
    RdmaRxBytes "rdma_rx_bytes" ferroce "rdma_rx_bytes" "Payload bytes taken from the link for a QP.";
    RxMulticastPackets "rx_multicast_packets" ferroce "rx_multicast_packets" "Packets taken from the link for a QP in a multicast group.";
    TxMulticastPackets "tx_multicast_packets" ferroce "tx_multicast_packets" "Packets handed to the link for a multicast group.";
    TimeoutsIb "timeouts_ib" ferroce "timeouts_ib" "ACK timers that expired by plain InfiniBand timeouts.";
    TimeoutsFirmware "timeouts_firmware" ferroce "timeouts_firmware" "ACK timers that expired by the firmware's own timeouts.";
    TimeoutsProfile "timeouts_profile" ferroce "timeouts_profile" "ACK timers that expired by a profile of adaptive retransmission.";
    RetransmittedPackets "retransmitted_packets" ferroce "retransmitted_packets" "Request packets sent again.";
    SpuriousRetransmissions "spurious_retransmissions" ferroce "spurious_retransmissions" "Request packets sent again after a timeout although an earlier copy was answered.";
    RxMalformed "rx_malformed" ferroce "rx_malformed" "Packets dropped because they do not parse.";
    RxUnknownQp "rx_unknown_qp" ferroce "rx_unknown_qp" "Packets dropped because their QP does not exist.";
    RxWrongState "rx_wrong_state" ferroce "rx_wrong_state" "Packets dropped because the QP is not ready to receive.";
    RxWrongPeer "rx_wrong_peer" ferroce "rx_wrong_peer" "Packets dropped because they come from another address than the peer's.";
    RxWrongPkey "rx_wrong_pkey" ferroce "rx_wrong_pkey" "Packets dropped because their partition key does not match.";
    RxWrongQkey "rx_wrong_qkey" ferroce "rx_wrong_qkey" "Datagrams dropped because their queue key is not that of the QP.";
    RxDcUnconnected "rx_dc_unconnected" ferroce "rx_dc_unconnected" "DC requests dropped because their initiator has no such connection to the target.";
    RxDcTableFull "rx_dc_table_full" ferroce "rx_dc_table_full" "DC connect requests dropped because the device's targets had as many connections as they can.";
    RxWrongService "rx_wrong_service" ferroce "rx_wrong_service" "Packets dropped because their opcode belongs to another service.";
    RxUnexpectedResponse "rx_unexpected_response" ferroce "rx_unexpected_response" "Responses dropped because they answer nothing outstanding.";
    RxSocketOverflow "rx_socket_overflow" ferroce "rx_socket_overflow" "Packets the kernel dropped because the receive buffer of the device's socket was full.";
    RxRingOverflow "rx_ring_overflow" ferroce "rx_ring_overflow" "Packets from processes on this host dropped because this process left its ring full for 2 ms.";
    RxForwarded "rx_forwarded" ferroce "rx_forwarded" "Packets for another process of the device, handed on to it.";
    RxForwardDropped "rx_forward_dropped" ferroce "rx_forward_dropped" "Packets for another process of the device dropped because it did not accept them in time.";
    RxForeignSource "rx_foreign_source" ferroce "rx_foreign_source" "Packets dropped because they claim an address of this host, but not the device's port.";
    CmBacklogFull "cm_backlog_full" ferroce "cm_backlog_full" "Requests for a connection dropped because the listener had its backlog waiting.";
    CmSourceLimit "cm_source_limit" ferroce "cm_source_limit" "Requests for a connection dropped because their source had as many waiting as one may have.";
    CmTableFull "cm_table_full" ferroce "cm_table_full" "Requests for a connection dropped because the device held as many connections as it can.";
    CmForgotten "cm_forgotten" ferroce "cm_forgotten" "Ended connections forgotten before their time to make room.";
    CmUnmatched "cm_unmatched" ferroce "cm_unmatched" "Messages of the connection manager about no connection, or from another address than the peer's.";
    CmTxDropped "cm_tx_dropped" ferroce "cm_tx_dropped" "Messages of the connection manager dropped because too many waited for the link.";
    TxDropped "tx_dropped" ferroce "tx_dropped" rxe "send_err" "Packets the link refused to take.";
    ImpairLost "impair_lost" ferroce "impair_lost" "Packets the impairment dropped at random.";
    ImpairQueueFull "impair_queue_full" ferroce "impair_queue_full" "Packets the impairment's queue had no room for.";
    ImpairBlackout "impair_blackout" ferroce "impair_blackout" "Packets dropped in a blackout, or while the port was down.";
    ImpairDuplicated "impair_duplicated" ferroce "impair_duplicated" "Packets the impairment sent twice.";
    ImpairReordered "impair_reordered" ferroce "impair_reordered" "Packets the impairment held back past later ones.";
    ImpairCorrupted "impair_corrupted" ferroce "impair_corrupted" "Packets the impairment flipped a bit in.";
    ImpairEcnMarked "impair_ecn_marked" ferroce "impair_ecn_marked" "Packets the impairment marked CE.";
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = Self::TABLE.len();

    /// Returns the name, as in `hw_counters/`.
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
            let differs = |r: &CounterInfo| r.name != row.name && r.metric != row.metric;
            assert!(Counter::TABLE[..index].iter().all(differs), "{}", row.name);
        }
    }
}
