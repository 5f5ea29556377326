//! The keys of a profile file: the values that each accepts, and the field it sets.

use crate::raw::{RawProfile, RawRange};

/// A key of a profile file, which fills an `F`.
#[derive(Debug)]
pub(super) struct Key<F> {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    pub(super) needed: Needed,
    pub(super) field: F,
    /// What it means, one sentence.
    pub(super) doc: &'static str,
}

/// What a [`Key`] takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    /// `true` or `false`.
    Boolean,
    /// A `dec_mode` word, or its number.
    DecMode,
    /// An integer. A device accepts these.
    Integer { min: u16, max: u16 },
    /// A base of time.
    PowerOfTwo,
    /// The `[[timeout_range]]` tables.
    Ranges,
}

impl Takes {
    /// The largest integer that a device accepts.
    pub(super) const fn max(self) -> u16 {
        match self {
            Self::Boolean => 1,
            Self::DecMode => 2,
            Self::Integer { max, .. } => max,
            Self::PowerOfTwo => 1 << 15,
            Self::Ranges => 0,
        }
    }
}

/// When a file must have a [`Key`]. Each but the first comes with a line that shows it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Needed {
    No,
    Always(&'static str),
    /// If `qp_total_timeout = false`.
    WithoutQpTotal(&'static str),
    /// But if `range_num = 0`, which is refused for its value.
    UnlessNone(&'static str),
}

/// What a key outside the ranges fills.
#[derive(Debug)]
pub(super) enum Header {
    Field(Field<RawProfile>),
    RangeNum,
    Ranges,
}

/// A field of a `T`.
#[derive(Debug)]
pub(super) enum Field<T> {
    Flag(fn(&mut T) -> &mut bool),
    Byte(fn(&mut T) -> &mut u8),
    Half(fn(&mut T) -> &mut u16),
}

impl<T> Field<T> {
    /// The largest value it can hold.
    pub(super) const fn max(&self) -> u16 {
        match self {
            Self::Flag(_) => 1,
            Self::Byte(_) => u8::MAX as u16,
            Self::Half(_) => u16::MAX,
        }
    }

    /// Sets it to a value that it can hold, or to the nearest.
    pub(super) fn set(&self, to: &mut T, value: u16) {
        match self {
            Self::Flag(of) => *of(to) = value != 0,
            Self::Byte(of) => *of(to) = u8::try_from(value).unwrap_or(u8::MAX),
            Self::Half(of) => *of(to) = value,
        }
    }
}

/// Whether any table has the key.
pub(super) fn is_known(name: &str) -> bool {
    HEADER.iter().any(|key| key.name == name) || RANGE.iter().any(|key| key.name == name)
}

/// The keys outside the ranges.
pub(super) const HEADER: &[Key<Header>] = &[
    Key {
        name: "time_base",
        takes: Takes::PowerOfTwo,
        needed: Needed::Always("time_base = 4"),
        field: Header::Field(Field::Half(|it| &mut it.time_base)),
        doc: "Base of all durations in microseconds, a power of two; exponent n means time_base << n.",
    },
    Key {
        name: "time_unit",
        takes: Takes::Integer { min: 1, max: 1 },
        needed: Needed::No,
        field: Header::Field(Field::Byte(|it| &mut it.time_unit)),
        doc: "Unit of time_base; 1 is microseconds, the only one there is.",
    },
    Key {
        name: "qp_total_timeout",
        takes: Takes::Boolean,
        needed: Needed::Always("qp_total_timeout = true"),
        field: Header::Field(Field::Flag(|it| &mut it.qp_total_timeout)),
        doc: "Whether the QP's timeout * retry_cnt limits an outage, or retx_total_timeout does.",
    },
    Key {
        name: "retx_total_timeout",
        takes: Takes::Integer { min: 0, max: 255 },
        needed: Needed::WithoutQpTotal("retx_total_timeout = 20"),
        field: Header::Field(Field::Byte(|it| &mut it.retx_total_timeout)),
        doc: "Exponent of the longest outage; needed when qp_total_timeout is false.",
    },
    Key {
        name: "range_num",
        takes: Takes::Integer { min: 1, max: 4 },
        needed: Needed::No,
        field: Header::RangeNum,
        doc: "How many [[timeout_range]] tables are in use; all of them when left out.",
    },
    Key {
        name: "start_range_index",
        takes: Takes::Integer { min: 0, max: 3 },
        needed: Needed::No,
        field: Header::Field(Field::Byte(|it| &mut it.start_range_index)),
        doc: "The range that follows an initial timeout outside every range.",
    },
    Key {
        name: "timeout_init_low_bound",
        takes: Takes::Integer { min: 0, max: 255 },
        needed: Needed::Always("timeout_init_low_bound = 8"),
        field: Header::Field(Field::Byte(|it| &mut it.timeout_init_low_bound)),
        doc: "The smallest exponent of the initial timeout.",
    },
    Key {
        name: "timeout_init_range_size",
        takes: Takes::Integer { min: 0, max: 255 },
        needed: Needed::No,
        field: Header::Field(Field::Byte(|it| &mut it.timeout_init_range_size)),
        doc: "How many exponents the initial timeout is drawn from; 0 means 1.",
    },
    Key {
        name: "timeout_range",
        takes: Takes::Ranges,
        needed: Needed::UnlessNone("a [[timeout_range]] table"),
        field: Header::Ranges,
        doc: "The ranges, sorted by range_low_bound.",
    },
];

/// The keys of a range.
pub(super) const RANGE: &[Key<Field<RawRange>>] = &[
    Key {
        name: "range_low_bound",
        takes: Takes::Integer { min: 0, max: 255 },
        needed: Needed::Always("range_low_bound = 8"),
        field: Field::Byte(|it| &mut it.range_low_bound),
        doc: "The smallest exponent of the range.",
    },
    Key {
        name: "range_size",
        takes: Takes::Integer { min: 0, max: 255 },
        needed: Needed::No,
        field: Field::Byte(|it| &mut it.range_size),
        doc: "How far the range reaches above its low bound, in exponents; 0 is a single timeout.",
    },
    Key {
        name: "timeout_retry_num",
        takes: Takes::Integer { min: 0, max: 1023 },
        needed: Needed::Always("timeout_retry_num = 1"),
        field: Field::Half(|it| &mut it.timeout_retry_num),
        doc: "How many times each timeout is used before it doubles; 0 counts as 1.",
    },
    Key {
        name: "dec_mode",
        takes: Takes::DecMode,
        needed: Needed::Always("dec_mode = \"TO_LOW_BOUND\""),
        field: Field::Byte(|it| &mut it.dec_mode),
        doc: "How the timeout shrinks with progress: to a quarter, to a half, or to the low bound.",
    },
    Key {
        name: "prev_range_index",
        takes: Takes::Integer { min: 0, max: 3 },
        needed: Needed::No,
        field: Field::Byte(|it| &mut it.prev_range_index),
        doc: "The range that follows downwards, below the low bound; smaller than the range's own.",
    },
];
