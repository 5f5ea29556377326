//! Devices survive the outages that the figures promise, and no longer ones.

use ferroce_adp::{Endurance, Profile, QpTimeouts, RawProfile, RawRange};
use ferroce_device::{AccessFlags, HcaConfig, Personality, QpAttr, SendWr, Span, WcStatus};
use ferroce_testing::register::{disable_floor, set_profile, switch_adaptive};
use ferroce_testing::{A, B, World, attr};
use proptest::prelude::*;

/// More than a round trip.
const ROUND_TRIP: Span = Span::from_micros(10);

/// The device's retransmission policy.
#[derive(Clone, Debug)]
enum Waits {
    Firmware,
    Ib,
    Profile(Profile),
}

fn any_waits() -> impl Strategy<Value = Waits> {
    let profile = (any::<bool>(), 10u8..22, 7u8..12, 0u8..4, 1u16..4);
    let profile = profile.prop_map(|(qp_total_timeout, total, low, range_size, uses)| {
        let mut raw = RawProfile {
            time_base: 4,
            range_num: 1,
            qp_total_timeout,
            retx_total_timeout: total,
            timeout_init_low_bound: low,
            timeout_init_range_size: range_size,
            ..RawProfile::EMPTY
        };
        raw.timeout_range[0] = RawRange {
            range_low_bound: low,
            range_size,
            timeout_retry_num: uses,
            ..RawRange::EMPTY
        };
        Waits::Profile(Profile::try_from(raw).unwrap())
    });
    prop_oneof![Just(Waits::Firmware), Just(Waits::Ib), profile]
}

struct Device {
    waits: Waits,
    floor: bool,
    config: HcaConfig,
    qp: QpTimeouts,
}

impl Device {
    /// A pair that has a connected queue pair each.
    fn pair(&self) -> (World, ferroce_wire::Qpn) {
        let mut pair = World::pair(self.config.clone());
        let hca = &mut pair.sides[A].hca;
        disable_floor(hca, !self.floor);
        match &self.waits {
            Waits::Firmware => {}
            Waits::Ib => switch_adaptive(hca, false),
            Waits::Profile(profile) => set_profile(hca, profile),
        }
        let qpns = [A, B].map(|id| pair.sides[id].create_qp());
        let QpTimeouts { timeout, retry_cnt } = self.qp;
        pair.connect(
            qpns,
            QpAttr {
                timeout,
                retry_cnt,
                ..attr()
            },
        );
        (pair, qpns[A])
    }

    fn endurance(&self) -> Endurance {
        let (pair, _) = self.pair();
        Endurance::of(pair.sides[A].hca.policy(), self.qp).unwrap()
    }

    /// The status of a WRITE posted into an outage of this length, and how long it took.
    fn fate(&self, outage: Span) -> (WcStatus, Span) {
        let (mut pair, qpn) = self.pair();
        let [own, peers] = [A, B].map(|id| pair.sides[id].register(64, AccessFlags::all()));
        let start = pair.now;
        pair.sides[B].deaf = true;
        pair.post(A, qpn, SendWr::new(1, peers.write(), own.whole()));
        pair.run_until(start.after(outage));
        pair.sides[B].deaf = false;
        pair.run();
        let completion = pair.sides[A].completions.last().unwrap();
        (completion.status, completion.timestamp.since(start))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn outages_are_survived_as_the_figures_say(
        waits in any_waits(), timeout in 8u8..19, retry_cnt in 0u8..8, floor: bool,
        ib_multiplier in 1u8..5, seed: u64, part in 1u64..99,
    ) {
        let device = Device {
            waits,
            floor,
            config: HcaConfig {
                seed,
                personality: Personality { ib_multiplier, ..Personality::default() },
                ..HcaConfig::default()
            },
            qp: QpTimeouts { timeout, retry_cnt },
        };
        let bounds = device.endurance();
        if bounds.survives > Span::ZERO {
            for outage in [bounds.survives / 100 * part, bounds.survives - ROUND_TRIP] {
                let (status, at) = device.fate(outage);
                prop_assert_eq!(status, WcStatus::Success, "{:?} of {:?}", outage, bounds);
                prop_assert!(at <= outage + bounds.resumes_within + ROUND_TRIP);
            }
        }
        let (status, at) = device.fate(bounds.survives_at_best + ROUND_TRIP);
        prop_assert_eq!(status, WcStatus::RetryExcErr, "{:?}", bounds);
        prop_assert!((bounds.gives_up_first..=bounds.gives_up_last).contains(&at), "{:?}", at);
    }
}

#[test]
fn an_error_record_has_the_wait_and_the_timeout_attributes() {
    let qp = QpTimeouts {
        timeout: 16,
        retry_cnt: 3,
    };
    let device = Device {
        waits: Waits::Ib,
        floor: true,
        config: HcaConfig::default(),
        qp,
    };
    let (mut pair, qpn) = device.pair();
    let own = pair.sides[A].register(64, AccessFlags::all());
    let peers = pair.sides[B].register(64, AccessFlags::all());
    pair.post(A, qpn, SendWr::new(1, peers.write(), own.whole()));
    pair.run();
    // Long after the previous request was acknowledged: the wait begins with the next one.
    pair.run_for(1_000_000_000);
    pair.sides[B].deaf = true;
    let start = pair.now;
    pair.post(A, qpn, SendWr::new(2, peers.write(), own.whole()));
    pair.run();
    let completion = pair.sides[A].completions.last().unwrap();
    assert_eq!(completion.status, WcStatus::RetryExcErr);
    let errors = pair.sides[A].hca.state().errors().last();
    let [error] = errors[..] else {
        panic!("one error: {errors:?}");
    };
    let connection = error.connection.expect("it was connected");
    assert_eq!(connection.timeouts, qp);
    let waited = completion.timestamp.since(start);
    assert!(connection.silent <= waited && connection.silent + ROUND_TRIP >= waited);
}
