//! The sweep file.

use ferroce_base::toml_file::{self, Problems, Reader, Section, integer, plain_table, plain_value};
use toml::Value;
use toml::de::DeTable;

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
    /// This number at random.
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
const DESIGNS: [&str; 4] = ["grid", "list", "random", "latin-hypercube"];

/// Values of one axis at most, and seeds.
const MANY: i64 = 1_000_000;

impl Sweep {
    /// Parses a sweep file.
    ///
    /// # Errors
    /// Returns all errors in the file.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let table = toml_file::parse(text)?;
        // Numbers that are too large are found here only.
        text.parse::<toml::Table>()
            .map_err(|error| Problems::one(None, format!("not TOML: {}", error.message())))?;
        let mut reader = Reader::new(text);
        let sweep = read(&mut reader, table.get_ref());
        reader.end()?;
        sweep.ok_or_else(|| Problems::one(None, "is not a sweep".into()))
    }
}

fn read<'t>(reader: &mut Reader<'t>, table: &'t DeTable<'t>) -> Option<Sweep> {
    let root = &reader.root(table, ROOT);
    let mut text = |name| reader.string(root, name).unwrap_or_default().to_owned();
    let [title, assumption, scenario] = ["title", "assumption", "scenario"].map(&mut text);
    reader.require(root, "scenario", "\"FILE.toml\"");
    let seeds = count(reader, root, "seeds", (1, MANY)).unwrap_or(1);
    let first_seed = count(reader, root, "first_seed", (0, i64::MAX - MANY));
    let baseline = reader.flag(root, "baseline").unwrap_or(false);
    let design = read_design(reader, root);
    let axes = tables(reader, root, "axis", AXIS);
    let axes: Vec<_> = axes
        .iter()
        .map(|section| axis(reader, section, design?))
        .collect();
    let draws = tables(reader, root, "draw", DRAW);
    let draws: Vec<_> = draws.iter().map(|section| draw(reader, section)).collect();
    if design == Some(Design::List) {
        check_lengths(reader, root, &axes);
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

fn read_design<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<Design> {
    let words = DESIGNS.map(|word| (word, word));
    let word = reader.word(root, "design", &words).unwrap_or("grid");
    let is_drawn = matches!(word, "random" | "latin-hypercube");
    if root.has("samples") != is_drawn {
        let line = reader.line(root, "samples");
        let text = match is_drawn {
            true => format!("missing samples; add samples = 100: design = \"{word}\" needs it"),
            false => format!("samples: has no meaning for design = \"{word}\"; leave it out"),
        };
        reader.problem(line, text);
        return None;
    }
    let samples = count(reader, root, "samples", (1, MANY));
    let samples = samples.and_then(|it| u32::try_from(it).ok());
    Some(match word {
        "list" => Design::List,
        "random" => Design::Random(samples?),
        "latin-hypercube" => Design::LatinHypercube(samples?),
        _ => Design::Grid,
    })
}

fn axis<'t>(reader: &mut Reader<'t>, section: &Section<'t>, design: Design) -> Option<Axis> {
    let forms = ["values", "range", "case"].map(|key| section.has(key));
    if forms.iter().filter(|it| **it).count() != 1 {
        let text = " must have one of values = [...], range = [from, to] or [[axis.case]]";
        reader.refuse(section, text);
        return None;
    }
    let [_, is_range, is_cases] = forms;
    let idle: &[&str] = match (is_range, is_cases) {
        (true, _) => &["name"],
        (_, true) => &["field", "points", "scale"],
        _ => &["name", "points", "scale"],
    };
    reader.idle(section, idle, "has no meaning here");
    if is_cases {
        let name = reader.string(section, "name").unwrap_or("case").to_owned();
        let choices = Choices::Listed(cases(reader, section)?);
        return Some(Axis { name, choices });
    }
    let name = field(reader, section)?;
    let choices = match is_range {
        true => spread(reader, section, &name, design)?,
        false => Choices::Listed(values(reader, section, &name)?),
    };
    Some(Axis { name, choices })
}

fn field<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<String> {
    reader.require(section, "field", "\"fault[0].for\", for example");
    let field = reader.string(section, "field")?;
    if field == "seed" {
        let text = "seeds have keys of their own: seeds = 20, first_seed = 1";
        reader.bad(section, "field", text);
        return None;
    }
    Some(field.to_owned())
}

fn values<'t>(reader: &mut Reader<'t>, section: &Section<'t>, field: &str) -> Option<Vec<Choice>> {
    let values = reader.value(section, "values")?.get_ref().as_array();
    let Some(values) = values.filter(|values| !values.is_empty()) else {
        let text = format!("invalid {}values: must be a list of values", section.path);
        reader.problem(reader.line(section, "values"), text);
        return None;
    };
    let choices = values
        .iter()
        .map(|it| Choice::of(field, plain_value(it.get_ref())));
    let choices: Vec<_> = choices.collect();
    let lines: Vec<_> = values.iter().map(|it| Some(reader.line_of(it))).collect();
    check_labels(reader, section, "values", &choices, &lines);
    Some(choices)
}

fn cases<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Vec<Choice>> {
    let tables = tables(reader, section, "case", CASE);
    let (mut cases, mut lines) = (Vec::new(), Vec::new());
    for table in &tables {
        let label = reader.string(table, "name");
        let set = reader.value(table, "set");
        let set = set.and_then(|set| set.get_ref().as_table());
        let (Some(label), Some(set)) = (label, set) else {
            let text = " must have name = \"NAME\" and set = { \"device.profile\" = \"patient\" }";
            reader.refuse(table, text);
            continue;
        };
        cases.push(Choice {
            label: label.to_owned(),
            set: plain_table(set).into_iter().collect(),
        });
        lines.push(reader.line(table, ""));
    }
    check_labels(reader, section, "case", &cases, &lines);
    (!cases.is_empty() && cases.len() == tables.len()).then_some(cases)
}

fn spread<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    field: &str,
    design: Design,
) -> Option<Choices> {
    let range = range(reader, section)?;
    let is_drawn = matches!(design, Design::Random(_) | Design::LatinHypercube(_));
    match (section.has("points"), is_drawn) {
        (false, true) => return Some(Choices::Range(range)),
        (true, true) => {
            reader.idle(section, &["points"], "the design draws the values");
            return None;
        }
        (false, false) => {
            reader.require(section, "points", "9, for example");
            return None;
        }
        (true, false) => {}
    }
    let points = count(reader, section, "points", (2, MANY))?;
    match range.spread(u32::try_from(points).ok()?) {
        Ok(values) => {
            let choices = values.into_iter().map(|it| Choice::of(field, it));
            Some(Choices::Listed(choices.collect()))
        }
        Err(error) => {
            let must = format_args!("the range {error}");
            reader.invalid(section, "points", points, must);
            None
        }
    }
}

fn range<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Range> {
    let is_log = reader.word(section, "scale", &[("lin", false), ("log", true)]);
    let ends = reader.value(section, "range");
    let ends = ends.and_then(|it| it.get_ref().as_array());
    let range = match ends.map(|ends| ends.iter().collect::<Vec<_>>()).as_deref() {
        Some([from, to]) => {
            let ends = [from, to].map(|it| plain_value(it.get_ref()));
            Range::new(ends, is_log == Some(true))
        }
        _ => Err("must be two values, for example [\"1ms\", \"10s\"]".to_owned()),
    };
    if let Err(error) = &range {
        let text = format!("invalid {}range: {error}", section.path);
        reader.problem(reader.line(section, "range"), text);
    }
    range.ok()
}

fn draw<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Draw> {
    let field = field(reader, section);
    let range = range(reader, section);
    Some(Draw {
        field: field?,
        range: range?,
    })
}

/// Those of a list stand side by side.
fn check_lengths<'t>(reader: &mut Reader<'t>, root: &Section<'t>, axes: &[Option<Axis>]) {
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
            reader.problem(reader.line(root, &path), text);
        }
    }
}

fn check_labels<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    choices: &[Choice],
    lines: &[Option<usize>],
) {
    for (at, (choice, line)) in choices.iter().zip(lines).enumerate() {
        if choices[..at].iter().any(|it| it.label == choice.label) {
            let path = &section.path;
            let text = format!("{path}{name} has {} twice; leave one out", choice.label);
            reader.problem(*line, text);
        }
    }
}

/// The tables of an array, which has some if it is there.
fn tables<'t>(
    reader: &mut Reader<'t>,
    parent: &Section<'t>,
    name: &str,
    keys: &'static [&'static str],
) -> Vec<Section<'t>> {
    let before = reader.problem_count();
    let tables = reader.sections(parent, name, keys);
    if tables.is_empty() && parent.has(name) && reader.problem_count() == before {
        let text = format!("invalid {}{name}: must be [[{name}]] tables", parent.path);
        reader.problem(reader.line(parent, name), text);
    }
    tables
}

fn count<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    (min, max): (i64, i64),
) -> Option<i64> {
    let value = reader.value(section, name)?.get_ref();
    let count = integer(value).filter(|it| (min..=max).contains(it));
    if count.is_none() {
        let must = format!("must be a whole number from {min} to {max}");
        reader.invalid(section, name, plain_value(value), must);
    }
    count
}

#[cfg(test)]
mod tests {
    use ferroce_testing::rows;

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
    fn errors_name_their_line_and_the_remedy() {
        let cases = rows(
            r#"
            seeds = 20 => seedz = 20 => 4 => unknown key seedz; did you mean seeds?
            seeds = 20 => seeds = 0 => 4 => invalid seeds 0: must be a whole number from 1
            baseline = true => baseline = 1 => 5 => must be true or false
            scenario = "flap.toml" =>  => 0 => missing scenario
            scale = "log" => scale = "lag" => 9 => did you mean log?
            points = 4 =>  => 6 => missing axis[0].points
            ["1ms", "1s"] => ["1s", "1ms"] => 8 => the smaller one first
            ["1ms", "1s"] => ["1s"] => 8 => must be two values
            fault[0].for => seed => 7 => seeds have keys of their own
            points = 4 => points = 4\nvalues = [1] => 6 => must have one of values
            name = "patient" => name = "out of the box" => 16 => has out of the box twice
            name = "patient" => nam = "patient" => 17 => did you mean name?
            title = => design = "gird"\ntitle = => 2 => did you mean grid?
            title = => design = "random"\ntitle = => 0 => missing samples
            title = => samples = 5\ntitle = => 2 => samples: has no meaning
            title = => design = "list"\ntitle = => 12 => axis[1] has 2 values and axis[0] has 4
            title = => title  => 2 => not TOML
            "#,
        );
        for [old, new, line, must] in cases {
            let new = new.replace("\\n", "\n");
            assert!(GOOD.contains(old), "{old}");
            let problems = Sweep::parse(&GOOD.replacen(old, &new, 1))
                .unwrap_err()
                .problems;
            let found = problems.iter().find(|it| it.text.contains(must));
            let found = found.unwrap_or_else(|| panic!("{must}: {problems:?}"));
            assert_eq!(found.line.unwrap_or(0).to_string(), line, "{problems:?}");
        }
    }
}
