//! Files for schedulers: a script for sbatch, a manifest for Kubernetes.

use std::path::Path;

/// Shards of a sweep, and who runs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    pub(super) program: &'a Path,
    pub(super) directory: &'a Path,
    pub(super) shards: u64,
    pub(super) at_once: Option<u64>,
    pub(super) threads: u16,
}

/// A job array. A task that is preempted, or loses its node, is queued again and goes on.
pub(super) fn slurm(batch: &Batch<'_>) -> Result<String, String> {
    let Batch {
        program,
        directory,
        shards,
        at_once,
        threads,
    } = batch;
    let directory = directory.to_string_lossy();
    // Slurm takes some characters of file names for its own.
    if directory.contains(['%', '\\', '"', '\n']) {
        return Err(format!(
            "{directory}: Slurm takes no file names with %, \\ or \"; choose another directory with -o"
        ));
    }
    let last = shards - 1;
    let at_once = at_once.map_or_else(String::new, |count| format!("%{count}"));
    let program = quoted(&program.to_string_lossy());
    let words = quoted(&directory);
    Ok(format!(
        "#!/bin/sh\n\
         #SBATCH --job-name=ferroce-sweep\n\
         #SBATCH --array=0-{last}{at_once}\n\
         #SBATCH --cpus-per-task={threads}\n\
         #SBATCH --requeue\n\
         #SBATCH --open-mode=append\n\
         # Points that are begun are finished before the time is up, and results written.\n\
         #SBATCH --signal=B:TERM@30\n\
         #SBATCH --output=\"{directory}/shard-%a.log\"\n\
         exec {program} sweep run {words} --shard \"$SLURM_ARRAY_TASK_ID/{shards}\" --threads {threads}\n"
    ))
}

/// An indexed job, which says which shard it is in JOB_COMPLETION_INDEX.
pub(super) fn kubernetes(batch: &Batch<'_>) -> String {
    let Batch {
        directory,
        shards,
        at_once,
        threads,
        ..
    } = batch;
    let at_once = at_once.unwrap_or(*shards).min(*shards);
    let directory = serde_json::Value::from(directory.to_string_lossy().into_owned());
    format!(
        "apiVersion: batch/v1
kind: Job
metadata:
  name: ferroce-sweep
spec:
  completionMode: Indexed
  completions: {shards}
  parallelism: {at_once}
  backoffLimitPerIndex: 3
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: shard
        image: ferroce # one that has the program of the same version
        command: [\"ferroce\", \"sweep\", \"run\", {directory}, \"--shards\", \"{shards}\", \"--threads\", \"{threads}\"]
        resources:
          requests:
            cpu: \"{threads}\"
        volumeMounts:
        - name: sweep
          mountPath: {directory}
      volumes:
      - name: sweep # the directory of the plan, writable from all nodes
        persistentVolumeClaim:
          claimName: ferroce-sweep
"
    )
}

/// A word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_names_shards_and_quotes_paths() {
        let batch = Batch {
            program: Path::new("/opt/it's/ferroce"),
            directory: Path::new("/data/my sweep"),
            shards: 8,
            at_once: Some(4),
            threads: 2,
        };
        let script = slurm(&batch).unwrap();
        for line in [
            "#SBATCH --array=0-7%4",
            "#SBATCH --output=\"/data/my sweep/shard-%a.log\"",
            r#"exec '/opt/it'\''s/ferroce' sweep run '/data/my sweep' --shard "$SLURM_ARRAY_TASK_ID/8" --threads 2"#,
        ] {
            assert!(script.lines().any(|it| it == line), "{script}");
        }
        let wrong = Batch {
            directory: Path::new("/data/100%"),
            ..batch
        };
        assert!(slurm(&wrong).unwrap_err().contains("with -o"));
        assert!(kubernetes(&batch).contains("parallelism: 4"));
    }
}
