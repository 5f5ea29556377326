//! Real cards: find them, open them, read and write their registers.

mod find;
mod list;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use thiserror::Error;

use crate::ioctl;
use crate::mailbox::{HEADER_LEN, Method, Reply, Request, Status};
use crate::uapi::{DEVICE_TYPE_MLX5, FWCTL_RPC, Mlx5Info, Rpc, Scope, device_type_name};

pub use self::find::{FindError, Places, is_card_name};
pub use self::list::Found;

/// The maximum length of a register that cards accept at once, bytes. Tools request this length for
/// registers that have no fixed length.
pub const REGISTER_LEN_MAX: usize = 812;

/// An open card.
#[derive(Debug)]
pub struct Card {
    path: PathBuf,
    node: File,
    info: Mlx5Info,
}

/// The reason why a card could not be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CardError {
    /// No node belongs to the name.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The user may not open the node.
    #[error(
        "cannot open {path}: permission denied; run it as root (`sudo`), and in a container pass \
         the node in with `--device={path}`", path = path.display()
    )]
    Permission {
        /// The node.
        path: PathBuf,
    },
    /// The node could not be opened for another reason.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The node.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The node belongs to a device of another kind.
    #[error(
        "{} is {}; only ConnectX and BlueField have these registers", path.display(),
        device_type_name(*device_type)
    )]
    OtherKind {
        /// The node.
        path: PathBuf,
        /// The device type it reports.
        device_type: u32,
    },
    /// The kernel did not pass the command on.
    #[error("{}: {}", path.display(), kernel_says(*errno))]
    Kernel {
        /// The node.
        path: PathBuf,
        /// The error number.
        errno: Errno,
    },
    /// The card refused the command.
    #[error("{}: register {register_id:#06x}: {status}{}", path.display(), advice(*status, *syndrome, *info))]
    Refused {
        /// The node.
        path: PathBuf,
        /// Number of the register.
        register_id: u16,
        /// The status.
        status: Status,
        /// Details for the card's manufacturer.
        syndrome: u32,
        /// What the firmware allows the node to do.
        info: Mlx5Info,
    },
}

impl Card {
    /// Opens the card with a name: `fwctl0`, `/dev/fwctl/fwctl0`, a PCI address such as
    /// `0000:1a:00.0` or `1a:00.0`, or MFT's `/dev/mst/mt4129_pciconf0`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such card, if the user may not open it, or if it does not
    /// have these registers.
    pub fn open(name: &str) -> Result<Self, CardError> {
        let path = Places::default().node(name)?;
        let node = OpenOptions::new().read(true).write(true).open(&path);
        let node = node.map_err(|source| refused_open(&path, source))?;
        let (info, mlx5) = ioctl::info(&node).map_err(|errno| CardError::Kernel {
            path: path.clone(),
            errno,
        })?;
        if info.out_device_type != DEVICE_TYPE_MLX5 {
            let device_type = info.out_device_type;
            return Err(CardError::OtherKind { path, device_type });
        }
        let info = mlx5;
        Ok(Self { path, node, info })
    }

    /// Returns the node's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what the firmware allows this open node to do.
    #[must_use]
    pub fn info(&self) -> Mlx5Info {
        self.info
    }

    /// Reads or writes a register. `data` is its content; for a read, it also carries the
    /// register's index. Only a successful read changes `data`.
    ///
    /// # Errors
    ///
    /// Returns [`CardError::Kernel`] or [`CardError::Refused`].
    pub fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), CardError> {
        let call = Call::new(id, method, data);
        let mut output = vec![0; call.out_len];
        let path = || self.path.clone();
        ioctl::rpc(&self.node, call.scope, &call.input, &mut output).map_err(|errno| {
            CardError::Kernel {
                path: path(),
                errno,
            }
        })?;
        let reply = Reply::parse(&output).ok_or_else(|| CardError::Kernel {
            path: path(),
            errno: Errno::EMSGSIZE,
        })?;
        if reply.status != Status::OK {
            return Err(CardError::Refused {
                path: path(),
                register_id: id,
                status: reply.status,
                syndrome: reply.syndrome,
                info: self.info,
            });
        }
        if method == Method::Query {
            data.copy_from_slice(reply.data);
        }
        Ok(())
    }
}

/// The data sent to a card for one access of a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its scope: the smallest that the kernel requires, so that `CAP_SYS_RAWIO` is not needed and
    /// the kernel is not tainted.
    pub scope: Scope,
    /// The command.
    pub input: Vec<u8>,
    /// Length of the answer, bytes.
    pub out_len: usize,
}

impl Call {
    /// Creates the call that reads or writes a register.
    #[must_use]
    pub fn new(id: u16, method: Method, data: &[u8]) -> Self {
        Self {
            scope: match method {
                Method::Query => Scope::DebugReadOnly,
                Method::Write => Scope::Configuration,
            },
            input: Request::access(id, method, data).to_bytes(),
            out_len: HEADER_LEN + data.len(),
        }
    }

    /// Returns the call in words and bytes, with 16 bytes per line.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut text = format!(
            "ioctl {FWCTL_RPC:#x} FWCTL_RPC: size {}, scope {} ({:?}), in_len {}, out_len {}\n",
            Rpc::SIZE,
            self.scope as u32,
            self.scope,
            self.input.len(),
            self.out_len,
        );
        for (number, line) in self.input.chunks(16).enumerate() {
            text += &format!("{:04x}:", number * 16);
            for dword in line.chunks(4) {
                text.push(' ');
                dword.iter().for_each(|byte| text += &format!("{byte:02x}"));
            }
            text.push('\n');
        }
        text
    }
}

fn refused_open(path: &Path, source: io::Error) -> CardError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => CardError::Permission { path },
        io::ErrorKind::NotFound => Places::default().missing_node(&path).into(),
        _ => CardError::Open { path, source },
    }
}

fn kernel_says(errno: Errno) -> String {
    let meaning = match errno {
        Errno::ENOTTY => "it is not an fwctl node",
        Errno::ENODEV => "the card is gone: removed, or its driver is; look at `dmesg`",
        Errno::EPERM => "the kernel wants CAP_SYS_RAWIO; run it as root, outside a user namespace",
        Errno::EBADMSG => "the driver does not let this command through; update kernel or driver",
        Errno::EMSGSIZE => "the register is too long for one command",
        Errno::ETIMEDOUT => "the firmware does not answer; look at `dmesg`",
        Errno::EIO | Errno::ENXIO => "the driver cannot reach the firmware; look at `dmesg`",
        _ => return format!("the kernel refuses the command: {}", errno.desc()),
    };
    format!("{meaning} ({errno:?})")
}

fn advice(status: Status, syndrome: u32, info: Mlx5Info) -> String {
    let mut text = match syndrome {
        0 => String::new(),
        syndrome => format!(", syndrome {syndrome:#x}"),
    };
    if info.uctx_caps & Mlx5Info::TOOLS_RESOURCES == 0 {
        text += "; the firmware lets this node reach no registers of the whole card, update it";
    } else if status == Status::NOT_SUPPORTED {
        text += "; newer firmware may have it (profiles and the timeout histogram are of 2025)";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_ask_for_no_more_than_they_need() {
        let get = Call::new(0x402c, Method::Query, &[0; 0x80]);
        assert_eq!((get.scope, get.out_len), (Scope::DebugReadOnly, 0x90));
        let set = Call::new(0x402c, Method::Write, &[0; 4]);
        assert_eq!(set.scope, Scope::Configuration);
        assert_eq!(
            set.dump(),
            "ioctl 0x9a01 FWCTL_RPC: size 32, scope 0 (Configuration), in_len 20, out_len 20\n\
             0000: 08050000 00000000 0000402c 00000000\n\
             0010: 00000000\n"
        );
    }

    #[test]
    fn refusals_say_what_to_do() {
        let refused = |status, info| {
            let error = CardError::Refused {
                path: "/dev/fwctl/fwctl0".into(),
                register_id: 0xc01d,
                status,
                syndrome: 0x1b2f3c,
                info,
            };
            error.to_string()
        };
        let able = Mlx5Info {
            uid: 1,
            uctx_caps: Mlx5Info::TOOLS_RESOURCES,
        };
        assert_eq!(
            refused(Status::BAD_PARAMETER, able),
            "/dev/fwctl/fwctl0: register 0xc01d: a field has a value that the card refuses (status \
             0x03, BAD_PARAM), syndrome 0x1b2f3c"
        );
        assert!(refused(Status::NOT_SUPPORTED, able).ends_with("are of 2025)"));
        assert!(refused(Status::NOT_SUPPORTED, Mlx5Info::default()).ends_with("update it"));
        assert!(kernel_says(Errno::ENODEV).contains("dmesg"));
        assert!(kernel_says(Errno::ENOBUFS).starts_with("the kernel refuses"));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = refused_open(Path::new("/dev/fwctl/fwctl0"), denied).to_string();
        assert!(error.contains("sudo"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_node_is_told_from_one() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(ioctl::info(&file).unwrap_err(), Errno::ENOTTY);
        let rpc = ioctl::rpc(&file, Scope::DebugReadOnly, &[0; 16], &mut [0; 16]);
        assert_eq!(rpc, Err(Errno::ENOTTY));
    }
}
