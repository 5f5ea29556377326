//! Profile files: what they may say, what is wrong with them, and that nothing gets lost.

mod common;

use common::{fast_four, plain_doubling};
use ferroce_adp::file::{self, Document};
use ferroce_adp::{PolicyKind, RawProfile, RawRange, Rule};
use proptest::prelude::*;

const GOOD: &str = r#"time_base = 4
qp_total_timeout = true
timeout_init_low_bound = 8

[[timeout_range]]
range_low_bound = 8
range_size = 6
timeout_retry_num = 1
dec_mode = "TO_LOW_BOUND"

[[timeout_range]]
range_low_bound = 16
timeout_retry_num = 1
dec_mode = "TO_DIV_2"
"#;

#[track_caller]
fn problems(text: &str) -> Vec<(Option<usize>, String)> {
    let error = Document::parse(text).unwrap_err();
    error
        .problems
        .iter()
        .map(|problem| (problem.line, problem.to_string()))
        .collect()
}

#[track_caller]
fn one_problem(text: &str, line: usize, message: &str) {
    assert_eq!(problems(text), [(Some(line), message.to_owned())]);
}

#[test]
fn omitted_fields_are_zero() {
    let document = Document::parse(GOOD).unwrap();
    let raw = document.raw();
    assert_eq!(
        (raw.time_unit, raw.range_num, raw.start_range_index),
        (1, 2, 0)
    );
    assert_eq!(
        (raw.timeout_init_range_size, raw.retx_total_timeout),
        (0, 0)
    );
    assert_eq!(
        (
            raw.timeout_range[1].range_size,
            raw.timeout_range[1].prev_range_index
        ),
        (0, 0)
    );
    assert!(document.profile().is_ok());
}

#[test]
fn unknown_keys_name_a_valid_one() {
    one_problem(
        &GOOD
            .replacen("time_base", "timebase", 1)
            .replacen("time", "time_base = 4\ntime", 1),
        2,
        "unknown key timebase; did you mean time_base?",
    );
    one_problem(
        &GOOD.replacen("range_size", "range_sze = 1\nrange_size", 1),
        7,
        "unknown key timeout_range[0].range_sze; did you mean range_size?",
    );
    one_problem(
        &format!("retry_cnt = 7\n{GOOD}"),
        1,
        "unknown key retry_cnt; expected one of time_base, time_unit, qp_total_timeout, \
         retx_total_timeout, range_num, start_range_index, timeout_init_low_bound, \
         timeout_init_range_size, timeout_range",
    );
}

#[test]
fn keys_in_the_wrong_table_are_sent_to_the_right_one() {
    one_problem(
        &format!("{GOOD}start_range_index = 0\n"),
        15,
        "timeout_range[1].start_range_index is a key of the profile; move it above the first \
         [[timeout_range]]",
    );
    one_problem(
        &format!("range_size = 0\n{GOOD}"),
        1,
        "range_size is a key of a range; move it below a [[timeout_range]]",
    );
}

#[test]
fn unknown_words_name_the_known_ones() {
    one_problem(
        &GOOD.replace("TO_DIV_2", "TO_DIV_8"),
        14,
        "timeout_range[1].dec_mode = \"TO_DIV_8\" is unknown; allowed: TO_DIV_4, TO_DIV_2, \
         TO_LOW_BOUND",
    );
}

#[test]
fn wrong_types_name_the_right_one() {
    one_problem(
        &GOOD.replace("time_base = 4", "time_base = \"4us\""),
        1,
        "time_base takes an integer, not a string",
    );
    one_problem(
        &GOOD.replace("= true", "= 1"),
        2,
        "qp_total_timeout takes true or false, not an integer",
    );
    one_problem(
        &GOOD.replace("range_size = 6", "range_size = 6.5"),
        7,
        "timeout_range[0].range_size takes an integer, not a number with a fraction",
    );
    one_problem(
        &GOOD.replace("\"TO_DIV_2\"", "true"),
        14,
        "timeout_range[1].dec_mode takes \"TO_DIV_4\", \"TO_DIV_2\" or \"TO_LOW_BOUND\", not a \
         boolean",
    );
    let header = &GOOD[..GOOD.find("[[").unwrap()];
    one_problem(
        &format!("{header}timeout_range = 3\n"),
        5,
        "timeout_range takes [[timeout_range]] tables, not an integer",
    );
}

#[test]
fn missing_keys_come_with_a_line_to_add() {
    one_problem(
        &GOOD.replace(
            "timeout_retry_num = 1\ndec_mode = \"TO_D",
            "dec_mode = \"TO_D",
        ),
        11,
        "timeout_range[1].timeout_retry_num is missing; add timeout_retry_num = 1",
    );
    let text = GOOD.replace("= true", "= false");
    assert_eq!(
        problems(&text),
        [(
            None,
            "retx_total_timeout is missing; add retx_total_timeout = 20".to_owned()
        )]
    );
    let keys: Vec<_> = problems("").iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(
        keys,
        [
            "time_base is missing; add time_base = 4",
            "qp_total_timeout is missing; add qp_total_timeout = true",
            "timeout_init_low_bound is missing; add timeout_init_low_bound = 8",
            "timeout_range is missing; add a [[timeout_range]] table",
        ]
    );
}

#[test]
fn bad_toml_is_reported_with_its_place() {
    let problems = problems("time_base = 4\nqp_total_timeout == true\n");
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].0, Some(2));
    assert!(problems[0].1.starts_with("not TOML: "), "{problems:?}");
}

#[test]
fn too_many_promised_ranges_are_refused() {
    one_problem(
        &format!("range_num = 3\n{GOOD}"),
        1,
        "range_num = 3, but there are 2 [[timeout_range]] tables; leave range_num out or write 2",
    );
}

#[test]
fn out_of_range_integers_are_reported_with_their_values() {
    for (from, to, expected) in [
        (
            "time_base = 4",
            "time_base = 70000",
            "time_base = 70000: must be a power of two",
        ),
        (
            "time_base = 4",
            "time_base = -4",
            "time_base = -4: must be a power of two",
        ),
        (
            "low_bound = 8\n\n",
            "low_bound = 256\n\n",
            "timeout_init_low_bound = 256: must be 0 to 255; write timeout_init_low_bound = 255",
        ),
        (
            "range_size = 6",
            "range_size = 99999999999999999999",
            "timeout_range[0].range_size = 9223372036854775807: must be 0 to 255; write",
        ),
        (
            "num = 1\ndec_mode = \"TO_L",
            "num = -1\ndec_mode = \"TO_L",
            "timeout_range[0].timeout_retry_num = -1: must be 0 to 1023; write timeout_retry_num = 0",
        ),
        (
            "\"TO_DIV_2\"",
            "300",
            "timeout_range[1].dec_mode = 300: must be TO_DIV_4 (0)",
        ),
    ] {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD);
        let document = match Document::parse(&text) {
            Ok(document) => document,
            // TOML itself stops at 64 bits.
            Err(error) => {
                assert_eq!(error.problems.len(), 1);
                assert!(error.to_string().starts_with("not TOML: "), "{error}");
                continue;
            }
        };
        let report = document.check();
        let found: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{found:?}");
        assert!(document.profile().is_err());
        assert!(document.line(report.violations[0].field).is_some());
    }
}

#[test]
fn five_ranges_are_refused_and_still_read() {
    let more = "\n[[timeout_range]]\nrange_low_bound = 20\ntimeout_retry_num = 1\ndec_mode = 0\n";
    let document = Document::parse(&format!("{GOOD}{}", more.repeat(3))).unwrap();
    let report = document.check();
    assert_eq!(report.violations[0].rule, Rule::RangeNum);
    assert_eq!(report.violations[0].value, 5);
}

#[test]
fn the_canonical_file_spells_durations_out() {
    assert_eq!(
        file::to_toml(&plain_doubling()),
        r#"time_base = 4                 # us
qp_total_timeout = true       # the QP's timeout * retry_cnt
retx_total_timeout = 0        # not used
start_range_index = 0
timeout_init_low_bound = 10   # 4.096 ms
timeout_init_range_size = 1   # drawn up to 4.096 ms

[[timeout_range]]
range_low_bound = 10          # 4.096 ms
range_size = 6                # up to 262.144 ms
timeout_retry_num = 1
dec_mode = "TO_LOW_BOUND"
prev_range_index = 0
"#
    );
}

#[test]
fn entries_beyond_range_num_survive() {
    let mut raw = plain_doubling();
    raw.timeout_range[2] = RawRange {
        dec_mode: 3,
        prev_range_index: 7,
        ..RawRange::EMPTY
    };
    let text = file::to_toml(&raw);
    assert!(
        text.contains("range_num = 1 ") && text.contains("dec_mode = 3 "),
        "{text}"
    );
    assert_eq!(Document::parse(&text).unwrap().raw(), &raw);
}

#[test]
fn a_good_profile_survives() {
    let PolicyKind::Profile(profile) = fast_four().kind else {
        unreachable!()
    };
    let document = Document::parse(&file::to_toml(profile.raw())).unwrap();
    assert_eq!(document.profile().unwrap(), profile);
}

#[test]
fn the_schema_is_json_and_committed() {
    let schema = file::json_schema();
    serde_json::from_str::<serde_json::Value>(&schema).unwrap();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/profile.schema.json"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        committed, schema,
        "run with UPDATE_DOCS=1 to rewrite docs/profile.schema.json"
    );
}

proptest! {
    /// Values beyond what a register can hold have no canonical file.
    #[test]
    fn any_register_content_round_trips(bytes in prop::collection::vec(any::<u8>(), 0x30)) {
        let raw = RawProfile::from_register(&bytes.try_into().unwrap());
        let text = file::to_toml(&raw);
        match Document::parse(&text) {
            Ok(document) => prop_assert_eq!(document.raw(), &raw),
            // Five to seven ranges are more than there are tables.
            Err(error) => prop_assert!(raw.range_num > 4, "{} {}", error, text),
        }
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = Document::parse(&text).map(|document| document.check());
    }

    #[test]
    fn no_change_of_a_line_panics(line in 0..14_usize, value in "[-0-9a-zTO_\"'\\[\\]{}., ]{0,12}") {
        let lines: Vec<_> = GOOD
            .lines()
            .enumerate()
            .map(|(i, old)| if i == line {
                format!("{}={value}", old.split('=').next().unwrap_or_default())
            } else {
                old.to_owned()
            })
            .collect();
        let _ = Document::parse(&lines.join("\n")).map(|document| document.check());
    }
}
