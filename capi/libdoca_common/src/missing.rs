//! Functions that programs link although these libraries do not support them: representors, mapped
//! memory, buffers, progress engines, contexts of work. No such objects exist, so no call can refer
//! to one.

use ferroce_abi::border;
use ferroce_doca::{Code, Refusal};

use crate::log::answer;

/// Defines functions that answer `DOCA_ERROR_NOT_SUPPORTED`, whatever their arguments.
macro_rules! missing {
    ($($name:ident)+) => {
        $(
            /// Not supported.
            #[unsafe(no_mangle)]
            #[border(code)]
            pub extern "C" fn $name() -> Code {
                let what = "these libraries do not have it";
                answer(stringify!($name), Err(Refusal::new(Code::NotSupported, what)))
            }
        )+
    };
}

missing! {
    doca_devinfo_rep_create_list
    doca_devinfo_rep_destroy_list
    doca_devinfo_rep_get_vuid
    doca_devinfo_rep_is_equal_pci_addr
    doca_dev_rep_open
    doca_dev_rep_close
    doca_mmap_create
    doca_mmap_destroy
    doca_mmap_add_dev
    doca_buf_set_data
    doca_buf_chain_list
    doca_buf_inventory_create
    doca_buf_inventory_destroy
    doca_buf_inventory_start
    doca_buf_inventory_buf_get_by_args
    doca_pe_create
    doca_pe_destroy
    doca_ctx_stop
    doca_ctx_get_state
}

/// There is no engine, so it has nothing to do.
#[unsafe(no_mangle)]
#[border(value)]
pub extern "C" fn doca_pe_progress() -> u8 {
    0
}
