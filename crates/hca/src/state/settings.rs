use ferroce_adp::DecTrigger;
use ferroce_dcqcn::{CongestionPoint, Param, Params, Rate};
use ferroce_transport::Time;

use super::{Function, SavedSettings};
use crate::device::Personality;
use crate::impair::{Blackout, Bottleneck, BurstLoss, Direction, Impairment};
use crate::register::{Accelerations, ROCE_ACCL_BYTES};

/// Words of [`Settings`] in shared memory.
pub(super) const WORDS: usize =
    ROCE_ACCL_WORDS + 1 + 2 * IMPAIRMENT_WORDS + PARAM_WORDS + FUNCTION_WORDS;

const ROCE_ACCL_WORDS: usize = ROCE_ACCL_BYTES / 8;
const IMPAIRMENT_WORDS: usize = 14 + 2 * Impairment::BLACKOUTS_MAX;
const PARAM_WORDS: usize = Param::ALL.len().div_ceil(2);
const FUNCTION_WORDS: usize = 2;

/// Everything about a device that is set, not counted.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settings {
    /// All functions' part of the register; see [`Self::accelerations`].
    pub(super) roce_accl: [u8; ROCE_ACCL_BYTES],
    /// `min_ack_timeout_limit_disabled` of each function: bit n is that of vhca_id n.
    floor_disabled: u128,
    pub(crate) personality: Personality,
    pub(crate) egress: Impairment,
    pub(crate) ingress: Impairment,
    pub(crate) congestion: Params,
}

impl Settings {
    /// After power-on.
    pub(crate) fn reset(personality: Personality) -> Self {
        Self {
            roce_accl: Accelerations::reset(personality.adaptive).into_bytes(),
            floor_disabled: 0,
            personality,
            egress: Impairment::default(),
            ingress: Impairment::default(),
            congestion: Params::default(),
        }
    }

    pub(crate) fn impairment(&self, direction: Direction) -> &Impairment {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// ROCE_ACCL after power-on, for all functions.
    pub(super) fn reset_registers(&mut self) {
        self.roce_accl = Accelerations::reset(self.personality.adaptive).into_bytes();
        self.floor_disabled = 0;
    }

    pub(super) fn forget_vfs(&mut self, from: u8) {
        let kept = u32::from(from) + 1;
        self.floor_disabled &= 1u128.checked_shl(kept).map_or(u128::MAX, |bit| bit - 1);
    }

    /// ROCE_ACCL as a function sees it: one register for the card, but for the bit that is each
    /// function's own.
    pub(crate) fn accelerations(&self, function: &Function) -> Accelerations {
        let mut register = Accelerations::from_bytes(self.roce_accl);
        register.set_floor_disabled(self.floor_disabled & bit(function) != 0);
        register
    }

    /// Takes over ROCE_ACCL as a function has changed it.
    pub(super) fn set_accelerations(&mut self, function: &Function, mut register: Accelerations) {
        self.floor_disabled &= !bit(function);
        if register.floor_disabled() {
            self.floor_disabled |= bit(function);
        }
        register.set_floor_disabled(false);
        self.roce_accl = register.into_bytes();
    }

    pub(super) fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (registers, rest) = words.split_at_mut(ROCE_ACCL_WORDS);
        let (dwords, _) = self.roce_accl.as_chunks::<8>();
        for (word, bytes) in registers.iter_mut().zip(dwords) {
            *word = u64::from_be_bytes(*bytes);
        }
        rest[0] = pack_personality(&self.personality);
        let (egress, rest) = rest[1..].split_at_mut(IMPAIRMENT_WORDS);
        let (ingress, rest) = rest.split_at_mut(IMPAIRMENT_WORDS);
        let (congestion, functions) = rest.split_at_mut(PARAM_WORDS);
        pack_impairment(&self.egress, egress);
        pack_impairment(&self.ingress, ingress);
        pack_congestion(&self.congestion, congestion);
        functions.copy_from_slice(&[
            self.floor_disabled as u64,
            (self.floor_disabled >> 64) as u64,
        ]);
        words
    }

    /// Other processes of the user can write the memory: values that make no sense are replaced by
    /// ones that do.
    pub(super) fn from_words(words: &[u64; WORDS]) -> Self {
        let (registers, rest) = words.split_at(ROCE_ACCL_WORDS);
        let mut roce_accl = [0; ROCE_ACCL_BYTES];
        for (bytes, word) in roce_accl.chunks_exact_mut(8).zip(registers) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        let (egress, tail) = rest[1..].split_at(IMPAIRMENT_WORDS);
        let (ingress, tail) = tail.split_at(IMPAIRMENT_WORDS);
        let (congestion, functions) = tail.split_at(PARAM_WORDS);
        Self {
            roce_accl,
            floor_disabled: u128::from(functions[0]) | u128::from(functions[1]) << 64,
            personality: unpack_personality(rest[0]),
            egress: unpack_impairment(egress),
            ingress: unpack_impairment(ingress),
            congestion: unpack_congestion(congestion),
        }
    }
}

impl SavedSettings {
    /// The settings in a form that the same release reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.0.to_words();
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Settings from what [`Self::to_bytes`] made; `None` if the length is another.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let words = <&[u64; WORDS]>::try_from(words.as_slice()).ok()?;
        rest.is_empty().then(|| Self(Settings::from_words(words)))
    }
}

/// The function's place in [`Settings::floor_disabled`].
fn bit(function: &Function) -> u128 {
    1 << function.vhca_id()
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
}

fn unpack_personality(word: u64) -> Personality {
    let bit = |n: u32| word >> n & 1 == 1;
    Personality {
        adaptive: bit(32),
        ib_multiplier: (word as u8).clamp(1, 4),
        min_ack_timeout: ((word >> 8) as u8).min(31),
        quantiser: bit(33),
        initial_exponent: ((word >> 16) as u16)
            .checked_sub(1)
            .map(|e| e.min(31) as u8),
        dec_trigger: if bit(34) {
            DecTrigger::PerRecovery
        } else {
            DecTrigger::PerProgress
        },
        range_bound_exclusive: bit(35),
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
        it.delay_ns,
        it.jitter_ns,
        it.reorder.to_bits(),
        it.reorder_ns,
        it.blackouts.len() as u64,
        queue.map_or(0, |queue| queue.rate.bps()), // 0 stands for no bottleneck
        queue.map_or(0, |queue| queue.limit_bytes.into()) | u64::from(ppm) << 32,
        red.map_or(0, |red| u64::from(red.kmin()) | u64::from(red.kmax()) << 32),
    ];
    let (head, tail) = words.split_at_mut(fixed.len());
    head.copy_from_slice(&fixed);
    for (pair, blackout) in tail.chunks_exact_mut(2).zip(&it.blackouts) {
        pair.copy_from_slice(&[blackout.from.as_nanos(), blackout.length_ns]);
    }
}

fn unpack_impairment(words: &[u64]) -> Impairment {
    let (head, tail) = words.split_at(IMPAIRMENT_WORDS - 2 * Impairment::BLACKOUTS_MAX);
    let float = |n: usize| f64::from_bits(head[n]);
    let blackouts = tail.chunks_exact(2).map(|pair| Blackout {
        from: Time::from_nanos(pair[0]),
        length_ns: pair[1],
    });
    let impairment = Impairment {
        loss: float(0),
        burst: (float(2) != 0.0).then(|| BurstLoss {
            enter: float(1),
            mean_length: float(2),
        }),
        duplicate: float(3),
        corrupt: float(4),
        ecn_mark: float(5),
        bottleneck: unpack_bottleneck([head[11], head[12], head[13]]),
        delay_ns: head[6],
        jitter_ns: head[7],
        reorder: float(8),
        reorder_ns: head[9],
        blackouts: blackouts.take(head[10] as usize).collect(),
    };
    if impairment.check().is_ok() {
        impairment
    } else {
        Impairment::default()
    }
}

/// In the place of the share of packets that are marked, where none is.
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

#[cfg(test)]
mod tests {
    use ferroce_dcqcn::presets;
    use proptest::prelude::*;

    use super::*;

    fn settings() -> Settings {
        let text = "loss=1%,burst=0.1%:20,duplicate=0.1%,corrupt=0.01%,ecn=5%,rate=1Gbit,\
                    red=5KB:200KB:1%,limit=1MB,delay=50us,jitter=10us,reorder=0.5%:200us,down=200ms@3s,down=1s@10s";
        Settings {
            floor_disabled: 5 << 100 | 1,
            egress: text.parse().unwrap(),
            congestion: presets::BARRE.params().with(Param::HaiRate, u32::MAX),
            ..Settings::reset(Personality {
                ib_multiplier: 3,
                quantiser: true,
                initial_exponent: Some(0),
                dec_trigger: DecTrigger::PerRecovery,
                ..Personality::default()
            })
        }
    }

    #[test]
    fn everything_comes_back() {
        for settings in [settings(), Settings::reset(Personality::default())] {
            assert_eq!(Settings::from_words(&settings.to_words()), settings);
            let saved = SavedSettings(settings);
            let bytes = saved.to_bytes();
            assert_eq!(SavedSettings::from_bytes(&bytes), Some(saved));
            assert_eq!(SavedSettings::from_bytes(&bytes[1..]), None);
        }
    }

    proptest! {
        /// Garbage in shared memory becomes settings that a device can have.
        #[test]
        fn any_words_are_some_settings(
            at in prop::collection::vec((0..WORDS, any::<u64>()), 1..20),
        ) {
            let mut words = settings().to_words();
            for (index, word) in at {
                words[index] = word;
            }
            let settings = Settings::from_words(&words);
            prop_assert!(settings.egress.check().is_ok() && settings.ingress.check().is_ok());
            prop_assert!((1..=4).contains(&settings.personality.ib_multiplier));
            prop_assert_eq!(Settings::from_words(&settings.to_words()), settings);
        }
    }
}
