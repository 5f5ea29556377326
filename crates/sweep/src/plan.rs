//! The points of a sweep, and the file that lists them.
//!
//! The plan holds everything that a worker needs: the scenario, the files it refers to, and the
//! differences of each point. If those files change while a sweep runs, the sweep is not affected.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use ferroce_base::complaint::plain;
use ferroce_base::hash::Fnv;
use ferroce_base::random::{mix, share};
use ferroce_scenario::{Scenario, ScenarioError, text_with};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

use crate::design::{Combination, combinations, count};
use crate::field;
use crate::file::{Draw, Sweep};
use crate::parts::{self, StoreError};

/// The name of a plan's file in the sweep's directory.
const FILE: &str = "plan.json";
/// The format of that file.
const FORMAT: u32 = 1;
/// Points that a plan has at most.
const POINTS_MAX: u64 = 1_000_000;
/// Wrong points that are told of.
const PROBLEMS_MAX: usize = 10;

/// The name of a point: the hash of its scenario, its seed and the program's version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub u64);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Id {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A scenario with one seed.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Point {
    /// Its name.
    pub id: Id,
    /// The group that it belongs to, as an index into [`Plan::groups`].
    pub group: usize,
    /// The seed.
    pub seed: u64,
    /// The values of the fields that are drawn for every seed, in the order of [`Plan::drawn`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    draws: Vec<Value>,
    /// Whether it has no faults, for comparison with others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub faultless: bool,
}

impl Point {
    /// Returns the values of the drawn fields, as written.
    pub fn drawn(&self) -> impl Iterator<Item = String> {
        let text = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        self.draws.iter().map(text)
    }
}

/// A combination of values, and its points.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Group {
    /// The value of each axis.
    pub labels: Vec<String>,
    set: Vec<(String, Value)>,
    /// Its points, one for each seed.
    pub runs: Vec<Run>,
}

/// A point of a group.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Run {
    /// The point.
    pub id: Id,
    /// The point it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Id>,
}

/// All points of a sweep.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Plan {
    format: u32,
    /// The version of the program that created it, which also has to run it.
    pub version: String,
    /// One line for reports, which may be empty.
    pub title: String,
    /// The assumption about faults, which may be empty.
    pub assumption: String,
    /// The axes' names.
    pub axes: Vec<String>,
    /// The fields that are drawn for every seed.
    pub drawn: Vec<String>,
    /// The number of runs of each combination.
    pub seeds: u32,
    /// All combinations.
    pub groups: Vec<Group>,
    /// All points, each once.
    pub points: Vec<Point>,
    scenario: String,
    files: BTreeMap<String, String>,
}

/// The reason why a sweep cannot be planned.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum PlanError {
    /// Its scenario is invalid.
    #[error("{0}")]
    Scenario(ScenarioError),
    /// Some of its points are not valid scenarios.
    #[error("{}", .0.join("\n"))]
    Points(Vec<String>),
    /// It has more points than a plan can have.
    #[error(
        "the sweep has {0} points, and a plan at most {POINTS_MAX}; write fewer values or seeds, or \
         design = \"latin-hypercube\" with samples = 1000"
    )]
    TooMany(u64),
    /// There is nothing to compare with.
    #[error(
        "baseline = true compares with runs in which nothing goes wrong, and nothing does: leave it out"
    )]
    NoFaults,
}

/// Reads a file that the scenario refers to.
pub type Resolve<'a> = dyn FnMut(&str) -> Result<String, String> + Send + 'a;

impl Plan {
    /// Creates the points of a sweep over a scenario. `resolve` reads the files that the scenario
    /// refers to.
    ///
    /// # Errors
    /// Returns an error if a combination of values is not a scenario.
    pub fn new(
        sweep: &Sweep,
        scenario: &str,
        resolve: &mut Resolve<'_>,
        version: &str,
    ) -> Result<Self, PlanError> {
        let files = Files {
            resolve: Mutex::new((resolve, BTreeMap::new())),
        };
        Scenario::parse(scenario, &mut |name| {
            files.read(name).map(String::into_bytes)
        })
        .map_err(PlanError::Scenario)?;
        let base = Base::new(scenario);
        if sweep.baseline && !base.table.contains_key("fault") {
            return Err(PlanError::NoFaults);
        }
        let kinds = 1 + u64::from(sweep.baseline);
        let points = count(sweep.design, &sweep.axes).saturating_mul(sweep.seeds.into());
        if points.saturating_mul(kinds) > POINTS_MAX {
            return Err(PlanError::TooMany(points.saturating_mul(kinds)));
        }
        let maker = Maker {
            sweep,
            base,
            files: &files,
            version,
        };
        let (groups, points) = maker.make()?;
        let names = sweep.axes.iter().map(|axis| axis.name.clone());
        let drawn = sweep.draws.iter().map(|draw| draw.field.clone());
        Ok(Self {
            format: FORMAT,
            version: version.to_owned(),
            title: sweep.title.clone(),
            assumption: sweep.assumption.clone(),
            axes: names.collect(),
            drawn: drawn.collect(),
            seeds: sweep.seeds,
            groups,
            points,
            scenario: scenario.to_owned(),
            files: files.into_texts(),
        })
    }

    /// Returns the scenario of one of its points.
    ///
    /// # Errors
    /// Returns an error if it is not the one that was planned.
    pub fn scenario(&self, point: &Point) -> Result<Scenario, String> {
        let mut resolve = |name: &str| {
            let text = self.files.get(name).cloned();
            text.ok_or_else(|| "it is not part of the plan".to_owned())
        };
        let made = Base::new(&self.scenario).edited(&self.edits(point)?, &mut resolve);
        let scenario = made.map_err(|problems| problems.join("\n"))?;
        match id(scenario.hash, point.seed, &self.version) == point.id {
            true => Ok(scenario),
            false => Err(self.is_damaged()),
        }
    }

    /// Returns the scenario of one of its points as the text of a file, without comments.
    ///
    /// # Errors
    /// Returns an error if it is not one that was planned.
    pub fn scenario_text(&self, point: &Point) -> Result<String, String> {
        let edits = self.edits(point)?;
        let fields = Base::new(&self.scenario).fields(&edits);
        let fields = fields.map_err(|problems| problems.join("\n"))?;
        let text = text_with(&self.scenario, &values(&fields, &edits));
        text.map_err(|error| error.to_string())
    }

    /// What makes a point of the scenario.
    fn edits<'a>(&'a self, point: &'a Point) -> Result<Edits<'a>, String> {
        let group = self.groups.get(point.group);
        let group = group.ok_or_else(|| self.is_damaged())?;
        let draws = self.drawn.iter().zip(&point.draws);
        Ok(Edits {
            set: &group.set,
            draws: draws
                .map(|(field, value)| (field.as_str(), value))
                .collect(),
            seed: point.seed,
            faultless: point.faultless,
        })
    }

    fn is_damaged(&self) -> String {
        "the plan is damaged or was changed by hand; plan again".into()
    }

    /// Writes it to the sweep's directory, replacing an existing one.
    ///
    /// # Errors
    /// Returns an error if it cannot be written; an existing plan stays in that case.
    pub fn write(&self, directory: &Path) -> Result<(), StoreError> {
        let text =
            serde_json::to_vec(self).map_err(|error| StoreError::new(directory, error.into()))?;
        parts::write(directory, FILE, &text)
    }

    /// Reads it from the sweep's directory.
    ///
    /// # Errors
    /// Returns an error if it is not there or not a plan.
    pub fn read(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let text = std::fs::read(&path).map_err(|error| StoreError::new(&path, error))?;
        let plan: Self = serde_json::from_slice(&text).map_err(|error| {
            let error = format!("is not a plan: {}", plain(&error.to_string()));
            StoreError::new(&path, std::io::Error::other(error))
        })?;
        match plan.format {
            FORMAT => Ok(plan),
            other => {
                let error = format!("is a plan of format {other}, not {FORMAT}");
                Err(StoreError::new(&path, std::io::Error::other(error)))
            }
        }
    }

    /// Returns whether a directory has a plan.
    #[must_use]
    pub fn is_in(directory: &Path) -> bool {
        directory.join(FILE).exists()
    }
}

/// Files by their names, or why they cannot be read.
type Texts = BTreeMap<String, Result<String, String>>;

/// The files that a scenario refers to, each read once.
struct Files<'a, 'b> {
    resolve: Mutex<(&'a mut Resolve<'b>, Texts)>,
}

impl Files<'_, '_> {
    fn read(&self, name: &str) -> Result<String, String> {
        let mut guard = self.resolve.lock().unwrap_or_else(PoisonError::into_inner);
        let (resolve, texts) = &mut *guard;
        let text = texts.entry(name.to_owned());
        text.or_insert_with(|| resolve(name)).clone()
    }

    fn into_texts(self) -> BTreeMap<String, String> {
        let (_, texts) = self
            .resolve
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let read = texts.into_iter();
        read.filter_map(|(name, text)| Some((name, text.ok()?)))
            .collect()
    }
}

/// What is different in a point.
struct Edits<'a> {
    set: &'a [(String, Value)],
    draws: Vec<(&'a str, &'a Value)>,
    seed: u64,
    faultless: bool,
}

/// The scenario that points differ from.
struct Base<'a> {
    text: &'a str,
    table: Table,
}

impl<'a> Base<'a> {
    fn new(text: &'a str) -> Self {
        let table = text.parse().unwrap_or_default();
        Self { text, table }
    }

    /// A point's scenario, or what is wrong with it.
    fn edited(
        &self,
        edits: &Edits<'_>,
        resolve: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Scenario, Vec<String>> {
        let fields = self.fields(edits)?;
        let values = values(&fields, edits);
        let mut resolve = |name: &str| resolve(name).map(String::into_bytes);
        Scenario::parse_with(self.text, &values, &mut resolve).map_err(|error| {
            let problems = error.problems.iter();
            problems
                .map(|problem| blame(&problem.text, &fields))
                .collect()
        })
    }

    /// The fields that a point sets, or what is wrong with one.
    fn fields<'e>(&self, edits: &Edits<'e>) -> Result<Vec<Edited<'e>>, Vec<String>> {
        let set = edits
            .set
            .iter()
            .map(|(field, value)| (field.as_str(), value));
        let fields = set.chain(edits.draws.iter().copied());
        let fields = fields.map(|(field, value)| {
            let resolved = field::resolve(&self.table, field);
            let resolved = resolved.map_err(|error| vec![format!("axis {field}: {error}")])?;
            Ok((resolved, field, value))
        });
        fields.collect()
    }
}

/// A field: its path in the scenario, the name by which the sweep calls it, and its value.
type Edited<'a> = (String, &'a str, &'a Value);

/// The values of a point, by their paths.
fn values(fields: &[Edited<'_>], edits: &Edits<'_>) -> Vec<(String, String)> {
    let values = fields
        .iter()
        .map(|(path, _, value)| (path.clone(), value.to_string()));
    let mut values: Vec<_> = values.collect();
    values.push(("seed".into(), edits.seed.to_string()));
    if edits.faultless {
        values.retain(|(path, _)| !path.starts_with("fault"));
        values.push(("fault".into(), "[]".into()));
    }
    values
}

/// Says which axis is at fault: the one whose field is named, else perhaps all of them.
fn blame(problem: &str, fields: &[Edited<'_>]) -> String {
    let named = fields
        .iter()
        .filter(|(resolved, ..)| problem.contains(resolved.as_str()));
    let mut named: Vec<_> = named.collect();
    if named.is_empty() {
        named = fields.iter().collect();
    }
    let named: Vec<_> = named
        .iter()
        .map(|(_, field, value)| format!("{field} = {value}"))
        .collect();
    match named.is_empty() {
        true => problem.to_owned(),
        false => format!("axis {}: {problem}", named.join(", ")),
    }
}

fn id(scenario: u64, seed: u64, version: &str) -> Id {
    Id(mix(
        mix(scenario, seed),
        Fnv::of(version.as_bytes()).value(),
    ))
}

struct Maker<'a, 'b, 'c> {
    sweep: &'a Sweep,
    base: Base<'a>,
    files: &'a Files<'b, 'c>,
    version: &'a str,
}

impl Maker<'_, '_, '_> {
    fn make(&self) -> Result<(Vec<Group>, Vec<Point>), PlanError> {
        let Sweep {
            design,
            axes,
            first_seed,
            ..
        } = self.sweep;
        let combinations = combinations(*design, axes, *first_seed);
        let made = combinations.par_iter().enumerate();
        let made: Vec<_> = made.map(|(group, it)| self.points(group, it)).collect();
        let mut problems = BTreeSet::new();
        let (mut groups, mut points) = (Vec::new(), Vec::new());
        let mut known = HashMap::new();
        for (combination, made) in combinations.into_iter().zip(made) {
            let runs = match made {
                Ok(runs) => runs,
                Err(texts) => {
                    problems.extend(texts);
                    continue;
                }
            };
            let mut add = |point: Point| {
                let id = point.id;
                known.entry(id).or_insert_with(|| points.push(point));
                id
            };
            let runs = runs.into_iter().map(|(point, baseline)| Run {
                baseline: baseline.map(&mut add),
                id: add(point),
            });
            groups.push(Group {
                runs: runs.collect(),
                labels: combination.labels,
                set: combination.set,
            });
        }
        if problems.is_empty() {
            return Ok((groups, points));
        }
        let left = problems.len().saturating_sub(PROBLEMS_MAX);
        let mut problems: Vec<_> = problems.into_iter().take(PROBLEMS_MAX).collect();
        if left > 0 {
            problems.push(format!("and {left} more of the kind"));
        }
        Err(PlanError::Points(problems))
    }

    /// The points of a combination, each with the one it is compared with.
    fn points(
        &self,
        group: usize,
        combination: &Combination,
    ) -> Result<Vec<(Point, Option<Point>)>, Vec<String>> {
        let seeds = (self.sweep.first_seed..).take(self.sweep.seeds as usize);
        let mut hashes = [None; 2];
        let mut make = |seed, faultless: bool| -> Result<Point, Vec<String>> {
            let draws = self.draws(seed);
            let drawn = self.sweep.draws.iter().map(|draw| draw.field.as_str());
            let edits = Edits {
                set: &combination.set,
                draws: drawn.zip(&draws).collect(),
                seed,
                faultless,
            };
            // The hash leaves the seed out: without draws one look is enough for all.
            let known = &mut hashes[usize::from(faultless)];
            let hash = match *known {
                Some(hash) if draws.is_empty() => hash,
                _ => {
                    let made = self
                        .base
                        .edited(&edits, &mut |name| self.files.read(name))?;
                    *known.insert(made.hash)
                }
            };
            Ok(Point {
                id: id(hash, seed, self.version),
                group,
                seed,
                draws,
                faultless,
            })
        };
        let runs = seeds.map(|seed| {
            let baseline = self.sweep.baseline.then(|| make(seed, true)).transpose()?;
            Ok((make(seed, false)?, baseline))
        });
        runs.collect()
    }

    /// The values of the fields that are drawn with this seed: the same for all combinations.
    fn draws(&self, seed: u64) -> Vec<Value> {
        let draws = (0..).zip(&self.sweep.draws);
        let draw = |(number, draw): (u64, &Draw)| {
            draw.range.draw(share(mix(mix(seed, 0x00d1_ce00), number)))
        };
        draws.map(draw).collect()
    }
}
