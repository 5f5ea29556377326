//! Where a user's devices are, by namespace, and the errors when there is no room for them.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Other, Place, address, open_files, role, tell};
use ferroce_registry::Registry;
use ferroce_runtime::{AttachOptions, Device};
use ferroce_testing::skip;

/// The directory of devices of a process in a network namespace of its own, or `None` where
/// namespaces are not available.
fn directory_in_namespace(test: &str, setup: &[&str]) -> Option<PathBuf> {
    let own = ["unshare", "-rnm", "sh", "-c"];
    let line: Vec<&str> = own.into_iter().chain(setup.iter().copied()).collect();
    let possible = std::process::Command::new(line[0])
        .args(&line[1..])
        .args(["sh", "true"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        skip(test, "no user namespaces here");
        return None;
    }
    let line: Vec<&str> = line.into_iter().chain(["sh"]).collect();
    let mut child = Other::under(&line, test, "namespace");
    let directory = child.hear().into();
    child.finish();
    Some(directory)
}

fn tell_directory() {
    tell(Registry::open().unwrap().directory().display());
}

/// The kernel reuses the inode of a namespace that is gone.
#[test]
fn a_new_namespace_has_no_devices_of_an_old_one() {
    if role().is_some() {
        return tell_directory();
    }
    let test = "a_new_namespace_has_no_devices_of_an_old_one";
    let place = Place::new();
    let set = format!(
        "export FERROCE_DIR={} && exec \"$@\"",
        place.path().display()
    );
    let mut seen: Vec<PathBuf> = Vec::new();
    for _ in 0..4 {
        let Some(directory) = directory_in_namespace(test, &[&set]) else {
            return;
        };
        assert!(!seen.contains(&directory), "{}", directory.display());
        fs::write(directory.join("mlx5_0.toml"), "address = \"127.0.0.9\"").unwrap();
        // Of several with the same inode only the last one stays.
        let inode = |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.split('-').nth(1).unwrap().to_owned()
        };
        for old in &seen {
            assert!(inode(old) != inode(&directory) || !old.exists());
        }
        seen.push(directory);
    }
}

/// Root in a user namespace is another user outside, where the real root may have a directory.
#[test]
fn root_in_a_user_namespace_uses_the_outer_user_s_directory() {
    if role().is_some() {
        return tell_directory();
    }
    let test = "root_in_a_user_namespace_uses_the_outer_user_s_directory";
    let set = "unset FERROCE_DIR && mount -t tmpfs none /dev/shm && exec \"$@\"";
    let Some(directory) = directory_in_namespace(test, &[set]) else {
        return;
    };
    // SAFETY: takes no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    let base = format!("/dev/shm/ferroce-{user}/net-");
    let directory = directory.display().to_string();
    assert!(directory.starts_with(&base), "{directory}");
    assert!(!directory.ends_with("net-host"), "{directory}");
}

/// Opens a device with a limit of the process; returns the error, if there is one.
fn open_with(limit: u32, value: u64, place: &Place) -> Option<String> {
    // SAFETY: a structure of integers, for which all zeros is a value.
    let mut old: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: takes a number and a pointer to a local variable of the type it expects.
    assert_eq!(unsafe { libc::getrlimit(limit, &raw mut old) }, 0);
    let set = |rlim_cur| {
        let new = libc::rlimit { rlim_cur, ..old };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(limit, &raw const new) }, 0);
    };
    set(value);
    let opened = Device::attach(&place.registry(), "a", AttachOptions::default());
    let opened = opened.and_then(|device| device.join().map(|()| device));
    set(old.rlim_cur);
    opened.map(drop).err().map(|error| error.to_string())
}

/// In a process of its own, because the limits are the process's.
#[test]
fn limits_of_the_process_are_reported() {
    let test = "limits_of_the_process_are_reported";
    if role().is_none() {
        return Other::start(test, "alone").finish();
    }
    let place = Place::with_device(address(67, 0, 0));
    let error = open_with(libc::RLIMIT_FSIZE, 4096, &place).expect("the file is larger");
    assert!(error.contains("ulimit -f"), "{error}");
    let mut refused = 0;
    for more in 0.. {
        let Some(error) = open_with(libc::RLIMIT_NOFILE, (open_files() + more) as u64, &place)
        else {
            break;
        };
        // Each of the descriptors that it takes may be the missing one.
        assert!(error.contains("ulimit -n"), "{more} more: {error}");
        refused += 1;
    }
    assert!((1..40).contains(&refused), "{refused}");
    assert_eq!(open_with(libc::RLIMIT_NOFILE, 1000, &place), None);
}
