//! Programs on virtual functions.

use std::thread;
use std::time::{Duration, Instant};

use ferroce_interop::lab::{Lab, Ready, free_port, until};
use ferroce_testing::has;
use serde_json::Value;

/// A lab with a card `fr1` that has two VFs, and a device `fr2` for their peers.
struct Card {
    lab: Lab,
    vf0: String,
    peer: String,
}

impl Card {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        lab.set("FERROCE_DEVICES", "");
        let [_, pf, vf0, peer] = lab.addresses();
        let add = format!("dev add fr1 {pf} --vfs 2 vf_address {vf0}");
        lab.ferroce(&add).success();
        lab.ferroce(format!("dev add fr2 {peer}")).success();
        Self { lab, vf0, peer }
    }

    fn stat(&self, device: &str) -> Value {
        let stat = self
            .lab
            .ferroce(format!("stat show {device} -dj"))
            .success();
        serde_json::from_str::<Value>(&stat).unwrap()["devices"][0].clone()
    }

    fn counter(&self, device: &str, counter: &str) -> u64 {
        self.stat(device)["counters"][counter].as_u64().unwrap()
    }

    /// The counts of the histogram.
    fn waits(&self, device: &str) -> Vec<u64> {
        let stat = self.stat(device);
        let bins = stat["histogram"]["bins"].as_array().unwrap();
        bins.iter()
            .map(|bin| bin["count"].as_u64().unwrap())
            .collect()
    }

    /// Makes a device count the waits of a function in two bins, below 2 ms and above.
    fn count(&self, device: &str, vhca_id: &str) {
        let options = "-u msec -n 2 -b0 2 -b1 1 -t 0 -vid";
        let hist = format!("stat hist set {device} {options} {vhca_id}");
        self.lab.ferroce(&hist).success();
    }
}

/// Requests of a program on a VF are in flight when another process sets a profile through the PF:
/// the next timeouts are the profile's, and the PF's histogram has those of that VF alone.
#[test]
fn a_profile_of_the_pf_acts_on_a_program_that_runs_on_a_vf() {
    let card = Card::new("vf-profile");
    let lab = &card.lab;
    lab.ferroce("impair set fr1 loss=2%").success();
    card.count("fr1", "1");
    card.count("fr1v0", "1");
    card.count("fr1v1", "2");
    let port = free_port();
    let number = port.to_string();
    // One request at a time, so that a lost one waits for its timer.
    let program = format!("ib_write_bw -t 1 -s 64 -D 60 -p {number}");
    let server = lab.run(format!("{program} -d fr2"));
    let server = Ready::Tcp(port).wait(lab, server);
    let client = format!("{program} -d fr1v0 127.0.0.1");
    let mut client = lab.run(&client);
    let started = Instant::now();
    let mut wait_for = |bin: usize| {
        while card.waits("fr1")[bin] < 5 {
            assert!(!client.has_ended(), "ended early");
            assert!(
                started.elapsed() < Duration::from_secs(45),
                "no waits in bin {bin}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(1);
    assert_eq!(card.waits("fr1")[0], 0, "the firmware waits 4 ms at least");
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/short.toml");
    let apply = |device| {
        lab.ferroce(format!("adp apply {profile} -d {device}"))
            .finish()
    };
    let refused = apply("fr1v0");
    assert_eq!(refused.status.code(), Some(2), "{refused}");
    assert!(refused.stderr.contains("its PF fr1"), "{refused}");
    assert!(apply("fr1").status.success());
    wait_for(0);
    client.kill();
    server.kill();

    let waits = card.counter("fr1v0", "roce_adp_retrans");
    assert_eq!(card.waits("fr1").iter().sum::<u64>(), waits);
    assert_eq!(card.waits("fr1v0").iter().sum::<u64>(), waits);
    for idle in ["fr1", "fr1v1"] {
        assert_eq!(card.counter(idle, "roce_adp_retrans"), 0, "{idle}");
    }
    assert_eq!(card.waits("fr1v1"), [0, 0]);
    card.count("fr1", "2");
    assert_eq!(card.waits("fr1"), [0, 0], "VF 1 has waited for nothing");
}

/// Connections of rdma_cm to the address of a VF are those of the VF.
#[test]
fn rdma_cm_finds_a_vf_by_its_address() {
    let card = Card::new("vf-cm");
    let lab = &card.lab;
    let (port, vf0) = (free_port(), card.vf0.as_str());
    let number = port.to_string();
    let rping = format!("rping -a {vf0} -p {number} -C 10 -V");
    let server = lab.run(format!("{rping} -s"));
    let server = Ready::Cm(port).wait(lab, server);
    let listeners = lab.ferroce("-j res show cm_id").success();
    has(&listeners, ["\"device\":\"fr1v0\""]);
    lab.run(format!("{rping} -c -I {}", card.peer)).success();
    server.success();
    until("packets of the VF", || {
        (card.counter("fr1v0", "rdma_rx_packets") > 10).then_some(())
    });
    assert_eq!(card.counter("fr1", "rdma_rx_packets"), 0);
}

/// A program that is given only a VF sees nothing else, and its PF cannot be removed meanwhile.
#[test]
fn a_program_can_be_given_a_vf_alone() {
    let card = Card::new("vf-alone");
    let lab = &card.lab;
    let listed = lab.run_with("--device fr1v1", "ibv_devices").success();
    assert!(
        listed.contains("fr1v1") && !listed.contains("fr2"),
        "{listed}"
    );
    let port = free_port();
    let number = port.to_string();
    let pingpong = format!("ibv_rc_pingpong -g 1 -p {number}");
    let server = lab.run_with("--device fr1v1", &pingpong);
    let server = Ready::Tcp(port).wait(lab, server);
    for command in ["dev del fr1", "dev set fr1 vfs 1"] {
        let refused = lab.ferroce(command).finish();
        assert!(refused.stderr.contains("fr1v1 is in use"), "{refused}");
    }
    // The impairment is the card's, during the run.
    let client = "--device fr1v0 --impair delay=100us";
    let client = lab.run_with(client, format!("{pingpong} 127.0.0.1"));
    client.success();
    server.success();
    let link = lab.ferroce("impair show fr1").success();
    has(&link, ["egress none"]);
    lab.ferroce("dev del fr1").success();
}
