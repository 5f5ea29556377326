//! Unmodified programs over a bad link: right data at the end, or the right error.

use ferroce_interop::lab::{Finished, Lab, Ready, Running, free_port, undisturbed, until};

/// Starts both ends over a link with this impairment.
fn pingpong(lab: &Lab, impairment: &str, options: &str) -> [Running; 2] {
    lab.ferroce(format!("impair set fr0 {impairment}"))
        .success();
    let port = free_port();
    let port_text = port.to_string();
    let server = format!("ibv_rc_pingpong -g 1 -p {port_text} {options}");
    let client = format!("{server} 127.0.0.1");
    let server = Ready::Tcp(port).wait(lab, lab.run(&server));
    [server, lab.run(&client)]
}

/// The programs exit without a handshake. If the last acknowledgement for one is lost, the other
/// has already exited and cannot repeat it, so the last send fails, as it does on cards. Nothing
/// else may go wrong.
fn unanswered(ends: &[Finished; 2], impairment: &str) -> Option<String> {
    let [good, bad]: [Vec<_>; 2] = [true, false].map(|outcome| {
        let ends = ends.iter();
        ends.filter(|end| end.status.success() == outcome).collect()
    });
    for end in good {
        assert!(end.stdout.contains("300 iters"), "{impairment}: {end}");
    }
    let [end] = bad[..] else {
        assert!(bad.is_empty(), "{impairment}: {} {}", bad[0], bad[1]);
        return None;
    };
    let text = "retry counter exceeded (12) for wr_id 2";
    let is_last = end.stderr.contains(text) && impairment.contains("loss");
    assert!(is_last, "{impairment}: {end}");
    Some(end.to_string())
}

#[test]
fn data_survives_a_bad_link() {
    for impairment in [
        "loss=2%",
        "delay=200us",
        "reorder=5%:100us",
        "loss=1%,delay=50us,duplicate=1%",
        "down=200ms@50ms",
    ] {
        let lab = Lab::new("impaired");
        let run = || {
            let ends = pingpong(&lab, impairment, "-n 300 -c");
            ends.map(Running::finish)
        };
        undisturbed(run, |ends| unanswered(ends, impairment));
    }
}

#[test]
fn a_link_that_stays_down_ends_in_the_error_that_says_so() {
    let lab = Lab::new("down");
    let mut ends = pingpong(&lab, "down=600s@100ms", "-n 1000000");
    // The end that has nothing in flight waits forever.
    until("the end of one", || {
        ends.iter_mut().any(Running::has_ended).then_some(())
    });
    for mut end in ends {
        if !end.has_ended() {
            end.kill();
            continue;
        }
        let end = end.finish();
        assert!(!end.status.success(), "{end}");
        assert!(
            end.stderr.contains("transport retry counter exceeded"),
            "{end}"
        );
    }
}

#[test]
fn rping_validates_its_data_over_a_lossy_link() {
    let lab = Lab::new("impaired-rping");
    lab.ferroce("impair set fr0 loss=1%").success();
    let (port, address) = (free_port(), lab.address());
    let port_text = port.to_string();
    let common = format!("rping -a {address} -p {port_text} -V -C 50 -S 20000");
    let server = format!("{common} -s");
    let client = format!("{common} -c");
    lab.pair(&server, Ready::Cm(port), &client);
}
