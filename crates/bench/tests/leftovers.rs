//! Nothing is left of devices that were measured. Alone in its program, whose other tests have devices.

use ferroce_bench::bare::PingPong;
use ferroce_bench::pair::{Carrier, ping_pong};

#[test]
fn devices_over_shared_memory_leave_no_files() {
    let few = PingPong {
        rounds: 5,
        warm_up_rounds: 0,
        ..PingPong::default()
    };
    ping_pong(Carrier::Shm, &few).unwrap();
    let prefix = format!("ferroce-bench-{}-", std::process::id());
    let left = std::fs::read_dir("/dev/shm").unwrap().filter(|it| {
        let name = it.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(&prefix)
    });
    assert_eq!(left.count(), 0);
}
