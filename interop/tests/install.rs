//! What `ferroce install` installs, as used by shells and `man`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_interop::Tool;
use ferroce_interop::lab::{Lab, program};
use ferroce_testing::has;

const BASH: Tool = Tool {
    program: "bash",
    debian_package: "bash",
};
const ZSH: Tool = Tool {
    program: "zsh",
    debian_package: "zsh",
};
const FISH: Tool = Tool {
    program: "fish",
    debian_package: "fish",
};

fn share(lab: &Lab) -> PathBuf {
    lab.path().join("prefix/share")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The complaint of `man` about each generated list, which it still shows completely.
const KNOWN: &str = "skipping paragraph macro: br";

#[test]
fn each_command_has_a_manual_page_without_mistakes() {
    let lab = Lab::new("manual");
    let directory = share(&lab).join("man/man1");
    let pages = names(&directory);
    for page in ["ferroce.1", "ferroce-run.1", "ferroce-adp-check.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    let lint = Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(pages.iter().map(|name| directory.join(name)))
        .output()
        .expect("apt-get install mandoc");
    let lint = String::from_utf8(lint.stdout).unwrap();
    let mistakes: Vec<_> = lint.lines().filter(|it| !it.contains(KNOWN)).collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let shown = Command::new("mandoc")
        .args(["-T", "utf8"])
        .arg(directory.join("ferroce-run.1"))
        .output()
        .expect("apt-get install mandoc");
    let shown = String::from_utf8(shown.stdout).unwrap();
    has(&shown, ["127  there is no such program"]);
}

#[test]
fn bash_zsh_and_fish_complete_what_is_typed() {
    let lab = Lab::new("completions");
    let share = share(&lab);
    let of = |path: &str| share.join(path).display().to_string();

    // The files run the program itself, by the name that the user types.
    let path = format!("PATH='{}':$PATH", program().parent().unwrap().display());

    let bash = format!(
        "{path}; source '{}'; complete=($(complete -p ferroce)); COMP_WORDS=(ferroce adp che)
         COMP_CWORD=2; COMP_TYPE=9; ${{complete[-2]}} ferroce che adp; echo \"${{COMPREPLY[@]}}\"",
        of("bash-completion/completions/ferroce")
    );
    assert_eq!(BASH.run(&["--norc", "-c", &bash], b"").trim_end(), "check");

    // zsh completes only at a prompt; whether it uses the file for the command can be queried.
    let zsh = format!(
        "fpath=('{}' $fpath); autoload -U compinit; compinit -u -D; print $_comps[ferroce]
         autoload +X _ferroce",
        of("zsh/site-functions")
    );
    assert_eq!(ZSH.run(&["-fc", &zsh], b""), "_ferroce\n");

    let fish = format!(
        "set -x PATH '{}' $PATH; source '{}'; complete -C 'ferroce adp che'",
        program().parent().unwrap().display(),
        of("fish/vendor_completions.d/ferroce.fish")
    );
    let fish = FISH.run(&["--no-config", "-c", &fish], b"");
    assert!(fish.starts_with("check\t"), "{fish}");
}

#[test]
fn uninstall_removes_only_installed_files() {
    let lab = Lab::new("uninstall");
    let prefix = lab.path().join("second");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::write(prefix.join("bin/theirs"), "").unwrap();
    let shown = prefix.display().to_string();
    // As this user: the lab's programs may run as another one.
    let ferroce = |args: [&str; 2]| {
        let ran = Command::new(program()).args(args).output().unwrap();
        let [out, err] = [ran.stdout, ran.stderr].map(|it| String::from_utf8(it).unwrap());
        (ran.status.success(), out, err)
    };
    for _ in 0..2 {
        let (_, said, err) = ferroce(["install", &shown]);
        for next in [
            format!("ferroce uninstall {shown}"),
            "export PATH=".to_owned(),
        ] {
            assert!(said.contains(&next), "{said}{err}");
        }
    }
    let docs = prefix.join("share/doc/ferroce");
    for page in ["README.md", "docs/README.md", "docs/demo.svg"] {
        assert!(docs.join(page).is_file(), "{page}");
    }
    for place in ["scenarios", "sweeps"] {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(place);
        let installed = prefix.join("share/ferroce").join(place);
        assert_eq!(names(&installed), names(&sources));
    }
    let profile = prefix.join("share/ferroce/profiles/link-flap.toml");
    fs::write(&profile, "mine").unwrap();
    let (is_done, _, err) = ferroce(["uninstall", &shown]);
    assert!(
        is_done && err.contains("link-flap.toml, which was changed"),
        "{err}"
    );
    assert_eq!(names(&prefix), ["bin", "share"]);
    assert_eq!(names(&prefix.join("bin")), ["theirs"]);
    assert_eq!(names(profile.parent().unwrap()), ["link-flap.toml"]);
    let (is_done, _, err) = ferroce(["uninstall", &shown]);
    assert!(
        !is_done && err.contains("given to `ferroce install`"),
        "{err}"
    );
}

#[test]
fn profiles_and_dashboards_are_there_as_files() {
    let lab = Lab::new("shared-files");
    let share = share(&lab).join("ferroce");
    assert_eq!(
        names(&share.join("dashboards")),
        ["ferroce.json", "ferroce.rules.yml"]
    );
    let profiles = share.join("profiles");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles");
    assert_eq!(names(&profiles), names(&sources));
    let profile = profiles.join("link-flap.toml").display().to_string();
    lab.ferroce(["adp", "check", &profile]).success();
}
