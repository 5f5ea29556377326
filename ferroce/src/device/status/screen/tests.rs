//! The contents of the screen, and its size.

use std::time::Duration;

use ferroce_registry::{DeviceSpec, PortLook, QpStates};

use super::super::gather::Totals;
use super::super::machine::Machine;
use super::*;
use crate::policy::Policy;

fn device(number: usize) -> DeviceLook {
    let address = format!("127.0.{}.{}", number / 200, number % 200 + 1);
    let spec = DeviceSpec::new(&format!("fr{number}"), address.parse().unwrap());
    let totals = Totals {
        retransmitted: 12,
        timeouts: 3,
        ..Totals::default()
    };
    DeviceLook {
        spec,
        seen: Ok(Seen {
            port: PortLook {
                is_up: true,
                changes_in: None,
                downed: 0,
            },
            is_set_down: false,
            policy: Policy::Firmware,
            egress: None,
            ingress: None,
            has_run: false,
            totals,
            moved: totals,
        }),
        slowed: 0,
    }
}

fn program(number: u32) -> Program {
    Program {
        device: "fr0".to_owned(),
        pid: 1000 + number,
        comm: "ib_write_bw".to_owned(),
        condition: Condition::Running,
        queue_pairs: QpStates {
            rts: number.into(),
            ..QpStates::default()
        },
    }
}

pub(in super::super) fn status(devices: usize, programs: u32, warnings: usize) -> Status {
    let warning = |n: usize| format!("fr{n}: {}", "words ".repeat(1 + n % 30).trim_end());
    Status {
        devices: (0..devices).map(device).collect(),
        programs: (0..programs).map(program).collect(),
        faults: Vec::new(),
        machine: Machine {
            late: Duration::ZERO,
            ..Machine::default()
        },
        warnings: (0..warnings).map(warning).collect(),
        seconds: 0.5,
    }
}

#[test]
fn however_much_there_is_it_fits() {
    for devices in [1, 2, 3, 4, 5, 1000] {
        for programs in [0, 1, 2, 5, 8, 9, 10, 11, 12, 13, 254] {
            for warnings in [0, 1, 2, 3, 4, 5, 6, 100] {
                let status = status(devices, programs, warnings);
                let screen = draw(&status, false);
                let what = (devices, programs, warnings);
                assert!(screen.lines().count() <= LINES, "{what:?}\n{screen}");
                let widest = screen.lines().map(|line| line.chars().count()).max();
                assert!(widest <= Some(columns()), "{what:?}\n{screen}");
                // Everything is shown or counted.
                let shown = screen.matches("ib_write_bw").count() as u32;
                let more = format!("and {} more; `ferroce res", programs - shown);
                assert!(shown == programs || screen.contains(&more), "{screen}");
                let shown = screen.matches(" 127.0.").count();
                let more = format!("and {} more; `ferroce status", devices - shown);
                assert!(shown == devices || screen.contains(&more), "{screen}");
                let all = draw(&status, true);
                assert_eq!(all.matches("ib_write_bw").count() as u32, programs);
                assert_eq!(all.matches(" 127.0.").count(), devices);
                assert_eq!(all.matches("! fr").count(), warnings);
            }
        }
    }
}

#[test]
fn a_small_machine_is_this_screen() {
    let mut status = status(2, 2, 1);
    let Ok(seen) = &mut status.devices[1].seen else {
        panic!("it was made readable");
    };
    seen.port.downed = 2;
    seen.port.changes_in = Some(Span::from_millis(1234));
    seen.egress = Some("loss=1%".to_owned());
    seen.policy = Policy::Profile {
        name: Some("link-flap"),
        hash: 0x5a3c_90e1,
    };
    status.programs[1].condition = Condition::Stopped;
    let expected = "\
2 devices, 2 programs, 1 queue pair; rates over 0.5 s

device  address    port                flaps  policy              impairment
fr0     127.0.0.1  up                      0  firmware            none
fr1     127.0.0.2  up, down in 1.23 s      2  link-flap 5a3c90e1  loss=1%

device  resent  per s  timeouts  per s  failed QPs  CNPs  per s  slowed QPs
fr0         12     24         3    6.0           0     0      0           0
fr1         12     24         3    6.0           0     0      0           0

program       pid  device  queue pairs
ib_write_bw  1001  fr0     stopped
ib_write_bw  1000  fr0     none

! fr0: words
";
    assert_eq!(draw(&status, false), expected);
}

#[test]
fn without_a_device_it_says_how_to_get_one() {
    assert_eq!(
        draw(&status(0, 0, 0), false),
        "no device; add one: ferroce dev add fr0 127.0.0.1\n"
    );
}
