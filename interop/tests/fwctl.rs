//! Tools for cards on software devices: nodes of `/dev/fwctl`.

use ferroce_interop::lab::Lab;

#[test]
fn a_node_answers_as_the_kernels_does() {
    let mut lab = Lab::new("fwctl");
    // The program asks for what does not exist, and checks the error numbers.
    lab.set("FERROCE_LOG", "off");
    let program = lab.compile("fwctl");
    let program = program.to_str().unwrap();
    let output = lab.run_with("--fwctl", [program]).success();
    assert_eq!(output, "done\n");
    // What it has written takes effect on the device.
    let args = "reg get ROCE_ACCL -d fr0 -j";
    let register: serde_json::Value = serde_json::from_str(&lab.ferroce(args).success()).unwrap();
    assert_eq!(register["fields"]["roce_adp_retrans_en"], 0);
    // Without the option, only the system's own cards are seen, and there are none.
    let finished = lab.run([program]).finish();
    assert!(!finished.status.success(), "{finished}");
}

/// Files for reading are not overwritten by a mistyped shell redirection.
#[test]
fn a_node_and_a_counter_are_not_overwritten() {
    let lab = Lab::new("overwritten");
    let counter = "/sys/class/infiniband/fr0/ports/1/hw_counters/roce_adp_retrans";
    for file in ["/dev/fwctl/fwctl0", counter] {
        let script = format!("cat {file}; echo junk > {file}; cat {file}");
        let finished = lab.run_with("--fwctl", ["sh", "-c", &script]).finish();
        let lines: Vec<_> = finished.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{finished}");
        assert_eq!(lines[0], lines[1], "{finished}");
        assert!(finished.stderr.contains("Permission denied"), "{finished}");
    }
}
