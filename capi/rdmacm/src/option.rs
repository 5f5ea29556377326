//! Options of identifiers.

use std::ffi::{c_int, c_void};

use ferroce_abi::border;
use ferroce_ibverbs::abi::{IBV_QPT_RC, IBV_QPT_XRC_SEND};
use ferroce_ibverbs::error::{Error, number};

use crate::abi::*;
use crate::attr;
use crate::id::{self, Id, Step, wrong_step};

/// Sets an option (rdma_set_option(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    // SAFETY: null or `optlen` bytes, valid during the call.
    let result = id::find(id).and_then(|id| unsafe { set(&id, level, optname, optval, optlen) });
    number("rdma_set_option", result)
}

/// # Safety
/// `length` bytes are there.
unsafe fn set(
    id: &Id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> Result<c_int, Error> {
    if value.is_null() && length > 0 {
        return Err(Error::refused(libc::EFAULT, "optval is a null pointer"));
    }
    // SAFETY: as the caller promises.
    let byte = || unsafe { read::<u8>(value, length) };
    // SAFETY: as the caller promises.
    let flag = || unsafe { read::<c_int>(value, length) }.map(|value| value != 0);
    let mut state = id.state();
    match (level, name) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
            state.traffic_class = byte()?;
            state.sl = attr::sl_of_tos(state.traffic_class);
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
            let reuse = flag()?;
            let may = state.step == Step::Idle || (reuse && state.step != Step::Listening);
            if !may {
                return Err(wrong_step("change whether it shares", state.step, "Idle"));
            }
            state.reuse_port = reuse;
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
            let only = flag()?;
            if ![Step::Idle, Step::Bound].contains(&state.step) {
                let allowed = "Idle and Bound";
                return Err(wrong_step("change its families", state.step, allowed));
            }
            state.only_own_family = only;
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            // SAFETY: the memory of an object is never freed.
            let qp_type = unsafe { (*id.abi()).qp_type };
            if ![IBV_QPT_RC, IBV_QPT_XRC_SEND].contains(&qp_type) {
                return Err(Error::invalid(
                    "qp_type",
                    qp_type,
                    "RC and XRC_SEND, which time out",
                ));
            }
            let timeout = byte()?;
            if timeout > 31 {
                return Err(Error::invalid("ACK timeout", timeout, "0 to 31"));
            }
            state.ack_timeout = Some(timeout);
        }
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
            return Err(Error::Unsupported("RDMA_OPTION_IB_PATH"));
        }
        _ => {
            let what = format!(
                "no option {name} at level {level}; there are RDMA_OPTION_ID_TOS, _REUSEADDR, \
                 _AFONLY and _ACK_TIMEOUT at level RDMA_OPTION_ID"
            );
            return Err(Error::refused(libc::ENOSYS, what));
        }
    }
    Ok(0)
}

/// The value of an option.
///
/// # Safety
/// `length` bytes are there, and any of them make a `T`.
unsafe fn read<T>(value: *const c_void, length: usize) -> Result<T, Error> {
    if length != size_of::<T>() {
        let what = format!("optlen is {length}, this option has {}", size_of::<T>());
        return Err(Error::refused(libc::EINVAL, what));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_length_of_its_option() {
        let value = [7_u8, 0, 0, 0, 9];
        let at = value.as_ptr().cast();
        // SAFETY: no length is greater than the array.
        unsafe {
            assert_eq!(read::<u8>(at, 1).unwrap(), 7);
            assert_eq!(read::<c_int>(at, 4).unwrap().to_le(), 7);
            for (byte, word) in [(0, 0), (2, 1), (4, 5)] {
                assert_eq!(read::<u8>(at, byte).unwrap_err().errno(), libc::EINVAL);
                assert_eq!(read::<c_int>(at, word).unwrap_err().errno(), libc::EINVAL);
            }
        }
    }
}
