//! Processes of one device share what a peer takes.

use std::sync::Arc;

use ferroce_hca::{
    AccessFlags, CounterSlab, DeviceState, Function, Hca, HcaConfig, Identity, LeaseTable,
    LocalSettings, MappedState, Personality, SendWr, Settings, WcStatus, Window,
};

use crate::link::{Link, Receiver, without_timeout};
use ferroce_testing::{A, B, Side, config};

const LEN: usize = 64 << 10;
const BOUND: u32 = 1 << 20;

/// What the processes of a device share.
#[derive(Clone, Copy)]
struct Shared {
    memory: MappedState,
    settings: &'static LocalSettings,
}

impl Shared {
    fn state(self, slot: u8) -> DeviceState {
        let (function, identity) = (Function::default(), Identity::default());
        let settings = Arc::new(self.settings);
        DeviceState::mapped(self.memory, settings, function, slot, identity).unwrap()
    }
}

fn shared() -> Shared {
    let settings = Arc::new(Settings::new(Personality::default()));
    let settings: &'static LocalSettings = Box::leak(Box::new(LocalSettings::new(settings)));
    let memory = MappedState {
        generation: settings.generation_cell(),
        block: Box::leak(Box::default()),
        vfs: &[],
        slabs: Vec::leak((0..4).map(|_| CounterSlab::default()).collect()),
        leases: Box::leak(Box::default()),
        errors: Box::leak(Box::default()),
    };
    Shared { memory, settings }
}

/// The owner of a slot.
fn process(shared: Shared, slot: u8) -> Hca {
    let config = HcaConfig {
        slot,
        total_window_bytes: BOUND,
        window: Window::Fixed(BOUND),
        ..config()
    };
    Hca::with_state(config, shared.state(slot))
}

/// Two processes on a link; both write to the second, whose buffer has room for what one may send.
fn link(shared: Shared) -> Link {
    let receiver = Receiver {
        buffer: u64::from(BOUND) * 5 / 4,
        ..Receiver::default()
    };
    let mut link = Link::new(config(), [receiver; 2]);
    link.pair.sides = [1, 2]
        .map(|slot| Side::on(slot, process(shared, slot)))
        .into();
    link
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
fn two_processes_do_not_drown_one() {
    for qps in [1, 20, 1_000] {
        let shared = shared();
        write_all(&mut link(shared), qps);
        nothing_is_leased(shared.memory.leases);
    }
}

/// One that has died, or sleeps, has everything.
#[test]
fn leases_of_another_process_stop_no_queue_pair() {
    let shared = shared();
    let leases = shared.memory.leases;
    let mut link = link(shared);
    let peer = link.pair.sides[B].address;
    while leases.take(3, peer, u64::MAX, BOUND.into()) > 0 {}
    write_all(&mut link, 100);
    let mut lack = |id: usize| link.pair.sides[id].hca.take_lacks_lease();
    assert!(lack(A) && lack(B));
    leases.reclaim(3);
    let sides = &mut link.pair.sides;
    sides.iter_mut().for_each(|side| side.completions.clear());
    write_all(&mut link, 100);
    nothing_is_leased(leases);
}
