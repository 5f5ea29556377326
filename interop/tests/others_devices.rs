//! A device belongs to one user, and a problem with the directory of devices is reported in one
//! line.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_interop::lab::{Lab, free_port, until};
use ferroce_testing::{has, skip};

/// A user who is neither root nor the one that labs run programs as.
const STRANGER: u32 = 65533;

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A directory that another user may have devices in.
fn own_directory(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
}

/// The library's only line in the output of a program.
fn one_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ferroce: "))
        .collect();
    assert_eq!(lines.len(), 1, "{text}");
    lines[0].to_owned()
}

/// Names and contents of the files in a directory.
fn digest(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.is_file());
    files
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect()
}

/// Checks that no other user can read or enter what is in a directory of devices.
fn check_modes(directory: &Path) {
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(directory), 0o700, "{}", directory.display());
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "state")
        {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

/// The directory of a lab's devices, in its network namespace.
fn devices(lab: &Lab) -> PathBuf {
    let entries = fs::read_dir(lab.path().join("state")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("net")
    };
    paths.find(is_ours).expect("devices in a namespace")
}

#[test]
fn a_device_is_its_users_alone() {
    let lab = Lab::new("modes");
    lab.run(["ibv_devinfo"]).success();
    let state = lab.path().join("state");
    check_modes(&state);
    check_modes(&devices(&lab));
    if !is_root() {
        let reason = "as another user: only root can be two users";
        return skip("a_device_is_its_users_alone", reason);
    }
    let before = digest(&devices(&lab));
    let other = |program: &[&str]| {
        let ferroce = lab.path().join("prefix/bin/ferroce");
        let mut command = Command::new(ferroce);
        command
            .args(["run", "--"])
            .args(program)
            .env("FERROCE_DIR", &state);
        command.env("FERROCE_DEVICES", format!("fr0@{}", lab.address()));
        command.uid(STRANGER).gid(STRANGER).current_dir("/");
        command
    };
    let refused = other(&["ibv_devinfo"]).output().unwrap();
    assert!(!refused.status.success());
    let stderr = String::from_utf8(refused.stderr).unwrap();
    has(&stderr, ["FERROCE_DIR"]);
    let read = Command::new("ls")
        .arg(&state)
        .uid(STRANGER)
        .output()
        .unwrap();
    assert!(!read.status.success());
    assert_eq!(digest(&devices(&lab)), before);
}

/// While a program has a device, another user's device cannot be at the same address.
#[test]
fn an_address_in_use_by_another_user_is_refused_in_one_line() {
    if !is_root() {
        let test = "an_address_in_use_by_another_user_is_refused_in_one_line";
        return skip(test, "only root can be two users");
    }
    let lab = Lab::new("taken");
    // A program that only queries a device does not bind its address.
    let port = free_port().to_string();
    let holder = lab.run(["ibv_rc_pingpong", "-g", "1", "-p", &port]);
    // A process registers with the device before it has the address.
    let address: Ipv4Addr = lab.address().parse().unwrap();
    let bound = format!(
        " {:08X}:{:04X} ",
        u32::from_le_bytes(address.octets()),
        4791
    );
    let is_bound = || {
        fs::read_to_string("/proc/net/udp")
            .unwrap()
            .contains(&bound)
    };
    until("the holder's socket", || is_bound().then_some(()));
    let stranger = lab.path().join("stranger");
    own_directory(&stranger);
    let refused = Command::new(lab.path().join("prefix/bin/ferroce"))
        .args(["run", "--", "ibv_devinfo"])
        .env("FERROCE_DIR", &stranger)
        .env("FERROCE_DEVICES", format!("fr0@{}", lab.address()))
        .uid(STRANGER)
        .gid(STRANGER)
        .current_dir("/")
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let line = one_line(&refused.stderr);
    has(&line, [":4791 is in use"]);
    holder.kill();
}

/// Wherever space runs out, the program gets an error and one line, or everything that it needs.
#[test]
fn programs_survive_a_disk_of_any_remaining_size() {
    let lab = Lab::new("fuller");
    let program = lab.compile("process_life");
    let script = format!(
        "for size in 4k 16k 32k 64k 128k 256k 512k 1m 2m 4m; do \
           mount -t tmpfs -o size=$size,mode=0700 none {dir} || exit 9; \
           cd {dir}; FERROCE_DIR={dir} LD_LIBRARY_PATH={lib} {program} close_low; \
           echo $?; cd /; umount {dir}; done",
        dir = lab.path().join("state").display(),
        lib = lab.path().join("prefix/lib/ferroce").display(),
        program = program.display(),
    );
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", &script])
        .env("FERROCE_DEVICES", format!("fr0@{}", lab.address()))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("unshare") || stderr.contains("mount") {
        return skip(
            "programs_survive_a_disk_of_any_remaining_size",
            stderr.trim(),
        );
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let statuses: Vec<&str> = stdout.lines().collect();
    assert_eq!(statuses.len(), 10, "{stdout}{stderr}");
    let ends = |status: &&str| matches!(*status, "0" | "1");
    assert!(statuses.iter().all(ends), "{stdout}{stderr}");
    assert_eq!((statuses[0], statuses[9]), ("1", "0"), "{stderr}");
    let refused = statuses.iter().filter(|status| **status == "1").count();
    let lines = stderr.lines().filter(|line| line.starts_with("ferroce: "));
    assert_eq!(lines.count(), refused, "{stderr}");
}

/// The shared file is on a full disk.
#[test]
fn a_full_disk_is_refused_in_one_line() {
    let lab = Lab::new("full");
    let script = format!(
        "mount -t tmpfs -o size=64k,mode=0700 none {dir} && \
         FERROCE_DIR={dir} LD_LIBRARY_PATH={lib} exec ibv_devinfo",
        dir = lab.path().join("state").display(),
        lib = lab.path().join("prefix/lib/ferroce").display(),
    );
    let refused = Command::new("unshare")
        .args(["-Urm", "sh", "-c", &script])
        .env("FERROCE_DEVICES", format!("fr0@{}", lab.address()))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    if stderr.contains("unshare") || stderr.contains("mount") {
        return skip("a_full_disk_is_refused_in_one_line", stderr.trim());
    }
    assert!(!refused.status.success());
    let line = one_line(&refused.stderr);
    has(&line, ["No space left"]);
}
