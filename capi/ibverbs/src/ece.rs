//! Options that both ends of a connection agree on: enhanced connection establishment.

use std::ffi::c_int;

use ferroce_abi::border;
use ferroce_abi::pointer::{change, put};
use ferroce_device::Ece;

use crate::abi::{ibv_ece, ibv_qp};
use crate::error::{Error, status};
use crate::qp;

impl From<Ece> for ibv_ece {
    fn from(Ece { vendor_id, options }: Ece) -> Self {
        Self {
            vendor_id,
            options,
            comp_mask: 0,
        }
    }
}

/// The options that a queue pair can have before it is connected; then those that it has
/// (ibv_query_ece(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let result = qp::find(qp).and_then(|object| {
        let own = object.own();
        let device = own.context.adapter.live()?;
        let known = device.with(|hca| hca.query_ece(own.qpn))?;
        // SAFETY: null or a structure of the program that may be written to.
        Ok(unsafe { put("ece", ece, known.into()) }?)
    });
    status("ibv_query_ece", result)
}

/// Sets options of a queue pair, and returns in `ece` those that it has accepted (ibv_set_ece(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let result = qp::find(qp).and_then(|object| {
        let own = object.own();
        // SAFETY: null or a structure of the program that nothing else accesses during the call.
        let ece = unsafe { change("ece", ece)? };
        let wanted = wanted(ece)?;
        let device = own.context.adapter.live()?;
        let accepted = device.with(|hca| {
            hca.set_ece(own.qpn, wanted)?;
            hca.query_ece(own.qpn)
        })?;
        *ece = accepted.into();
        Ok(())
    });
    status("ibv_set_ece", result)
}

/// What a program asks for, refused as the cards' own library refuses it.
fn wanted(ece: &ibv_ece) -> Result<Ece, Error> {
    let ibv_ece {
        vendor_id,
        options,
        comp_mask,
    } = *ece;
    if comp_mask != 0 {
        return Err(Error::invalid("comp_mask", comp_mask, "0"));
    }
    if vendor_id != Ece::VENDOR {
        let allowed = "0x15b3, as ibv_query_ece returns it";
        return Err(Error::invalid("vendor_id", vendor_id, allowed));
    }
    Ok(Ece { vendor_id, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_of_the_cards_vendor_are_taken() {
        let ece = |vendor_id, comp_mask| ibv_ece {
            vendor_id,
            options: 0x3000_0001,
            comp_mask,
        };
        let taken = wanted(&ece(0x15b3, 0)).unwrap();
        assert_eq!((taken.vendor_id, taken.options), (0x15b3, 0x3000_0001));
        for (refused, text) in [
            (ece(0x15b3, 2), "comp_mask is 2; allowed: 0"),
            (
                ece(0x1dd8, 0),
                "vendor_id is 7640 (0x1dd8); allowed: 0x15b3, as ibv_query_ece returns it",
            ),
        ] {
            let error = wanted(&refused).unwrap_err();
            assert_eq!(
                (error.errno(), error.to_string().as_str()),
                (libc::EINVAL, text)
            );
        }
    }
}
