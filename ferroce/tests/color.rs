//! Colour and width of the output: on a terminal, in a pipe, and as requested.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use crate::common::Place;

/// The output of a command on a terminal, standard error included.
fn on_terminal(columns: u16, mut command: Command) -> String {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(&size, None).unwrap();
    let side = || Stdio::from(terminal.slave.try_clone().unwrap());
    command.stdin(Stdio::null()).stdout(side()).stderr(side());
    let mut child = command.spawn().unwrap();
    // Only the program has the other side open now, so the terminal ends with it.
    drop((command, terminal.slave));
    let text = all_of(terminal.master);
    child.wait().unwrap();
    text.replace("\r\n", "\n")
}

fn all_of(master: OwnedFd) -> String {
    let (mut master, mut bytes) = (File::from(master), Vec::new());
    // It ends with an error once no process has the other side open.
    let _ = master.read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

fn command(place: &Place, args: &str) -> Command {
    let args: Vec<_> = args.split(' ').collect();
    let mut command = place.command(&args);
    command
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS");
    command
}

fn place() -> Place {
    let place = Place::with("spare", "127.0.0.100");
    place.good(["dev", "del", "spare"]);
    place
}

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";

fn has_colour(text: &str) -> bool {
    text.contains("\x1b[")
}

#[test]
fn terminals_get_colour_and_pipes_do_not() {
    let place = place();
    let text = on_terminal(80, command(&place, "reg list"));
    assert!(text.starts_with(&format!("{BOLD}register")), "{text:?}");
    let text = on_terminal(80, command(&place, "dev show fr9"));
    assert!(text.starts_with(&format!("{RED}error:")), "{text:?}");
    let text = on_terminal(80, command(&place, "impair set fr0 loss=1"));
    assert!(text.starts_with(&format!("{YELLOW}warning:")), "{text:?}");
    for args in ["nonsense", "--help", "adp check --help", "status"] {
        let text = on_terminal(80, command(&place, args));
        assert!(has_colour(&text), "{args}: {text:?}");
    }
    for args in ["reg list", "dev show fr9", "nonsense", "--help", "status"] {
        let output = command(&place, args).output().unwrap();
        for text in [output.stdout, output.stderr] {
            assert!(!has_colour(&String::from_utf8(text).unwrap()), "{args}");
        }
    }
    // Output for programs has no colour.
    assert!(!has_colour(&on_terminal(
        80,
        command(&place, "reg list -j")
    )));
}

#[test]
fn no_color_and_the_option_decide() {
    let place = place();
    let with = |name: &str, value: &str, args: &str| {
        let mut command = command(&place, args);
        command.env(name, value);
        command
    };
    let is_coloured = |command| has_colour(&on_terminal(80, command));
    assert!(!is_coloured(with("NO_COLOR", "1", "reg list")));
    assert!(is_coloured(with("NO_COLOR", "", "reg list")));
    assert!(!is_coloured(with("TERM", "dumb", "reg list")));
    for args in ["reg list", "dev show fr9", "nonsense", "--help"] {
        assert!(
            !is_coloured(command(&place, &format!("--color never {args}"))),
            "{args}"
        );
        assert!(!is_coloured(with("NO_COLOR", "1", args)), "{args}");
        let output = with("NO_COLOR", "1", &format!("--color=always {args}"))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(has_colour(&String::from_utf8(said).unwrap()), "{args}");
    }
    let behind = command(&place, "reg list --color always").output().unwrap();
    assert!(has_colour(&String::from_utf8(behind.stdout).unwrap()));
}

#[test]
fn output_is_as_wide_as_the_terminal() {
    let place = place();
    let widest = |text: &str| text.lines().map(|it| it.chars().count()).max();
    for columns in [80, 100, 120] {
        for args in [
            "dev",
            "link",
            "stat explain",
            "cc explain",
            "sim list",
            "explain error",
        ] {
            let text = on_terminal(columns, command(&place, &format!("--color never {args}")));
            assert!(widest(&text) <= Some(columns.into()), "{args}: {text}");
        }
    }
    // One device per line, for grep.
    let piped = place.good(["dev"]);
    assert_eq!(piped.lines().count(), 1, "{piped}");
    let broken = on_terminal(80, command(&place, "dev"));
    assert!(broken.lines().count() > 1, "{broken}");
    let joined: Vec<_> = broken.split_whitespace().collect();
    assert_eq!(joined, piped.split_whitespace().collect::<Vec<_>>());
    let mut asked = command(&place, "dev");
    asked.env("COLUMNS", "80");
    assert_eq!(
        String::from_utf8(asked.output().unwrap().stdout).unwrap(),
        broken
    );
}
