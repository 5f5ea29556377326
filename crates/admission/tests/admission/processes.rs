//! Processes of one device share the buffer of a peer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ferroce_admission::{Bounds, LeaseTable, Leases, Shares, Window};
use ferroce_device::{AccessFlags, Hca, HcaConfig, SendWr, WcStatus};

use crate::link::{Link, Receiver, without_timeout};
use ferroce_testing::{A, B, Side, config};

const LEN: usize = 64 << 10;
const BOUND: u32 = 1 << 20;

/// Two processes of a device on a link, in slots 1 and 2; both write to the second, whose buffer has
/// room for what one may send.
fn link(table: &'static LeaseTable) -> (Link, [Arc<AtomicBool>; 2]) {
    let receiver = Receiver {
        buffer: u64::from(BOUND) * 5 / 4,
        ..Receiver::default()
    };
    let bounds = Bounds {
        peer_bytes: BOUND,
        window: Window::Fixed(BOUND),
        ..Bounds::default()
    };
    let lacking = [0, 1].map(|_| Arc::new(AtomicBool::new(false)));
    let mut link = Link::new(config(), bounds, [receiver; 2]);
    let sides = [1, 2].into_iter().zip(&lacking).map(|(slot, lacking)| {
        let leases = Leases {
            table,
            slot,
            lacking: Arc::clone(lacking),
        };
        let hca = Hca::new(HcaConfig { slot, ..config() });
        let shares = Shares::new(bounds, Some(leases));
        Side::on(slot, hca.with_admission(Box::new(shares)))
    });
    link.pair.sides = sides.collect();
    (link, lacking)
}

fn table() -> &'static LeaseTable {
    Box::leak(Box::default())
}

fn write_all(link: &mut Link, qps: usize) {
    for from in [A, B] {
        let pairs = link.connect_from(from, B, qps, without_timeout());
        let sides = &mut link.pair.sides;
        let [own, remote] = [from, B].map(|id| sides[id].register(LEN, AccessFlags::all()));
        for [qpn, _] in pairs {
            let wr = SendWr::new(0, remote.write(), own.whole());
            sides[from].hca.post_send(qpn, wr).unwrap();
        }
    }
    link.run();
    for side in &link.pair.sides {
        assert_eq!(side.completions.len(), qps, "{} drops", link.drops());
        let mut statuses = side.completions.iter().map(|wc| wc.status);
        assert!(statuses.all(|status| status == WcStatus::Success));
        side.hca.audit();
    }
    assert_eq!(link.drops(), 0, "at most {} bytes", link.peak());
}

fn nothing_is_leased(leases: &LeaseTable) {
    assert!((0..=u8::MAX).all(|slot| !leases.is_held(slot)));
}

#[test]
fn two_processes_do_not_overload_one() {
    for qps in [1, 20, 1_000] {
        let leases = table();
        write_all(&mut link(leases).0, qps);
        nothing_is_leased(leases);
    }
}

/// Another process that has died, or sleeps, holds everything.
#[test]
fn a_process_that_gets_no_lease_still_makes_progress() {
    let leases = table();
    let (mut link, lacking) = link(leases);
    let peer = link.pair.sides[B].address;
    while leases.take(3, peer, u64::MAX, BOUND.into()) > 0 {}
    write_all(&mut link, 100);
    assert!(lacking.iter().all(|lacking| lacking.load(Relaxed)));
    leases.reclaim(3);
    let sides = &mut link.pair.sides;
    sides.iter_mut().for_each(|side| side.completions.clear());
    write_all(&mut link, 100);
    nothing_is_leased(leases);
}
