//! What programs are told about work that goes well.

use ferroce_interop::lab::Lab;

#[test]
fn completions_tell_one_time_of_day_each_and_in_their_order() {
    let lab = Lab::new("wall-clock");
    let compiled = lab.compile("wall_clock");
    let finished = lab.run(&[compiled.to_str().unwrap()]).finish();
    assert!(finished.status.success(), "{finished}");
    assert_eq!(finished.stdout, "0 backwards, 0 changed\n", "{finished}");
}
