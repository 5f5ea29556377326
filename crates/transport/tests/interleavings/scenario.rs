//! Random events for a pair.

use ferroce_adp::{AckTimeoutFloor, Policy, PolicyKind, Profile, RawProfile, RawRange};
use ferroce_testing::message::Kind;
use ferroce_transport::Mtu;
use proptest::prelude::*;

use crate::common::Repeat;

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) mtu: Mtu,
    pub(crate) psn: [u32; 2],
    pub(crate) window_packets: u32,
    pub(crate) rd_atomic: u8,
    pub(crate) srq: bool,
    pub(crate) repeat: [Repeat; 2],
    /// A sends over XRC, and B does not send.
    pub(crate) xrc: bool,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// The index of a [`policy`]; and when it changes, and to which one.
    pub(crate) policy: u8,
    pub(crate) new_policy: Option<(u64, u8)>,
    pub(crate) loss_per_mille: u32,
    pub(crate) duplicate_per_mille: u32,
    pub(crate) delay_per_mille: u32,
    pub(crate) delay_us_max: u64,
    /// Between two packets of one side.
    pub(crate) gap_ns: u64,
    /// When A drains its send queue, and for how long.
    pub(crate) drain_us: Option<(u64, u64)>,
    /// When the connection is advanced, and by how many messages of A (0) or B (1).
    pub(crate) ages: Vec<(u64, usize, u32)>,
    /// From A and from B.
    pub(crate) messages: [Vec<Message>; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// Full packets, and this number of bytes more or less.
    pub(crate) packets: u32,
    pub(crate) delta: i32,
    pub(crate) place: u32,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) inline: bool,
    /// Where the scatter/gather list is cut, in thousandths of the length.
    pub(crate) cuts: Vec<u32>,
    /// The time from the previous message until it is posted, and until its receive is.
    pub(crate) wait_us: u64,
    pub(crate) recv_wait_us: u64,
}

impl Message {
    pub(crate) fn len(&self, mtu: Mtu) -> u32 {
        if self.kind == Kind::BindMw {
            0
        } else if self.kind.is_atomic() {
            8
        } else {
            (self.packets * mtu.bytes()).saturating_add_signed(self.delta)
        }
    }
}

fn message() -> impl Strategy<Value = Message> {
    use Kind::*;
    let kind = prop::sample::select(vec![
        Send,
        SendImm,
        SendInvalidate,
        Write,
        WriteImm,
        Read,
        Read,
        CompareSwap,
        FetchAdd,
        BindMw,
    ]);
    let wait = || prop_oneof![4 => Just(0), 1 => 0..2000_u64];
    (
        kind,
        (0..6_u32, -3..=3_i32, any::<u32>()),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        prop::collection::vec(0..=1000_u32, 0..3),
        (wait(), wait()),
    )
        .prop_map(
            |(kind, size, flags, cuts, (wait_us, recv_wait_us))| Message {
                kind,
                packets: size.0,
                delta: size.1,
                place: size.2,
                signaled: flags.0,
                fence: flags.1,
                inline: flags.2,
                cuts,
                wait_us,
                recv_wait_us,
            },
        )
}

/// Around a quarter, a half and all of the PSNs, or any distance.
fn age() -> impl Strategy<Value = (u64, usize, u32)> {
    let lap = 1_u32 << 24;
    let mark = prop::sample::select(vec![lap / 4, lap / 2, lap, lap / 2 * 3]);
    let about = (mark, 0..64_u32).prop_map(|(mark, off)| mark + 16 - off);
    let distance = prop_oneof![3 => about, 1 => any::<u32>()];
    (0..4000_u64, 0..2_usize, distance)
}

pub(crate) fn scenario() -> impl Strategy<Value = Scenario> {
    let messages = || prop::collection::vec(message(), 0..12);
    let psn = || prop_oneof![0..1_u32 << 24, 0xff_ffe0..0x100_0000_u32];
    let some_per_mille = |max: u32| prop_oneof![1 => Just(0), 3 => 0..max];
    (
        any::<u64>(),
        (
            prop::sample::select(Mtu::ALL.to_vec()),
            [psn(), psn()],
            1..24_u32,
            1..4_u8,
            any::<bool>(),
            prop::bool::weighted(0.25),
            prop_oneof![Just(0_u64), 0..3000_u64],
            repeat(),
        ),
        (6..10_u8, 3..8_u8, prop_oneof![1 => 1..7_u8, 3 => Just(7)]),
        (0..POLICIES, prop::option::of((0..4000_u64, 0..POLICIES))),
        (
            some_per_mille(150),
            some_per_mille(150),
            some_per_mille(200),
            1..400_u64,
        ),
        prop::option::of((0..3000_u64, 1..3000_u64)),
        prop_oneof![Just(Vec::new()), prop::collection::vec(age(), 1..4)],
        [messages(), messages()],
    )
        .prop_map(
            |(seed, shape, retries, policies, wire, drain_us, ages, [from_a, from_b])| Scenario {
                seed,
                mtu: shape.0,
                psn: shape.1,
                window_packets: shape.2,
                rd_atomic: shape.3,
                srq: shape.4 || shape.5,
                xrc: shape.5,
                gap_ns: shape.6,
                repeat: shape.7,
                timeout: retries.0,
                retry_cnt: retries.1,
                rnr_retry: retries.2,
                policy: policies.0,
                new_policy: policies.1,
                loss_per_mille: wire.0,
                duplicate_per_mille: wire.1,
                delay_per_mille: wire.2,
                delay_us_max: wire.3,
                drain_us,
                ages,
                messages: [from_a, if shape.5 { Vec::new() } else { from_b }],
            },
        )
}

/// Mostly selectively; also with a peer that does not.
fn repeat() -> impl Strategy<Value = [Repeat; 2]> {
    use Repeat::{Agreed, Forced, GoBack, RoutedAgreed, RoutedForced};
    prop::sample::select(vec![
        [GoBack, GoBack],
        [Forced, GoBack],
        [GoBack, Forced],
        [Forced, Forced],
        [Forced, Forced],
        [Agreed, Agreed],
        [Agreed, Agreed],
        [RoutedForced, GoBack],
        [Forced, RoutedForced],
        [RoutedForced, RoutedForced],
        [RoutedAgreed, RoutedAgreed],
        [RoutedAgreed, RoutedAgreed],
    ])
}

const POLICIES: u8 = 4;

/// One of the retransmission policies; the waits are short, as the wire is.
pub(crate) fn policy(index: u8, seed: u64) -> Policy {
    let kind = match index {
        0 => PolicyKind::IB,
        1 => PolicyKind::Firmware {
            quantiser: true,
            initial_exponent: Some(6),
        },
        _ => PolicyKind::Profile(profile(index == 3)),
    };
    Policy {
        floor: match index {
            1 => AckTimeoutFloor::Enforced(7),
            _ => AckTimeoutFloor::Disabled,
        },
        seed,
        ..Policy::new(kind)
    }
}

fn profile(qp_total_timeout: bool) -> Profile {
    let mut raw = RawProfile {
        time_base: 4,
        range_num: 2,
        qp_total_timeout,
        retx_total_timeout: 13,
        timeout_init_low_bound: 5,
        timeout_init_range_size: 2,
        ..RawProfile::EMPTY
    };
    raw.timeout_range[0] = RawRange {
        range_low_bound: 5,
        range_size: 1,
        timeout_retry_num: 2,
        ..RawRange::EMPTY
    };
    raw.timeout_range[1] = RawRange {
        range_low_bound: 7,
        range_size: 3,
        timeout_retry_num: 1,
        ..RawRange::EMPTY
    };
    Profile::try_from(raw).unwrap()
}
