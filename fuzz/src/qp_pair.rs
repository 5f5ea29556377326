//! Two devices on a wire in memory, in virtual time, under any sequence of operations.

mod ledger;
mod operation;
mod side;
mod world;

use crate::Cursor;
use world::Stage;

/// Operations taken from one input.
const OPERATIONS_MAX: usize = 200;

/// Two devices and a hostile environment; see [`crate`].
pub fn qp_pair(data: &[u8]) {
    let mut input = Cursor::new(data);
    let mut stage = Stage::new(&mut input);
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        operation::perform(&mut stage, &mut input);
        stage.settle();
    }
    stage.finish();
}
