//! docs/commands.md: the spellings that it promises.

use std::fs;
use std::path::Path;

use crate::common::{Place, has};

/// The rows of a page's table of old spellings: the old and the new one.
fn old_spellings() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| old | new |").unwrap();
    let row = |line: &str| {
        let mut cells = line.split('`');
        let old = cells.nth(1)?.strip_prefix("ferroce ")?.to_owned();
        Some((old, cells.nth(1)?.to_owned()))
    };
    table.lines().filter_map(row).collect()
}

#[test]
fn old_spellings_work_and_say_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("sweep").display().to_string();
    let old = old_spellings();
    assert!(old.len() > 10, "{old:?}");
    for (old, new) in old {
        let place = Place::empty();
        let args: Vec<_> = old
            .split(' ')
            .map(|word| if word == "DIR" { output.as_str() } else { word })
            .collect();
        let (code, _, err) = place.run(&args);
        assert_eq!(code, 0, "{old}: {err}");
        has(&err, ["note: this is an old spelling", &new]);
    }
}

/// The profile is removed, and the histogram keeps its counts.
#[test]
fn adp_reset_removes_the_profile() {
    let place = Place::with("a", "127.63.1.77");
    assert_eq!(place.run("stat hist set a -n 3 -b0 7 -t 0").0, 0);
    let before = place.good("reg get a ADP_RETX_HISTOGRAM_CONFIG");
    place.good("adp apply link-flap a");
    assert!(place.good("adp show a").starts_with("# a: a profile"));
    place.good("adp reset a");
    let shown = place.good("adp show a");
    assert_eq!(
        shown,
        "# a: the firmware's own timeouts, minimum ACK timeout enforced\n"
    );
    let after = place.good("reg get a ADP_RETX_HISTOGRAM_CONFIG");
    assert_eq!(before, after);
}

/// The proposals for a shell that completes the last of these words.
fn proposed(place: &Place, words: &str) -> Vec<String> {
    let mut shell = place.command([vec!["--", "ferroce"], words.split(' ').collect()].concat());
    shell
        .env("FERROCE_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.split(' ').count().to_string())
        .env("_CLAP_IFS", "\n");
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{words:?}");
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_names_that_exist() {
    let place = Place::with("a", "127.63.1.78");
    place.good("dev add b 127.63.1.79");
    for (words, names) in [
        ("link set ", "a b"),
        ("explain error ", "a b"),
        ("adp apply li", "link-flap"),
        ("adp profile show pa", "patient"),
        ("sim show flap-a", "flap-all-reduce"),
        ("sim run flap-a", "flap-all-reduce"),
        ("reg explain ROCE_A", "ROCE_ACCL"),
        ("cc explain rpg_ai", "rpg_ai_rate"),
        (
            "stat explain roce_adp_retrans_w",
            "roce_adp_retrans_wait_ns",
        ),
    ] {
        let proposed = proposed(&place, words);
        let mut names = names.split(' ');
        let missing = names.find(|it| !proposed.iter().any(|one| one == it));
        assert_eq!(missing, None, "{words:?}: {proposed:?}");
    }
}
