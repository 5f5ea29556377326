//! Devices that count as hardware (`ferroce run --as`).

use ferroce_interop::lab::{Lab, Ready, free_port};
use ferroce_testing::has;

/// The value in a line of `ibv_devinfo`.
fn field<'a>(printed: &'a str, name: &str) -> &'a str {
    let line = printed.lines().find(|line| line.trim().starts_with(name));
    let line = line.unwrap_or_else(|| panic!("{name}: {printed}"));
    line.split_once(':').unwrap().1.trim()
}

#[test]
fn programs_see_the_numbers_of_the_hardware() {
    let lab = Lab::new("as-devinfo");
    let card = lab.run_with("--as mlx5", "ibv_devinfo").success();
    for (name, value) in [
        ("hca_id", "mlx5_0"),
        ("fw_ver", "28.48.1000"),
        ("vendor_id", "0x02c9"),
        ("vendor_part_id", "4129"),
        ("board_id", "FRC0000000001"),
    ] {
        assert_eq!(field(&card, name), value, "{card}");
    }
    let soft = lab.run_with("--as rxe", "ibv_devinfo").success();
    for (name, value) in [
        ("hca_id", "rxe0"),
        ("vendor_id", "0xffffff"),
        ("vendor_part_id", "0"),
    ] {
        assert_eq!(field(&soft, name), value, "{soft}");
    }
    assert!(!soft.contains("board_id"), "{soft}");
}

#[test]
fn a_card_and_soft_roce_are_the_same_device() {
    let lab = Lab::new("as-pair");
    let port = free_port();
    let number = port.to_string();
    let program = |device| format!("ib_write_bw -d {device} -n 500 -p {number}");
    let server = lab.run_with("--as mlx5", program("mlx5_0"));
    let server = Ready::Tcp(port).wait(&lab, server);
    let client = program("rxe0") + " 127.0.0.1";
    let shown = lab.run_with("--as rxe", &client).success();
    has(&shown, ["rxe0"]);
    server.success();
}
