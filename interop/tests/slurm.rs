//! Sweeps on a real Slurm: a controller and two nodes on this machine.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use ferroce_interop::lab::{free_port, program};
use ferroce_testing::{Words, has, said};
use serde_json::Value;
use tempfile::TempDir;

/// The longest time for what usually takes Slurm seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// The directory of system programs that are not on users' paths.
const SYSTEM: &str = "/usr/sbin";

/// One of the daemons; it ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Slurm {
    directory: TempDir,
    controller: Option<Daemon>,
    nodes: Vec<Option<Daemon>>,
}

impl Slurm {
    /// A controller and two nodes of one processor each.
    fn start() -> Self {
        let directory = TempDir::with_prefix("ferroce-slurm-").expect("a temporary directory");
        let mut slurm = Self {
            directory,
            controller: None,
            nodes: Vec::new(),
        };
        fs::create_dir(slurm.path().join("state")).unwrap();
        fs::write(slurm.config(), slurm.configuration()).unwrap();
        slurm.controller = Some(slurm.daemon("slurmctld", "-D -c"));
        slurm.nodes = ["n0", "n1"].map(|name| Some(slurm.node(name))).into();
        slurm.until("both nodes are idle", |slurm| {
            let nodes = slurm.ask("sinfo -h -N -o %T");
            nodes.lines().filter(|state| *state == "idle").count() == 2
        });
        slurm
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn config(&self) -> PathBuf {
        self.path().join("slurm.conf")
    }

    fn configuration(&self) -> String {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        let user = self.user();
        let work = self.path().display();
        let mut text = format!(
            "ClusterName=ferroce
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmctldPort={}
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool.%n
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.%n.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdLogFile={work}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MaxArraySize=17
MinJobAge=600
ReturnToService=2
SlurmdTimeout=10
KillWait=5
UnkillableStepTimeout=10
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
",
            free_port()
        );
        for name in ["n0", "n1"] {
            let _ = writeln!(
                text,
                "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=1 RealMemory=100 \
                 State=UNKNOWN",
                free_port()
            );
        }
        text + "PartitionName=main Nodes=n0,n1 Default=YES MaxTime=INFINITE State=UP\n"
    }

    fn user(&self) -> String {
        let output = Command::new("id").arg("-un").output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().into()
    }

    fn command(&self, program: &str) -> Command {
        let path = format!("{SYSTEM}:{}", env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.config()).env("PATH", path);
        command
    }

    fn daemon(&self, name: &str, args: impl Words) -> Daemon {
        let started = self
            .command(&format!("{SYSTEM}/{name}"))
            .args(args.words())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Daemon(started.unwrap_or_else(|error| panic!("apt-get install {name}? {error}")))
    }

    fn node(&self, name: &str) -> Daemon {
        self.daemon("slurmd", format!("-D -N {name}"))
    }

    /// Standard output of a program that queries the controller, which may be busy or not ready
    /// yet.
    fn ask(&self, words: &str) -> String {
        let words = words.words();
        let output = self.command(words[0]).args(&words[1..]).output();
        String::from_utf8(output.expect("slurm-client").stdout).unwrap()
    }

    fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(
                begun.elapsed() < PATIENCE,
                "waited in vain until {what}:\n{}",
                self.logs()
            );
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn logs(&self) -> String {
        let mut text = self.ask("squeue -a") + &self.ask("sinfo -N -l");
        for name in ["slurmctld.log", "slurmd.n0.log", "slurmd.n1.log"] {
            let log = fs::read_to_string(self.path().join(name)).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(15).collect();
            for line in lines.iter().rev() {
                let _ = writeln!(text, "{name}: {line}");
            }
        }
        text
    }

    /// `ferroce ARGS`: exit code, standard output and standard error.
    fn ferroce(&self, args: impl Words) -> (Option<i32>, String, String) {
        let program = program();
        let mut command = self.command(program.to_str().unwrap());
        let output = command
            .args(args.words())
            .current_dir(self.path())
            .output()
            .unwrap();
        said(output)
    }

    fn good(&self, args: impl Words) -> String {
        let (code, out, err) = self.ferroce(&args);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}\n{}", self.logs());
        out
    }

    fn collected(&self, directory: &str) -> Value {
        let (_, out, err) = self.ferroce(format!("sweep collect {directory} -j"));
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
    }

    /// Starts eight shards, each of which waits after its first point until the gate exists;
    /// returns the array's number.
    fn launch_gated(&self, directory: &str, gate: &Path) -> String {
        let launch = format!("sweep launch {directory} --on slurm --shards 8");
        let script = self.good(format!("{launch} --shard-time 0 --dry-run"));
        let last = script.lines().last().unwrap();
        let work = last.strip_prefix("exec ").unwrap();
        let gate = gate.display();
        let wait =
            format!("{work} --points 1\nwhile [ ! -e '{gate}' ]; do sleep 0.1; done\n{last}");
        let path = self.path().join("gated.sbatch");
        fs::write(&path, script.replace(last, &wait)).unwrap();
        let job = self.ask(&format!("sbatch --parsable {}", path.to_str().unwrap()));
        job.trim().to_owned()
    }

    /// How many parts a sweep has.
    fn results(&self, directory: &str) -> usize {
        let files = fs::read_dir(self.path().join(directory)).unwrap();
        let names = files.map(|file| file.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("part-"))
            .count()
    }

    /// State and node of each task of an array.
    fn tasks(&self, job: &str) -> Vec<(String, String)> {
        let text = self.ask(&format!("squeue -h -a -r -t all -j {job} -o %T,%N"));
        let task = |line: &str| {
            let mut words = line.split(',').map(str::to_owned);
            (
                words.next().unwrap_or_default(),
                words.next().unwrap_or_default(),
            )
        };
        text.lines().map(task).collect()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Steps and their programs end with their jobs, not with the daemons.
        let _ = self
            .command("scancel")
            .args(["--state", "running"])
            .output();
        let _ = self
            .command("scancel")
            .args(["--state", "pending"])
            .output();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) && !self.ask("squeue -h").is_empty() {
            thread::sleep(Duration::from_millis(100));
        }
    }
}

const SCENARIO: &str = r#"
[topology]
kind = "star"
hosts = 4
[device]
personality = "ib"
[[job]]
workload = "ring-all-reduce"
bytes = "1MiB"
[[fault]]
kind = "loss"
link = "all"
probability = "0.1%"
"#;

const SWEEP: &str = r#"
title = "Loss"
scenario = "scenario.toml"
seeds = 12
[[axis]]
field = "fault[0].probability"
values = ["0.1%", "0.5%"]
"#;

/// (a) eight shards on two nodes give the table of one process, (b) one is queued again meanwhile,
/// (c) a node dies and its shard runs on the other, (d) a shard runs twice, (e) too many shards are
/// refused.
#[test]
fn shards_run_on_slurm_whatever_happens_to_nodes() {
    let mut slurm = Slurm::start();
    fs::write(slurm.path().join("scenario.toml"), SCENARIO).unwrap();
    fs::write(slurm.path().join("sweep.toml"), SWEEP).unwrap();

    // (e)
    let too_many = "sweep launch sweep.toml --on slurm --shards 18";
    let (code, _, err) = slurm.ferroce(too_many);
    assert_eq!(code, Some(2), "{err}");
    has(&err, ["arrays of 17 tasks at most", "write --shards 17"]);

    slurm.good("sweep launch sweep.toml -o local --on local");
    slurm.good("sweep collect local --csv local.csv");

    // (a), (b), (c): each task runs a point and waits until the test lets it continue.
    let gate = slurm.path().join("gate");
    slurm.good("sweep plan sweep.toml -o shards");
    let job = slurm.launch_gated("shards", &gate);
    slurm.until("a point is done on both nodes", |slurm| {
        let tasks = slurm.tasks(&job);
        let works = |node: &str| tasks.contains(&("RUNNING".into(), node.into()));
        ["n0", "n1"].iter().all(|node| works(node)) && slurm.results("shards") >= 2
    });
    let requeue = slurm
        .command("scontrol")
        .args(["requeue", &format!("{job}_0")])
        .output();
    let requeue = requeue.unwrap();
    assert!(
        requeue.status.success(),
        "{}",
        String::from_utf8_lossy(&requeue.stderr)
    );
    slurm.nodes[1] = None;
    slurm.until("a node is down", |slurm| {
        let states = slurm.ask("sinfo -h -N -o %N=%T");
        states.lines().any(|line| line.starts_with("n1=down"))
    });
    fs::write(&gate, "open").unwrap();
    slurm.until("all shards are over", |slurm| {
        let tasks = slurm.tasks(&job);
        tasks.len() == 8 && tasks.iter().all(|(state, _)| state == "COMPLETED")
    });
    slurm.good("sweep collect shards --csv shards.csv");
    let table = |name: &str| fs::read_to_string(slurm.path().join(name)).unwrap();
    assert_eq!(table("local.csv"), table("shards.csv"));

    // (d)
    slurm.good("sweep run shards --shard 3/8 --again");
    let collected = slurm.collected("shards");
    assert!(collected["duplicates"].as_u64().unwrap() > 0, "{collected}");
    assert_eq!(collected["unequal"], Value::Array(Vec::new()));
}
