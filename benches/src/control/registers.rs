//! Access registers, compared with the minimum cost of a register: a copy of its bytes, and a
//! system call that copies them.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ferroce_device::{DeviceState, Method};
use ferroce_prm::Register;
use ferroce_prm::adp_retx_histogram_config::ADP_RETX_HISTOGRAM_CONFIG;
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_registry::Registry;

use super::{Error, Work, costs};

/// Accesses in a row.
const BATCH: u64 = 64;
/// Bytes of the longer register.
const BYTES: usize = ROCE_ACCL.size();

/// Registers that tools read and write.
pub const REGISTERS: [&Register; 2] = [&ROCE_ACCL, &ADP_RETX_HISTOGRAM_CONFIG];

/// A copy in memory, `pread` and `pwrite` of as many bytes in a file in `directory`: nanoseconds.
///
/// # Errors
///
/// Returns an error if the file cannot be made, or as [`costs`].
pub fn bare(seconds: f64, directory: &Path) -> Result<[f64; 3], Error> {
    let path = directory.join("register");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file.open(path)?;
    file.write_all_at(&[1; BYTES], 0)?;
    let copy = || {
        let from = black_box([1; BYTES]);
        let mut to = black_box([0; BYTES]);
        for _ in 0..BATCH {
            black_box(&mut to).copy_from_slice(black_box(&from));
        }
        BATCH
    };
    // An error would be a figure of nothing: zero times.
    let read = || {
        (0..BATCH)
            .filter(|_| file.read_exact_at(&mut [0; BYTES], 0).is_ok())
            .count() as u64
    };
    let write = || {
        (0..BATCH)
            .filter(|_| file.write_all_at(&[1; BYTES], 0).is_ok())
            .count() as u64
    };
    let works: [&Work<'_>; 3] = [&copy, &read, &write];
    let cost = |work| Ok::<_, Error>(costs(seconds, &[work])?[0]);
    Ok([cost(works[0])?, cost(works[1])?, cost(works[2])?])
}

/// GET and SET of a register, of a device that the process has alone or, with a registry's
/// directory and its name, of one that processes share: nanoseconds. SET writes what GET has read.
///
/// # Errors
///
/// Returns an error if there is no such device, it refuses, or as [`costs`].
pub fn access(
    seconds: f64,
    register: &Register,
    shared: Option<(&Path, &str)>,
) -> Result<[f64; 2], Error> {
    let observer = match shared {
        Some((directory, device)) => Some(Registry::at(directory)?.observe(device)?),
        None => None,
    };
    let state = match &observer {
        Some(observer) => observer.state().clone(),
        None => DeviceState::new(Default::default()),
    };
    let mut content = vec![0; register.size()];
    state.access_register(register.id(), Method::Query, &mut content)?;
    state.access_register(register.id(), Method::Write, &mut content.clone())?;
    let many = |method| {
        let (state, content) = (&state, &content);
        move || {
            let done = (0..BATCH).filter(|_| {
                let mut data = [0; BYTES];
                let data = &mut data[..content.len()];
                data.copy_from_slice(content);
                state.access_register(register.id(), method, data).is_ok()
            });
            done.count() as u64
        }
    };
    let (get, set) = (many(Method::Query), many(Method::Write));
    Ok([costs(seconds, &[&get])?[0], costs(seconds, &[&set])?[0]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_profiles_are_accepted() {
        for register in REGISTERS {
            // A thread that gets no core in this time has cost nothing: a busy machine.
            let mut tries = (0..20).map(|_| access(0.02, register, None).unwrap());
            assert!(tries.any(|costs| costs.iter().all(|cost| *cost > 0.0)));
        }
    }
}
