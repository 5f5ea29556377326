//! The sweep file.

use ferroce_base::names::instead;
use toml::{Table, Value};

use crate::lines::{Lines, Problem, Problems};
use crate::range::Range;

/// A sweep as its file describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Sweep {
    /// One line for reports, empty if the file has none.
    pub title: String,
    /// The scenario's file, as the sweep's file names it.
    pub scenario: String,
    /// The assumption about faults, for reports; empty if the file has none.
    pub assumption: String,
    /// How values are combined.
    pub design: Design,
    /// The number of runs of each combination, each with another seed.
    pub seeds: u32,
    /// The first of these seeds.
    pub first_seed: u64,
    /// Whether each run is compared with one without faults.
    pub baseline: bool,
    /// The fields that have several values.
    pub(crate) axes: Vec<Axis>,
    /// The fields that have another value with every seed.
    pub(crate) draws: Vec<Draw>,
}

/// How the axes' values are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// Each with each.
    Grid,
    /// The first of each axis, then the second of each, and so on.
    List,
    /// So many at random.
    Random(u32),
    /// The given number of combinations, with one value of each axis in each part of its range.
    LatinHypercube(u32),
}

/// A field, or several that change together, and the values they have.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    /// The field's path, or the name of the cases.
    pub(crate) name: String,
    pub(crate) choices: Choices,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Choices {
    Listed(Vec<Choice>),
    /// Drawn from it by the design.
    Range(Range),
}

/// Some fields with their values, under one name.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Choice {
    pub(crate) label: String,
    pub(crate) set: Vec<(String, Value)>,
}

impl Choice {
    pub(crate) fn of(field: &str, value: Value) -> Self {
        Self {
            label: value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
            set: vec![(field.to_owned(), value)],
        }
    }
}

/// A field that is drawn anew with every seed, and the same for all combinations: these differ in
/// nothing but their axes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Draw {
    pub(crate) field: String,
    pub(crate) range: Range,
}

const ROOT: &[&str] = &[
    "title",
    "scenario",
    "assumption",
    "design",
    "samples",
    "seeds",
    "first_seed",
    "baseline",
    "axis",
    "draw",
];
const AXIS: &[&str] = &[
    "field", "name", "values", "range", "points", "scale", "case",
];
const CASE: &[&str] = &["name", "set"];
const DRAW: &[&str] = &["field", "range", "scale"];
const DESIGNS: &[&str] = &["grid", "list", "random", "latin-hypercube"];
const SCALES: &[&str] = &["lin", "log"];

/// Values of one axis at most, and seeds.
const MANY: i64 = 1_000_000;

impl Sweep {
    /// Parses a sweep file.
    ///
    /// # Errors
    /// Returns all errors in the file.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let lines = Lines::of(text)?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let text = format!("not TOML: {}", error.message());
            Problems(vec![Problem { line: None, text }])
        })?;
        let mut reader = Reader {
            lines,
            problems: Vec::new(),
        };
        let sweep = reader.sweep(&table);
        match (sweep, reader.problems) {
            (Some(sweep), problems) if problems.is_empty() => Ok(sweep),
            (_, mut problems) => {
                problems.sort_by_key(|problem| problem.line);
                Err(Problems(problems))
            }
        }
    }
}

struct Reader {
    lines: Lines,
    problems: Vec<Problem>,
}

impl Reader {
    fn sweep(&mut self, root: &Table) -> Option<Sweep> {
        self.check_keys(root, "", ROOT);
        let text = |reader: &mut Self, name| reader.text(root, name).unwrap_or_default();
        let title = text(self, "title");
        let assumption = text(self, "assumption");
        if !root.contains_key("scenario") {
            self.problem("", "missing scenario; add scenario = \"FILE.toml\"");
        }
        let scenario = text(self, "scenario");
        let seeds = self.count(root, "seeds", (1, MANY)).unwrap_or(1);
        let first_seed = self.count(root, "first_seed", (0, i64::MAX - MANY));
        let baseline = match root.get("baseline") {
            None => false,
            Some(Value::Boolean(flag)) => *flag,
            Some(_) => {
                self.problem("baseline", "invalid baseline: must be true or false");
                false
            }
        };
        let design = self.design(root);
        let axes = self.tables(root, "axis");
        let axes: Vec<_> = axes
            .iter()
            .map(|(path, table)| self.axis(path, table, design?))
            .collect();
        let draws = self.tables(root, "draw");
        let draws: Vec<_> = draws
            .iter()
            .map(|(path, table)| self.draw(path, table))
            .collect();
        if design == Some(Design::List) {
            self.check_lengths(&axes);
        }
        Some(Sweep {
            title,
            scenario,
            assumption,
            design: design?,
            seeds: u32::try_from(seeds).ok()?,
            first_seed: u64::try_from(first_seed.unwrap_or(1)).ok()?,
            baseline,
            axes: axes.into_iter().collect::<Option<_>>()?,
            draws: draws.into_iter().collect::<Option<_>>()?,
        })
    }

    fn design(&mut self, root: &Table) -> Option<Design> {
        let word = self.word(root, "", "design", DESIGNS).unwrap_or("grid");
        let drawn = matches!(word, "random" | "latin-hypercube");
        if root.contains_key("samples") != drawn {
            let text = match drawn {
                true => format!("missing samples; add samples = 100: design = \"{word}\" needs it"),
                false => format!("samples: has no meaning for design = \"{word}\"; leave it out"),
            };
            self.problem("samples", text);
            return None;
        }
        let samples = self.count(root, "samples", (1, MANY));
        let samples = samples.and_then(|it| u32::try_from(it).ok());
        Some(match word {
            "list" => Design::List,
            "random" => Design::Random(samples?),
            "latin-hypercube" => Design::LatinHypercube(samples?),
            _ => Design::Grid,
        })
    }

    fn axis(&mut self, path: &str, table: &Table, design: Design) -> Option<Axis> {
        self.check_keys(table, path, AXIS);
        let forms = ["values", "range", "case"].map(|key| table.contains_key(key));
        if forms.iter().filter(|it| **it).count() != 1 {
            let text = format!(
                "{path} must have one of values = [...], range = [from, to] or [[axis.case]]"
            );
            self.problem(path, text);
            return None;
        }
        let [_, is_range, is_cases] = forms;
        let idle: &[&str] = match (is_range, is_cases) {
            (true, _) => &["name"],
            (_, true) => &["field", "points", "scale"],
            _ => &["name", "points", "scale"],
        };
        for key in idle.iter().filter(|key| table.contains_key(**key)) {
            let text = format!("{path}.{key}: has no meaning here; leave it out");
            self.problem(&format!("{path}.{key}"), text);
        }
        if is_cases {
            let name = self.text_of(table, path, "name");
            let name = name.unwrap_or_else(|| "case".into());
            let cases = self.cases(path, table)?;
            let choices = Choices::Listed(cases);
            return Some(Axis { name, choices });
        }
        let field = self.field(path, table)?;
        let choices = match is_range {
            true => self.spread(path, table, &field, design)?,
            false => Choices::Listed(self.values(path, table, &field)?),
        };
        let name = field;
        Some(Axis { name, choices })
    }

    fn field(&mut self, path: &str, table: &Table) -> Option<String> {
        if !table.contains_key("field") {
            let text = format!("missing {path}.field; add field = \"fault[0].for\", for example");
            self.problem(path, text);
        }
        let field = self.text_of(table, path, "field")?;
        if field == "seed" {
            let text =
                format!("{path}.field: seeds have keys of their own: seeds = 20, first_seed = 1");
            self.problem(&format!("{path}.field"), text);
            return None;
        }
        Some(field)
    }

    fn values(&mut self, path: &str, table: &Table, field: &str) -> Option<Vec<Choice>> {
        let key = format!("{path}.values");
        let values = table.get("values").and_then(Value::as_array);
        let Some(values) = values.filter(|values| !values.is_empty()) else {
            self.problem(&key, format!("invalid {key}: must be a list of values"));
            return None;
        };
        let choices = values.iter().map(|it| Choice::of(field, it.clone()));
        let choices: Vec<_> = choices.collect();
        self.check_labels(&key, &choices);
        Some(choices)
    }

    fn cases(&mut self, path: &str, table: &Table) -> Option<Vec<Choice>> {
        let tables = self.tables_in(table, path, "case");
        let mut cases = Vec::new();
        for (path, table) in &tables {
            self.check_keys(table, path, CASE);
            let label = self.text_of(table, path, "name");
            let set = table.get("set").and_then(Value::as_table);
            let (Some(label), Some(set)) = (label, set) else {
                let text = format!(
                    "{path} must have name = \"NAME\" and set = {{ \"device.profile\" = \"patient\" }}"
                );
                self.problem(path, text);
                continue;
            };
            let set = set
                .iter()
                .map(|(field, value)| (field.clone(), value.clone()));
            cases.push(Choice {
                label,
                set: set.collect(),
            });
        }
        self.check_labels(&format!("{path}.case"), &cases);
        (!cases.is_empty() && cases.len() == tables.len()).then_some(cases)
    }

    fn spread(
        &mut self,
        path: &str,
        table: &Table,
        field: &str,
        design: Design,
    ) -> Option<Choices> {
        let range = self.range(path, table)?;
        let key = format!("{path}.points");
        let is_drawn = matches!(design, Design::Random(_) | Design::LatinHypercube(_));
        if table.contains_key("points") == is_drawn {
            let text = match is_drawn {
                true => format!("{key}: the design draws the values; leave it out"),
                false => format!("missing {key}; add points = 9, for example"),
            };
            self.problem(&key, text);
            return None;
        }
        if is_drawn {
            return Some(Choices::Range(range));
        }
        let points = self.count_of(table, path, "points", (2, MANY))?;
        match range.spread(u32::try_from(points).ok()?) {
            Ok(values) => {
                let choices = values.into_iter().map(|it| Choice::of(field, it));
                Some(Choices::Listed(choices.collect()))
            }
            Err(error) => {
                self.problem(&key, format!("invalid {key} {points}: the range {error}"));
                None
            }
        }
    }

    fn range(&mut self, path: &str, table: &Table) -> Option<Range> {
        let is_log = self.word(table, path, "scale", SCALES) == Some("log");
        let key = format!("{path}.range");
        let ends = table.get("range").and_then(Value::as_array);
        let ends = ends.and_then(|it| <[Value; 2]>::try_from(it.clone()).ok());
        let range = ends
            .ok_or_else(|| "must be two values, for example [\"1ms\", \"10s\"]".to_owned())
            .and_then(|ends| Range::new(ends, is_log));
        match range {
            Ok(range) => Some(range),
            Err(error) => {
                self.problem(&key, format!("invalid {key}: {error}"));
                None
            }
        }
    }

    fn draw(&mut self, path: &str, table: &Table) -> Option<Draw> {
        self.check_keys(table, path, DRAW);
        let field = self.field(path, table);
        let range = self.range(path, table);
        Some(Draw {
            field: field?,
            range: range?,
        })
    }

    /// Those of a list stand side by side.
    fn check_lengths(&mut self, axes: &[Option<Axis>]) {
        let length = |axis: &Option<Axis>| match &axis.as_ref()?.choices {
            Choices::Listed(choices) => Some(choices.len()),
            Choices::Range(_) => None,
        };
        let Some(first) = axes.first().and_then(length) else {
            return;
        };
        for (at, axis) in axes.iter().enumerate() {
            if let Some(count) = length(axis).filter(|count| *count != first) {
                let path = format!("axis[{at}]");
                let text = format!(
                    "{path} has {count} values and axis[0] has {first}; design = \"list\" takes one of each \
                     at a time, so write as many, or design = \"grid\""
                );
                self.problem(&path, text);
            }
        }
    }

    fn check_labels(&mut self, path: &str, choices: &[Choice]) {
        for (at, choice) in choices.iter().enumerate() {
            if choices[..at].iter().any(|it| it.label == choice.label) {
                let text = format!("{path} has {} twice; leave one out", choice.label);
                self.problem(&format!("{path}[{at}]"), text);
            }
        }
    }

    fn check_keys(&mut self, table: &Table, path: &str, keys: &[&str]) {
        for name in table.keys().filter(|name| !keys.contains(&name.as_str())) {
            let instead = instead(name, keys.iter().copied());
            let path = join(path, name);
            let text = format!("unknown key {path}; {instead}");
            self.problem(&path, text);
        }
    }

    fn tables<'t>(&mut self, root: &'t Table, name: &str) -> Vec<(String, &'t Table)> {
        self.tables_in(root, "", name)
    }

    fn tables_in<'t>(
        &mut self,
        table: &'t Table,
        path: &str,
        name: &str,
    ) -> Vec<(String, &'t Table)> {
        let path = join(path, name);
        let Some(value) = table.get(name) else {
            return Vec::new();
        };
        let entries = value.as_array().map_or(&[][..], Vec::as_slice);
        let tables: Vec<_> = entries.iter().filter_map(Value::as_table).collect();
        if tables.is_empty() || tables.len() != entries.len() {
            self.problem(&path, format!("invalid {path}: must be [[{name}]] tables"));
            return Vec::new();
        }
        let paths = (0..).map(|at: usize| format!("{path}[{at}]"));
        paths.zip(tables).collect()
    }

    fn text(&mut self, root: &Table, name: &str) -> Option<String> {
        self.text_of(root, "", name)
    }

    fn text_of(&mut self, table: &Table, path: &str, name: &str) -> Option<String> {
        let value = table.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            let path = join(path, name);
            self.problem(&path, format!("invalid {path}: must be a string"));
        }
        text.map(str::to_owned)
    }

    fn word(
        &mut self,
        table: &Table,
        path: &str,
        name: &str,
        words: &[&'static str],
    ) -> Option<&'static str> {
        let text = self.text_of(table, path, name)?;
        let found = words.iter().find(|word| **word == text).copied();
        if found.is_none() {
            let path = join(path, name);
            let instead = instead(&text, words.iter().copied());
            let text = format!("invalid {path} {text:?}: {instead}");
            self.problem(&path, text);
        }
        found
    }

    fn count(&mut self, root: &Table, name: &str, range: (i64, i64)) -> Option<i64> {
        self.count_of(root, "", name, range)
    }

    fn count_of(
        &mut self,
        table: &Table,
        path: &str,
        name: &str,
        (min, max): (i64, i64),
    ) -> Option<i64> {
        let value = table.get(name)?;
        let count = value.as_integer().filter(|it| (min..=max).contains(it));
        if count.is_none() {
            let path = join(path, name);
            let text =
                format!("invalid {path} {value}: must be a whole number from {min} to {max}");
            self.problem(&path, text);
        }
        count
    }

    fn problem(&mut self, path: &str, text: impl Into<String>) {
        self.problems.push(Problem {
            line: self.lines.line(path),
            text: text.into(),
        });
    }
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
title = "Survival"
scenario = "flap.toml"
seeds = 20
baseline = true
[[axis]]
field = "fault[0].for"
range = ["1ms", "1s"]
scale = "log"
points = 4
[[axis]]
name = "policy"
[[axis.case]]
name = "out of the box"
set = { "device.personality" = "firmware" }
[[axis.case]]
name = "patient"
set = { "device.profile" = "patient" }
[[draw]]
field = "fault[0].at"
range = ["0", "1ms"]
"#;

    #[test]
    fn a_sweep_is_read() {
        let sweep = Sweep::parse(GOOD).unwrap();
        assert_eq!(
            (sweep.seeds, sweep.first_seed, sweep.design),
            (20, 1, Design::Grid)
        );
        let names: Vec<_> = sweep.axes.iter().map(|axis| axis.name.as_str()).collect();
        assert_eq!(names, ["fault[0].for", "policy"]);
        assert_eq!(sweep.draws[0].field, "fault[0].at");
        let Choices::Listed(cases) = &sweep.axes[1].choices else {
            panic!("cases are listed");
        };
        assert_eq!(cases[0].label, "out of the box");
    }

    #[test]
    fn what_is_wrong_has_its_line_and_what_to_write() {
        for (old, new, line, must) in [
            (
                "seeds = 20",
                "seedz = 20",
                4,
                "unknown key seedz; did you mean seeds?",
            ),
            (
                "seeds = 20",
                "seeds = 0",
                4,
                "invalid seeds 0: must be a whole number from 1",
            ),
            (
                "baseline = true",
                "baseline = 1",
                5,
                "must be true or false",
            ),
            ("scenario = \"flap.toml\"", "", 0, "missing scenario"),
            ("scale = \"log\"", "scale = \"lag\"", 9, "did you mean log?"),
            ("points = 4", "", 6, "missing axis[0].points"),
            (
                "[\"1ms\", \"1s\"]",
                "[\"1s\", \"1ms\"]",
                8,
                "the smaller one first",
            ),
            ("[\"1ms\", \"1s\"]", "[\"1s\"]", 8, "must be two values"),
            ("fault[0].for", "seed", 7, "seeds have keys of their own"),
            (
                "points = 4",
                "points = 4\nvalues = [1]",
                6,
                "must have one of values",
            ),
            (
                "name = \"patient\"",
                "name = \"out of the box\"",
                16,
                "has out of the box twice",
            ),
            (
                "name = \"patient\"",
                "nam = \"patient\"",
                17,
                "did you mean name?",
            ),
            (
                "title =",
                "design = \"gird\"\ntitle =",
                2,
                "did you mean grid?",
            ),
            (
                "title =",
                "design = \"random\"\ntitle =",
                0,
                "missing samples",
            ),
            (
                "title =",
                "samples = 5\ntitle =",
                2,
                "samples: has no meaning",
            ),
            (
                "title =",
                "design = \"list\"\ntitle =",
                12,
                "axis[1] has 2 values and axis[0] has 4",
            ),
            ("title =", "title ", 2, "not TOML"),
        ] {
            assert!(GOOD.contains(old), "{old}");
            let problems = Sweep::parse(&GOOD.replacen(old, new, 1)).unwrap_err().0;
            let found = problems.iter().find(|it| it.text.contains(must));
            let found = found.unwrap_or_else(|| panic!("{must}: {problems:?}"));
            assert_eq!(found.line.unwrap_or(0), line, "{problems:?}");
        }
    }
}
