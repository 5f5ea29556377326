//! Captures of ports. A file appears under its name when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use ferroce_fabric::Fabric;
use ferroce_scenario::Scenario;

use crate::output::Failure;

/// The captures of a run. Files that were not finished are removed.
pub(super) struct Captures(Vec<Capture>);

struct Capture {
    cable: usize,
    end: usize,
    file: File,
    path: PathBuf,
    /// Where it is written before it gets its name; not a pipe or a device.
    draft: Option<PathBuf>,
}

impl Captures {
    /// Creates the files for these ports.
    pub(super) fn create(scenario: &Scenario, ports: &[(String, String)]) -> Result<Self, Failure> {
        let mut captures = Self(Vec::new());
        if let [(name, path), ..] = ports
            && scenario.fast_forward.is_some()
        {
            return Err(Failure::input(format_args!(
                "--pcap {name}={path}: fast_forward leaves out packets; remove it from the scenario, or --pcap"
            )));
        }
        for (name, path) in ports {
            let port = scenario.port(name);
            let (cable, end) =
                port.map_err(|must| Failure::input(format_args!("--pcap {name}={path}: {must}")))?;
            let path = PathBuf::from(path);
            let draft = is_replaceable(&path).then(|| draft(&path));
            let file = match &draft {
                Some(draft) => File::create_new(draft),
                None => File::options().write(true).open(&path),
            };
            captures.0.push(Capture {
                cable,
                end,
                file: file.map_err(|error| cannot(&path, &error))?,
                path,
                draft,
            });
        }
        Ok(captures)
    }

    /// Has the fabric record what passes.
    pub(super) fn begin(&self, fabric: &mut Fabric) -> Result<(), Failure> {
        for it in &self.0 {
            let file = it.file.try_clone();
            let begun = file
                .and_then(|file| fabric.capture(it.cable, it.end, Box::new(BufWriter::new(file))));
            begun.map_err(|error| cannot(&it.path, &error))?;
        }
        Ok(())
    }

    /// Gives the files their names, if all of them are whole.
    pub(super) fn finish(mut self, fabric: &mut Fabric) -> Result<(), Failure> {
        let finished = fabric.finish_captures();
        if let (Err(error), Some(first)) = (&finished, self.0.first()) {
            return Err(cannot(&first.path, error));
        }
        for it in &mut self.0 {
            if let Some(draft) = it.draft.take() {
                fs::rename(&draft, &it.path).map_err(|error| {
                    let _ = fs::remove_file(&draft);
                    cannot(&it.path, &error)
                })?;
            }
        }
        Ok(())
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        for draft in self.0.iter().filter_map(|it| it.draft.as_deref()) {
            let _ = fs::remove_file(draft);
        }
    }
}

/// Whether a file may take this place: it is free, or has a file.
fn is_replaceable(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |it| it.is_file())
}

fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    path.with_file_name(name)
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::broken(format_args!(
        "cannot write {}: {error}; name a file in a directory that exists, is yours and has room",
        path.display()
    ))
}
