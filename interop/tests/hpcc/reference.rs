//! What HPCC's simulator made of the lists. Its runs differ in the random numbers for marks only; all flows of all
//! lists and runs are taken together.
//!
//! | figures | runs |
//! |---|---|
//! | Hadoop at 30, 50, 70 % | 16, 16, 40 |
//! | WebSearch with acknowledgements first at 30, 50, 70 % | 4, 1, 6 |
//! | others | 1 |
//!
//! The slowdown is the completion time divided by the simulator's own ideal time.

use super::Figures;

/// WebSearch by load, percent; acknowledgements wait in the data's queues.
pub(super) const WEB_SEARCH: [(u32, Figures); 3] = [
    (
        30,
        Figures {
            percentiles: [1.3917, 5.5488, 9.2777],
            by_size: [
                Some(2.3724),
                Some(2.0161),
                Some(1.9138),
                Some(1.8809),
                Some(2.4110),
            ],
        },
    ),
    (
        50,
        Figures {
            percentiles: [2.2913, 9.4680, 16.9101],
            by_size: [
                Some(3.7865),
                Some(3.6395),
                Some(3.3057),
                Some(3.0693),
                Some(3.7474),
            ],
        },
    ),
    (
        70,
        Figures {
            percentiles: [4.0054, 14.9100, 22.9359],
            by_size: [
                Some(7.7160),
                Some(6.2903),
                Some(5.3214),
                Some(4.3433),
                Some(5.5542),
            ],
        },
    ),
];

/// Hadoop by load, percent; acknowledgements wait in the data's queues.
pub(super) const HADOOP: [(u32, Figures); 3] = [
    (
        30,
        Figures {
            percentiles: [0.9997, 7.0330, 13.4921],
            by_size: [
                Some(1.9306),
                Some(2.0371),
                Some(1.8756),
                Some(1.6986),
                Some(2.1809),
            ],
        },
    ),
    (
        50,
        Figures {
            percentiles: [1.3038, 13.0367, 21.1336],
            by_size: [
                Some(3.6002),
                Some(3.7616),
                Some(3.0536),
                Some(2.5826),
                Some(3.2460),
            ],
        },
    ),
    (
        70,
        Figures {
            percentiles: [2.5248, 19.8693, 34.5334],
            by_size: [
                Some(5.9705),
                Some(6.2911),
                Some(4.7676),
                Some(3.9093),
                Some(5.1031),
            ],
        },
    ),
];

/// WebSearch by load, percent; acknowledgements go before data.
pub(super) const ACKNOWLEDGEMENTS_FIRST: [(u32, Figures); 3] = [
    (
        30,
        Figures {
            percentiles: [1.2994, 4.9215, 7.6346],
            by_size: [
                Some(1.5610),
                Some(1.5448),
                Some(1.6494),
                Some(1.7693),
                Some(2.3862),
            ],
        },
    ),
    (
        50,
        Figures {
            percentiles: [1.8970, 8.1649, 12.7991],
            by_size: [
                Some(2.3361),
                Some(2.4749),
                Some(2.5102),
                Some(2.8449),
                Some(3.6842),
            ],
        },
    ),
    (
        70,
        Figures {
            percentiles: [2.9863, 11.7320, 16.9264],
            by_size: [
                Some(4.4469),
                Some(3.4863),
                Some(3.6777),
                Some(4.1803),
                Some(5.4001),
            ],
        },
    ),
];

/// WebSearch at 50 %, the first list, one run; at most a window of 52,000 bytes is in flight.
pub(super) const FIXED_WINDOW: Figures = Figures {
    percentiles: [2.1901, 6.0725, 9.1491],
    by_size: [
        Some(2.3843),
        Some(2.1341),
        Some(2.3777),
        Some(3.1022),
        Some(3.2154),
    ],
};

/// The same; the window follows the rate.
pub(super) const VARIABLE_WINDOW: Figures = Figures {
    percentiles: [2.1865, 6.0326, 8.5953],
    by_size: [
        Some(2.3958),
        Some(2.1095),
        Some(2.3571),
        Some(3.0255),
        Some(3.2109),
    ],
};
