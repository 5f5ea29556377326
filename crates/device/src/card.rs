//! Cards by generation and firmware: which of them has what, in one table.

use std::fmt;
use std::str::FromStr;

use ferroce_base::names;
use thiserror::Error;

/// A generation of cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the name is the meaning")]
pub enum Model {
    ConnectX5,
    ConnectX6Dx,
    ConnectX7,
    ConnectX8,
    BlueField3,
}

/// A version of a card's firmware. The first number belongs to the generation of the card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the name is the meaning")]
pub struct Firmware {
    pub major: u32,
    pub minor: u32,
    pub sub_minor: u32,
}

/// A feature that not every firmware has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// Adaptive retransmission, a field of ROCE_ACCL.
    AdaptiveRetransmission,
    /// The minimum ACK timeout can be switched off, a field of ROCE_ACCL.
    MinAckTimeout,
    /// The DSCP of acknowledgements, a field of ROCE_ACCL.
    AckDscp,
    /// Profiles of adaptive retransmission, in ROCE_ACCL.
    Profiles,
    /// Selective repeat, a field of ROCE_ACCL and an option of ECE.
    SelectiveRepeat,
    /// Adaptive routing, a field of ROCE_ACCL.
    AdaptiveRouting,
    /// The transmission window, a field of ROCE_ACCL.
    TransmissionWindow,
    /// Slow restart after losses, a field of ROCE_ACCL.
    SlowRestart,
    /// Slow restart after silence, a field of ROCE_ACCL.
    SlowRestartIdle,
    /// The burst size of congestion control, a field of ROCE_ACCL.
    BurstSize,
    /// IFA2 turn-around, a field of ROCE_ACCL.
    Ifa2TurnAround,
    /// The histogram of timeouts, two registers of its own.
    Histogram,
}

/// A set of [`Feature`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features(u16);

/// A card: its generation and its firmware.
///
/// ```
/// use ferroce_device::{Card, Feature};
///
/// let card: Card = "cx7:28.46.1006".parse().unwrap();
/// assert!(card.features().has(Feature::Profiles));
/// assert!(!card.features().has(Feature::Histogram));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Card {
    /// Its generation.
    pub model: Model,
    /// Its firmware.
    pub firmware: Firmware,
}

/// A feature that a card does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{}", self.text())]
pub struct Missing {
    card: Card,
    feature: Feature,
}

/// Why a text names no card.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CardError {
    /// There is no such generation.
    #[error("no card is called {name:?}; known: {known}; {instead}", known = MODEL_NAMES.join(", "))]
    UnknownModel {
        /// The name given.
        name: String,
        /// What to write.
        instead: String,
    },
    /// The card does not have this firmware, or the text is not a version.
    #[error("{model} has no firmware {version:?}; known: {known}; {instead}")]
    UnknownFirmware {
        /// The card.
        model: Model,
        /// The version given.
        version: String,
        /// The known ones.
        known: String,
        /// What to write.
        instead: String,
    },
}

const fn version(major: u32, minor: u32, sub_minor: u32) -> Firmware {
    Firmware {
        major,
        minor,
        sub_minor,
    }
}

/// The facts about a generation. docs/cards.md gives the source of each.
struct Facts {
    name: &'static str,
    title: &'static str,
    device_id: u16,
    /// The id that the chip has in recovery mode, by which tools know it.
    chip_id: u32,
    oldest: Firmware,
    newest: Firmware,
    /// The first firmware with each feature, in the order of [`Feature::ALL`].
    since: [Option<Firmware>; Feature::ALL.len()],
}

const MODEL_NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut row = 0;
    while row < names.len() {
        names[row] = TABLE[row].name;
        row += 1;
    }
    names
};

const TABLE: [Facts; Model::ALL.len()] = [
    Facts {
        name: "cx5",
        title: "ConnectX-5",
        device_id: 0x1017,
        chip_id: 0x20d,
        oldest: version(16, 30, 1284),
        newest: version(16, 35, 8002),
        since: [
            Some(version(16, 30, 1284)),
            Some(version(16, 35, 1012)),
            None,
            None,
            None,
            None,
            Some(version(16, 30, 1284)),
            Some(version(16, 30, 1284)),
            Some(version(16, 35, 1012)),
            None,
            None,
            None,
        ],
    },
    Facts {
        name: "cx6dx",
        title: "ConnectX-6 Dx",
        device_id: 0x101d,
        chip_id: 0x212,
        oldest: version(22, 33, 1048),
        newest: version(22, 47, 2682),
        since: [
            Some(version(22, 33, 1048)),
            Some(version(22, 35, 1012)),
            Some(version(22, 39, 1000)),
            Some(version(22, 45, 1020)),
            Some(version(22, 35, 1012)),
            None,
            Some(version(22, 33, 1048)),
            Some(version(22, 33, 1048)),
            Some(version(22, 35, 1012)),
            Some(version(22, 45, 1020)),
            Some(version(22, 45, 1020)),
            None,
        ],
    },
    Facts {
        name: "cx7",
        title: "ConnectX-7",
        device_id: 0x1021,
        chip_id: 0x218,
        oldest: version(28, 33, 2028),
        newest: version(28, 48, 1000),
        since: [
            Some(version(28, 33, 2028)),
            Some(version(28, 35, 1012)),
            Some(version(28, 39, 1000)),
            Some(version(28, 45, 1020)),
            Some(version(28, 35, 1012)),
            Some(version(28, 47, 1000)),
            Some(version(28, 33, 2028)),
            Some(version(28, 33, 2028)),
            Some(version(28, 35, 1012)),
            Some(version(28, 45, 1020)),
            Some(version(28, 45, 1020)),
            Some(version(28, 47, 1000)),
        ],
    },
    Facts {
        name: "cx8",
        title: "ConnectX-8",
        device_id: 0x1023,
        chip_id: 0x21e,
        oldest: version(40, 44, 1036),
        newest: version(40, 47, 2682),
        since: [
            Some(version(40, 44, 1036)),
            Some(version(40, 44, 1036)),
            Some(version(40, 44, 1036)),
            Some(version(40, 45, 1020)),
            Some(version(40, 44, 1036)),
            Some(version(40, 47, 1000)),
            Some(version(40, 44, 1036)),
            Some(version(40, 44, 1036)),
            Some(version(40, 44, 1036)),
            Some(version(40, 45, 1020)),
            Some(version(40, 45, 1020)),
            Some(version(40, 47, 1000)),
        ],
    },
    Facts {
        name: "bf3",
        title: "BlueField-3",
        device_id: 0xa2dc,
        chip_id: 0x21c,
        oldest: version(32, 37, 1014),
        newest: version(32, 47, 2682),
        since: [
            Some(version(32, 37, 1014)),
            Some(version(32, 37, 1014)),
            Some(version(32, 39, 1000)),
            Some(version(32, 45, 1020)),
            Some(version(32, 37, 1014)),
            Some(version(32, 47, 1000)),
            Some(version(32, 37, 1014)),
            Some(version(32, 37, 1014)),
            Some(version(32, 37, 1014)),
            Some(version(32, 45, 1020)),
            Some(version(32, 45, 1020)),
            Some(version(32, 47, 1000)),
        ],
    },
];

impl Model {
    /// All of them, the oldest first.
    pub const ALL: [Self; 5] = [
        Self::ConnectX5,
        Self::ConnectX6Dx,
        Self::ConnectX7,
        Self::ConnectX8,
        Self::BlueField3,
    ];

    const fn facts(self) -> &'static Facts {
        &TABLE[self as usize]
    }

    /// The name in commands: `cx7`.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The name in documents: `ConnectX-7`.
    pub const fn title(self) -> &'static str {
        self.facts().title
    }

    /// PCI device id of the PF, which is also verbs' `vendor_part_id`.
    pub const fn device_id(self) -> u16 {
        self.facts().device_id
    }

    /// The id that the chip has in recovery mode, by which tools know it (`hw_dev_id` of MGIR).
    pub const fn chip_id(self) -> u32 {
        self.facts().chip_id
    }

    /// The oldest firmware that is known.
    pub const fn oldest(self) -> Firmware {
        self.facts().oldest
    }

    /// The newest firmware that is known.
    pub const fn newest(self) -> Firmware {
        self.facts().newest
    }

    /// The first firmware with a feature; `None` if the card never has it.
    pub const fn since(self, feature: Feature) -> Option<Firmware> {
        self.facts().since[feature as usize]
    }

    /// The versions of firmware that differ, the oldest first, and the newest.
    pub fn firmware(self) -> Vec<Firmware> {
        let facts = self.facts();
        let mut known: Vec<_> = facts.since.into_iter().flatten().collect();
        known.extend([facts.oldest, facts.newest]);
        known.sort_unstable();
        known.dedup();
        known
    }

    /// The generation with this PCI device id.
    pub fn with_device_id(device_id: u16) -> Option<Self> {
        // Both have the same firmware.
        const CONNECTX_5_EX: u16 = 0x1019;
        let device_id = match device_id {
            CONNECTX_5_EX => Self::ConnectX5.device_id(),
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|model| model.device_id() == device_id)
    }

    /// Whether firmware of these release lines is known. Not each release of a line is listed: all
    /// versions between two of [`Self::firmware`] have the same features.
    fn knows(self, firmware: Firmware) -> bool {
        let (oldest, newest) = (self.oldest(), self.newest());
        firmware.major == newest.major && (oldest.minor..=newest.minor).contains(&firmware.minor)
    }

    fn unknown(self, text: &str) -> CardError {
        let known: Vec<_> = self.firmware().iter().map(Firmware::to_string).collect();
        CardError::UnknownFirmware {
            model: self,
            version: text.to_owned(),
            known: known.join(", "),
            instead: format!("did you mean {}?", self.near(text)),
        }
    }

    /// The generation that has the firmware, or this one with the firmware that is nearest.
    fn near(self, text: &str) -> Card {
        let Ok(firmware) = text.parse() else {
            return self.into();
        };
        if let Some(model) = Self::ALL.into_iter().find(|model| model.knows(firmware)) {
            return Card { model, firmware };
        }
        let (oldest, newest) = (self.oldest(), self.newest());
        let is_older = firmware.major == oldest.major && firmware < oldest;
        Card {
            model: self,
            firmware: if is_older { oldest } else { newest },
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:04}", self.major, self.minor, self.sub_minor)
    }
}

impl FromStr for Firmware {
    type Err = ();

    /// Three numbers with dots between them.
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |part: Option<&str>| {
            let digits = part.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|it| it.parse().ok()).ok_or(())
        };
        let mut parts = text.splitn(3, '.');
        Ok(Self {
            major: number(parts.next())?,
            minor: number(parts.next())?,
            sub_minor: number(parts.next())?,
        })
    }
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::AdaptiveRetransmission,
        Self::MinAckTimeout,
        Self::AckDscp,
        Self::Profiles,
        Self::SelectiveRepeat,
        Self::AdaptiveRouting,
        Self::TransmissionWindow,
        Self::SlowRestart,
        Self::SlowRestartIdle,
        Self::BurstSize,
        Self::Ifa2TurnAround,
        Self::Histogram,
    ];

    /// Its name in lists and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdaptiveRetransmission => "adaptive",
            Self::MinAckTimeout => "min_ack_timeout",
            Self::AckDscp => "ack_dscp",
            Self::Profiles => "profiles",
            Self::SelectiveRepeat => "selective_repeat",
            Self::AdaptiveRouting => "adaptive_routing",
            Self::TransmissionWindow => "tx_window",
            Self::SlowRestart => "slow_restart",
            Self::SlowRestartIdle => "restart_idle",
            Self::BurstSize => "cc_burst_size",
            Self::Ifa2TurnAround => "ifa2",
            Self::Histogram => "histogram",
        }
    }
}

impl Features {
    /// All of them.
    pub const ALL: Self = Self((1 << Feature::ALL.len()) - 1);

    /// Whether a feature is one of them.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u8 & 1 == 1
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<T: IntoIterator<Item = Feature>>(features: T) -> Self {
        Self(features.into_iter().fold(0, |set, it| set | 1 << it as u8))
    }
}

impl Card {
    /// The card of a PCI device id and firmware; `None` if they belong to no card of the table.
    pub fn of(device_id: u16, firmware: Firmware) -> Option<Self> {
        let model = Model::with_device_id(device_id)?;
        (firmware.major == model.newest().major).then_some(Self { model, firmware })
    }

    /// Whether its firmware has a feature.
    pub fn require(self, feature: Feature) -> Result<(), Missing> {
        let card = self;
        match self.features().has(feature) {
            true => Ok(()),
            false => Err(Missing { card, feature }),
        }
    }

    /// What its firmware has.
    pub fn features(self) -> Features {
        let has = |feature: &Feature| {
            let since = self.model.since(*feature);
            since.is_some_and(|since| self.firmware >= since)
        };
        Feature::ALL.into_iter().filter(has).collect()
    }
}

impl Missing {
    fn text(&self) -> String {
        let Card { model, firmware } = self.card;
        let feature = self.feature.name();
        match model.since(self.feature) {
            Some(since) => format!(
                "a {} has the feature {feature} from firmware {since} on, and this one has {firmware}",
                model.title()
            ),
            None => format!("a {} does not have the feature {feature}", model.title()),
        }
    }
}

impl Default for Card {
    /// A ConnectX-7 whose firmware has everything.
    fn default() -> Self {
        Model::ConnectX7.into()
    }
}

impl From<Model> for Card {
    /// With the newest firmware.
    fn from(model: Model) -> Self {
        Self {
            model,
            firmware: model.newest(),
        }
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.model, self.firmware)
    }
}

impl FromStr for Card {
    type Err = CardError;

    /// `cx7`, with the newest firmware, or `cx7:28.47.1026`.
    fn from_str(text: &str) -> Result<Self, CardError> {
        let (name, version) = match text.split_once(':') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let model = Model::ALL.into_iter().find(|model| model.name() == name);
        let model = model.ok_or_else(|| CardError::UnknownModel {
            name: name.to_owned(),
            instead: match names::near(name, MODEL_NAMES) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("for example {}", Self::default()),
            },
        })?;
        let Some(version) = version else {
            return Ok(model.into());
        };
        match version.parse() {
            Ok(firmware) if model.knows(firmware) => Ok(Self { model, firmware }),
            _ => Err(model.unknown(version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(text: &str) -> Card {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_table_is_in_order() {
        for (row, model) in TABLE.iter().zip(Model::ALL) {
            assert_eq!(format!("{model:?}"), row.title.replace(['-', ' '], ""));
            assert!(row.oldest < row.newest, "{model}");
            for since in row.since.into_iter().flatten() {
                assert!(row.oldest <= since && since <= row.newest, "{model}");
            }
            assert_eq!(Model::with_device_id(row.device_id), Some(model));
        }
    }

    /// The floors that NVIDIA's documents name.
    #[test]
    fn the_documented_firmware_is_the_first() {
        for (before, first, feature) in [
            ("cx7:28.46.9999", "cx7:28.47.1000", Feature::Histogram),
            ("cx8:40.46.9999", "cx8:40.47.1000", Feature::Histogram),
            ("bf3:32.46.9999", "bf3:32.47.1000", Feature::Histogram),
            ("cx6dx:22.44.1036", "cx6dx:22.45.1020", Feature::Profiles),
            ("cx7:28.44.1036", "cx7:28.45.1020", Feature::Profiles),
            ("cx8:40.44.1036", "cx8:40.45.1020", Feature::Profiles),
            ("bf3:32.44.1036", "bf3:32.45.1020", Feature::Profiles),
            ("cx5:16.35.1011", "cx5:16.35.1012", Feature::MinAckTimeout),
        ] {
            assert!(!card(before).features().has(feature), "{before}");
            assert!(card(first).features().has(feature), "{first}");
        }
        let cards_without = |feature| {
            let none = move |model: &Model| model.since(feature).is_none();
            Model::ALL.into_iter().filter(none).collect::<Vec<_>>()
        };
        let old = [Model::ConnectX5, Model::ConnectX6Dx];
        assert_eq!(cards_without(Feature::Histogram), old);
        assert_eq!(cards_without(Feature::Profiles), [Model::ConnectX5]);
        assert_eq!(cards_without(Feature::AdaptiveRetransmission), []);
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        let version = |text: &str| text.parse::<Firmware>();
        assert!(version("28.9.1000") < version("28.10.1000"));
        assert!(version("28.47.999") < version("28.47.1000"));
        assert_eq!(version("28.4.37").unwrap().to_string(), "28.4.0037");
        for bad in [
            "",
            "28",
            "28.47",
            "28.47.",
            "28.47.1000.1",
            "28.+47.1000",
            "28.47.x",
            "28.47.4294967296",
        ] {
            assert_eq!(version(bad), Err(()), "{bad}");
        }
    }

    #[test]
    fn cards_are_what_their_names_say() {
        for model in Model::ALL {
            assert_eq!(card(model.name()), Card::from(model));
            for firmware in model.firmware() {
                let known = Card { model, firmware };
                assert_eq!(card(&known.to_string()), known);
                assert_eq!(Card::of(model.device_id(), firmware), Some(known));
            }
        }
        assert_eq!(card("cx7"), Card::default());
        assert_eq!(Card::default().features(), Features::ALL);
        // ConnectX-5 Ex.
        assert_eq!(
            Card::of(0x1019, Model::ConnectX5.newest()),
            Some(card("cx5"))
        );
        for unknown in [
            Card::of(0x101b, version(20, 43, 4100)),
            Card::of(0x1021, version(12, 0, 0)),
        ] {
            assert_eq!(unknown, None);
        }
    }

    #[test]
    fn errors_list_what_is_known_and_propose_a_card() {
        let error = |text: &str| text.parse::<Card>().unwrap_err().to_string();
        let known = "known: cx5, cx6dx, cx7, cx8, bf3";
        assert_eq!(
            error("cx9"),
            format!("no card is called \"cx9\"; {known}; did you mean cx5?")
        );
        assert_eq!(
            error("hfi1:1"),
            format!("no card is called \"hfi1\"; {known}; for example cx7:28.48.1000")
        );
        let known = "known: 28.33.2028, 28.35.1012, 28.39.1000, 28.45.1020, 28.47.1000, 28.48.1000";
        for (text, proposed) in [
            ("cx7:28.99.1000", "cx7:28.48.1000"),
            ("cx7:28.12.1000", "cx7:28.33.2028"),
            ("cx7:40.47.1026", "cx8:40.47.1026"),
            ("cx7:28.47", "cx7:28.48.1000"),
            ("cx7:", "cx7:28.48.1000"),
            ("cx7:99.1.1", "cx7:28.48.1000"),
        ] {
            let version = &text["cx7:".len()..];
            assert_eq!(
                error(text),
                format!("cx7 has no firmware \"{version}\"; {known}; did you mean {proposed}?")
            );
        }
    }
}
