//! `rdma` of iproute2, which queries the kernel by RDMA netlink, sees Ferroce's devices.

use std::collections::BTreeSet;
use std::process::Command;

use ferroce_interop::lab::{Lab, Ready, free_port, until};
use serde_json::Value;

/// What `rdma -j ARGS` prints, under the options of `ferroce run`.
fn rdma(lab: &Lab, options: &str, args: &str) -> Value {
    let printed = lab
        .run_with(options, format!("rdma -j -d {args}"))
        .success();
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{args:?}: {error}: {printed}"))
}

/// What `ferroce -j ARGS` prints under a key.
fn ferroce(lab: &Lab, args: &str, key: &str) -> Value {
    let printed = lab.ferroce(format!("-j {args}")).success();
    serde_json::from_str::<Value>(&printed).unwrap()[key].take()
}

#[test]
fn devices_and_links_are_shown_as_ferroce_shows_them() {
    let lab = Lab::new("rdma-dev");
    let theirs = rdma(&lab, "", "dev");
    let ours = ferroce(&lab, "dev", "devices");
    for (key, own) in [
        ("ifindex", "index"),
        ("ifname", "device"),
        ("fw", "fw_ver"),
        ("node_guid", "node_guid"),
        ("sys_image_guid", "node_guid"),
    ] {
        assert_eq!(theirs[0][key], ours[0][own], "{key}: {theirs}");
    }
    assert_eq!(theirs[0]["node_type"], "ca", "{theirs}");
    let links = rdma(&lab, "", "link");
    assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
    for (key, value) in [
        ("ifname", "fr0"),
        ("state", "ACTIVE"),
        ("physical_state", "LINK_UP"),
        ("netdev", "lo"),
    ] {
        assert_eq!(links[0][key], value, "{links}");
    }
    let system = lab.run(["rdma", "system"]).success();
    assert!(system.starts_with("netns exclusive"), "{system}");
}

#[test]
fn devices_that_look_like_hardware_do_so_here_too() {
    let mut lab = Lab::new("rdma-as");
    let devices = format!("fr0@{},fr1@127.0.0.1", lab.address());
    lab.set("FERROCE_DEVICES", &devices);
    let names = |options: &str| {
        let devices = rdma(&lab, options, "dev");
        let names = devices.as_array().unwrap().iter();
        names
            .map(|row| row["ifname"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["fr0", "fr1"]);
    assert_eq!(names("--as mlx5"), ["mlx5_0", "mlx5_1"]);
    assert_eq!(names("--as rxe"), ["rxe0", "rxe1"]);
    let soft = rdma(&lab, "--as rxe", "dev show rxe1");
    assert_eq!(soft[0]["fw"], Value::Null, "{soft}");
}

#[test]
fn objects_of_programs_are_counted_and_listed() {
    let lab = Lab::new("rdma-res");
    let server = lab.run(["ibv_rc_pingpong", "-g", "1", "-p", "18999"]);
    let summary = until("the server's queue pair", || {
        let summary = rdma(&lab, "", "res");
        (summary[0]["mr"] == 1 && summary[0]["qp"] == 1).then_some(summary)
    });
    let expected = ferroce(&lab, "res", "objects");
    for kind in ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"] {
        assert_eq!(summary[0][kind], expected[0][kind], "{kind}: {summary}");
    }
    for (kind, key) in [
        ("qp", "lqpn"),
        ("cq", "cqn"),
        ("mr", "mrn"),
        ("pd", "pdn"),
        ("ctx", "ctxn"),
    ] {
        let theirs = rdma(&lab, "", &format!("res show {kind}"));
        let ours = ferroce(&lab, &format!("res show {kind}"), "objects");
        assert_eq!(theirs.as_array().unwrap().len(), 1, "{kind}: {theirs}");
        for key in [key, "pid", "comm"] {
            assert_eq!(
                theirs[0][key], ours[0][key],
                "{kind} {key}: {theirs} {ours}"
            );
        }
    }
    let qp = rdma(&lab, "", "res show qp");
    for key in ["type", "state", "rq-psn", "sq-psn", "pdn", "port"] {
        assert!(!qp[0][key].is_null(), "{key}: {qp}");
    }
    let number = qp[0]["lqpn"].to_string();
    let one = rdma(&lab, "", &format!("res show qp link fr0/1 lqpn {number}"));
    assert_eq!(one[0]["lqpn"], qp[0]["lqpn"], "{one}");
    server.kill();
}

#[test]
fn both_ends_of_dc_have_a_drivers_type() {
    let lab = Lab::new("rdma-dc");
    let port = free_port();
    let command = format!("ib_write_bw -c DC -d fr0 -F -D 30 -p {port}");
    let server = Ready::Tcp(port).wait(&lab, lab.run(&command));
    let client = lab.run(format!("{command} 127.0.0.1"));
    until("a queue pair of each end in its last state", || {
        let rows = rdma(&lab, "", "res show qp");
        let rows = rows.as_array().unwrap().iter();
        let ends = rows.map(|row| format!("{} {}", row["type"], row["state"]));
        let mut ends: Vec<_> = ends.map(|end| end.replace('"', "")).collect();
        ends.sort();
        (ends == ["DRIVER RTR", "DRIVER RTS"]).then_some(())
    });
    let types = ferroce(&lab, "res show qp", "objects");
    let types = types.as_array().unwrap().iter();
    let types: BTreeSet<_> = types.map(|row| row["type"].to_string()).collect();
    assert_eq!(types, ["\"DCI\"", "\"DCT\""].map(str::to_owned).into());
    client.kill();
    server.kill();
}

#[test]
fn services_are_listed_with_their_addresses() {
    let lab = Lab::new("rdma-cm");
    let server = lab.run(["rping", "-s", "-a", &lab.address(), "-p", "17474"]);
    let row = until("the service", || {
        let rows = rdma(&lab, "", "res show cm_id");
        rows.get(0).cloned()
    });
    for (key, value) in [("state", "LISTEN"), ("ps", "TCP"), ("comm", "rping")] {
        assert_eq!(row[key], value, "{row}");
    }
    assert_eq!(row["src-addr"], format!("{}:17474", lab.address()), "{row}");
    server.kill();
}

/// A stopped process does not answer; the list waits for it for a limited time, and has the others.
#[test]
fn a_stopped_process_does_not_hide_others() {
    let lab = Lab::new("rdma-stopped");
    let servers = [free_port(), free_port()].map(|port| {
        let server = lab.run(["ibv_rc_pingpong", "-g", "1", "-p", &port.to_string()]);
        Ready::Tcp(port).wait(&lab, server)
    });
    let pids = || {
        let rows = rdma(&lab, "", "res show qp");
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["pid"].to_string()).collect::<Vec<_>>()
    };
    let two = || {
        let pids = pids();
        (pids.len() == 2).then_some(pids)
    };
    let both = until("two queue pairs", two);
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &both[0]]).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    assert_eq!(pids(), both[1..]);
    let links = rdma(&lab, "", "link");
    assert_eq!(links[0]["state"], "ACTIVE", "{links}");
    signal("-CONT");
    assert_eq!(until("both again", two), both);
    for server in servers {
        server.kill();
    }
}

/// Far more than the receive buffer of a socket holds.
#[test]
fn long_lists_are_complete() {
    const REGIONS: usize = 20_000;
    let lab = Lab::new("rdma-many");
    let compiled = lab.compile("many_regions");
    let program = lab.run([compiled.to_str().unwrap(), &REGIONS.to_string()]);
    until("the regions", || {
        (rdma(&lab, "", "res")[0]["mr"] == REGIONS).then_some(())
    });
    let rows = rdma(&lab, "", "res show mr");
    assert_eq!(rows.as_array().unwrap().len(), REGIONS);
    program.kill();
}

#[test]
fn counters_are_those_of_the_device() {
    let lab = Lab::new("rdma-stat");
    let shown = rdma(&lab, "", "stat");
    // The counters may take more than one message, and so more than one object.
    let find = |name: &str| {
        let mut objects = shown.as_array().unwrap().iter();
        objects.any(|object| !object[name].is_null())
    };
    let names = lab
        .run(["ls", "/sys/class/infiniband/fr0/ports/1/hw_counters"])
        .success();
    assert!(names.lines().count() > 20, "{names}");
    for name in names.lines().filter(|name| *name != "lifespan") {
        assert!(find(name), "{name}: {shown}");
    }
}

#[test]
fn writes_are_refused() {
    let lab = Lab::new("rdma-set");
    for args in [
        "link add rxe9 type rxe netdev lo",
        "dev set fr0 name fr9",
        "link delete fr0",
        "system set netns shared",
    ] {
        let finished = lab.run(format!("rdma {args}")).finish();
        assert!(!finished.status.success(), "{finished}");
        assert!(
            finished.stderr.contains("Operation not supported"),
            "{finished}"
        );
    }
}
