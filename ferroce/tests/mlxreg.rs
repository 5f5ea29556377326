//! `ferroce mlxreg`: texts and tables of the register tool, and its habits.

mod common;

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use common::Place;
use proptest::strategy::Strategy as _;

fn place(last: u8) -> Place {
    Place::with("a", &format!("127.63.2.{last}"))
}

/// Arguments of mlxreg on the device, from one text.
fn args(text: &str) -> String {
    format!("mlxreg -d a {text}")
}

#[test]
fn a_get_prints_the_published_table() {
    let place = place(1);
    let text = place.good(args("--yes --reg_name ROCE_ACCL --get"));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["Sending access register...", ""]);
    // The longest name has 43 letters.
    assert_eq!(lines[2], format!("{:<44} | Data    ", "Field Name"));
    assert_eq!(lines[3], "=".repeat(58));
    assert_eq!(
        lines[4],
        format!("{:<44} | 0x00000001", "roce_adp_retrans_field_select")
    );
    let base = format!("{:<44} | 0x00000fa0", "adp_retx_base_timeout_min");
    assert!(lines.contains(&base.as_str()), "{text}");
    assert_eq!(*lines.last().unwrap(), "=".repeat(58));
    assert_eq!(lines.len(), 4 + 60 + 1);
    let paths = place.good(args("--reg_name ROCE_ACCL -g --full_path"));
    assert!(paths.contains("adp_retx_profile.timeout_range[3].prev_range_index"));
}

#[test]
fn a_get_by_number_prints_dwords() {
    let text = place(2).good(args("--reg_id 0xC01D --reg_len 12 -g"));
    let line = "=".repeat(23);
    let expected = format!(
        "Sending access register...\n\nAddress    | Data\n{line}\n0x00000000 | 0x8df00000\n\
         0x00000004 | 0x10400000\n0x00000008 | 0x00010001\n{line}\n"
    );
    assert_eq!(text, expected);
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
        ("n\n", "0x00000001"),
        ("", "0x00000001"),
        ("y\n", "0x00000000"),
    ] {
        let (code, out, err) = place.answer(&set, typed);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.starts_with(
            "You are about to send access register: ROCE_ACCL with the following data:\nField Name"
        ));
        let question = "\n Do you want to continue ? (y/n) [n] : ";
        assert!(out.contains(question), "{out}");
        assert_eq!(
            out.ends_with(" Sending access register...\n"),
            typed == "y\n"
        );
        assert_eq!(dword(1), expected, "{typed:?}");
    }
    let text = place.good(args(
        "--yes --reg_id 0x402c --reg_len 0x40 --set 0x4.0:1=1,0x4.4:1=1",
    ));
    assert!(text.starts_with("You are about to send access register id: 0x402c with the"));
    assert!(
        text.ends_with("[n] : y\n Sending access register...\n"),
        "{text}"
    );
    assert_eq!(dword(1), "0x00000011");
    // Nothing is read first, so nothing is selected but what is named.
    place.good(args(
        "--yes -w --reg_name ROCE_ACCL -s min_ack_timeout_limit_disabled=0",
    ));
    assert_eq!(dword(1), "0x00000011");
}

#[test]
fn the_published_profile_is_written_and_taken_back_by_a_reset() {
    let place = place(4);
    let set = "--yes --reg_name ROCE_ACCL --indexes adp_retx_profile_id=1 --set \
        adp_retx_profile_select=1,time_base=4,time_unit=1,start_range_index=0,range_num=2,\
        qp_total_timeout=1,timeout_init_low_bound=16,timeout_init_range_size=1,\
        range_low_bound_0=16,range_size_0=1,timeout_retry_num_0=2,dec_mode_0=1,\
        prev_range_index_0=0,range_low_bound_1=18,range_size_1=2,timeout_retry_num_1=1,\
        dec_mode_1=0,prev_range_index_1=0";
    place.good(args(set));
    let get = "--reg_id 0x402c --reg_len 0x80 --indexes 0x4.28:3=1 --get";
    let text = place.good(args(get));
    for row in [
        "0x00000004 | 0x10000001",
        "0x00000008 | 0x41000fa0",
        "0x00000010 | 0xa0400004",
        "0x00000014 | 0x00001001",
        "0x00000018 | 0x04021001",
        "0x0000001c | 0x00011202",
    ] {
        assert!(text.contains(row), "{row}\n{text}");
    }
    let profile = text;
    let error = place.bad(
        1,
        args("--yes -w --reg_name MFRL --set pci_reset_req_method=1"),
    );
    assert!(error.contains("reset_trigger = 0: the only"), "{error}");
    assert_eq!(place.good(args(get)), profile);
    // Read back and written again, the trigger asks for a reset without being named.
    place.good(args("--yes --reg_name MFRL --set pci_reset_req_method=1"));
    let text = place.good(args(get));
    assert!(text.contains("0x00000010 | 0x00000000"), "{text}");
}

#[test]
fn registers_and_fields_are_shown() {
    let place = place(5);
    let text = place.good(args("--show_regs"));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["Available Access Registers", &"=".repeat(104)]);
    assert_eq!(lines[7], format!("{:<30}", "ROCE_ACCL"));
    let text = place.good(args("--show_reg MFRL"));
    let line = "=".repeat(29 + 41);
    assert!(text.starts_with(&format!(
        "{:<29} | Address    | Offset | Size | Access\n{line}\n{:<29} | 0x00000004 |      0 |    8 \
         | RW    \n",
        "Field Name", "reset_trigger"
    )), "{text}");
    assert!(text.ends_with(&format!("{line}\n")));
    let text = place.good(args("--show_reg ROCE_ACCL --advanced"));
    assert!(text.contains("Possible values (time_unit):"), "{text}");
    assert!(text.contains("--indexes \"adp_retx_profile_id=0\" --get"));
    let text = place.good(args("--show_reg ROCE_ACCL --advanced --field time_base"));
    assert_eq!(text.lines().count(), 4, "{text}");
    let text = place.good(args("--reg_name MFRL -g --detailed"));
    let row = format!(
        "{:<29} | 0x00000008 | 8          | TRIGGER3",
        "reset_trigger"
    );
    assert!(text.contains(&row), "{text}");
}

#[test]
fn bins_are_shown_as_halves() {
    let place = place(6);
    let text = place.good(args("--reg_name ADP_RETX_HISTOGRAM -g"));
    assert!(text.contains("\nhistogram_bin[15]_lo "), "{text}");
    let text = place.good(args("--reg_name ADP_RETX_HISTOGRAM -g --no_dynamic"));
    assert!(!text.contains("histogram_bin[1]_lo "), "{text}");
}

#[test]
fn a_buffer_is_made_without_a_device() {
    let place = place(7);
    let text = place.good("mlxreg --gen_cmd_buffer HCA --reg_name ADP_RETX_HISTOGRAM_CONFIG -s \
                           bin_width_mode=1,time_unit=3,count_enable=1,bin_num=5,bin0_width=50,bin1_width=100");
    let line = "=".repeat(35);
    assert!(
        text.starts_with(&format!(
            "Generated SET buffer for register: ADP_RETX_HISTOGRAM_CONFIG\nRaw Buffer \
         Data:\n{line}\nWord[00]: 0x08040000\nWord[01]: 0xc01d0201\nWord[02]: \
         0x00000000\nWord[03]: 0x00000000\nWord[04]: 0x18210000\nWord[05]: 0x8d000000\nWord[06]: \
         0x05000000\nWord[07]: 0x00320064\n"
        )),
        "{text}"
    );
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
    /// No command line makes the tool panic. Without a device it ends before it touches one.
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

/// As the tool has them: the lowest bits of a dword first, and of a path its last part.
#[test]
fn fields_come_in_the_order_and_by_the_names_of_the_tool() {
    let place = place(11);
    let names = |text: &str| -> Vec<String> {
        let table = place.good(args(text));
        let rows = table.lines().filter_map(|line| line.split_once(" |"));
        rows.map(|(name, _)| name.trim_end().to_owned()).collect()
    };
    let get = names("--reg_name MGIR --get");
    let paths = names("--reg_name MGIR --get --full_path");
    for (expected, path) in [
        (["sub_minor", "minor", "major"], "fw_info.sub_minor"),
        (["psid[3]", "psid[2]", "psid[1]"], "fw_info.psid[3]"),
        (["build", "minor", "major"], "sw_info.rom0_version.build"),
    ] {
        let at = paths.iter().position(|name| name == path).unwrap();
        assert_eq!(get[at..at + 3], expected);
    }
}

/// The question leaves time for that.
#[test]
fn a_device_that_goes_before_the_answer_is_missed() {
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
    assert!(error.contains("no device \"a\""), "{error}");
}
