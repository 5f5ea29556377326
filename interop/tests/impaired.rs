//! Unmodified programs over a bad link: right data at the end, or the right error.

use ferroce_interop::lab::{Lab, Ready, Running, free_port, until};

/// Starts both ends over a link with this impairment.
fn pingpong(lab: &Lab, impairment: &str, options: &[&str]) -> [Running; 2] {
    lab.ferroce(&["impair", "fr0", impairment]).success();
    let port = free_port();
    let port_text = port.to_string();
    let server = [
        &["ibv_rc_pingpong", "-g", "1", "-p", &port_text][..],
        options,
    ]
    .concat();
    let client = [&server[..], &["127.0.0.1"]].concat();
    let server = Ready::Tcp(port).wait(lab, lab.run(&server));
    [server, lab.run(&client)]
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
        let [server, client] = pingpong(&lab, impairment, &["-n", "300", "-c"]);
        let [client, server] = [client.finish(), server.finish()];
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
    let lab = Lab::new("down");
    let mut ends = pingpong(&lab, "down=600s@100ms", &["-n", "1000000"]);
    // The end that has nothing under way waits for ever.
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
