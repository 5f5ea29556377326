//! The expected results of messages, computed by executing them one after the other.

use ferroce_transport::{Completion, SendFlags, SendOp, WcFlags, WcOpcode, WcStatus};

use crate::message::Posted;

/// Whether a completion is of a receive queue.
pub fn is_recv(wc: &Completion) -> bool {
    matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
}

/// Send completions come in order: success for those with a completion, then one documented error,
/// then everything else flushed. Returns how many messages are known to be done.
pub fn check_sends<'a>(
    completions: impl Iterator<Item = &'a Completion>,
    sends: &[Posted<'_>],
    failed: bool,
) -> usize {
    let is_signaled = |sent: &Posted<'_>| sent.wr.flags.contains(SendFlags::SIGNALED);
    let mut next = 0;
    let mut error = None;
    for wc in completions {
        if wc.status == WcStatus::Success {
            assert!(error.is_none(), "success after an error");
            while !is_signaled(&sends[next]) {
                next += 1;
            }
            assert_eq!(wc.vendor_err, 0);
            if sends[next].kind.needs_response() {
                assert_eq!(wc.byte_len as usize, sends[next].bytes.len());
            }
        } else {
            check_error(wc, error.is_some());
            if error.is_none() {
                // Messages without a completion may be done before it.
                let at = sends.iter().position(|sent| sent.wr.wr_id == wc.wr_id);
                let at = at.expect("it was posted");
                assert!(!sends[next..at].iter().any(is_signaled));
                error = Some(at);
                next = at;
            }
        }
        assert_eq!(wc.wr_id, sends[next].wr.wr_id, "out of order");
        assert_eq!(wc.opcode, sends[next].wr.op.wc_opcode());
        next += 1;
    }
    if failed {
        assert!(error.is_none() || next == sends.len(), "not all flushed");
        error.unwrap_or(next)
    } else {
        assert_eq!(error, None);
        assert!(!sends[next..].iter().any(is_signaled));
        sends.len()
    }
}

fn check_error(wc: &Completion, again: bool) {
    match wc.status {
        WcStatus::WrFlushErr => assert_eq!(wc.vendor_err, 249),
        WcStatus::RetryExcErr => assert_eq!(wc.vendor_err, 129),
        WcStatus::RnrRetryExcErr => {}
        _ => panic!("{wc:?}"),
    }
    assert!(!again || wc.status == WcStatus::WrFlushErr, "two errors");
    assert!(wc.solicited);
}

/// A receive has completed with this message. Returns how many bytes of it the receive holds.
pub fn check_received(wc: &Completion, sent: &Posted<'_>) -> usize {
    let (opcode, flags, imm) = match sent.wr.op {
        SendOp::Send { imm: None } => (WcOpcode::Recv, WcFlags::empty(), 0),
        SendOp::Send { imm: Some(imm) } => (WcOpcode::Recv, WcFlags::WITH_IMM, imm),
        SendOp::SendInvalidate { rkey } => (WcOpcode::Recv, WcFlags::WITH_INV, rkey),
        SendOp::Write { imm: Some(imm), .. } => (WcOpcode::RecvRdmaWithImm, WcFlags::WITH_IMM, imm),
        _ => unreachable!("consumes no receive"),
    };
    assert_eq!((wc.opcode, wc.flags, wc.imm), (opcode, flags, imm));
    assert_eq!(wc.byte_len as usize, sent.bytes.len());
    let solicited = sent.wr.flags.contains(SendFlags::SOLICITED);
    assert_eq!(wc.solicited, solicited);
    match opcode {
        WcOpcode::Recv => sent.bytes.len(),
        _ => 0,
    }
}

/// READs and atomics that are done brought what was there when their turn came. The target begins at
/// `base` and held `before` at first.
pub fn check_responses(before: &[u8], base: u64, done: &[Posted<'_>]) {
    let mut memory = before.to_vec();
    for sent in done {
        let found = execute(&mut memory, base, sent, &sent.bytes);
        if sent.kind.needs_response() {
            assert!(found == sent.bytes, "{:?}", sent.wr.op);
        }
    }
}

/// The target is as after some message that is not before the last one known to be done, or some
/// packets into the next: the first ones, or any if they may land before their turn.
pub fn check_memory(
    before: &[u8],
    base: u64,
    actual: &[u8],
    (mtu, in_order): (u32, bool),
    sends: &[Posted<'_>],
    done: usize,
) {
    let mut memory = before.to_vec();
    for (index, sent) in sends.iter().enumerate() {
        if index >= done && memory == actual {
            return;
        }
        if index >= done
            && let SendOp::Write { va, .. } = sent.wr.op
        {
            let start = (va - base) as usize;
            if !in_order && has_landed_in_part(&memory, actual, mtu, start, &sent.bytes) {
                return;
            }
            for packet in 1..sent.bytes.len().div_ceil(mtu as usize) {
                let part = &sent.bytes[..packet * mtu as usize];
                execute(&mut memory, base, sent, part);
                if memory == actual {
                    return;
                }
            }
        }
        execute(&mut memory, base, sent, &sent.bytes);
    }
    assert!(memory == actual, "the target holds other bytes");
}

/// Whether memory is as `before`, except for some packets of a WRITE to `start`.
fn has_landed_in_part(before: &[u8], actual: &[u8], mtu: u32, start: usize, bytes: &[u8]) -> bool {
    let end = start + bytes.len();
    let mtu = mtu as usize;
    let old = before[start..end].chunks(mtu);
    let mut parts = actual[start..end]
        .chunks(mtu)
        .zip(old.zip(bytes.chunks(mtu)));
    actual[..start] == before[..start]
        && actual[end..] == before[end..]
        && parts.all(|(is, (old, new))| is == old || is == new)
}

/// Executes a message on the target; returns what the response must bring.
fn execute(memory: &mut [u8], base: u64, sent: &Posted<'_>, bytes: &[u8]) -> Vec<u8> {
    let start = |va: u64| (va - base) as usize;
    match sent.wr.op {
        SendOp::Send { .. }
        | SendOp::SendInvalidate { .. }
        | SendOp::BindMw(_)
        | SendOp::LocalInvalidate { .. }
        | SendOp::Connect { .. } => Vec::new(),
        SendOp::Write { va, .. } => {
            memory[start(va)..][..bytes.len()].copy_from_slice(bytes);
            Vec::new()
        }
        SendOp::Read { va, .. } => memory[start(va)..][..bytes.len()].to_vec(),
        SendOp::CompareSwap {
            va, compare, swap, ..
        } => update(&mut memory[start(va)..][..8], |word| {
            if word == compare { swap } else { word }
        }),
        SendOp::FetchAdd { va, add, .. } => {
            update(&mut memory[start(va)..][..8], |word| word.wrapping_add(add))
        }
    }
}

fn update(word: &mut [u8], new: impl Fn(u64) -> u64) -> Vec<u8> {
    let original = u64::from_ne_bytes((&*word).try_into().expect("8 bytes"));
    word.copy_from_slice(&new(original).to_ne_bytes());
    original.to_ne_bytes().to_vec()
}
