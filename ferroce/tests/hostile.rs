//! Files that somebody has written to harm whoever opens them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::run;

/// Sets the title of a terminal, and clears it.
const RAW: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J";
/// The same as strings of TOML and JSON can have it.
const ESCAPED: &str = "\\u001b]0;owned\\u0007\\u001b[2J";

/// A scenario whose topology or job is read from another file.
fn scenario(topology: &str, job: &str) -> String {
    format!("[topology]\n{topology}\n[[job]]\nname = \"job\"\n{job}\n")
}

const STAR: &str = "kind = \"star\"\nhosts = 4";
const RING: &str = "workload = \"ring-all-reduce\"\nbytes = \"1MiB\"";

/// Runs a command on a file with this content, in a directory with others; returns its exit code and all that
/// it has printed.
fn open(command: &str, content: &str, others: &[(&str, String)]) -> (u8, String) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file.toml");
    fs::write(&file, content).unwrap();
    for (name, content) in others {
        fs::write(place.path().join(name), content).unwrap();
    }
    let words = command.split(' ').chain([file.to_str().unwrap()]);
    let (code, out, err) = run(words.collect::<Vec<_>>());
    (code, out + &err)
}

#[test]
fn files_cannot_control_the_terminal() {
    let titled = format!("title = \"{ESCAPED}\"\n{}", scenario(STAR, RING));
    let key = format!("\"{ESCAPED}\" = 1\n");
    let lldp = scenario("kind = \"lldp\"\nfile = \"other\"", RING);
    let clab = scenario("kind = \"containerlab\"\nfile = \"other\"", RING);
    let ib = scenario("kind = \"ibnetdiscover\"\nfile = \"other\"", RING);
    let hpcc = scenario("kind = \"hpcc\"\nfile = \"other\"", RING);
    let flows = |kind: &str| scenario(STAR, &format!("workload = \"{kind}\"\nfile = \"other\""));
    let json = format!("{{\"{ESCAPED}\": [\"{ESCAPED}\"]}}");
    let yaml = format!("name: x\ntopology:\n  \"{ESCAPED}\": 1\n  links: [\"{ESCAPED}\"]\n");
    let lines = format!("vendid=0\n{RAW} \"{RAW}\" 3\n{RAW} 1 2\n");
    for (command, content, other) in [
        ("adp check", &key, ""),
        ("adp check", &RAW.to_owned(), ""),
        ("adp decode", &RAW.to_owned(), ""),
        ("sim run", &key, ""),
        ("sim run", &titled, ""),
        ("sim check", &titled, ""),
        ("sweep plan", &key, ""),
        ("sim run", &lldp, &json),
        ("sim run", &clab, &yaml),
        ("sim run", &ib, &lines),
        ("sim run", &hpcc, &lines),
        ("sim run", &flows("hpcc-flows"), &lines),
        ("sim run", &flows("htsim-flows"), &lines),
        ("sim run", &flows("chakra"), &json),
        ("identify", &lines, ""),
        ("pcap check", &lines, ""),
    ] {
        let (code, printed) = open(command, content, &[("other", other.to_owned())]);
        let wrong = printed.chars().find(|it| it.is_control() && *it != '\n');
        assert_eq!(wrong, None, "{command}: {printed:?}");
        assert_eq!(code, 2, "{command}: {printed}");
    }
}

/// A block of a capture that says that it is this long.
fn block(kind: u32, length: u32) -> Vec<u8> {
    [kind, length].map(u32::to_le_bytes).concat()
}

/// Runs a command in a process with 2 GB of address space; it must end by itself.
fn within_limits(command: &str, file: &Path) {
    let limited = "ulimit -v 2000000; exec \"$@\"";
    let outcome = Command::new("sh")
        .args(["-c", limited, "sh", env!("CARGO_BIN_EXE_ferroce")])
        .args(command.split(' '))
        .arg(file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stderr);
    let code = outcome.status.code();
    assert!(matches!(code, Some(0 | 2)), "{command}: {code:?}, {said}");
}

#[test]
fn nested_values_and_false_lengths_take_no_memory() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    let many = 200_000;
    for text in [
        format!("a = {}{}", "[".repeat(many), "]".repeat(many)),
        format!("{} = 1", vec!["a"; many].join(".")),
        format!("[{}]", vec!["a"; many].join(".")),
        format!("a = {}1{}", "{ b = ".repeat(many), " }".repeat(many)),
    ] {
        fs::write(&file, text).unwrap();
        for command in ["adp check", "sim run", "sweep plan"] {
            within_limits(command, &file);
        }
    }

    let mut section = block(0x0a0d_0d0a, 28);
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    section.extend(28_u32.to_le_bytes());
    let interface = [
        block(1, 20),
        vec![1, 0, 0, 0, 0, 0, 0, 0],
        vec![20, 0, 0, 0],
    ]
    .concat();
    let mut old = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    old.extend([
        2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0,
    ]);
    for rest in [
        [&section, &block(6, 0xffff_fff0)[..]].concat(),
        [
            &section,
            &interface,
            &block(6, 0x7fff_fff0)[..],
            &[0xff; 100],
        ]
        .concat(),
        [&section, &block(6, 0)[..], &[0; 1000]].concat(),
        [&section[..], &interface.repeat(100_000)].concat(),
        [&old[..], &[0; 8], &[0xff; 8], &[0; 100]].concat(),
    ] {
        fs::write(&file, rest).unwrap();
        for command in ["identify", "pcap check"] {
            within_limits(command, &file);
        }
    }
}

/// Each level names the one before ten times.
#[test]
fn aliases_of_a_topology_file_take_no_memory() {
    let place = tempfile::tempdir().unwrap();
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let names = vec![format!("*a{}", level - 1); 10].join(", ");
        text += &format!("a{level}: &a{level} [{names}]\n");
    }
    fs::write(place.path().join("other"), text).unwrap();
    let file = place.path().join("file.toml");
    fs::write(
        &file,
        scenario("kind = \"containerlab\"\nfile = \"other\"", RING),
    )
    .unwrap();
    within_limits("sim run", &file);
}
