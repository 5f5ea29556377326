//! What commands usually print is as the files in `tests/snapshots/` have it, and fits the terminal.
//!
//! Each session has devices of its own. `UPDATE_SNAPSHOTS=1 cargo test -p ferroce --test snapshots` writes
//! the files anew; look at `git diff` then.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use common::Place;
use ferroce::cli::Cli;

/// A file, the columns of its terminal, and the commands of which it has the output.
type Session = (&'static str, usize, &'static [&'static str]);

const SESSIONS: &[Session] = &[
    (
        "devices",
        80,
        &[
            "dev",
            "dev add fr1 127.0.0.2 --vfs 1",
            "-d dev show fr1",
            "dev",
            "link",
            "link set fr1 down",
            "link show fr1",
            "dev del fr1",
            "dev show fr1",
        ],
    ),
    (
        "counters",
        80,
        &[
            "stat",
            "stat show fr0 --all",
            "stat show fr0 roce_adp_retrans packet_seq_err",
            "stat show fr0 --details",
            "stat explain",
            "stat hist show fr0",
        ],
    ),
    (
        "impairments",
        80,
        &[
            "impair",
            "impair set fr0 loss=1%,burst=0.1%:20,delay=50us,jitter=10us,rate=1Gbit,red=5KB:200KB:1%",
            "impair",
            "impair set fr0 loss 1",
            "impair clear fr0",
        ],
    ),
    ("resources", 80, &["res", "res show qp", "res show fr0"]),
    (
        "congestion",
        80,
        &[
            "cc show",
            "cc explain",
            "cc preset",
            "cc preset show hpcc",
            "cc emit --preset hpcc --tool sysfs --on eth0",
            "cc rates",
        ],
    ),
    (
        "registers",
        80,
        &[
            "reg list",
            "reg explain ROCE_ACCL",
            "reg explain ADP_RETX_HISTOGRAM_CONFIG",
            "reg explain ADP_RETX_HISTOGRAM",
            "reg explain MFRL",
            "reg explain MGIR",
            "reg get fr0 ROCE_ACCL",
        ],
    ),
    (
        "profiles",
        80,
        &[
            "adp profile list",
            "adp check link-flap",
            "adp trace link-flap --timeout 14 --retry-cnt 7",
            "adp plot link-flap",
            "adp apply link-flap fr0",
            "adp show fr0",
            "adp compare link-flap firmware --outages list:300ms,2s",
        ],
    ),
    (
        "explanations",
        80,
        &[
            "explain timeout --timeout 14 --retry-cnt 7",
            "explain timeout --from nccl --survive 20s",
            "explain error",
            "explain error 12 0x81",
            "explain error fr0",
            "identify docs/examples/worker.log",
        ],
    ),
    (
        "simulator",
        80,
        &[
            "sim list",
            "sim check flap-all-reduce",
            "sim run flap-all-reduce",
        ],
    ),
    (
        "wide",
        120,
        &[
            "dev",
            "reg explain ROCE_ACCL",
            "sim list",
            "adp plot link-flap",
            "explain error",
        ],
    ),
];

/// Commands and what they print, as a terminal of so many columns shows it.
fn transcript(columns: usize, commands: &[&str]) -> String {
    let place = Place::with("spare", "127.0.0.100");
    place.good(&["dev", "del", "spare"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for shared in ["profiles", "docs"] {
        symlink(root.join(shared), place.path().join(shared)).unwrap();
    }
    let mut text = String::new();
    for command in commands {
        let args: Vec<_> = command.split(' ').collect();
        let mut program = place.command(&args);
        program
            .current_dir(place.path())
            .env("COLUMNS", columns.to_string());
        let output = program.output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        text += &format!("$ ferroce {command}\n{out}{err}");
    }
    text
}

/// The help of every command that does something; mlxreg has that of another tool.
fn helps(command: &Command, path: &str, found: &mut Vec<String>) {
    found.push(format!("{path} --help").trim_start().to_owned());
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    for below in shown.filter(|it| !["help", "mlxreg"].contains(&it.get_name())) {
        helps(below, format!("{path} {}", below.get_name()).trim(), found);
    }
}

fn check((name, columns, commands): (&str, usize, &[&str])) -> Result<(), String> {
    let text = transcript(columns, commands);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/snapshots/{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    // Complaints and remarks are prose, which a terminal may break; so may the commands be.
    let is_prose = |line: &str| {
        let labels = ["$ ", "error: ", "warning: ", "note: "];
        labels.iter().any(|label| line.starts_with(label))
    };
    let mut lines = text.lines();
    if let Some(wide) = lines.find(|it| !is_prose(it) && it.chars().count() > columns) {
        return Err(format!("{name} is wider than {columns} columns: {wide}"));
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    match text == expected {
        true => Ok(()),
        false => {
            let differs = text
                .lines()
                .zip(expected.lines())
                .find(|(new, old)| new != old);
            let path = path.display();
            Err(format!(
                "{path}: {differs:?}; UPDATE_SNAPSHOTS=1 writes it anew"
            ))
        }
    }
}

#[test]
fn usual_output_fits_the_terminal_and_is_as_it_was() {
    let wrong = SESSIONS.iter().filter_map(|it| check(*it).err());
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A change of help is read once more as it appears.
#[test]
fn help_is_as_it_was_and_says_what_each_word_is() {
    let mut commands = Vec::new();
    helps(&Cli::command(), "", &mut commands);
    assert!(commands.len() > 60, "{commands:?}");
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let same = check(("help", 80, &commands));
    assert!(same.is_ok(), "{same:?}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/help.txt");
    let text = fs::read_to_string(path).unwrap();
    // An example that is broken over lines cannot be copied, and its remark loses its column.
    let examples = text.split("Examples:\n").skip(1);
    let examples = examples.filter_map(|it| it.split("\n\n").next());
    for line in examples.flat_map(str::lines) {
        let begins = ["  ferroce ", "  tcpdump "];
        assert!(begins.iter().any(|it| line.starts_with(it)), "{line}");
    }
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    for pair in lines.windows(2) {
        // Short help stands on the line of its word.
        let is_word = pair[0].starts_with(['<', '[']) && !pair[0].contains("  ");
        let is_word = is_word && !pair[0].contains(": ");
        assert!(!is_word || !pair[1].is_empty(), "{} has no help", pair[0]);
    }
}
