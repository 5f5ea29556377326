//! Settings as words: in the shared file, and in records of this release.

use ferroce_adp::DecTrigger;
use ferroce_dcqcn::{CongestionPoint, Param, Params, Rate};
use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::impair::{Blackout, Bottleneck, BurstLoss};
use ferroce_device::{
    Impairment, Personality, ROCE_ACCL_BYTES, Settings, SettingsParts, Span, Time,
};

/// Words of [`Settings`].
pub(crate) const WORDS: usize =
    ROCE_ACCL_WORDS + 1 + 2 * IMPAIRMENT_WORDS + 2 * PARAM_WORDS + FUNCTION_WORDS + SCHEDULE_WORDS;

const ROCE_ACCL_WORDS: usize = ROCE_ACCL_BYTES / 8;
const IMPAIRMENT_WORDS: usize = 15 + 2 * Impairment::BLACKOUTS_MAX;
const PARAM_WORDS: usize = Param::ALL.len().div_ceil(2);
const FUNCTION_WORDS: usize = 2;
const OUTAGES_WORDS: usize = 4;
const SCHEDULE_WORDS: usize = 1 + OUTAGES_WORDS * Schedule::LEN_MAX;

/// The settings in a form that the same release reads.
pub fn settings_to_bytes(settings: &Settings) -> Vec<u8> {
    let words = to_words(settings);
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Settings from what [`settings_to_bytes`] made; `None` if the length is another.
pub fn settings_from_bytes(bytes: &[u8]) -> Option<Settings> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let words = <&[u64; WORDS]>::try_from(words.as_slice()).ok()?;
    rest.is_empty().then(|| from_words(words))
}

pub(super) fn to_words(settings: &Settings) -> [u64; WORDS] {
    let parts = settings.to_parts();
    let mut words = [0; WORDS];
    let (registers, rest) = words.split_at_mut(ROCE_ACCL_WORDS);
    let (dwords, _) = parts.roce_accl.as_chunks::<8>();
    for (word, bytes) in registers.iter_mut().zip(dwords) {
        *word = u64::from_be_bytes(*bytes);
    }
    rest[0] = pack_personality(&parts.personality);
    let (egress, rest) = rest[1..].split_at_mut(IMPAIRMENT_WORDS);
    let (ingress, rest) = rest.split_at_mut(IMPAIRMENT_WORDS);
    let (congestion, rest) = rest.split_at_mut(PARAM_WORDS);
    let (nvconfig, rest) = rest.split_at_mut(PARAM_WORDS);
    let (functions, schedule) = rest.split_at_mut(FUNCTION_WORDS);
    pack_impairment(&parts.egress, egress);
    pack_impairment(&parts.ingress, ingress);
    pack_congestion(&parts.congestion, congestion);
    pack_congestion(&parts.nvconfig, nvconfig);
    let floors = parts.floor_disabled;
    functions.copy_from_slice(&[floors as u64, (floors >> 64) as u64]);
    pack_schedule(&parts.schedule, schedule);
    words
}

/// Other processes of the user can write the memory: values that make no sense are replaced by
/// ones that do.
pub(super) fn from_words(words: &[u64; WORDS]) -> Settings {
    let (registers, rest) = words.split_at(ROCE_ACCL_WORDS);
    let mut roce_accl = [0; ROCE_ACCL_BYTES];
    for (bytes, word) in roce_accl.chunks_exact_mut(8).zip(registers) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    let (egress, tail) = rest[1..].split_at(IMPAIRMENT_WORDS);
    let (ingress, tail) = tail.split_at(IMPAIRMENT_WORDS);
    let (congestion, tail) = tail.split_at(PARAM_WORDS);
    let (nvconfig, tail) = tail.split_at(PARAM_WORDS);
    let (functions, schedule) = tail.split_at(FUNCTION_WORDS);
    Settings::from_parts(SettingsParts {
        roce_accl,
        floor_disabled: u128::from(functions[0]) | u128::from(functions[1]) << 64,
        personality: unpack_personality(rest[0]),
        egress: unpack_impairment(egress),
        ingress: unpack_impairment(ingress),
        congestion: unpack_congestion(congestion),
        nvconfig: unpack_congestion(nvconfig),
        schedule: unpack_schedule(schedule),
    })
}

fn pack_personality(it: &Personality) -> u64 {
    let exponent = it.initial_exponent.map_or(0, |e| u64::from(e) + 1);
    u64::from(it.ib_multiplier)
        | u64::from(it.min_ack_timeout) << 8
        | exponent << 16
        | u64::from(it.adaptive) << 32
        | u64::from(it.quantiser) << 33
        | u64::from(it.dec_trigger == DecTrigger::PerRecovery) << 34
        | u64::from(it.range_bound_exclusive) << 35
        | u64::from(it.rnr_ticks) << 36
        | u64::from(it.slow_restart) << 37
        | u64::from(it.extended_retry_count.is_some()) << 38
        | u64::from(it.extended_retry_count.unwrap_or(0)) << 40
}

fn unpack_personality(word: u64) -> Personality {
    let bit = |n: u32| word >> n & 1 == 1;
    Personality {
        adaptive: bit(32),
        ib_multiplier: word as u8,
        min_ack_timeout: (word >> 8) as u8,
        quantiser: bit(33),
        initial_exponent: ((word >> 16) as u16).checked_sub(1).map(|e| e as u8),
        dec_trigger: if bit(34) {
            DecTrigger::PerRecovery
        } else {
            DecTrigger::PerProgress
        },
        range_bound_exclusive: bit(35),
        rnr_ticks: bit(36),
        slow_restart: bit(37),
        extended_retry_count: bit(38).then_some((word >> 40) as u8),
    }
}

fn pack_impairment(it: &Impairment, words: &mut [u64]) {
    let burst = it.burst.unwrap_or(BurstLoss {
        enter: 0.0,
        mean_length: 0.0,
    });
    let queue = it.bottleneck;
    let red = queue.and_then(|queue| queue.red);
    let ppm = red.map_or(NO_RED, |red| red.pmax_ppm());
    let fixed = [
        it.loss.to_bits(),
        burst.enter.to_bits(),
        burst.mean_length.to_bits(), // 0 stands for no bursts
        it.duplicate.to_bits(),
        it.corrupt.to_bits(),
        it.ecn_mark.to_bits(),
        it.delay.as_nanos(),
        it.jitter.as_nanos(),
        it.reorder.to_bits(),
        it.reorder_by.as_nanos(),
        it.blackouts.len() as u64,
        queue.map_or(0, |queue| queue.rate.bps()), // 0 stands for no bottleneck
        queue.map_or(0, |queue| queue.limit_bytes.into()) | u64::from(ppm) << 32,
        red.map_or(0, |red| u64::from(red.kmin()) | u64::from(red.kmax()) << 32),
        it.carrier.into(),
    ];
    let (head, tail) = words.split_at_mut(fixed.len());
    head.copy_from_slice(&fixed);
    for (pair, blackout) in tail.chunks_exact_mut(2).zip(&it.blackouts) {
        pair.copy_from_slice(&[blackout.from.as_nanos(), blackout.length.as_nanos()]);
    }
}

fn unpack_impairment(words: &[u64]) -> Impairment {
    let (head, tail) = words.split_at(IMPAIRMENT_WORDS - 2 * Impairment::BLACKOUTS_MAX);
    let float = |n: usize| f64::from_bits(head[n]);
    let blackouts = tail.chunks_exact(2).map(|pair| Blackout {
        from: Time::from_nanos(pair[0]),
        length: Span::from_nanos(pair[1]),
    });
    Impairment {
        loss: float(0),
        burst: (float(2) != 0.0).then(|| BurstLoss {
            enter: float(1),
            mean_length: float(2),
        }),
        duplicate: float(3),
        corrupt: float(4),
        ecn_mark: float(5),
        bottleneck: unpack_bottleneck([head[11], head[12], head[13]]),
        delay: Span::from_nanos(head[6]),
        jitter: Span::from_nanos(head[7]),
        reorder: float(8),
        reorder_by: Span::from_nanos(head[9]),
        blackouts: blackouts.take(head[10] as usize).collect(),
        carrier: head[14] == 1,
    }
}

/// Instead of the share of packets that are marked, where none is.
const NO_RED: u32 = u32::MAX;

fn unpack_bottleneck([bps, limit, thresholds]: [u64; 3]) -> Option<Bottleneck> {
    let (kmin, kmax, ppm) = (
        thresholds as u32,
        (thresholds >> 32) as u32,
        (limit >> 32) as u32,
    );
    (bps != 0).then(|| Bottleneck {
        rate: Rate::from_bps(bps),
        limit_bytes: limit as u32,
        red: CongestionPoint::new(kmin, kmax, ppm).ok(),
    })
}

/// Two parameters to a word.
fn pack_congestion(it: &Params, words: &mut [u64]) {
    for (word, pair) in words.iter_mut().zip(Param::ALL.chunks(2)) {
        let value = |n: usize| pair.get(n).map_or(0, |param| u64::from(it.get(*param)));
        *word = value(0) | value(1) << 32;
    }
}

fn unpack_congestion(words: &[u64]) -> Params {
    let mut params = Params::default();
    for (word, pair) in words.iter().zip(Param::ALL.chunks(2)) {
        for (param, shift) in pair.iter().zip([0, 32]) {
            params.set_clipped(*param, (word >> shift) as u32);
        }
    }
    params
}

/// How many, then four words for each.
fn pack_schedule(it: &Schedule, words: &mut [u64]) {
    let (head, tail) = words.split_at_mut(1);
    head[0] = it.outages().len() as u64;
    for (words, it) in tail.chunks_exact_mut(OUTAGES_WORDS).zip(it.outages()) {
        let times = [
            it.first.as_nanos(),
            it.length.as_nanos(),
            it.every.as_nanos(),
        ];
        words[..3].copy_from_slice(&times);
        words[3] = it.times.into();
    }
}

fn unpack_schedule(words: &[u64]) -> Schedule {
    let (head, tail) = words.split_at(1);
    let outages = tail.chunks_exact(OUTAGES_WORDS).map(|words| Outages {
        first: Time::from_nanos(words[0]),
        length: Span::from_nanos(words[1]),
        every: Span::from_nanos(words[2]),
        times: words[3] as u32,
    });
    let len = head[0].min(Schedule::LEN_MAX as u64) as usize;
    Schedule::new(outages.take(len).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ferroce_dcqcn::presets;
    use ferroce_device::Direction;
    use proptest::prelude::*;

    use super::*;

    fn settings() -> Settings {
        let text = "loss=1%,burst=0.1%:20,duplicate=0.1%,corrupt=0.01%,ecn=5%,rate=1Gbit,\
                    red=5KB:200KB:1%,limit=1MB,delay=50us,jitter=10us,reorder=0.5%:200us,down=200ms@3s,down=1s@10s,carrier";
        let personality = Personality {
            ib_multiplier: 3,
            quantiser: true,
            initial_exponent: Some(0),
            extended_retry_count: Some(0),
            dec_trigger: DecTrigger::PerRecovery,
            rnr_ticks: true,
            slow_restart: false,
            ..Personality::default()
        };
        Settings::from_parts(SettingsParts {
            floor_disabled: 5 << 100 | 1,
            egress: crate::impairment::parse(text).unwrap(),
            schedule: Schedule::new(vec![
                Outages {
                    first: Time::from_nanos(5),
                    length: Span::from_millis(200),
                    every: Span::from_secs(2),
                    times: 10,
                },
                Outages::once(Time::from_nanos(7), Span::NEVER),
            ])
            .unwrap(),
            congestion: presets::BARRE.params().with(Param::HaiRate, u32::MAX),
            nvconfig: Params::default().with(Param::NpPrioMask, 5),
            ..Settings::new(personality).to_parts()
        })
    }

    #[test]
    fn everything_comes_back() {
        for settings in [settings(), Settings::new(Personality::default())] {
            assert_eq!(from_words(&to_words(&settings)), settings);
            let bytes = settings_to_bytes(&settings);
            assert_eq!(settings_from_bytes(&bytes), Some(settings));
            assert_eq!(settings_from_bytes(&bytes[1..]), None);
        }
    }

    proptest! {
        /// Garbage in shared memory becomes settings that a device can have.
        #[test]
        fn any_words_are_some_settings(
            at in prop::collection::vec((0..WORDS, any::<u64>()), 1..20),
        ) {
            let mut words = to_words(&settings());
            for (index, word) in at {
                words[index] = word;
            }
            let settings = from_words(&words);
            for direction in [Direction::Egress, Direction::Ingress] {
                prop_assert!(settings.impairment(direction).check().is_ok());
            }
            prop_assert!((1..=4).contains(&settings.personality().ib_multiplier));
            prop_assert_eq!(from_words(&to_words(&settings)), settings);
        }
    }
}
