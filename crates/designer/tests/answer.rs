//! What a page is told.

use ferroce_adp::builtin;
use ferroce_designer::{PROBLEMS_MAX, Refusal, answer};
use ferroce_testing::rows;
use proptest::prelude::*;
use serde_json::{Value, json};

#[track_caller]
fn design(question: &Value) -> Value {
    let text = answer("design", &question.to_string()).unwrap().unwrap();
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn refused(question: &str) -> Refusal {
    answer("design", question).unwrap().unwrap_err()
}

fn link_flap() -> &'static str {
    builtin::named("link-flap").unwrap().toml
}

/// The fields of link-flap, as a form has them.
fn fields() -> Value {
    design(&json!({"text": link_flap()}))["profile"].clone()
}

#[test]
fn the_catalogue_has_every_field_and_every_profile() {
    let text = answer("catalogue", "").unwrap().unwrap();
    let catalogue: Value = serde_json::from_str(&text).unwrap();
    let keys = catalogue["schema"]["properties"].as_object().unwrap();
    for key in fields().as_object().unwrap().keys() {
        assert!(keys.contains_key(key), "{key}");
    }
    let names: Vec<_> = builtin::all().iter().map(|it| it.name).collect();
    let profiles = catalogue["profiles"].as_array().unwrap();
    let listed: Vec<_> = profiles
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(listed, names);
}

#[test]
fn unknown_questions_are_not_answered() {
    assert!(answer("", "").is_none());
    assert!(answer("designs", "{}").is_none());
}

#[test]
fn fields_and_text_say_the_same() {
    for built_in in builtin::all() {
        let by_text = design(&json!({"text": built_in.toml}));
        assert_eq!(by_text["form"], "a profile file");
        let by_fields = design(&json!({"profile": by_text["profile"]}));
        assert_eq!(by_fields, by_text, "{}", built_in.name);
        let toml = &by_text["toml"];
        assert_eq!(
            design(&json!({"text": toml}))["profile"],
            by_text["profile"]
        );
    }
}

#[test]
fn every_command_is_read_again_as_the_same_profile() {
    let exported = design(&json!({"text": link_flap(), "device": "0000:3a:00.0"}));
    let commands = exported["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 4);
    for command in commands {
        assert!(
            command["set"].as_str().unwrap().contains(" 0000:3a:00.0 "),
            "{command}"
        );
        if command["tool"] == "ferroce" {
            continue; // `ferroce adp decode` reads what it writes
        }
        let imported = design(&json!({"text": command["set"]}));
        assert_eq!(imported["form"], "a command line");
        assert_eq!(imported["profile"], exported["profile"], "{command}");
    }
}

#[test]
fn the_profile_is_compared_with_the_policies_without_it() {
    let told = design(&json!({"text": link_flap(), "timeout": 20}));
    let policies = told["policies"].as_array().unwrap();
    let names: Vec<_> = policies
        .iter()
        .map(|it| it["policy"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["profile", "plain InfiniBand", "firmware"]);
    let survives = |at: usize| policies[at]["figures"]["survives_ns"].as_u64().unwrap();
    let resumes = |at: usize| {
        policies[at]["figures"]["resumes_within_ns"]
            .as_u64()
            .unwrap()
    };
    assert!(survives(0) > 30_000_000_000 && survives(1) > 30_000_000_000);
    assert!(resumes(0) < 20_000_000 && resumes(1) > 4_000_000_000);
    for policy in policies {
        let ladder = &policy["ladder"];
        let steps = ladder["steps"].as_array().unwrap();
        let mut before = Some(0);
        for step in steps {
            assert_eq!(step["from_ns"].as_u64(), before, "{ladder}");
            before = step["at_ns"].as_u64();
        }
        if ladder["is_cut"] == false {
            assert_eq!(ladder["gives_up_ns"].as_u64(), before);
        }
    }
}

#[test]
fn a_timer_that_is_off_has_no_figures() {
    let told = design(&json!({"text": link_flap(), "timeout": 0}));
    for policy in told["policies"].as_array().unwrap() {
        assert_eq!(policy["figures"], Value::Null);
        assert_eq!(policy["words"]["survives"], "nothing");
        assert_eq!(policy["ladder"]["steps"][0]["event"], "never");
    }
}

#[test]
fn an_invalid_profile_keeps_its_values_and_says_what_to_write() {
    let mut profile = fields();
    profile["time_base"] = json!(5);
    profile["timeout_init_low_bound"] = json!(300);
    let told = design(&json!({"profile": profile}));
    assert_eq!(told["valid"], false);
    assert_eq!(told["toml"], Value::Null);
    assert_eq!(told["commands"], json!([]));
    let findings = told["findings"].as_array().unwrap();
    let texts: Vec<_> = findings
        .iter()
        .map(|it| it["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        [
            "time_base = 5: must be a power of two from 4 to 32768; write time_base = 4 or \
             time_base = 8",
            "timeout_init_low_bound = 300: must be 0 to 255; write timeout_init_low_bound = 255",
        ]
    );
    // The others are still there to compare with.
    assert_eq!(told["policies"].as_array().unwrap().len(), 2);
}

#[test]
fn a_profile_that_ends_jobs_is_marked_deadly() {
    let mut profile = fields();
    profile["qp_total_timeout"] = json!(false);
    profile["retx_total_timeout"] = json!(10);
    let told = design(&json!({"profile": profile}));
    assert_eq!(
        (&told["valid"], &told["deadly"]),
        (&json!(true), &json!(true))
    );
    let findings = told["findings"].as_array().unwrap();
    let deadly = findings.iter().find(|it| it["kind"] == "deadly").unwrap();
    assert_eq!(deadly["field"], "retx_total_timeout");
}

#[test]
fn malformed_text_is_reported_like_a_file() {
    let cases = [
        (json!(null), "time_base is missing; add time_base = 4"),
        (json!(4.5), "time_base takes an integer"),
        (json!("x"), "time_base takes an integer"),
        (json!(u64::MAX), "time_base takes an integer"),
        (json!({"a": []}), "time_base takes an integer"),
    ];
    for (value, expected) in cases {
        let mut profile = fields();
        profile["time_base"] = value;
        let told = design(&json!({"profile": profile}));
        let text = told["problems"][0]["text"].as_str().unwrap();
        assert!(text.contains(expected), "{text}");
    }
    let mut profile = fields();
    profile["time_bas"] = json!(4);
    let told = design(&json!({"profile": profile}));
    let text = told["problems"][0]["text"].as_str().unwrap();
    assert_eq!(text, "unknown key time_bas; did you mean time_base?");
}

#[test]
fn no_more_problems_are_listed_than_are_read() {
    let lines: String = (0..1_000).map(|n| format!("key{n} = 1\n")).collect();
    let told = design(&json!({"text": lines}));
    assert_eq!(told["problems"].as_array().unwrap().len(), PROBLEMS_MAX);
}

#[test]
fn a_refusal_names_field_value_and_what_is_allowed() {
    let cases = rows(
        r#"
        {"text": "", "timeout": 32} => invalid timeout 32: must be a number from 0 to 31;
        {"text": "", "retry_cnt": -1} => invalid retry_cnt -1: must be a number from 0 to 7;
        {"text": "", "retry_cnt": "7"} => invalid retry_cnt "7": must be a number
        {"text": "", "device": "a\nb"} => invalid device "a\nb": must be a name of up to
        {"text": "", "profile": {}} => invalid profile "": must be given either as text
        {} => invalid profile null: must be given either as text or as profile
        {"txt": ""} => invalid key "txt": must be one of text, profile, timeout
        [] => invalid body []: must be a JSON object; its keys are text, profile
        { => invalid body "EOF while parsing
        "#,
    );
    for [question, expected] in cases {
        let text = refused(question).to_string();
        assert!(text.starts_with(expected), "{text}");
    }
    let long = format!(r#"{{"text": 1, "device": "{}"}}"#, "é".repeat(10_000));
    assert!(refused(&long).to_string().len() < 300);
}

proptest! {
    #[test]
    fn any_text_is_answered(text: String) {
        let _ = answer("design", &text);
        design(&json!({"text": text}));
    }

    #[test]
    fn any_values_are_answered(
        key in prop::sample::select(vec![
            "time_base", "time_unit", "qp_total_timeout", "retx_total_timeout", "range_num",
            "start_range_index", "timeout_init_low_bound", "timeout_init_range_size", "timeout_range",
        ]),
        value in prop_oneof![
            any::<u64>().prop_map(Value::from),
            any::<i16>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..6).prop_map(Value::from),
        ],
        timeout in 0..32,
        retry_cnt in 0..8,
    ) {
        let mut profile = fields();
        profile[key] = value;
        let told = design(&json!({"profile": profile, "timeout": timeout, "retry_cnt": retry_cnt}));
        let is_told = ["problems", "findings", "toml"].iter().any(|it| match &told[*it] {
            Value::Array(items) => !items.is_empty(),
            other => !other.is_null(),
        });
        prop_assert!(is_told, "{}", told);
    }
}
