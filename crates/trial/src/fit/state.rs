//! The state of a search as a file.

use std::collections::BTreeMap;

use ferroce_base::complaint::plain;
use ferroce_base::time::Span;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::candidates::{from_hex, to_hex};
use super::{Question, Round};

/// Rounds that a file may have.
const ROUNDS_MAX: usize = 10_000;

/// The completed rounds of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    question: BTreeMap<String, String>,
    /// In order, without repetitions.
    pub rounds: Vec<Round>,
}

/// The reason why a file is not the state of a search.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum StateError {
    /// It was not written by [`State::to_json`].
    #[error("not the state of a search: {0}; name another file, or remove this one to begin anew")]
    Malformed(String),
    /// A value is invalid.
    #[error("rounds[{at}].{field} is {value}: must be {must}; remove the file to begin anew")]
    Value {
        /// The round's index in the file.
        at: usize,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        must: String,
    },
    /// It belongs to another search.
    #[error(
        "it belongs to another search: {field} is {there} there and {here} here; name another file, or \
         repeat that search with the options it began with"
    )]
    Other {
        /// The field that differs.
        field: String,
        /// In the file.
        there: String,
        /// In the question.
        here: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    question: BTreeMap<String, String>,
    rounds: Vec<RoundFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundFile {
    number: u32,
    /// The register's bytes in hexadecimal.
    profile: String,
    cost_ps: u64,
    spurious_share: f64,
}

impl State {
    /// Creates the state of a search that has not started.
    #[must_use]
    pub fn new(question: &Question) -> Self {
        Self {
            question: words(question),
            rounds: Vec::new(),
        }
    }

    /// Reads the state of the search for this question.
    ///
    /// # Errors
    /// Returns an error if the text is not such a state, or belongs to another search.
    pub fn read(text: &str, question: &Question) -> Result<Self, StateError> {
        let file: File = serde_json::from_str(text)
            .map_err(|error| StateError::Malformed(plain(&error.to_string())))?;
        let here = words(question);
        let names = here.keys().chain(file.question.keys());
        for field in names {
            let [there, here] = [&file.question, &here].map(|of| of.get(field));
            if there != here {
                let or_nothing = |it: Option<&String>| it.map_or("nothing", String::as_str).into();
                return Err(StateError::Other {
                    field: field.clone(),
                    there: or_nothing(there),
                    here: or_nothing(here),
                });
            }
        }
        if file.rounds.len() > ROUNDS_MAX {
            let found = file.rounds.len();
            let error = format!("{found} rounds, more than {ROUNDS_MAX}");
            return Err(StateError::Malformed(error));
        }
        let mut rounds: Vec<Round> = Vec::new();
        for (at, it) in file.rounds.iter().enumerate() {
            let wrong = |field, value: &dyn ToString, must: &str| StateError::Value {
                at,
                field,
                value: value.to_string(),
                must: must.to_owned(),
            };
            if rounds.last().is_some_and(|last| last.number >= it.number)
                || it.number >= question.rounds
            {
                let must = format!(
                    "less than {}, and more than the one before",
                    question.rounds
                );
                return Err(wrong("number", &it.number, &must));
            }
            if !(0.0..=1.0).contains(&it.spurious_share) {
                return Err(wrong("spurious_share", &it.spurious_share, "0 to 1"));
            }
            let profile = from_hex(&it.profile);
            let profile = profile.filter(|profile| question.admits(profile));
            let Some(profile) = profile else {
                let must = "96 hexadecimal digits of a profile that keeps within the constraints";
                return Err(wrong("profile", &it.profile, must));
            };
            rounds.push(Round {
                number: it.number,
                profile,
                cost: Span::from_picos(it.cost_ps),
                spurious_share: it.spurious_share,
            });
        }
        Ok(Self {
            question: here,
            rounds,
        })
    }

    /// Returns the next round, unless all are completed.
    #[must_use]
    pub fn next(&self, question: &Question) -> Option<u32> {
        let is_done = |number: &u32| self.rounds.iter().any(|it| it.number == *number);
        (0..question.rounds).find(|number| !is_done(number))
    }

    /// Adds a round.
    pub fn add(&mut self, round: Round) {
        let at = self.rounds.partition_point(|it| it.number < round.number);
        self.rounds.insert(at, round);
    }

    /// Returns the state in the form that [`Self::read`] reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        let rounds = self.rounds.iter().map(|it| RoundFile {
            number: it.number,
            profile: to_hex(&it.profile),
            cost_ps: it.cost.as_picos(),
            spurious_share: it.spurious_share,
        });
        let file = File {
            question: self.question.clone(),
            rounds: rounds.collect(),
        };
        let json = serde_json::to_string_pretty(&file);
        json.expect("strings and finite numbers make JSON") + "\n"
    }
}

/// What a search depends on, except for the number of its rounds: more may follow.
fn words(question: &Question) -> BTreeMap<String, String> {
    let Question {
        outages,
        link,
        qp,
        floor,
        demand,
        spurious_below,
        death,
        count,
        rounds: _,
        steps,
        seed,
    } = question;
    let words: [(&str, String); 13] = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("outages", format!("{outages:?}")),
        ("loss", link.loss.to_string()),
        ("rtt", format!("{:?}", link.round_trip)),
        ("timeout", qp.timeout.to_string()),
        ("retry-cnt", qp.retry_cnt.to_string()),
        ("floor", format!("{floor:?}")),
        ("survive", demand.survive.to_string()),
        ("detect-within", demand.detect_within.to_string()),
        ("spurious-below", spurious_below.to_string()),
        ("death-costs", death.to_string()),
        ("count", format!("{count}, {steps} steps")),
        ("seed", seed.to_string()),
    ];
    words.map(|(name, value)| (name.to_owned(), value)).into()
}
