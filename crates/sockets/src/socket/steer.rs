//! Selects which of the sockets that share a port gets a packet, with a program in the kernel
//! (SO_ATTACH_REUSEPORT_CBPF, socket(7)). Any of the sockets may replace it, without privileges.
//!
//! The program sees the UDP payload and returns the index of a socket, in the order in which they
//! were bound. When one is closed, the last one takes its index, without notice to any process. If
//! no socket has the returned index, the kernel selects one, as without a program. A program that
//! knows any sockets therefore returns one of them for packets that it cannot assign.

use std::io;
use std::os::fd::RawFd;

use ferroce_wire::{Qpn, STEERING_PROBE, cm::ServiceId};
use libc::sock_filter;

use super::{Socket, last_error};

/// The first byte of a probe. Its second byte is the index of the socket that it goes to.
pub const PROBE: u8 = STEERING_PROBE;

/// An index that no socket has.
const ANY: u32 = u32::MAX;
/// The byte of a connection manager's message that has the receiver's slot: the top one of its
/// remote comm id, which lies behind 12 bytes of BTH, 8 of DETH, 24 of MAD and the sender's own id.
const REMOTE_COMM_ID: u32 = 48;
/// The same in the answer to a request for a service, which comes with the request's id.
const REQUEST_ID: u32 = 44;
/// The lower half of the service that a request is for.
const SERVICE: u32 = 56;
/// Where a MAD has its attribute.
const ATTRIBUTE: u32 = 36;
/// Where a packet has its PSN, behind a byte that does not belong to it.
const PSN: u32 = 8;
/// MRA, REJ, REP, RTU, DREQ, DREP: they have a remote comm id.
const TO_COMM_ID: [u32; 6] = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16];
/// SIDR_REP.
const TO_REQUEST_ID: u32 = 0x18;
/// REQ, SIDR_REQ: they name a service.
const TO_SERVICE: [u32; 2] = [0x10, 0x17];
/// Sockets that packets are spread over whose receiver is unknown.
const SPREAD_MAX: usize = 32;

/// Which socket gets what. Sockets have indexes in the order in which they were bound, but when one
/// is closed the last one takes its index. A wrong index costs a detour; one that no socket has
/// leaves the choice to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Routes {
    /// The slots whose sockets are known, each with the index of its socket: packets for its queue
    /// pairs and connections go there.
    pub slots: Vec<(u8, u8)>,
    /// Sockets whose processes take what is for others. Packets for other slots go to one of them,
    /// always the same; and messages of the connection manager whose receiver is unknown to another
    /// one with each packet, so that a repeated request reaches another process.
    pub spread: Vec<u8>,
    /// Services, each with the index of the socket that requests for it go to.
    pub services: Vec<(ServiceId, u8)>,
}

impl Socket {
    /// Lets packets go where `routes` says, if this socket shares its port with others (see
    /// [`Options::share_port`](super::Options)).
    ///
    /// # Errors
    /// Returns an error if the kernel, or a sandbox, does not take programs.
    pub fn steer(&self, routes: &Routes) -> io::Result<()> {
        attach(self.raw(), &mut routes.program())
    }
}

/// The kernel's `sock_fprog`, without a gap that has no value: memory checkers warn of such bytes.
#[repr(C)]
struct Program {
    len: u16,
    unused: [u16; 3],
    filter: *mut sock_filter,
}

const _: () = assert!(size_of::<Program>() == size_of::<libc::sock_fprog>());

fn attach(socket: RawFd, program: &mut [sock_filter]) -> io::Result<()> {
    let program = Program {
        len: program
            .len()
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidInput)?,
        unused: [0; 3],
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

impl Routes {
    fn program(&self) -> Vec<sock_filter> {
        let message = self.message();
        let mut out = vec![
            load(libc::BPF_B, 0),
            skip_unless(PROBE.into(), 2),
            load(libc::BPF_B, 1),
            instruction(libc::BPF_RET | libc::BPF_A, 0),
            // The destination queue pair, behind a byte that does not belong to it.
            load(libc::BPF_W, 4),
            instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x00ff_ffff),
            jump_if(Qpn::GSI.value(), 2, 0),
            instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
            jump(message.len()),
        ];
        out.extend(message);
        // From here on the slot counts.
        let slots = self.slots.iter();
        out.extend(choices(slots.map(|(slot, index)| ((*slot).into(), *index))));
        out.extend(self.spread());
        out
    }

    /// Loads the slot that a message of the connection manager is for and goes on behind; or
    /// answers, where none is named.
    fn message(&self) -> Vec<sock_filter> {
        let mut out = vec![load(libc::BPF_H, ATTRIBUTE)];
        // Jumps to the end, whose place is not known before.
        let mut ends = Vec::new();
        let mut load_slot = |out: &mut Vec<sock_filter>, offset| {
            out.push(load(libc::BPF_B, offset));
            ends.push(out.len());
            out.push(jump(0));
        };
        let is_to_comm_id = TO_COMM_ID.len() as u8;
        out.extend((1..).zip(TO_COMM_ID).map(|(nth, attribute)| {
            // To the load behind these and the jump over it.
            jump_if(attribute, is_to_comm_id - nth + 1, 0)
        }));
        out.push(jump(2));
        load_slot(&mut out, REMOTE_COMM_ID);
        out.push(skip_unless(TO_REQUEST_ID, 2));
        load_slot(&mut out, REQUEST_ID);
        let services = self.services.iter();
        // The upper half is the same for all.
        let services = services.map(|(service, index)| (service.0 as u32, *index));
        let services: Vec<_> = choices(services).collect();
        out.push(jump_if(TO_SERVICE[0], 2, 0));
        out.push(jump_if(TO_SERVICE[1], 1, 0));
        out.push(jump(1 + services.len()));
        out.push(load(libc::BPF_W, SERVICE));
        out.extend(services);
        out.push(load(libc::BPF_W, PSN));
        out.push(instruction(
            libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
            0x00ff_ffff,
        ));
        out.extend(self.spread());
        let len = out.len();
        for at in ends {
            out[at] = jump(len - at - 1);
        }
        out
    }

    /// Answers with a socket by what is loaded.
    fn spread(&self) -> Vec<sock_filter> {
        let sockets = &self.spread[..self.spread.len().min(SPREAD_MAX)];
        let mut out = Vec::new();
        if !sockets.is_empty() {
            let count = sockets.len() as u32;
            out.push(instruction(
                libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K,
                count,
            ));
            out.extend(choices((0..).zip(sockets.iter().copied())));
        }
        out.push(answer(ANY));
        out
    }
}

/// Answers with the index beside what is loaded, if it is there.
fn choices(choices: impl Iterator<Item = (u32, u8)>) -> impl Iterator<Item = sock_filter> {
    choices.flat_map(|(value, index)| [skip_unless(value, 1), answer(index.into())])
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

/// Over this many instructions.
fn jump(instructions: usize) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JA, instructions as u32)
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
