//! Messages to another process that answers each.

use ferroce_device::{QpAttr, SendOp};

use super::{Link, Node, Other, connect_back, pattern, tell};

const ROUNDS: u64 = 20;

/// Connects with the process that started this one and answers each message of its [`exchange`]
/// with the same bytes, changed, by a WRITE with immediate.
pub fn echo(node: &Node, attr: &QpAttr) {
    let Link { qpn, memory, .. } = connect_back(node, attr);
    let half = node.buffer.len() / 2;
    node.post_recv(qpn, 0, 0, half as u32);
    tell("connected");
    let mut writes = 0;
    for round in 0..ROUNDS {
        // The next message may have arrived before the last WRITE is acknowledged.
        let len = loop {
            match node.succeed(1)[0] {
                done if done.wr_id == 1 => writes += 1,
                message => break message.byte_len as usize,
            }
        };
        assert_eq!(node.bytes(0, len), pattern(len, round));
        node.buffer.write(half, &pattern(len, !round));
        node.post_recv(qpn, 0, 0, half as u32);
        let write = SendOp::Write {
            va: memory.va + half as u64,
            rkey: memory.rkey,
            imm: Some(len as u32),
        };
        node.post(qpn, 1, write, node.sge(half, len as u32));
    }
    node.succeed(ROUNDS as usize - writes);
}

/// Exchanges messages of growing length with a process that runs [`echo`].
pub fn exchange(node: &Node, child: &mut Other, attr: &QpAttr) {
    let qpn = child.connect(node, attr).qpn;
    assert_eq!(child.hear(), "connected");
    let half = node.buffer.len() / 2;
    for round in 0..ROUNDS {
        let len = 1 + (half - 1) * round as usize / (ROUNDS as usize - 1);
        node.buffer.write(0, &pattern(len, round));
        node.post_recv(qpn, 2, 0, 0);
        let send = SendOp::Send { imm: None };
        node.post(qpn, 1, send, node.sge(0, len as u32));
        let completions = node.succeed(2);
        let received = completions.iter().find(|c| c.wr_id == 2).unwrap();
        assert_eq!(received.imm as usize, len);
        assert_eq!(node.bytes(half, len), pattern(len, !round));
    }
}
