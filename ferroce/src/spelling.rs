//! What the command line may say in more than one way, in the one way that the parser knows.
//!
//! `dev` or `link` may stand before a device's name, as iproute2 has it. The options of DOCA's sample
//! telemetry_adp_retx may have several letters. Spellings of the previous release work for one more, and
//! say what to write instead; those that are words of a command are known where that command is.

use std::ffi::OsString;

use clap::{Arg, Command};
use ferroce_registry::{KINDS, PciAddress};

use crate::output::{Failure, Output};

/// A command line as the parser reads it, and what to tell the user about it.
pub(crate) struct Spelled {
    pub(crate) args: Vec<OsString>,
    /// The newer spelling of each old one.
    pub(crate) newer: Vec<String>,
}

impl Spelled {
    /// Rewrites the arguments of a command.
    pub(crate) fn of(args: impl IntoIterator<Item = OsString>, command: &Command) -> Self {
        let mut it = Self {
            args: args.into_iter().collect(),
            newer: Vec::new(),
        };
        if let Some(place) = Place::of(&it.args, command) {
            it.pretty_before_noun(&place);
            let place = Place::of(&it.args, command).unwrap_or(place);
            it.sample_options(&place);
            it.details(&place);
            it.out(&place);
            it.dev(&place);
        }
        it
    }

    fn at(&self, at: usize) -> Option<&str> {
        self.args.get(at)?.to_str()
    }

    /// `-p` in front of the noun implies `-j`, as it does behind it.
    fn pretty_before_noun(&mut self, place: &Place<'_>) {
        let before = &self.args[1..place.noun];
        let is_given = |long: &str, short: char| {
            before.iter().filter_map(|it| it.to_str()).any(|arg| {
                arg == long || arg.starts_with('-') && !arg.starts_with("--") && arg.contains(short)
            })
        };
        if is_given("--pretty", 'p') && !is_given("--json", 'j') {
            self.args.insert(1, "--json".into());
        }
    }

    /// Short options of several letters, and `-p`, which prints JSON in lines everywhere else.
    fn sample_options(&mut self, place: &Place<'_>) {
        if place.path.get(..2) != Some(&["stat", "hist"]) {
            return;
        }
        for at in place.last..self.args.len() {
            let follows = self.at(at + 1);
            // Without a verb any word was the device's name.
            let is_device = follows.is_some_and(|it| match place.path.len() {
                2 => !it.starts_with('-'),
                _ => it.parse::<PciAddress>().is_ok(),
            });
            let long = match self.at(at) {
                Some("-vid") => "--vhca-id",
                Some("--pci-addr") => "--device",
                Some("-b0") => "--bin-0-width",
                Some("-b1") => "--bin-1-width",
                Some("-p") if is_device => {
                    self.newer.push("-d DEV for -p DEV".to_owned());
                    "--device"
                }
                _ => continue,
            };
            self.args[at] = long.into();
        }
    }

    /// `-d` used to ask the nouns of iproute2's `rdma` for details, and now names a device.
    fn details(&mut self, place: &Place<'_>) {
        let noun = place.path[0];
        if !["dev", "link", "res", "stat", "status"].contains(&noun) {
            return;
        }
        for at in place.noun + 1..self.args.len() {
            let names_device = self
                .at(at + 1)
                .is_some_and(|next| !next.starts_with('-') && !place.is_word_of_noun(next));
            let others = match self.at(at) {
                Some("-d") if names_device => continue,
                Some(arg) => beside_d(arg),
                None => None,
            };
            let Some(others) = others else { continue };
            self.args[at] = "--details".into();
            if others != "-" {
                self.args.insert(at + 1, others.into());
            }
            self.newer
                .push("--details for -d behind the command".to_owned());
        }
    }

    /// `--out` used to be what `-o` is elsewhere.
    fn out(&mut self, place: &Place<'_>) {
        if place.path[0] != "sweep" {
            return;
        }
        for at in place.last..self.args.len() {
            let Some(arg) = self.at(at) else { continue };
            let Some(rest) = arg
                .strip_prefix("--out")
                .filter(|it| it.is_empty() || it.starts_with('='))
            else {
                continue;
            };
            self.args[at] = format!("--output{rest}").into();
            self.newer.push("-o DIR for --out DIR".to_owned());
        }
    }

    /// Leaves out `dev` and `link` where a device's name follows.
    fn dev(&mut self, place: &Place<'_>) {
        let Some(at) = place
            .device
            .and_then(|nth| self.nth_word(place.last + 1, nth))
        else {
            return;
        };
        let is_keyword = matches!(self.at(at), Some("dev" | "link"));
        if is_keyword && self.at(at + 1).is_some_and(|it| !it.starts_with('-')) {
            self.args.remove(at);
        }
    }

    /// Where the n-th argument that is not an option is, from some argument on.
    fn nth_word(&self, from: usize, nth: usize) -> Option<usize> {
        let is_word = |at: &usize| self.at(*at).is_some_and(|it| !it.starts_with('-'));
        (from..self.args.len()).filter(is_word).nth(nth)
    }
}

/// Of options without a value in one word, such as `-jd`, those beside `-d`.
fn beside_d(arg: &str) -> Option<String> {
    let letters = arg.strip_prefix('-')?;
    let all_known = letters.chars().all(|it| "djpa".contains(it));
    (all_known && letters.contains('d')).then(|| arg.replace('d', ""))
}

/// What the words of a command line are.
struct Place<'a> {
    /// Where the noun is.
    noun: usize,
    /// Where the last word is that names a command.
    last: usize,
    /// The names of the commands.
    path: Vec<&'a str>,
    /// The command that the noun is.
    of_noun: &'a Command,
    /// Which of its words names the device.
    device: Option<usize>,
}

impl<'a> Place<'a> {
    fn of(args: &[OsString], root: &'a Command) -> Option<Self> {
        let is_value = |at: usize| args.get(at - 1).is_some_and(|it| it == "--color");
        let words = args.iter().enumerate().skip(1);
        let mut words = words
            .filter_map(|(at, arg)| Some((at, arg.to_str()?)))
            .filter(|(at, arg)| !arg.starts_with('-') && !is_value(*at));
        let (noun, word) = words.next()?;
        let of_noun = child(root, word)?;
        let mut command = of_noun;
        let (mut last, mut path) = (noun, vec![command.get_name()]);
        for (at, word) in words {
            let Some(verb) = child(command, word) else {
                break;
            };
            (command, last) = (verb, at);
            path.push(verb.get_name());
        }
        let is_device = |arg: &Arg| {
            let names = arg.get_value_names().unwrap_or_default();
            names.iter().any(|name| name.as_str() == "DEV")
        };
        let device = command.get_positionals().position(is_device);
        Some(Self {
            noun,
            last,
            path,
            of_noun,
            device,
        })
    }

    /// Whether a word belongs to the noun itself: a verb of it, or a kind of object.
    fn is_word_of_noun(&self, word: &str) -> bool {
        child(self.of_noun, word).is_some()
            || self.path[0] == "res" && KINDS.iter().any(|kind| kind.name == word)
    }
}

/// The command of a name, which may be shortened.
pub(crate) fn child<'a>(command: &'a Command, word: &str) -> Option<&'a Command> {
    let begins = |it: &&Command| it.get_name().starts_with(word);
    let mut begun = command.get_subcommands().filter(begins);
    let only = begun.next().filter(|_| begun.next().is_none());
    command.find_subcommand(word).or(only)
}

/// Says that something was spelled as in the previous release.
pub(crate) fn old(newer: &str, to: &mut Output<'_>) -> Result<(), Failure> {
    to.remark(format_args!(
        "note: this is an old spelling, which the next release will not know; write {newer}"
    ))
}

#[cfg(test)]
mod tests {
    use ferroce_testing::rows;

    use super::*;

    fn spelled(text: &str) -> String {
        let args = text.split(' ').map(OsString::from);
        let args = Spelled::of(args, &crate::cli::command()).args;
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        args.join(" ")
    }

    fn newer(text: &str) -> usize {
        let args = text.split(' ').map(OsString::from);
        Spelled::of(args, &crate::cli::command()).newer.len()
    }

    #[test]
    fn options_of_the_sample_are_taken_and_others_left_alone() {
        assert_eq!(
            spelled("ferroce -j stat hist set -p 0000:08:00.0 -vid 0 -b0 50 -b1 100 -t 1"),
            "ferroce -j stat hist set --device 0000:08:00.0 --vhca-id 0 --bin-0-width 50 \
             --bin-1-width 100 -t 1"
        );
        assert_eq!(
            spelled("ferroce stat hist -p fr0 -t 1"),
            "ferroce stat hist --device fr0 -t 1"
        );
        assert_eq!(
            spelled("ferroce stat hi se fr0 -b0 5"),
            "ferroce stat hi se fr0 --bin-0-width 5"
        );
        for text in [
            "ferroce",
            "ferroce res -p hist",
            "ferroce stat hist show fr0 -p",
            "ferroce stat hist show -p fr0",
        ] {
            assert_eq!(spelled(text), text);
        }
    }

    #[test]
    fn dev_may_stand_before_a_device() {
        let cases = rows(
            "
            ferroce link set dev fr0 down => ferroce link set fr0 down
            ferroce link show link fr0/1 => ferroce link show fr0/1
            ferroce adp apply link-flap dev fr0 => ferroce adp apply link-flap fr0
            ferroce reg get -j dev fr0 MGIR => ferroce reg get -j fr0 MGIR
            ferroce stat hist clear dev fr0 => ferroce stat hist clear fr0
            ferroce dev del dev => ferroce dev del dev
            ferroce run dev fr0 => ferroce run dev fr0
            ferroce dev show fr0 => ferroce dev show fr0
            ",
        );
        for [said, plain] in cases {
            assert_eq!(spelled(said), plain);
        }
    }

    #[test]
    fn details_were_asked_for_by_d() {
        let cases = rows(
            "
            ferroce res show qp -d => ferroce res show qp --details => 1
            ferroce res show -d qp => ferroce res show --details qp => 1
            ferroce stat -d show fr0 => ferroce stat --details show fr0 => 1
            ferroce dev -d => ferroce dev --details => 1
            ferroce --color never dev -d => ferroce --color never dev --details => 1
            ferroce dev show -jd fr0 => ferroce dev show --details -j fr0 => 1
            ferroce dev show -d fr0 => ferroce dev show -d fr0 => 0
            ferroce -d dev show => ferroce -d dev show => 0
            ferroce cc show -d fr0 => ferroce cc show -d fr0 => 0
            ",
        );
        for [said, plain, notes] in cases {
            assert_eq!(spelled(said), plain);
            assert_eq!(newer(said).to_string(), notes, "{said}");
        }
    }

    #[test]
    fn pretty_implies_json_before_the_noun_as_well() {
        assert_eq!(spelled("ferroce -p dev show"), "ferroce --json -p dev show");
        assert_eq!(spelled("ferroce -jp dev"), "ferroce -jp dev");
        assert_eq!(spelled("ferroce -dp dev"), "ferroce --json -dp dev");
        assert_eq!(
            spelled("ferroce --pretty dev"),
            "ferroce --json --pretty dev"
        );
    }
}
