//! The structures of the node's two ioctls (`include/uapi/fwctl/fwctl.h`), in the machine's own
//! byte order.

/// Returns the kind of card.
pub const FWCTL_INFO: u32 = 0x9a00;

/// Sends a command to the firmware and waits for its answer.
pub const FWCTL_RPC: u32 = 0x9a01;

/// The longest command, and the longest answer, in bytes.
pub const MAX_RPC_LEN: u32 = 2 << 20;

/// The scope of a command; the numbers of [`Rpc::scope`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Scope {
    /// Configuration by an administrator. The kernel allows it to write registers.
    Configuration = 0,
    /// Reads for debugging. The kernel allows this and all further scopes to read registers.
    DebugReadOnly = 1,
    /// Writes for debugging; taints the kernel.
    DebugWrite = 2,
    /// Everything; needs `CAP_SYS_RAWIO`, and taints the kernel.
    DebugWriteFull = 3,
}

impl Scope {
    /// Returns the scope with this number, or `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Configuration),
            1 => Some(Self::DebugReadOnly),
            2 => Some(Self::DebugWrite),
            3 => Some(Self::DebugWriteFull),
            _ => None,
        }
    }
}

/// `struct fwctl_info`, the argument of [`FWCTL_INFO`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// Size of the structure as the program knows it, bytes.
    pub size: u32,
    /// 0.
    pub flags: u32,
    /// Answer: the kind of card, see [`device_type_name`].
    pub out_device_type: u32,
    /// Size of the buffer at `out_device_data`; in the answer, the size of the driver's data.
    pub device_data_len: u32,
    /// Address of the buffer for the driver's part of the answer; for [`DEVICE_TYPE_MLX5`] a
    /// [`Mlx5Info`].
    pub out_device_data: u64,
}

impl Info {
    /// Size of the structure, bytes.
    pub const SIZE: usize = 24;

    /// Reads the structure.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            size: u32_at(bytes, 0),
            flags: u32_at(bytes, 4),
            out_device_type: u32_at(bytes, 8),
            device_data_len: u32_at(bytes, 12),
            out_device_data: u64_at(bytes, 16),
        }
    }

    /// The bytes of the structure.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, &self.size.to_ne_bytes());
        put(&mut bytes, 4, &self.flags.to_ne_bytes());
        put(&mut bytes, 8, &self.out_device_type.to_ne_bytes());
        put(&mut bytes, 12, &self.device_data_len.to_ne_bytes());
        put(&mut bytes, 16, &self.out_device_data.to_ne_bytes());
        bytes
    }
}

/// `struct fwctl_rpc`, the argument of [`FWCTL_RPC`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rpc {
    /// Size of the structure as the program knows it, bytes.
    pub size: u32,
    /// A [`Scope`].
    pub scope: u32,
    /// Length of the command, bytes.
    pub in_len: u32,
    /// Size of the buffer for the answer; in the answer, its length.
    pub out_len: u32,
    /// Address of the command.
    pub input: u64,
    /// Address of the buffer for the answer.
    pub output: u64,
}

impl Rpc {
    /// Size of the structure, bytes.
    pub const SIZE: usize = 32;

    /// Reads the structure.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            size: u32_at(bytes, 0),
            scope: u32_at(bytes, 4),
            in_len: u32_at(bytes, 8),
            out_len: u32_at(bytes, 12),
            input: u64_at(bytes, 16),
            output: u64_at(bytes, 24),
        }
    }

    /// The bytes of the structure.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, &self.size.to_ne_bytes());
        put(&mut bytes, 4, &self.scope.to_ne_bytes());
        put(&mut bytes, 8, &self.in_len.to_ne_bytes());
        put(&mut bytes, 12, &self.out_len.to_ne_bytes());
        put(&mut bytes, 16, &self.input.to_ne_bytes());
        put(&mut bytes, 24, &self.output.to_ne_bytes());
        bytes
    }
}

/// The device type of NVIDIA cards since ConnectX-4.
pub const DEVICE_TYPE_MLX5: u32 = 1;

/// Returns the name of a device type.
#[must_use]
pub const fn device_type_name(device_type: u32) -> &'static str {
    match device_type {
        DEVICE_TYPE_MLX5 => "an NVIDIA ConnectX or BlueField",
        2 => "a CXL device",
        3 => "a Broadcom NetXtreme",
        4 => "an AMD Pensando DSC",
        _ => "a device of an unknown kind",
    }
}

/// `struct fwctl_info_mlx5`, the information about an open node from the driver of
/// [`DEVICE_TYPE_MLX5`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mlx5Info {
    /// The firmware's number for the open node.
    pub uid: u32,
    /// What the firmware allows it to do.
    pub uctx_caps: u32,
}

impl Mlx5Info {
    /// Size of the structure, bytes.
    pub const SIZE: usize = 8;

    /// Bit of `uctx_caps`: registers of the whole card are accessible.
    pub const TOOLS_RESOURCES: u32 = 0x4;

    /// Reads the structure.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            uid: u32_at(bytes, 0),
            uctx_caps: u32_at(bytes, 4),
        }
    }

    /// The bytes of the structure.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, &self.uid.to_ne_bytes());
        put(&mut bytes, 4, &self.uctx_caps.to_ne_bytes());
        bytes
    }
}

/// Offsets are constants inside structures of constant size.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(field)
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words as a machine with the small end first has them.
    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn fields_lie_where_the_header_has_them() {
        let info = Info {
            size: 24,
            flags: 1,
            out_device_type: 2,
            device_data_len: 3,
            out_device_data: 0x0000_0005_0000_0005,
        };
        assert_eq!(info.to_bytes()[..], words(&[24, 1, 2, 3, 5, 5]));
        assert_eq!(Info::from_bytes(&info.to_bytes()), info);
        let rpc = Rpc {
            size: 32,
            scope: 3,
            in_len: 4,
            out_len: 5,
            input: 0x0000_0006_0000_0006,
            output: 0x0000_0007_0000_0007,
        };
        assert_eq!(rpc.to_bytes()[..], words(&[32, 3, 4, 5, 6, 6, 7, 7]));
        assert_eq!(Rpc::from_bytes(&rpc.to_bytes()), rpc);
        let mlx5 = Mlx5Info {
            uid: 1,
            uctx_caps: 4,
        };
        assert_eq!(mlx5.to_bytes()[..], words(&[1, 4]));
        assert_eq!(Mlx5Info::from_bytes(&mlx5.to_bytes()), mlx5);
    }

    #[test]
    fn scopes_have_the_numbers_of_the_header() {
        for number in 0..4 {
            assert_eq!(Scope::from_number(number).unwrap() as u32, number);
        }
        assert_eq!(Scope::from_number(4), None);
    }
}
