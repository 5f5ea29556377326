//! The ioctl system call.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

use crate::uapi::{FWCTL_INFO, FWCTL_RPC, Info, Mlx5Info, Rpc, Scope};

/// What the node says about itself and, if it is one of the mlx5 driver's, about being open.
pub(crate) fn info(node: &File) -> Result<(Info, Mlx5Info), Errno> {
    let mut data = [0; Mlx5Info::SIZE];
    let info = Info {
        size: Info::SIZE as u32,
        device_data_len: data.len() as u32,
        out_device_data: data.as_mut_ptr() as u64,
        ..Info::default()
    };
    let mut bytes = info.to_bytes();
    // SAFETY: the structure is as long as it says and has the address and the length of `data`,
    // which outlives the call; the kernel writes nothing else.
    let result = unsafe {
        libc::ioctl(
            node.as_raw_fd(),
            FWCTL_INFO as libc::Ioctl,
            bytes.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    Ok((Info::from_bytes(&bytes), Mlx5Info::from_bytes(&data)))
}

/// Sends a command to the firmware. `output` is filled with the answer.
pub(crate) fn rpc(node: &File, scope: Scope, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| Errno::EMSGSIZE);
    let rpc = Rpc {
        size: Rpc::SIZE as u32,
        scope: scope as u32,
        in_len: len(input)?,
        out_len: len(output)?,
        input: input.as_ptr() as u64,
        output: output.as_mut_ptr() as u64,
    };
    let mut bytes = rpc.to_bytes();
    // SAFETY: the structure is as long as it says and has the addresses and the lengths of the two
    // slices, which outlive the call; the kernel reads the first and writes the second.
    let result = unsafe {
        libc::ioctl(
            node.as_raw_fd(),
            FWCTL_RPC as libc::Ioctl,
            bytes.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    Ok(())
}
