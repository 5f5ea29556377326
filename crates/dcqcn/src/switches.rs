//! Questions about the reaction point on which the sources disagree or are silent.
//!
//! NVIDIA publishes parameters, not the algorithm. Each type here is one question, its variants are
//! the answers given by published sources, and the default is what Ferroce assumes of the firmware.
//! In text, each question has a name and each answer a word ([`QUESTIONS`]).

use core::fmt;

use thiserror::Error;

/// An answer, which has a word.
trait Answer: Copy + 'static {
    /// The default.
    const FIRST: Self;
    const WORDS: &'static [&'static str];

    /// The answer with the word at this place.
    fn at(place: usize) -> Self;

    /// The place of its word.
    fn place(self) -> usize;
}

impl Answer for bool {
    const FIRST: Self = false;
    const WORDS: &'static [&'static str] = &["false", "true"];

    fn at(place: usize) -> Self {
        place == 1
    }

    fn place(self) -> usize {
        usize::from(self)
    }
}

macro_rules! answers {
    ($($(#[doc = $about:literal])+ $name:ident {
        $($(#[$variant_about:meta])+ $variant:ident = $word:literal,)+
    })+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_about])+ $variant,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self::FIRST
            }
        }

        impl Answer for $name {
            const FIRST: Self = [$(Self::$variant,)+][0];
            const WORDS: &'static [&'static str] = &[$($word,)+];

            fn at(place: usize) -> Self {
                [$(Self::$variant,)+][place]
            }

            fn place(self) -> usize {
                self as usize
            }
        }
    )+};
}

macro_rules! questions {
    ($($(#[doc = $about:literal])+ $name:ident: $answer:ty,)+) => {
        /// One answer to each question.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct Switches {
            $($(#[doc = $about])+ pub $name: $answer,)+
        }

        impl Switches {
            /// What Ferroce assumes of the firmware: the first answer to each question.
            pub const FIRMWARE: Self = Self {
                $($name: <$answer as Answer>::FIRST,)+
            };
        }

        impl Default for Switches {
            fn default() -> Self {
                Self::FIRMWARE
            }
        }

        /// Every question, in the order of the fields of [`Switches`].
        pub const QUESTIONS: &[Question] = &[$(Question {
            name: stringify!($name),
            doc: concat!($($about,)+),
            words: <$answer as Answer>::WORDS,
            place: |switches| switches.$name.place(),
            answer: |switches, place| switches.$name = <$answer as Answer>::at(place),
        },)+];
    };
}

questions! {
    /// What "below the threshold" means.
    stage_comparison: StageComparison,
    /// What `rpg_byte_reset` counts.
    byte_reset_unit: ByteResetUnit,
    /// Which happens first if an update of alpha and a cut coincide.
    tie: Tie,
    /// The effect of a flow's first CNP.
    first_cnp: FirstCnp,
    /// When and by how much hyper increase raises the target.
    hyper_increase: HyperIncrease,
    /// Whether `dce_tcp_g` is the weight of the old alpha or of the new value.
    alpha_weight: AlphaWeight,
    /// The resolution of alpha between updates.
    alpha_precision: AlphaPrecision,
    /// Whether `rpg_min_dec_fac` limits what a cut leaves or what it takes.
    min_dec_fac: MinDecFac,
    /// What happens to a flow that is back at full rate.
    full_rate: FullRate,
    /// Two rules of 802.1Qau that some simulators keep: the timer and the byte counter run twice as
    /// fast in hyper increase, and a target above ten times the rate is divided by eight at the
    /// first increase.
    qau_extras: bool,
    /// The target stays at twice the minimum rate or above, as in Pensando's data path.
    target_floor: bool,
}

/// A question about the algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// What it asks.
    pub doc: &'static str,
    /// The words of its answers.
    pub words: &'static [&'static str],
    place: fn(&Switches) -> usize,
    answer: fn(&mut Switches, usize),
}

/// The reason why a question could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SwitchError {
    /// There is no question of this name.
    #[error("unknown option; expected one of {}", Names)]
    UnknownName,
    /// The word is not one of the answers.
    #[error("must be {}", Either(words))]
    UnknownWord {
        /// The words of the answers.
        words: &'static [&'static str],
    },
}

struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        QUESTIONS.iter().enumerate().try_for_each(|(place, it)| {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{}", it.name)
        })
    }
}

struct Either<'a>(&'a [&'static str]);

impl fmt::Display for Either<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(place, word)| {
            let or = if place > 0 { " or " } else { "" };
            write!(f, "{or}{word:?}")
        })
    }
}

impl Switches {
    /// Answers the question with this name.
    ///
    /// ```
    /// use ferroce_dcqcn::{FullRate, Switches};
    ///
    /// let mut switches = Switches::default();
    /// switches.assign("full_rate", "keeps")?;
    /// assert_eq!(switches.full_rate, FullRate::Keeps);
    ///
    /// let error = switches.assign("tie", "both").unwrap_err();
    /// assert_eq!(error.to_string(), r#"must be "alpha-first" or "cut-first""#);
    /// # Ok::<(), ferroce_dcqcn::SwitchError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there is no such question, or if the word is not one of its answers.
    pub fn assign(&mut self, name: &str, word: &str) -> Result<(), SwitchError> {
        let mut named = QUESTIONS.iter().filter(|it| it.name == name);
        let question = named.next().ok_or(SwitchError::UnknownName)?;
        let words = question.words;
        let place = words.iter().position(|it| *it == word);
        let place = place.ok_or(SwitchError::UnknownWord { words })?;
        (question.answer)(self, place);
        Ok(())
    }

    /// Returns the answers that differ from the default ones: the question's name, and the word.
    pub fn changes(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let differs = move |it: &&Question| (it.place)(&self) != (it.place)(&Self::default());
        let changed = QUESTIONS.iter().filter(differs);
        changed.map(move |it| (it.name, it.words[(it.place)(&self)]))
    }
}

// The first answer is the default.
answers! {
    /// When a stage counter has left fast recovery, F being `rpg_threshold`.
    StageComparison {
        /// The counters before the event are compared: F steps of recovery. HPCC's simulator.
        BeforeEvent = "before-event",
        /// The counters after the event are compared, `< F` recovers: F - 1 steps. 802.1Qau, Microsoft's
        /// simulator. With the firmware's F = 1 there is no recovery at all.
        AfterEventBelow = "after-event-below",
        /// The counters after the event are compared, `<= F` recovers: F steps. htsim, Pensando.
        AfterEventAtMost = "after-event-at-most",
    }

    /// What `rpg_byte_reset` counts.
    ByteResetUnit {
        /// Units of 64 bytes. NVIDIA's parameter page.
        Bytes64 = "64B",
        /// Bytes. The help texts of mlxconfig and of FreeBSD's driver.
        Bytes = "1B",
    }

    /// Which happens first if an update of alpha and a cut coincide.
    Tie {
        /// The update, so that the cut sees the new alpha. HPCC's simulator.
        AlphaFirst = "alpha-first",
        /// The cut, as in the paper.
        CutFirst = "cut-first",
    }

    /// The effect of a flow's first CNP, besides starting the timers and setting alpha and the rate.
    FirstCnp {
        /// The cut follows one monitor period later, and the first update of alpha does not count it.
        /// HPCC's simulator.
        CutsLater = "cuts-later",
        /// The cut follows one monitor period later, and the first update of alpha counts it, as for any
        /// other CNP.
        CutsLaterAndCounts = "cuts-later-and-counts",
        /// It causes an immediate cut with the initial alpha, and neither period counts it.
        CutsAtOnce = "cuts-at-once",
    }

    /// When hyper increase begins and how large its steps are.
    HyperIncrease {
        /// Both counters have left fast recovery; each step is `rpg_hai_rate`.
        BothCounters = "both-counters",
        /// The same; steps grow with the smaller counter. 802.1Qau, htsim.
        Growing = "growing",
        /// The larger counter is one step further: one additive step, then hyper increase. HPCC's
        /// simulator, which has no byte counter.
        AfterOneStep = "after-one-step",
    }

    /// Whether `dce_tcp_g` is the weight of the old alpha or of the new value.
    AlphaWeight {
        /// `alpha <- G * alpha + (1 - G) * cnp`. NVIDIA's note DOC-2790, version 19.
        Keeps = "keeps",
        /// `alpha <- (1 - G) * alpha + G * cnp`. Version 13 of that note and mlxconfig's help.
        Takes = "takes",
    }

    /// The resolution of alpha between updates. Each update rounds down.
    AlphaPrecision {
        /// In 1/1024, as its parameters. Below 1024/(1024 - G) it then falls by one at each update and
        /// reaches zero.
        Bits10 = "1/1024",
        /// In 2^-26, which is close to the exact exponential of simulators with floating point.
        Bits26 = "2^-26",
    }

    /// Whether `rpg_min_dec_fac` limits what a cut leaves or what it takes.
    MinDecFac {
        /// The minimum that a cut leaves: 25 allows a cut of 75 %. 802.1Qau, NVIDIA's example.
        Leaves = "leaves",
        /// The maximum that a cut takes: 25 allows a cut of 25 %. NVIDIA's parameter page, read
        /// literally.
        Takes = "takes",
    }

    /// What happens to a flow that is back at full rate.
    FullRate {
        /// Its limiter is released and its state forgotten: the next CNP is a first one. mlxconfig's
        /// help for `RPG_MAX_RATE`.
        Releases = "releases",
        /// Its timers stop until the next CNP, alpha continues. Pensando, the paper.
        Keeps = "keeps",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each word of each question answers it, and is what is read back.
    #[test]
    fn words_and_answers_are_the_same() {
        for question in QUESTIONS {
            for (place, word) in question.words.iter().enumerate() {
                let mut switches = Switches::default();
                switches.assign(question.name, word).unwrap();
                assert_eq!((question.place)(&switches), place);
                let changed = (place > 0).then_some((question.name, *word));
                assert!(switches.changes().eq(changed), "{switches:?}");
            }
        }
        let unknown = Switches::default().assign("ties", "cut-first");
        assert_eq!(unknown, Err(SwitchError::UnknownName));
    }
}
