//! Floods against two devices that exchange data: the connection survives, what is dropped is counted, and
//! neither memory nor descriptors grow.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ferroce_benches::flood::{
    Aim, Attacker, Effort, Flood, LEAST, Load, Origin, Outcome, Victims, quiet, under_fire,
};
use ferroce_device::Counter;
use ferroce_testing::skip;

const EFFORT: Effort = Effort {
    length: Duration::from_millis(20),
    rounds: 1,
};
/// The least number of packets that must be seen to have been dropped: others may find no room.
const DROPPED_MIN: u64 = LEAST / 4;
/// What a flood may leave in memory, KiB: the connection manager keeps 4,096 requests of a source, and a queue
/// pair 4 MiB that come before their turn.
const GROWN_KIB_MAX: i64 = 32 << 10;

/// The victims of all tests have the same addresses.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn victims(flood: Flood) -> Victims {
    let selective = flood.is_of_selective_repeat();
    Victims::open(Load {
        selective,
        ..Load::SHORT
    })
    .unwrap()
}

/// Where packets of an attacker with an address of its own end.
fn drop_of(flood: Flood) -> Option<Counter> {
    Some(match flood {
        // They are answered.
        Flood::NewRequests | Flood::SameRequest | Flood::Hellos => return None,
        Flood::Cnps => Counter::RpCnpIgnored,
        Flood::Garbage => Counter::RxMalformed,
        Flood::Damaged => Counter::RxIcrcEncapsulated,
        Flood::Datagrams => Counter::RxWrongQkey,
        Flood::Answers
        | Flood::FatalNaks
        | Flood::OldWrites
        | Flood::OldReads
        | Flood::EarlyWrites
        | Flood::Reports => Counter::RxWrongPeer,
    })
}

/// Floods victims, and checks what no flood may achieve.
fn survive(victims: &Victims, flood: Flood, origin: Origin) -> Outcome {
    let name = (flood.name(), origin.name());
    let outcome = under_fire(victims, flood, origin, EFFORT).unwrap();
    assert!(outcome.sent.packets >= LEAST, "{name:?}");
    assert_eq!(outcome.ended, None, "{name:?}");
    assert_eq!(outcome.opened, 0, "{name:?}");
    let grown = outcome.grown_kib;
    assert!(grown < GROWN_KIB_MAX, "{name:?}: {grown} KiB");
    let afterwards = victims.work(EFFORT.length).unwrap();
    assert_eq!(afterwards.ended, None, "{name:?}");
    assert!(victims.are_untouched(), "{name:?}");
    outcome
}

/// Checks that a victim sends no more than it is sent.
fn amplifies_nothing(flood: Flood, origin: Origin) {
    let reply = quiet(&victims(flood), flood, origin, LEAST).unwrap();
    let amplification = reply.amplification();
    let name = (flood.name(), origin.name());
    assert!(amplification <= 1.0, "{name:?}: {amplification}");
}

#[test]
fn floods_of_an_outsider_achieve_nothing() {
    let _alone = alone();
    for flood in Flood::ALL {
        amplifies_nothing(flood, Origin::Outsider);
        let victims = victims(flood);
        survive(&victims, flood, Origin::Outsider);
        if let Some(counter) = drop_of(flood) {
            let count = victims.count(flood.aim(), counter);
            assert!(count >= DROPPED_MIN, "{}: {count}", counter.name());
        }
        // No timers, nor anything else that slows it down.
        let handled = victims.count(Aim::Requester, Counter::RpCnpHandled);
        let timeouts = victims.count(Aim::Requester, Counter::RoceSlowRestartCnps);
        assert_eq!(handled, timeouts, "{}", flood.name());
    }
}

#[test]
fn floods_of_another_user_are_not_looked_at() {
    let _alone = alone();
    for flood in Flood::ALL {
        let victims = victims(flood);
        let outcome = survive(&victims, flood, Origin::User);
        let foreign = victims.count(flood.aim(), Counter::RxForeignSource);
        assert!(foreign >= DROPPED_MIN, "{}: {foreign}", flood.name());
        assert_eq!(outcome.sent.replied, 0, "{}", flood.name());
    }
}

/// Whether a guess can be right: an attacker at the peer's address who knows the queue pair hits its window
/// sooner or later.
fn guesses_psns(flood: Flood) -> bool {
    matches!(
        flood,
        Flood::Answers | Flood::FatalNaks | Flood::EarlyWrites | Flood::Reports
    )
}

#[test]
fn forged_floods_without_the_psn_end_no_connection() {
    let _alone = alone();
    let test = "forged_floods_without_the_psn_end_no_connection";
    let [own, peer] = [250, 251].map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)));
    match Attacker::new(Origin::Forged, own, peer) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return skip(test, "no raw sockets for this user");
        }
        outcome => drop(outcome.unwrap()),
    }
    for flood in Flood::ALL.into_iter().filter(|it| !guesses_psns(*it)) {
        amplifies_nothing(flood, Origin::Forged);
        survive(&victims(flood), flood, Origin::Forged);
    }
}
