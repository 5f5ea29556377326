//! The DOCA libraries, called from C: `programs/doca_adp_retx.c`, compiled with the pkg-config
//! files that `ferroce install` installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_interop::Tool;
use ferroce_interop::lab::{Finished, Lab, Ready, Running, free_port};
use ferroce_testing::has;
use ferroce_testing::{said, skip};
use serde_json::Value;

/// The address of the lab's only device, whose file names none.
const PCI: &str = "10fe:00:00.0";
/// How programs see the lab's device: as it is, and as a card whose node they open.
const WAYS: [&str; 2] = ["", "--fwctl"];
const PACKAGES: [&str; 3] = ["doca-argp", "doca-common", "doca-telemetry"];

fn pkg_config_path(lab: &Lab) -> PathBuf {
    lab.path().join("prefix/lib/ferroce/pkgconfig")
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/doca_adp_retx.c")
}

/// Runs a tool that builds something; `package` is what to install if it is missing.
fn build(command: &mut Command, package: &str) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; apt-get install {package}"));
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{command:?}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Compiles the program with the flags of pkg-config.
fn compile(lab: &Lab) -> String {
    let flags = build(
        Command::new("pkg-config")
            .args(["--cflags", "--libs"])
            .args(PACKAGES)
            .env("PKG_CONFIG_PATH", pkg_config_path(lab)),
        "pkg-config",
    );
    let program = lab.path().join("doca_adp_retx");
    build(
        Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-D_GNU_SOURCE"])
            .arg("-DDOCA_ALLOW_EXPERIMENTAL_API")
            .args([Path::new("-o"), &program, &source()])
            .args(flags.split_whitespace()),
        "gcc",
    );
    program.to_str().unwrap().to_owned()
}

/// Waits for a file in the working directory of programs.
fn wait_for(lab: &Lab, file: &str, mut running: Running) -> Running {
    let started = Instant::now();
    while !lab.path().join("state").join(file).exists() {
        if running.has_ended() {
            panic!("{}", running.finish());
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no {file}");
        thread::sleep(Duration::from_millis(5));
    }
    running
}

fn make(lab: &Lab, file: &str) {
    fs::write(lab.path().join("state").join(file), "").unwrap();
}

fn retransmissions(lab: &Lab) -> u64 {
    let text = lab.ferroce("-j stat show").success();
    let rows: Value = serde_json::from_str(&text).unwrap();
    rows["devices"][0]["counters"]["roce_adp_retrans"]
        .as_u64()
        .unwrap()
}

/// Two programs that exchange messages over a bad link. One fails if its peer has exited and the
/// last acknowledgement was lost; it has waited in that case as well.
fn lossy_transfer(lab: &Lab) {
    let port = free_port();
    let number = port.to_string();
    let pingpong = format!("ibv_rc_pingpong -g 1 -n 150 -p {number}");
    let server = Ready::Tcp(port).wait(lab, lab.run(&pingpong));
    lab.run(format!("{pingpong} 127.0.0.1")).finish();
    server.finish();
}

#[test]
fn wrong_calls_get_the_errors_of_the_headers() {
    let lab = Lab::new("doca-table");
    let program = compile(&lab);
    for way in WAYS {
        let ran = lab.run_with(way, [&program, "table", PCI]).finish();
        let checks = ran.stdout.split(' ').next().unwrap_or_default();
        let is_complete = checks.parse().is_ok_and(|checks: u32| checks > 250);
        assert!(ran.status.success() && is_complete, "{way:?}: {ran}");
        // Only cards leave it to their user to find out which field was refused.
        let refused = match way.is_empty() {
            true => "vhca_id is 7",
            false => {
                "/dev/fwctl/fwctl0: register 0xc01d: a field has a value that the card refuses"
            }
        };
        let line = |line: &&str| line.contains("_adp_retx_start") && line.contains(refused);
        assert!(ran.stderr.lines().find(line).is_some(), "{way:?}: {ran}");
    }
}

/// Each timeout of others' queue pairs is in exactly one bin, whatever the bins are.
#[test]
fn the_bins_hold_what_the_counter_counts() {
    let lab = Lab::new("doca-count");
    let program = compile(&lab);
    lab.ferroce("impair set fr0 loss=5%").success();
    let mut round = 0;
    for unit in ["1", "2", "4", "8"] {
        for mode in ["0", "1"] {
            // Alternate the function and whether reads clear.
            let vhca = if round & 1 == 0 { "-1" } else { "0" };
            let clear = if round & 2 == 0 { "0" } else { "1" };
            let (bins, file) = ((6 + round).to_string(), format!("count{round}"));
            let before = retransmissions(&lab);
            let arguments = [unit, mode, &bins, "50", "100", vhca, clear, &file];
            let command = [&[&program, "count", PCI], &arguments[..]].concat();
            let counting = lab.run_with(WAYS[round / 4], &command);
            let counting = wait_for(&lab, &format!("{file}.ready"), counting);
            lossy_transfer(&lab);
            let counted = retransmissions(&lab) - before;
            make(&lab, &format!("{file}.stop"));
            let output = counting.success();
            let bins: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
            let case = format!("{arguments:?}: {bins:?}");
            assert!(counted > 0, "{case}");
            assert_eq!(bins.iter().sum::<u64>(), counted, "{case}");
            if unit == "1" {
                // The bins before the last one cover at most 5050 ns, and no wait is so short.
                assert_eq!(bins.last(), Some(&counted), "the last bin is open: {case}");
            }
            round += 1;
        }
    }
}

#[test]
fn another_process_that_configures_the_histogram_is_noticed() {
    let lab = Lab::new("doca-watch");
    let program = compile(&lab);
    make(&lab, "other.stop");
    let other = ["4", "1", "9", "20", "30", "0", "1", "other"];
    let seen = "bins 9 widths 20 30 mode 1 unit 4 vhca 1 0 clear 1 count 1\n";
    for (way, file) in WAYS.into_iter().zip(["watch", "card"]) {
        let watching = lab.run_with(way, [&program, "watch", PCI, file]);
        let watching = wait_for(&lab, &format!("{file}.ready"), watching);
        lab.run([&[&program, "count", PCI], &other[..]].concat())
            .success();
        assert_eq!(watching.success(), seen, "{way:?}");
    }
}

#[test]
fn a_lost_device_is_reported_and_the_context_can_end() {
    let mut lab = Lab::new("doca-hold");
    let program = compile(&lab);
    // All devices of the directory.
    lab.set("FERROCE_DEVICES", "");
    let (address, pci) = (lab.address(), "0000:1a:00.1");
    for (way, file) in WAYS.into_iter().zip(["hold", "card"]) {
        lab.ferroce(format!("dev add gone {address} pci {pci}"))
            .success();
        let holding = lab.run_with(way, format!("{program} hold 1a:00.1 {file}"));
        let holding = wait_for(&lab, &format!("{file}.ready"), holding);
        lab.ferroce("dev del gone").success();
        make(&lab, &format!("{file}.stop"));
        holding.success();
    }
}

/// Cards of a fictitious system: one without a node, and a virtual function of it whose node may
/// not be opened.
#[test]
fn unreachable_cards_are_listed_with_a_remedy() {
    let lab = Lab::new("doca-cards");
    let program = compile(&lab);
    let script = format!(
        r#"for made in /sys/bus/pci /sys/class /dev; do mount -t tmpfs none $made; done
        cd /sys/bus/pci
        mkdir -p devices/0000:1a:00.0/infiniband/mlx5_0 devices/0000:1a:00.0/net/ens1f0np0
        mkdir -p devices/0000:1a:00.2/physfn devices/0000:1a:00.2/fwctl/fwctl0
        mkdir -p drivers/mlx5_core /sys/class/fwctl /dev/fwctl
        echo 0x15b3 > devices/0000:1a:00.2/vendor
        ln -s ../../devices/0000:1a:00.0 ../../devices/0000:1a:00.2 drivers/mlx5_core
        run="setpriv --bounding-set=-all {program} list"
        FERROCE_DEVICES= $run
        ln -s ../../../0000:1a:00.2 devices/0000:1a:00.2/fwctl/fwctl0/device
        ln -s /sys/bus/pci/devices/0000:1a:00.2/fwctl/fwctl0 /sys/class/fwctl
        touch /dev/fwctl/fwctl0; chmod 0 /dev/fwctl/fwctl0
        FERROCE_DEVICES= $run
        $run"#
    );
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-ec", &script])
        .env("FERROCE_DIR", lab.path().join("cards"))
        .env("FERROCE_DEVICES", format!("fr0@{}", lab.address()))
        .output()
        .unwrap();
    let (_, stdout, stderr) = said(output);
    if stderr.contains("unshare:") {
        let test = "unreachable_cards_are_listed_with_a_remedy";
        return skip(test, stderr.trim());
    }
    let device = "10fe:00:00.0 PF fr0 lo 0 DOCA_SUCCESS\n";
    let card = "0000:1a:00.0 PF mlx5_0 ens1f0np0 DOCA_ERROR_NOT_SUPPORTED DOCA_ERROR_NOT_FOUND\n";
    let function = "0000:1a:00.2 VF DOCA_ERROR_NOT_FOUND DOCA_ERROR_NOT_FOUND \
                    DOCA_ERROR_NOT_SUPPORTED DOCA_ERROR_";
    let expected = format!(
        "{device}{card}{function}NOT_FOUND\n{device}{card}{function}OPERATING_SYSTEM\n{device}"
    );
    assert_eq!(stdout, expected, "{stderr}");
    has(
        &stderr,
        [
            "modprobe mlx5_fwctl",
            "available: fwctl0 at 0000:1a:00.2",
            "`sudo`",
        ],
    );
}

/// DOCA documents the first firmware with the histogram; older cards have none of it.
#[test]
fn capability_calls_answer_as_the_firmware_of_the_card_does() {
    let lab = Lab::new("doca-caps");
    let program = compile(&lab);
    for (card, has_histogram) in [
        ("cx7", true),
        ("cx7:28.47.1000", true),
        ("cx7:28.46.1006", false),
        ("cx8:40.47.1000", true),
        ("cx8:40.46.1006", false),
        ("bf3:32.47.1000", true),
        ("bf3:32.46.1006", false),
        ("cx6dx", false),
        ("cx5", false),
    ] {
        let histogram = match has_histogram {
            true => "DOCA_SUCCESS\n",
            false => "DOCA_ERROR_NOT_SUPPORTED\n",
        };
        let expected = format!("DOCA_SUCCESS\n{}", histogram.repeat(3));
        for way in WAYS {
            let options = format!("-q --card {card} {way}");
            let answered = lab.run_with(&options, [&program, "caps", PCI]).success();
            assert_eq!(answered, expected, "{options}");
        }
    }
}

/// A VF is a device of its own, with a histogram of its own.
#[test]
fn virtual_functions_are_devices() {
    let mut lab = Lab::new("doca-vf");
    lab.set("FERROCE_DEVICES", "fr1,fr1v0,fr1v1");
    let address = lab.address();
    let add = format!("dev add fr1 {address} --vfs 2 pci 1a:00.0");
    lab.ferroce(&add).success();
    let program = compile(&lab);
    let listed = lab.run(format!("{program} list")).success();
    let expected = "0000:1a:00.0 PF fr1 lo 0 DOCA_SUCCESS\n\
                    0000:1a:00.1 VF fr1v0 lo 1 DOCA_SUCCESS\n\
                    0000:1a:00.2 VF fr1v1 lo 2 DOCA_SUCCESS\n";
    assert_eq!(listed, expected);
    make(&lab, "vf.stop");
    let count = |vhca| {
        lab.run(format!("{program} count 1a:00.2 8 0 3 50 100 {vhca} 0 vf"))
            .finish()
    };
    let own = count("2");
    assert!(own.status.success(), "{own}");
    let of_another = count("1");
    assert!(
        of_another.stderr.contains("vhca_id is 1; allowed: 2"),
        "{of_another}"
    );
}

fn flags(lab: &Lab, program: &str, arguments: &str) -> Finished {
    lab.run(format!("{program} flags {arguments}")).finish()
}

#[test]
fn flags_come_from_the_command_line_and_from_a_file() {
    let lab = Lab::new("doca-flags");
    let program = compile(&lab);
    let file = lab.path().join("flags.json");
    let text = r#"/* flags */ { "doca_general_flags": { "log-level": 60, "sdk-log-level": 20 },
        "doca_program_flags": { "pci-addr": "file", "vhca-id": 7, "clear": true } }"#;
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();

    let ran = flags(&lab, &program, "-p line -vid 3 --factor=0.5 -l 50");
    let values = "got text line\ngot number 3\ngot factor 0.5\nDOCA_SUCCESS\n";
    assert_eq!(ran.stdout, values);
    assert!(ran.stderr.contains("][flags] one of 1 2 3 4\n"), "{ran}");
    assert!(ran.stderr.contains("adp_retx is a null pointer"), "{ran}");

    let ran = flags(&lab, &program, &format!("-j {file} -vid 4"));
    let (values, debug) = ran.stdout.split_once("DOCA_SUCCESS\n").unwrap();
    assert_eq!(values, "got text file\ngot switch on\ngot number 4\n");
    assert!(debug.ends_with("a line of text, 42 and 0.5\n"), "{ran}");
    assert!(!ran.stderr.contains("null pointer"), "{ran}");

    let refused = flags(&lab, &program, "-p refuse -vid 3");
    assert_eq!(refused.stdout, "got text refuse\nDOCA_ERROR_TOO_BIG\n");
    let wrong = flags(&lab, &program, "-vid many");
    assert_eq!(wrong.stdout, "DOCA_ERROR_INVALID_VALUE\n");
    assert!(
        wrong.stderr.contains("-vid is \"many\"; allowed: a number"),
        "{wrong}"
    );
    let missing = flags(&lab, &program, "-j /does/not/exist");
    assert_eq!(missing.stdout, "DOCA_ERROR_NOT_FOUND\n");
    let version = flags(&lab, &program, "-v -p unread");
    assert!(
        version.status.success() && version.stdout.starts_with("version 3."),
        "{version}"
    );
    let help = flags(&lab, &program, "-h");
    assert!(help.stdout.contains("-vid, --vhca-id "), "{help}");
}

#[test]
fn meson_builds_with_the_same_files() {
    let lab = Lab::new("doca-meson");
    let (from, to) = (lab.path().join("meson"), lab.path().join("build"));
    fs::create_dir(&from).unwrap();
    fs::copy(source(), from.join("caller.c")).unwrap();
    let dependencies = PACKAGES.map(|name| format!("dependency('{name}', version: '>= 3.0')"));
    let file = format!(
        "project('caller', 'c')\n\
         add_project_arguments('-DDOCA_ALLOW_EXPERIMENTAL_API', '-D_GNU_SOURCE', language: 'c')\n\
         executable('caller', 'caller.c', dependencies: [{}])\n",
        dependencies.join(", ")
    );
    fs::write(from.join("meson.build"), file).unwrap();
    let setup = &mut Command::new("meson");
    setup.arg("setup").args([&to, &from]);
    build(setup.env("PKG_CONFIG_PATH", pkg_config_path(&lab)), "meson");
    build(Command::new("ninja").arg("-C").arg(&to), "ninja-build");
    let program = to.join("caller");
    lab.run([program.to_str().unwrap(), "table", PCI]).success();
}

/// The library has exactly the functions that the header declares.
#[test]
fn the_library_has_the_27_functions_of_its_header() {
    let lab = Lab::new("doca-exports");
    let library = lab.path().join("prefix/lib/ferroce/libdoca_telemetry.so.2");
    let nm = Tool {
        program: "nm",
        debian_package: "binutils",
    };
    let arguments = ["--dynamic", "--defined-only", library.to_str().unwrap()];
    let symbols = nm.run(&arguments, b"");
    let mut names: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    names.sort_unstable();
    let header = lab
        .path()
        .join("prefix/include/ferroce/doca_telemetry_adp_retx.h");
    let header = fs::read_to_string(header).unwrap();
    let calls = header.split("DOCA_EXPERIMENTAL doca_error_t ").skip(1);
    let mut declared: Vec<_> = calls.filter_map(|rest| rest.split('(').next()).collect();
    declared.sort_unstable();
    assert_eq!(declared.len(), 27);
    assert_eq!(names, declared);
}
