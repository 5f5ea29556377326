//! Unmodified programs over a bad link: right data at the end, or the right error.

use ferroce_interop::lab::{Lab, Ready, free_port};

/// Options of `ferroce run` for both ends.
fn pingpong(impairment: &str, options: &[&str]) -> [ferroce_interop::lab::Finished; 2] {
    let lab = Lab::new("impaired");
    let set = lab.ferroce(&["impair", "fr0", impairment]);
    set.success();
    let port = free_port();
    let port_text = port.to_string();
    let server = [
        &["ibv_rc_pingpong", "-g", "1", "-p", &port_text][..],
        options,
    ]
    .concat();
    let client = [&server[..], &["127.0.0.1"]].concat();
    let server = Ready::Tcp(port).wait(&lab, lab.run(&server));
    let client = lab.run(&client);
    [server.finish(), client.finish()]
}

#[test]
fn data_survives_a_bad_link() {
    for impairment in [
        "loss=2%",
        "delay=200us",
        "reorder=5%",
        "loss=1%,delay=50us,duplicate=1%",
        "down=200ms@50ms",
    ] {
        let ends = pingpong(impairment, &["-n", "300", "-c"]);
        let [server, client] = &ends;
        assert!(client.status.success(), "{impairment}: {client}");
        assert!(
            client.stdout.contains("300 iters"),
            "{impairment}: {client}"
        );
        // The client ends without a word. If its last acknowledgement is lost, nobody is left to
        // repeat it, and the server's last send fails, as it does on cards.
        let unanswered = server
            .stderr
            .contains("retry counter exceeded (12) for wr_id 2");
        let lossy = impairment.contains("loss");
        assert!(
            server.status.success() || (lossy && unanswered),
            "{impairment}: {server}"
        );
    }
}

#[test]
fn a_link_that_stays_down_ends_in_the_error_that_says_so() {
    let ends = pingpong("down=600s@100ms", &["-n", "1000000"]);
    for end in &ends {
        assert!(!end.status.success(), "{end}");
    }
    let says = |text: &str| text.contains("transport retry counter exceeded");
    assert!(
        ends.iter().any(|end| says(&end.stderr)),
        "{} {}",
        ends[0],
        ends[1]
    );
}

#[test]
fn rping_validates_its_data_over_a_lossy_link() {
    let lab = Lab::new("impaired-rping");
    lab.ferroce(&["impair", "fr0", "loss=1%"]).success();
    let (port, address) = (free_port(), lab.address());
    let port_text = port.to_string();
    let common = [
        "rping", "-a", &address, "-p", &port_text, "-V", "-C", "50", "-S", "20000",
    ];
    let server = [&common[..], &["-s"]].concat();
    let client = [&common[..], &["-c"]].concat();
    lab.pair(&server, Ready::Cm(port), &client);
}
