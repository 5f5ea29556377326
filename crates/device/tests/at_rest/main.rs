//! How much memory devices take whose queue pairs have worked and rest.

mod used;

use used::{Rests, Sizes, World};

#[test]
fn used_queue_pairs_that_rest_are_small() {
    let sizes = Sizes::measured();
    println!("{:#?}", sizes.rows());
    assert!(sizes.idle_device <= 2 << 10, "{sizes:?}");
    assert!(sizes.restless_qp > 2 * sizes.used_qp, "{sizes:?}");
    assert!(sizes.used_qp <= 1024, "{sizes:?}");
    assert!(sizes.used_device <= 20 << 10, "{sizes:?}");
}

/// Packets that wait in a queue stay, and the queue grows again.
#[test]
fn a_device_may_rest_between_any_two_packets() {
    World::used(3, Rests::AfterEachPacket);
}
