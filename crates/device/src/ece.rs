//! Enhanced connection establishment: options that both ends of a connection agree on.

use ferroce_wire::cm::{Rep, Req};

/// Options of a queue pair, as mlx5 cards and their programs encode them (`ibv_ece`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ece {
    /// Who gives the options their meaning; 0 if there are none.
    pub vendor_id: u32,
    /// The version of the options in the upper four bits, and the options.
    pub options: u32,
}

impl Ece {
    /// The vendor of the cards.
    pub const VENDOR: u32 = 0x15b3;
    /// The version of its options.
    const VERSION: u32 = 3 << 28;
    /// Option of version 2 and later: the queue pair repeats selectively.
    const SELECTIVE_REPEAT: u32 = 1;
    const VERSION_SINCE: u32 = 2;

    pub(crate) fn new(selective_repeat: bool) -> Self {
        let option = match selective_repeat {
            true => Self::SELECTIVE_REPEAT,
            false => 0,
        };
        Self {
            vendor_id: Self::VENDOR,
            options: Self::VERSION | option,
        }
    }

    pub(crate) fn selective_repeat(self) -> bool {
        self.vendor_id == Self::VENDOR
            && self.options >> 28 >= Self::VERSION_SINCE
            && self.options & Self::SELECTIVE_REPEAT != 0
    }
}

impl From<&Req> for Ece {
    fn from(req: &Req) -> Self {
        Self {
            vendor_id: req.vendor_id.value(),
            options: req.vendor_options,
        }
    }
}

impl From<&Rep> for Ece {
    fn from(rep: &Rep) -> Self {
        let id = [
            0,
            rep.vendor_id_high,
            rep.vendor_id_middle,
            rep.vendor_id_low,
        ];
        Self {
            vendor_id: u32::from_be_bytes(id),
            options: rep.vendor_options,
        }
    }
}
