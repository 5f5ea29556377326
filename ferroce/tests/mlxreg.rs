//! `ferroce mlxreg`: texts, tables and behaviour of the register tool.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use proptest::strategy::Strategy as _;

use crate::common::{self, Place, has};

fn place(last: u8) -> Place {
    Place::with("a", &format!("127.63.2.{last}"))
}

/// Arguments of mlxreg on the device, from one text.
fn args(text: &str) -> String {
    format!("mlxreg -d a {text}")
}

#[test]
fn a_set_asks_and_writes_back_what_it_has_read() {
    let place = place(3);
    let dword = |n: usize| {
        let text = place.good(args("--reg_id 0x402c --reg_len 0x80 -g"));
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("0x")).collect();
        rows[n].split_once(" | ").unwrap().1.to_owned()
    };
    let set = args("--reg_name ROCE_ACCL --set roce_adp_retrans_en=0");
    for (typed, expected) in [
        ("n\n", "0x00000005"),
        ("", "0x00000005"),
        ("y\n", "0x00000004"),
    ] {
        let (code, out, err) = place.answer(&set, typed);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.starts_with(
            "You are about to send access register: ROCE_ACCL with the following data:\nField Name"
        ));
        let question = "\n Do you want to continue ? (y/n) [n] : ";
        has(&out, [question]);
        assert_eq!(
            out.ends_with(" Sending access register...\n"),
            typed == "y\n"
        );
        assert_eq!(dword(1), expected, "{typed:?}");
    }
}

#[test]
fn options_come_in_the_forms_of_c_programs() {
    let place = place(9);
    let expected = place.good(args("--reg_name MFRL --get"));
    for text in [
        "--reg_name=MFRL -g",
        "-g --reg_n MFRL",
        "--get --reg_name MFRL",
    ] {
        assert_eq!(place.good(args(text)), expected, "{text}");
    }
    assert_eq!(place.good("mlxreg -da -g --reg_name MFRL"), expected);
    assert!(place.good("mlxreg --help").contains("--gen_cmd_buffer"));
    assert!(place.good("mlxreg -v").starts_with("mlxreg, ferroce "));
}

proptest::proptest! {
    /// No command line makes the tool panic. It has no device, so it changes nothing.
    #[test]
    fn any_options_are_taken_or_refused(
        args in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::sample::select(&[
                    "--get", "-g", "--set", "-s", "--reg_name", "ROCE_ACCL", "MGIR", "--reg_id",
                    "0x402c", "--reg_len", "0x80", "64", "-i", "--indexes", "--show_reg", "-w",
                    "--show_regs", "--yes", "--full_path", "--detailed", "--advanced", "--field",
                    "time_base", "time_base=4", "--gen_cmd_buffer", "HCA", "-h", "-v", "--", "-",
                    "--reg_name=MFRL", "-stime_base=3", "0x10.0:16=4", "",
                ]).prop_map(str::to_owned),
                "[-a-ce-z=0-9_.:,äß]{0,12}",
            ],
            0..8,
        )
    ) {
        let args: Vec<_> = ["mlxreg"].into_iter()
            .chain(args.iter().map(String::as_str))
            .collect();
        let (code, out, err) = common::run(&args);
        proptest::prop_assert!(code <= 2, "{code}");
        proptest::prop_assert!(code == 0 || !err.is_empty() || !out.is_empty());
    }
}

/// The device is removed while the tool waits for the answer.
#[test]
fn a_device_removed_before_the_answer_is_reported() {
    let place = place(10);
    let mut command = place.command(args("--reg_name ROCE_ACCL -s roce_adp_retrans_en=0"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut asked = String::new();
    let mut out = child.stdout.take().unwrap();
    while !asked.ends_with("[n] : ") {
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        asked.push(byte[0].into());
    }
    place.good("dev del a");
    child.stdin.take().unwrap().write_all(b"y\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    has(&error, ["no device \"a\""]);
}
