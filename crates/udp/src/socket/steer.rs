//! Which of the sockets that share a port gets a packet: a program in the kernel says
//! (SO_ATTACH_REUSEPORT_CBPF, socket(7)). Any of the sockets may replace it, without privilege.
//!
//! It sees the UDP payload and answers with the index of a socket, in the order in which they were
//! bound. When one is closed the last one takes its index, of which nobody is told. An index that
//! no socket has leaves the choice to the kernel, as when there is no program.

use std::io;
use std::os::fd::RawFd;

use ferroce_wire::Qpn;
use libc::sock_filter;

use super::{Socket, last_error};

/// The first byte of a probe, the opcode of no packet. Its second byte is the index of the socket
/// that it goes to.
pub(crate) const PROBE: u8 = 0xfe;

/// An index that no socket has.
const ANY: u32 = u32::MAX;
/// The byte of a connection manager's message that has the receiver's slot: the top one of its
/// remote comm id, which lies behind 12 bytes of BTH, 8 of DETH, 24 of MAD and the sender's own id.
const REMOTE_COMM_ID: u32 = 48;
/// The same in the answer to a request for a service, which comes with the request's id.
const REQUEST_ID: u32 = 44;
/// Where a MAD has its attribute.
const ATTRIBUTE: u32 = 36;
/// MRA, REJ, REP, RTU, DREQ, DREP: they have a remote comm id.
const TO_COMM_ID: [u32; 6] = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16];
/// SIDR_REP.
const TO_REQUEST_ID: u32 = 0x18;

impl Socket {
    /// Lets packets for the queue pairs of a slot, and for its connections, go to the socket with
    /// the index beside it in `places`, if this socket shares its port with others (see
    /// [`Options::share_port`](super::Options)). Indexes follow the order in which the sockets were
    /// bound, but when one is closed the last one takes its index. Packets for other slots, and
    /// for an index that no socket has, go to any of the sockets.
    ///
    /// # Errors
    /// If the kernel, or a sandbox, does not take programs.
    pub fn steer(&self, places: &[(u8, u8)]) -> io::Result<()> {
        attach(self.raw(), &mut program(places))
    }
}

fn attach(socket: RawFd, program: &mut [sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program
            .len()
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the option is this structure, which points at as many instructions as it says; the
    // kernel copies them.
    let outcome = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

/// The program for [`Socket::steer`].
fn program(places: &[(u8, u8)]) -> Vec<sock_filter> {
    let mut out = vec![
        load(libc::BPF_B, 0),
        skip_unless(PROBE.into(), 2),
        load(libc::BPF_B, 1),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
        // The destination queue pair, behind a byte that is no part of it.
        load(libc::BPF_W, 4),
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x00ff_ffff),
    ];
    let messages = messages();
    out.push(skip_unless(Qpn::GSI.value(), messages.len() as u8));
    out.extend(messages);
    out.push(instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16));
    // From here on the slot counts.
    for (slot, index) in places {
        out.push(skip_unless((*slot).into(), 1));
        out.push(answer((*index).into()));
    }
    out.push(answer(ANY));
    out
}

/// Loads the slot that a message of the connection manager is for, and leaves over the shift that
/// follows.
fn messages() -> Vec<sock_filter> {
    let mut out = vec![load(libc::BPF_H, ATTRIBUTE)];
    let count = TO_COMM_ID.len() as u8;
    // Behind the attributes: one instruction for all others, then two for a comm id.
    out.extend((1..).zip(TO_COMM_ID).map(|(nth, attribute)| {
        let left = count - nth;
        jump_if(attribute, left + 2, 0)
    }));
    out.push(jump_if(TO_REQUEST_ID, 3, 0));
    out.push(answer(ANY));
    out.push(load(libc::BPF_B, REMOTE_COMM_ID));
    out.push(instruction(libc::BPF_JMP | libc::BPF_JA, 3));
    out.push(load(libc::BPF_B, REQUEST_ID));
    out.push(instruction(libc::BPF_JMP | libc::BPF_JA, 1));
    out
}

fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

fn load(width: u32, offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | width | libc::BPF_ABS, offset)
}

fn answer(index: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, index)
}

fn skip_unless(value: u32, instructions: u8) -> sock_filter {
    jump_if(value, 0, instructions)
}

fn jump_if(value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter {
        jt: then,
        jf: otherwise,
        ..instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    }
}
