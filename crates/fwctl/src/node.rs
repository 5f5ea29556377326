//! Handling of a node's ioctls, as in the kernel's fwctl core and its mlx5 driver.
//!
//! The node is only the logic: access to the program's memory, and to the device whose registers it
//! shows, are arguments.

use nix::errno::Errno;

use crate::mailbox::{
    ACCESS_REG, ACCESS_REGISTER_USER, HEADER_LEN, Method, Reply, Request, Status,
};
use crate::uapi::{
    DEVICE_TYPE_MLX5, FWCTL_INFO, FWCTL_RPC, Info, MAX_RPC_LEN, Mlx5Info, Rpc, Scope,
};

/// The memory of the calling program.
pub trait UserMemory {
    /// Reads bytes; `false` if they are not all there.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
    /// Writes bytes; `false` if there is no room for all of them.
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool;
}

/// What every node that is opened here is told about itself.
const MLX5_INFO: Mlx5Info = Mlx5Info {
    uid: 1,
    uctx_caps: Mlx5Info::TOOLS_RESOURCES,
};

/// How much is moved at once where the length is the program's.
const CHUNK: usize = 4096;

/// Carries out an ioctl on a node.
///
/// `access` reads or writes a register of the device. Its arguments are the register's number, the
/// method, and the content, which a read replaces.
///
/// Of the commands that the kernel's driver allows, the device supports those that access
/// registers; the others fail like those that the driver rejects. Anyone who can open the node has
/// all rights to it, including those of [`Scope::DebugWriteFull`], because it is the user's own
/// device.
///
/// # Errors
///
/// Returns the kernel's errors: `ENOTTY` for another ioctl; `EFAULT` if memory is not the
/// program's; `EINVAL` for a structure that is too short, `E2BIG` for one with unknown fields in
/// use; `EOPNOTSUPP` for unknown flags and scopes; `EMSGSIZE` for a command or an answer below 16
/// bytes or above 2 MiB; `EBADMSG` for a command that the scope does not allow.
pub fn ioctl(
    command: u32,
    argument: u64,
    memory: &mut impl UserMemory,
    access: impl FnOnce(u16, Method, &mut [u8]) -> Status,
) -> Result<(), Errno> {
    match command {
        FWCTL_INFO => info(argument, memory),
        FWCTL_RPC => rpc(argument, memory, access),
        _ => Err(Errno::ENOTTY),
    }
}

fn info(argument: u64, memory: &mut impl UserMemory) -> Result<(), Errno> {
    let mut info = Info::from_bytes(&structure(argument, memory)?);
    if info.flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut told = 0;
    if info.device_data_len != 0 {
        let (data, room) = (MLX5_INFO.to_bytes(), info.device_data_len as usize);
        let len = data.len().min(room);
        put(memory, info.out_device_data, &data[..len])?;
        clear(memory, info.out_device_data, len, room)?;
        told = Mlx5Info::SIZE as u32;
    }
    info.out_device_type = DEVICE_TYPE_MLX5;
    info.device_data_len = told;
    put(memory, argument, &info.to_bytes())
}

fn rpc(
    argument: u64,
    memory: &mut impl UserMemory,
    access: impl FnOnce(u16, Method, &mut [u8]) -> Status,
) -> Result<(), Errno> {
    let rpc = Rpc::from_bytes(&structure(argument, memory)?);
    if rpc.in_len > MAX_RPC_LEN || rpc.out_len > MAX_RPC_LEN {
        return Err(Errno::EMSGSIZE);
    }
    let scope = Scope::from_number(rpc.scope).ok_or(Errno::EOPNOTSUPP)?;
    let mut input = vec![0; rpc.in_len as usize];
    get(memory, rpc.input, &mut input)?;
    let output = execute(&input, rpc.out_len as usize, scope, access)?;
    put(memory, rpc.output, &output)?;
    put(memory, argument, &rpc.to_bytes())
}

/// The driver and, behind it, the firmware. Returns `out_len` bytes.
fn execute(
    input: &[u8],
    out_len: usize,
    scope: Scope,
    access: impl FnOnce(u16, Method, &mut [u8]) -> Status,
) -> Result<Vec<u8>, Errno> {
    if out_len < HEADER_LEN {
        return Err(Errno::EMSGSIZE);
    }
    let request = Request::parse(input).ok_or(Errno::EMSGSIZE)?;
    let is_access = matches!(request.opcode, ACCESS_REG | ACCESS_REGISTER_USER);
    let is_write = request.op_mod == Method::Write as u16;
    if !is_access || !(is_write || scope >= Scope::DebugReadOnly) {
        return Err(Errno::EBADMSG);
    }
    let mut data = request.data.to_vec();
    let status = match request.method() {
        None => Status::BAD_OPERATION,
        Some(Method::Query) if out_len < HEADER_LEN + data.len() => Status::BAD_OUTPUT_LENGTH,
        Some(method) => access(request.register_id, method, &mut data),
    };
    let reply = Reply {
        status,
        syndrome: 0,
        data: if status == Status::OK { &data } else { &[] },
    };
    Ok(reply.to_bytes(out_len))
}

/// The structure at an address, which begins with the size that the program knows it by.
fn structure<const SIZE: usize>(
    address: u64,
    memory: &impl UserMemory,
) -> Result<[u8; SIZE], Errno> {
    let mut size = [0; 4];
    get(memory, address, &mut size)?;
    let size = u32::from_ne_bytes(size) as usize;
    if size < SIZE {
        return Err(Errno::EINVAL);
    }
    let mut at = SIZE;
    while at < size {
        let mut unknown = [0; CHUNK];
        let unknown = &mut unknown[..CHUNK.min(size - at)];
        get(memory, offset(address, at)?, unknown)?;
        if unknown.iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        at += unknown.len();
    }
    let mut bytes = [0; SIZE];
    get(memory, address, &mut bytes)?;
    Ok(bytes)
}

/// Writes zeros from one offset to another.
fn clear(
    memory: &mut impl UserMemory,
    address: u64,
    mut from: usize,
    to: usize,
) -> Result<(), Errno> {
    while from < to {
        let len = CHUNK.min(to - from);
        put(memory, offset(address, from)?, &[0; CHUNK][..len])?;
        from += len;
    }
    Ok(())
}

fn get(memory: &impl UserMemory, address: u64, out: &mut [u8]) -> Result<(), Errno> {
    let done = memory.read(address, out);
    done.then_some(()).ok_or(Errno::EFAULT)
}

fn put(memory: &mut impl UserMemory, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let done = memory.write(address, bytes);
    done.then_some(()).ok_or(Errno::EFAULT)
}

fn offset(address: u64, by: usize) -> Result<u64, Errno> {
    address.checked_add(by as u64).ok_or(Errno::EFAULT)
}

#[cfg(test)]
mod tests;
