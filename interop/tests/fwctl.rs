//! Tools for cards on devices in software: nodes of `/dev/fwctl`.

use ferroce_interop::lab::Lab;

#[test]
fn a_node_answers_as_the_kernels_does() {
    let mut lab = Lab::new("fwctl");
    // The program asks for what there is not, and looks at the error numbers.
    lab.set("FERROCE_LOG", "off");
    let program = lab.compile("fwctl");
    let program = program.to_str().unwrap();
    let output = lab.run_with(&["--fwctl"], &[program]).success();
    assert_eq!(output, "done\n");
    // What it has written holds for the device.
    let args = ["reg", "get", "ROCE_ACCL", "-d", "fr0", "-j"];
    let register: serde_json::Value = serde_json::from_str(&lab.ferroce(&args).success()).unwrap();
    assert_eq!(register["roce_adp_retrans_en"], 0);
    // Without the option the system's own cards are seen, of which there is none.
    let finished = lab.run(&[program]).finish();
    assert!(!finished.status.success(), "{finished}");
}
