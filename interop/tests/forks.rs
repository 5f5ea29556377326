//! A program with busy threads that forks, and whose children open the device themselves.

use ferroce_interop::lab::Lab;

#[test]
fn children_have_devices_of_their_own() {
    let mut lab = Lab::new("forks");
    // The program makes invalid calls, and checks the error numbers.
    lab.set("FERROCE_LOG", "off");
    let program = lab.compile("forks");
    let output = lab.run([program.to_str().unwrap()]).success();
    assert_eq!(output, "10 forks\n");
}
