//! Lengths of headers and trailers.

/// Length of the base transport header, bytes.
pub const BTH_LEN: usize = 12;
/// Length of the RDMA extended transport header, bytes.
pub const RETH_LEN: usize = 16;
/// Length of the ACK extended transport header, bytes.
pub const AETH_LEN: usize = 4;
/// Length of the atomic extended transport header, bytes.
pub const ATOMIC_ETH_LEN: usize = 28;
/// Length of the atomic ACK extended transport header, bytes.
pub const ATOMIC_ACK_ETH_LEN: usize = 8;
/// Length of immediate data, bytes.
pub const IMM_LEN: usize = 4;
/// Length of the invalidate extended transport header, bytes.
pub const IETH_LEN: usize = 4;
/// Length of the datagram extended transport header, bytes.
pub const DETH_LEN: usize = 8;
/// Length of the XRC extended transport header, bytes.
pub const XRCETH_LEN: usize = 4;
/// Length of the DC extended transport header, bytes.
pub const DCETH_LEN: usize = 4;
/// Length of what follows it in a DC connect request, bytes.
pub const DC_CONNECT_LEN: usize = 12;
/// Length of the reserved field between a CNP's BTH and its ICRC, bytes.
pub const CNP_RESERVED_LEN: usize = 16;
/// Length of the longest BTH with extension headers (an atomic request of XRC or DC), bytes.
pub const HEADERS_LEN_MAX: usize = BTH_LEN + XRCETH_LEN + ATOMIC_ETH_LEN;
/// Length of the invariant CRC at the end of a packet, bytes.
pub const ICRC_LEN: usize = 4;

/// Returns the number of pad bytes (0..4) after a payload of `payload_len` bytes.
#[inline]
pub const fn pad_len(payload_len: usize) -> u8 {
    match payload_len % 4 {
        1 => 3,
        2 => 2,
        3 => 1,
        _ => 0,
    }
}
