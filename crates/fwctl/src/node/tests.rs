//! Programs that call the ioctls of a node.

use super::*;

/// A program's memory: this many bytes from address `BASE` on.
struct Memory(Vec<u8>);

const BASE: u64 = 0x1_0000;
/// Where the tests have the command, and its answer.
const INPUT: u64 = BASE + 0x100;
const OUTPUT: u64 = BASE + 0x1000;
const SIZE: usize = 0x4000;

impl Memory {
    fn new() -> Self {
        Self(vec![0xee; SIZE])
    }

    fn range(&self, address: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.0.len()).then_some(start..end)
    }

    fn at(&self, address: u64, len: usize) -> &[u8] {
        &self.0[self.range(address, len).unwrap()]
    }

    fn set(&mut self, address: u64, bytes: &[u8]) {
        assert!(self.write(address, bytes));
    }
}

impl UserMemory for Memory {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let range = self.range(address, out.len());
        range.is_some_and(|range| {
            out.copy_from_slice(&self.0[range]);
            true
        })
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        let range = self.range(address, bytes.len());
        range.is_some_and(|range| {
            self.0[range].copy_from_slice(bytes);
            true
        })
    }
}

fn rpc_of(in_len: usize, out_len: usize, scope: u32) -> Rpc {
    Rpc {
        size: Rpc::SIZE as u32,
        scope,
        in_len: in_len as u32,
        out_len: out_len as u32,
        input: INPUT,
        output: OUTPUT,
    }
}

/// A device with one register of four bytes, which holds 0xc0ffee00 and takes all writes.
fn device(id: u16, method: Method, data: &mut [u8]) -> Status {
    match (id, data.len()) {
        (0x402c, 4) => {
            if method == Method::Query {
                data.copy_from_slice(&[0xc0, 0xff, 0xee, 0]);
            }
            Status::OK
        }
        (0x402c, _) => Status::BAD_INPUT_LENGTH,
        _ => Status::NOT_SUPPORTED,
    }
}

/// Sends a command with room for `out_len` bytes of answer.
fn send(input: &[u8], out_len: usize, scope: u32) -> Result<Vec<u8>, Errno> {
    let mut memory = Memory::new();
    memory.set(INPUT, input);
    memory.set(BASE, &rpc_of(input.len(), out_len, scope).to_bytes());
    ioctl(FWCTL_RPC, BASE, &mut memory, device)?;
    let behind = memory.at(OUTPUT + out_len as u64, 4);
    assert_eq!(behind, [0xee; 4], "written beyond the answer's room");
    Ok(memory.at(OUTPUT, out_len).to_vec())
}

fn request(id: u16, method: Method) -> Vec<u8> {
    Request::access(id, method, &[0; 4]).to_bytes()
}

#[test]
fn registers_are_read_and_written() {
    let read = send(&request(0x402c, Method::Query), 20, 1).unwrap();
    assert_eq!(read[..16], [0; 16]);
    assert_eq!(read[16..], [0xc0, 0xff, 0xee, 0]);
    let written = send(&request(0x402c, Method::Write), 16, 0).unwrap();
    assert_eq!(written, [0; 16]);
    let mut user = request(0x402c, Method::Query);
    user[..2].copy_from_slice(&ACCESS_REGISTER_USER.to_be_bytes());
    assert_eq!(send(&user, 20, 3).unwrap()[16..], read[16..]);
}

#[test]
fn firmware_refusals_are_a_status() {
    let status = |input: &[u8], out_len| Status(send(input, out_len, 1).unwrap()[0]);
    assert_eq!(
        status(&request(1, Method::Query), 20),
        Status::NOT_SUPPORTED
    );
    let get = request(0x402c, Method::Query);
    assert_eq!(status(&get[..16], 20), Status::BAD_INPUT_LENGTH);
    assert_eq!(status(&get, 19), Status::BAD_OUTPUT_LENGTH);
    let mut strange = get;
    strange[7] = 2;
    assert_eq!(status(&strange, 20), Status::BAD_OPERATION);
}

#[test]
fn writes_go_with_every_scope_and_reads_from_the_second_on() {
    for scope in 0..4 {
        assert!(send(&request(0x402c, Method::Write), 16, scope).is_ok());
        let read = send(&request(0x402c, Method::Query), 20, scope);
        assert_eq!(read.is_ok(), scope >= 1, "scope {scope}");
        assert_eq!(read.err(), (scope == 0).then_some(Errno::EBADMSG));
    }
    let other_command = [[0x01, 0x00].as_slice(), &[0; 14]].concat();
    assert_eq!(send(&other_command, 16, 3), Err(Errno::EBADMSG));
    assert_eq!(
        send(&request(0x402c, Method::Query), 20, 4),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn lengths_are_checked_before_anything_is_touched() {
    let get = request(0x402c, Method::Query);
    assert_eq!(send(&get[..15], 20, 1), Err(Errno::EMSGSIZE));
    assert_eq!(send(&get, 15, 1), Err(Errno::EMSGSIZE));
    let longest = MAX_RPC_LEN as usize;
    for (in_len, out_len, error) in [
        (longest + 1, 20, Errno::EMSGSIZE),
        (20, longest + 1, Errno::EMSGSIZE),
        (longest, 20, Errno::EFAULT),
        (20, longest, Errno::EFAULT),
    ] {
        let mut memory = Memory::new();
        memory.set(INPUT, &get);
        memory.set(BASE, &rpc_of(in_len, out_len, 1).to_bytes());
        let result = ioctl(FWCTL_RPC, BASE, &mut memory, device);
        assert_eq!(result, Err(error), "{in_len} {out_len}");
    }
}

#[test]
fn a_node_tells_what_it_is() {
    // Room for the driver's part, for half of it, for more, and for nothing.
    for room in [8, 4, 12, 0] {
        let mut memory = Memory::new();
        let asked = Info {
            size: 24,
            device_data_len: room,
            out_device_data: OUTPUT,
            ..Info::default()
        };
        memory.set(BASE, &asked.to_bytes());
        ioctl(FWCTL_INFO, BASE, &mut memory, device).unwrap();
        let expected = Info {
            out_device_type: 1,
            device_data_len: if room == 0 { 0 } else { 8 },
            ..asked
        };
        let told = memory.at(BASE, 24);
        assert_eq!(told, expected.to_bytes(), "room for {room}");
        let data = [&MLX5_INFO.to_bytes()[..], &[0; 4]].concat();
        let room = room as usize;
        assert_eq!(memory.at(OUTPUT, room), &data[..room]);
        assert_eq!(memory.at(OUTPUT + room as u64, 4), [0xee; 4]);
    }
}

#[test]
fn structures_may_be_longer_with_zeros_and_not_shorter() {
    let with = |size: u32, byte_behind: u8, flags: u32| {
        let mut memory = Memory::new();
        let info = Info {
            size,
            flags,
            ..Info::default()
        };
        memory.set(BASE, &[0; SIZE]);
        memory.set(BASE, &info.to_bytes());
        memory.set(BASE + 40, &[byte_behind]);
        ioctl(FWCTL_INFO, BASE, &mut memory, device)
    };
    assert_eq!(with(24, 0, 0), Ok(()));
    assert_eq!(with(40, 1, 0), Ok(()), "the byte is not in the structure");
    assert_eq!(with(9000, 0, 0), Ok(()));
    assert_eq!(with(23, 0, 0), Err(Errno::EINVAL));
    assert_eq!(with(0, 0, 0), Err(Errno::EINVAL));
    assert_eq!(with(41, 1, 0), Err(Errno::E2BIG));
    assert_eq!(with(u32::MAX, 0, 0), Err(Errno::EFAULT));
    assert_eq!(with(24, 0, 1), Err(Errno::EOPNOTSUPP));
}

#[test]
fn memory_that_is_not_there_and_other_ioctls_are_errors() {
    let mut memory = Memory::new();
    for address in [0, BASE - 2, BASE + SIZE as u64 - 2, u64::MAX] {
        let result = ioctl(FWCTL_INFO, address, &mut memory, device);
        assert_eq!(result, Err(Errno::EFAULT), "{address:#x}");
    }
    for command in [0x9a02, 0x9a03, 0x9b00, 0, u32::MAX] {
        let result = ioctl(command, BASE, &mut memory, device);
        assert_eq!(result, Err(Errno::ENOTTY), "{command:#x}");
    }
    let mut rpc = rpc_of(20, 20, 1);
    rpc.output = u64::MAX - 3;
    memory.set(INPUT, &request(0x402c, Method::Query));
    memory.set(BASE, &rpc.to_bytes());
    let result = ioctl(FWCTL_RPC, BASE, &mut memory, device);
    assert_eq!(result, Err(Errno::EFAULT));
}
