//! Command lines and files that programs of DOCA are started with.

use ferroce_testing::rows;

use super::*;

fn param(short: &str, long: &str, kind: Kind) -> Param {
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Param {
        short: name(short),
        long: name(long),
        description: format!("the {long}"),
        kind: Some(kind),
    }
}

fn params() -> Vec<Param> {
    vec![
        param("p", "pci-addr", Kind::String),
        param("vid", "vhca-id", Kind::Int),
        param("b0", "bin-0-width", Kind::Int),
        param("c", "clear-on-read", Kind::Boolean),
        param("", "factor", Kind::Double),
    ]
}

fn parsed(line: &str) -> Result<Request, String> {
    let arguments: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    parse(&params(), &arguments).map_err(|refusal| refusal.to_string())
}

fn run(line: &str) -> Run {
    match parsed(line) {
        Ok(Request::Run(run)) => run,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn options_are_read_in_each_of_their_forms() {
    let address = || (0, Value::String("1a:00.0".to_owned()));
    for line in ["-p 1a:00.0", "--pci-addr 1a:00.0", "--pci-addr=1a:00.0"] {
        assert_eq!(run(line).values, [address()], "{line}");
    }
    let given = run("-vid 3 -b0 0x10 -c -p 1a:00.0 --factor -0.5 -l 60 --sdk-log-level 70");
    let values = [
        (1, Value::Int(3)),
        (2, Value::Int(16)),
        (3, Value::Boolean(true)),
        address(),
        (4, Value::Double(-0.5)),
    ];
    assert_eq!(given.values, values);
    assert_eq!(
        (given.level, given.sdk_level),
        (Some(Level::Debug), Some(Level::Trace))
    );
    assert_eq!(run("-b0 -7").values, [(2, Value::Int(-7))]);
    assert_eq!(
        run("--clear-on-read=false").values,
        [(3, Value::Boolean(false))]
    );
    assert_eq!(run(""), Run::default());
}

#[test]
fn help_and_version_come_before_anything_else() {
    assert_eq!(parsed("-vid 3 -h"), Ok(Request::Help));
    assert_eq!(parsed("--version -x"), Ok(Request::Version));
}

#[test]
fn errors_name_their_cause() {
    for (line, told) in [
        ("-x", "\"-x\" is not an option"),
        ("--vid 3", "\"--vid\" is not an option"),
        ("-pci-addr 3", "is not an option"),
        ("word", "\"word\" is not an option"),
        ("-", "is not an option"),
        ("--", "is not an option"),
        ("-vid", "-vid lacks its value"),
        ("-vid 3x", "-vid is \"3x\"; allowed: a number"),
        ("-vid 2147483648", "allowed: a number from"),
        ("-vid 0x-1", "allowed: a number"),
        ("-vid 1 --vhca-id 2", "--vhca-id is given twice"),
        ("--clear-on-read=maybe", "true or false"),
        ("--factor much", "a number, for example"),
        ("-l 55", "level is 55; allowed: 10=DISABLE"),
        ("-l high", "level is \"high\""),
        ("-j /does/not/exist", "cannot read \"/does/not/exist\""),
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.contains(told), "{line}: {error}");
    }
}

fn with_file(text: &str, line: &str) -> Result<Request, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flags.json");
    fs::write(&path, text).unwrap();
    parsed(&format!("{line} -j {}", path.display()))
}

#[test]
fn a_file_has_the_same_flags_and_the_command_line_wins() {
    let text = r#"// flags
        { "doca_general_flags": { "log-level": 60, "sdk-log-level": 20 },
          "doca_program_flags": { "pci-addr": "1a:00.0", "vhca-id": 3, "bin-0-width": "7",
                                  "clear-on-read": true, "factor": 2 } }"#;
    let Ok(Request::Run(run)) = with_file(text, "-vid 4 -l 10") else {
        panic!("it is right");
    };
    assert_eq!(
        (run.level, run.sdk_level),
        (Some(Level::Disable), Some(Level::Crit))
    );
    let mut values = run.values;
    assert_eq!(values.pop(), Some((1, Value::Int(4))), "told last");
    let others = [
        (0, Value::String("1a:00.0".to_owned())),
        (2, Value::Int(7)),
        (3, Value::Boolean(true)),
        (4, Value::Double(2.0)),
    ];
    assert_eq!(values, others);
}

#[test]
fn a_file_with_other_things_is_refused() {
    let cases = rows(
        r#"
         => cannot be read
        { => cannot be read
        [] => the JSON file is []
        {"flags": {}} => a group of flags is "flags"
        {"doca_program_flags": 1} => doca_program_flags is 1
        {"doca_program_flags": {"vid": 1}} => "vid" is not a flag
        {"doca_program_flags": {"vhca-id": []}} => vhca-id is []
        {"doca_program_flags": {"vhca-id": 1.5}} => vhca-id is "1.5"
        {"doca_general_flags": {"level": 1}} => a general flag is
        {"doca_general_flags": {"log-level": 1}} => level is 1
        "#,
    );
    for [text, told] in cases {
        let error = with_file(text, "").unwrap_err();
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn parameters_have_names_of_their_own_and_a_type() {
    let all = params();
    assert_eq!(check(&param("x", "extra", Kind::Int), &all), Ok(()));
    let no_kind = Param {
        kind: None,
        ..param("x", "extra", Kind::Int)
    };
    for bad in [
        Param::default(),
        no_kind,
        param("p", "extra", Kind::Int),
        param("x", "vhca-id", Kind::Int),
        param("h", "extra", Kind::Int),
        param("x", "json", Kind::Int),
        param("-x", "extra", Kind::Int),
        param("x", "a=b", Kind::Int),
    ] {
        let refusal = check(&bad, &all).unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidValue, "{bad:?}");
    }
}

#[test]
fn help_shows_every_flag() {
    let text = usage("sample", &params());
    assert!(
        text.starts_with("Usage: sample [DOCA Flags] [Program Flags]\n"),
        "{text}"
    );
    for flag in [
        "  -h, --help ",
        "--sdk-log-level <level>",
        "-j, --json <path>",
        "  -vid, --vhca-id   ",
        "  --factor ",
        "the bin-0-width\n",
        "70=TRACE",
    ] {
        assert!(text.contains(flag), "{flag}:\n{text}");
    }
}
