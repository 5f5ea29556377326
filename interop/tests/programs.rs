//! Debian's verbs and rdma_cm programs, unmodified and unprivileged, on one device that two
//! processes share.

use std::fs;
use std::net::Ipv4Addr;

use ferroce_interop::lab::{Lab, Ready, free_port, undisturbed, until};
use ferroce_testing::{Words, has};

/// Two ends of one of libibverbs' ping-pong examples.
fn pingpong(program: &str, options: &str) {
    let lab = Lab::new(program);
    let port = free_port();
    let common = format!("{program} -d fr0 -g 1 -p {port} {options}");
    let client = format!("{common} 127.0.0.1");
    let outputs = lab.pair(&common, Ready::Tcp(port), &client);
    for output in &outputs {
        assert!(
            output.contains("iters in") || output.contains("success"),
            "{output}"
        );
    }
}

/// Two ends of a perftest program.
fn perftest(program: &str, options: &str) -> [String; 2] {
    let lab = Lab::new(program);
    for name in ["xrc_domain", "xrc_domain_client", "xrc_domain_server"] {
        // perftest's name for an XRC domain; a file of another user would be in the way.
        let _ = fs::remove_file(std::env::temp_dir().join(name));
    }
    let pair = || {
        let port = free_port();
        let common = format!("{program} -d fr0 -F -p {port} {options}");
        let (peer, ready) = match options.contains("-R") {
            true => (lab.address(), Ready::Cm(port)),
            false => ("127.0.0.1".into(), Ready::Tcp(port)),
        };
        let client = format!("{common} {peer}");
        lab.pair(&common, ready, &client)
    };
    // Only the client of a latency test prints a table. perftest compares the processor's clock
    // with the machine's for each row, and prints zeros where other programs disturb that.
    undisturbed(pair, |[_, client]| {
        let rows = check_rows(client, &options.words());
        // Requests a second, or the time of the 99.9th percentile.
        let zero = rows.iter().find(|row| row.last() == Some(&0.0))?;
        Some(format!("{zero:?} in {client}"))
    })
}

/// Checks that perftest has printed a row for each requested size, with the requested number of
/// iterations, and returns the rows.
fn check_rows(output: &str, options: &[&str]) -> Vec<Vec<f64>> {
    let option = |name| {
        let at = options.iter().position(|option| *option == name)?;
        options.get(at + 1)?.parse::<usize>().ok()
    };
    let (_, table) = output.split_once("#bytes").expect(output);
    let rows = table.lines().skip(1).map(|line| {
        let figures = line.split_whitespace().map(str::parse::<f64>);
        figures.collect::<Result<Vec<_>, _>>()
    });
    let rows: Vec<_> = rows
        .map_while(Result::ok)
        .filter(|row| !row.is_empty())
        .collect();
    let sizes: Vec<_> = rows.iter().map(|row| row[0] as usize).collect();
    match option("-s") {
        _ if options.contains(&"-a") => {
            let all: Vec<_> = (1..=23).map(|power| 1 << power).collect();
            assert_eq!(sizes, all, "{output}");
        }
        Some(size) => assert_eq!(sizes, [size], "{output}"),
        None => assert_eq!(sizes.len(), 1, "{output}"),
    }
    let requests = option("-n").unwrap() * option("-q").unwrap_or(1);
    for row in &rows {
        assert_eq!(row[1] as usize, requests, "{output}");
        assert!(row.len() >= 5, "{output}");
    }
    rows
}

macro_rules! pingpongs {
    ($($name:ident: $program:literal $options:literal;)*) => {
        $(#[test] fn $name() { pingpong($program, $options); })*
    };
}

macro_rules! perftests {
    ($($name:ident: $program:literal $options:literal;)*) => {
        $(#[test] fn $name() { perftest($program, $options); })*
    };
}

pingpongs! {
    rc_pingpong: "ibv_rc_pingpong" "-n 2000 -c";
    rc_pingpong_with_events: "ibv_rc_pingpong" "-n 1000 -e -c";
    rc_pingpong_with_timestamps: "ibv_rc_pingpong" "-n 500 -t";
    rc_pingpong_on_demand: "ibv_rc_pingpong" "-n 500 -o";
    rc_pingpong_by_new_send: "ibv_rc_pingpong" "-n 500 -N";
    rc_pingpong_in_device_memory: "ibv_rc_pingpong" "-n 500 -j";
    uc_pingpong: "ibv_uc_pingpong" "-n 1000 -c";
    ud_pingpong: "ibv_ud_pingpong" "-n 1000 -c";
    ud_pingpong_with_events: "ibv_ud_pingpong" "-n 500 -e";
    srq_pingpong: "ibv_srq_pingpong" "-n 500 -c";
    srq_pingpong_with_events: "ibv_srq_pingpong" "-n 500 -e -q 4";
    xsrq_pingpong: "ibv_xsrq_pingpong" "-n 500";
}

perftests! {
    write_bw: "ib_write_bw" "-n 1000";
    write_bw_all_sizes: "ib_write_bw" "-a -n 100";
    write_bw_both_ways: "ib_write_bw" "-b -n 500";
    write_bw_many_qps: "ib_write_bw" "-q 64 -n 100 -s 4096";
    write_bw_inline: "ib_write_bw" "-s 64 -I 64 -n 2000";
    write_bw_unreliable: "ib_write_bw" "-c UC -n 500";
    write_bw_xrc: "ib_write_bw" "-c XRC -n 500";
    write_bw_dc: "ib_write_bw" "-c DC -q 16 -n 100";
    write_bw_in_lists: "ib_write_bw" "-l 16 -n 1024 -s 512";
    write_bw_timeouts: "ib_write_bw" "--qp-timeout 10 --retry_count 3 -n 500";
    write_bw_by_cm: "ib_write_bw" "-R -n 500";
    write_bw_by_cm_timeouts: "ib_write_bw" "-R --qp-timeout 12 --retry_count 7 -n 500";
    write_lat: "ib_write_lat" "-n 1000";
    write_lat_all_sizes: "ib_write_lat" "-a -n 50";
    read_bw: "ib_read_bw" "-n 1000";
    read_bw_all_sizes: "ib_read_bw" "-a -n 100";
    read_bw_by_cm: "ib_read_bw" "-R -n 300";
    read_bw_dc: "ib_read_bw" "-c DC -n 300";
    read_bw_both_ways: "ib_read_bw" "-b -n 300";
    read_lat: "ib_read_lat" "-n 1000";
    read_lat_with_events: "ib_read_lat" "-e -n 300";
    send_bw: "ib_send_bw" "-n 1000";
    send_bw_all_sizes: "ib_send_bw" "-a -n 100";
    send_bw_with_events: "ib_send_bw" "-e -n 500";
    send_bw_shared_receive_queue: "ib_send_bw" "--use-srq -q 4 -n 300";
    send_bw_unreliable: "ib_send_bw" "-c UC -n 300 -s 1024 -t 16";
    send_bw_datagrams: "ib_send_bw" "-c UD -n 300 -s 1024 -t 16";
    send_bw_by_cm: "ib_send_bw" "-R -n 500";
    send_bw_dc_both_ways: "ib_send_bw" "-c DC -b -n 300";
    send_bw_both_ways: "ib_send_bw" "-b -n 500";
    send_lat: "ib_send_lat" "-n 1000";
    send_lat_datagrams: "ib_send_lat" "-c UD -n 500";
    send_lat_datagrams_by_cm: "ib_send_lat" "-c UD -R -n 300";
    send_lat_xrc: "ib_send_lat" "-c XRC -n 300";
    send_lat_dc: "ib_send_lat" "-c DC -n 300";
    send_lat_by_cm_with_events: "ib_send_lat" "-R -e -n 300";
    atomic_bw_fetch_and_add: "ib_atomic_bw" "-n 1000";
    atomic_bw_compare_and_swap: "ib_atomic_bw" "-A CMP_AND_SWAP -n 1000";
    atomic_bw_dc: "ib_atomic_bw" "-c DC -n 300";
    atomic_lat: "ib_atomic_lat" "-n 1000";
}

#[test]
fn devices_and_their_attributes() {
    let lab = Lab::new("devinfo");
    let devices = lab.run(["ibv_devices"]).success();
    has(&devices, ["fr0"]);
    let info = lab.run(["ibv_devinfo", "-v"]).success();
    let gid = format!("GID[  0]:\t\t::ffff:{}, RoCE v2", lab.address());
    for line in [
        "hca_id:\tfr0",
        "state:\t\t\tPORT_ACTIVE (4)",
        "link_layer:\t\tEthernet",
        "active_mtu:\t\t4096 (5)",
        "local_ca_ack_delay:\t\t16",
        &gid,
    ] {
        assert!(info.contains(line), "no line {line:?} in\n{info}");
    }
}

#[test]
fn the_speed_of_a_port_is_a_setting() {
    let lab = Lab::new("speed");
    for (speed, width, lane, rate) in [
        ("25G", "1X (1)", "25.0 Gbps (32)", "25 Gb/sec (1X EDR)"),
        ("100G", "4X (2)", "25.0 Gbps (32)", "100 Gb/sec (4X EDR)"),
        ("200G", "4X (2)", "50.0 Gbps (64)", "200 Gb/sec (4X HDR)"),
    ] {
        lab.ferroce(["dev", "set", "fr0", "speed", speed]).success();
        let info = lab.run(["ibv_devinfo", "-v"]).success();
        has(
            &info,
            [
                &format!("active_width:\t\t{width}"),
                &format!("active_speed:\t\t{lane}"),
            ],
        );
        let file = "/sys/class/infiniband/fr0/ports/1/rate";
        assert_eq!(lab.run(["cat", file]).success().trim_end(), rate);
    }
}

#[test]
fn asyncwatch_waits_for_events() {
    let lab = Lab::new("asyncwatch");
    let mut watch = lab.run(["ibv_asyncwatch", "-d", "fr0"]);
    until("its process", || lab.process());
    std::thread::sleep(std::time::Duration::from_millis(100));
    if watch.has_ended() {
        panic!("{}", watch.finish());
    }
    watch.kill();
}

#[test]
fn rping() {
    for options in ["-C 50 -v -V", "-C 20 -S 60000", "-C 10 -q"] {
        let lab = Lab::new("rping");
        let (port, address) = (free_port(), lab.address());
        let common = format!("rping -a {address} -p {port} {options}");
        lab.pair(
            format!("{common} -s"),
            Ready::Cm(port),
            format!("{common} -c"),
        );
    }
}

#[test]
fn rdma_client_and_server() {
    for (server, client, options) in [
        ("rdma_server", "rdma_client", ""),
        ("rdma_xserver", "rdma_xclient", ""),
        // An XRC queue pair and shared receive queue.
        ("rdma_xserver", "rdma_xclient", "-c x"),
    ] {
        let lab = Lab::new("rdma-client");
        let (port, address) = (free_port(), lab.address());
        let server = format!("{server} -p {port} {options}");
        let client = format!("{client} -s {address} -p {port} {options}");
        let [served, asked] = lab.pair(&server, Ready::Cm(port), &client);
        assert!(
            served.contains("end 0") && asked.contains("end 0"),
            "{served}{asked}"
        );
    }
}

#[test]
fn connections_by_ucmatose() {
    let lab = Lab::new("ucmatose");
    let (port, address) = (free_port(), lab.address());
    let common = format!("ucmatose -p {port} -c 20 -C 10 -S 4096");
    let client = format!("{common} -s {address}");
    for output in lab.pair(&common, Ready::Cm(port), client) {
        has(&output, ["return status 0"]);
    }
}

#[test]
fn datagrams_by_udaddy() {
    /// The program has no option for it.
    const PORT: u16 = 7174;
    let lab = Lab::new("udaddy");
    let address = lab.address();
    let common = "udaddy -c 5 -C 10 -S 512";
    for output in lab.pair(common, Ready::Cm(PORT), format!("{common} -s {address}")) {
        has(&output, ["return status 0"]);
    }
}

/// A joined group as the kernel shows it.
fn in_igmp(group: &str) -> String {
    let group: Ipv4Addr = group.parse().unwrap();
    format!("{:08X}", u32::from_le_bytes(group.octets()))
}

/// Two port spaces with two queue pairs each. The device is named, since the system's own route to
/// groups seldom leads to it.
#[test]
fn multicast_by_mckey() {
    for space in ["0x0111", "0x0002"] {
        let lab = Lab::new("mckey");
        let address = lab.address();
        // A group of this test alone, as the device is.
        let group = address.replacen("127.", "239.", 1);
        let options = format!("mckey -m {group} -b {address} -p {space} -c 2 -C 5");
        let receiver = lab.run(&options);
        // The sender sends three seconds after it has joined.
        until("the receiver's group", || {
            let joined = fs::read_to_string("/proc/net/igmp").unwrap();
            joined.contains(&in_igmp(&group)).then_some(())
        });
        let sent = lab.run(format!("{options} -s")).success();
        for output in [receiver.success(), sent] {
            has(&output, ["data transfers complete", "return status 0"]);
        }
    }
}

#[test]
fn connection_times_by_cmtime() {
    let lab = Lab::new("cmtime");
    let (port, address) = (free_port(), lab.address());
    let common = format!("cmtime -p {port} -c 50");
    let client = format!("{common} -s {address}");
    // The server of this version does not exit.
    let server = Ready::Cm(port).wait(&lab, lab.run(&common));
    lab.run(&client).success();
    server.kill();
}
