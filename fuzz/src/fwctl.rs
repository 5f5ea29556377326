//! The ioctls of a node.

use ferroce_device::{Hca, HcaConfig};
use ferroce_fwctl::mailbox::{Method, Reply, Request, Status};
use ferroce_fwctl::node::{self, UserMemory};
use ferroce_fwctl::uapi::{FWCTL_INFO, FWCTL_RPC, Info, Rpc};
use ferroce_prm::{REGISTERS, Register};

use crate::Cursor;

/// A program's memory, in the middle of which the structure of an ioctl lies.
struct Memory {
    bytes: Vec<u8>,
    /// What may be written: the structure, and the room that it names.
    may_be_written: [(u64, u64); 2],
}

/// Where the memory, and in it the structure, begins.
const BASE: u64 = 0x10_0000;
const STRUCTURE: u64 = BASE + 0x800;
const SIZE: usize = 0x2000;

impl Memory {
    fn place(&self, address: u64, len: usize) -> Option<usize> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        (start.checked_add(len)? <= self.bytes.len()).then_some(start)
    }
}

impl UserMemory for Memory {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let Some(start) = self.place(address, out.len()) else {
            return false;
        };
        out.copy_from_slice(&self.bytes[start..][..out.len()]);
        true
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        let Some(start) = self.place(address, bytes.len()) else {
            return false;
        };
        let end = address + bytes.len() as u64;
        let is_in = |&(from, len): &(u64, u64)| from <= address && end - from <= len;
        assert!(
            bytes.is_empty() || self.may_be_written.iter().any(is_in),
            "{} bytes at {address:#x}, beyond the room for answers",
            bytes.len()
        );
        self.bytes[start..][..bytes.len()].copy_from_slice(bytes);
        true
    }
}

/// Ioctls on the node of a device, and the commands in them.
pub fn fwctl(data: &[u8]) {
    let mut input = Cursor::new(data);
    if input.one_in(4) {
        return commands(input.rest());
    }
    let hca = Hca::new(HcaConfig::default());
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        ioctl(&hca, &mut input);
    }
}

/// What is read as a command or an answer is written as the same.
fn commands(bytes: &[u8]) {
    if let Some(request) = Request::parse(bytes) {
        let again = request.to_bytes();
        assert_eq!(again.len(), bytes.len());
        assert_eq!(Request::parse(&again), Some(request));
    }
    if let Some(reply) = Reply::parse(bytes) {
        let again = reply.to_bytes(bytes.len());
        assert_eq!(Reply::parse(&again), Some(reply));
        assert!(!reply.status.to_string().is_empty());
    }
}

fn ioctl(hca: &Hca, input: &mut Cursor<'_>) {
    let mut memory = Memory {
        bytes: vec![0; SIZE],
        may_be_written: [(STRUCTURE, 0); 2],
    };
    let command = match input.below(4) {
        0 => FWCTL_INFO,
        1 => u32::from(input.u16()),
        _ => FWCTL_RPC,
    };
    let place = |input: &mut Cursor<'_>| match input.below(8) {
        0 => input.u64(),
        n => BASE + 0x400 * n as u64,
    };
    let (first, second) = (place(input), place(input));
    let request = request(input);
    if let Some(start) = memory.place(first, request.len()) {
        memory.bytes[start..][..request.len()].copy_from_slice(&request);
    }
    let structure = if command == FWCTL_INFO {
        let info = Info {
            size: size(input, Info::SIZE),
            flags: u32::from(input.one_in(8)),
            device_data_len: input.below(20) as u32,
            out_device_data: second,
            ..Info::default()
        };
        memory.may_be_written = [(STRUCTURE, 24), (second, info.device_data_len.into())];
        info.to_bytes().to_vec()
    } else {
        let rpc = Rpc {
            size: size(input, Rpc::SIZE),
            scope: input.below(5) as u32,
            in_len: len(input, request.len()),
            out_len: len(input, request.len()),
            input: first,
            output: second,
        };
        memory.may_be_written = [(STRUCTURE, 32), (second, rpc.out_len.into())];
        rpc.to_bytes().to_vec()
    };
    memory.bytes[0x800..][..structure.len()].copy_from_slice(&structure);
    let access = |id, method, data: &mut [u8]| match hca.state().access_register(id, method, data) {
        Ok(()) => Status::OK,
        Err(error) => error.status(),
    };
    // Any error is one of the kernel's; that nothing else happens is what counts.
    let _ = node::ioctl(command, STRUCTURE, &mut memory, access);
}

/// A command that is mostly one for a register of the device.
fn request(input: &mut Cursor<'_>) -> Vec<u8> {
    let register: &'static Register = input.pick(REGISTERS);
    let method = if input.one_in(2) {
        Method::Query
    } else {
        Method::Write
    };
    let len = match input.below(4) {
        0 => input.below(140),
        _ => register.size(),
    };
    let mut data = input.take(len.min(40)).to_vec();
    data.resize(len, 0);
    let mut bytes = Request::access(register.id(), method, &data).to_bytes();
    if input.one_in(8) {
        let at = input.below(16);
        bytes[at] ^= input.u16() as u8;
    }
    bytes
}

fn size(input: &mut Cursor<'_>, right: usize) -> u32 {
    match input.below(8) {
        0 => input.u32(),
        1 => input.below(100) as u32,
        _ => right as u32,
    }
}

fn len(input: &mut Cursor<'_>, right: usize) -> u32 {
    match input.below(8) {
        0 => input.u32(),
        1 => input.below(40) as u32,
        _ => right as u32,
    }
}
