//! The user's process stays the user's: what a program may do to itself while it has a device open.
//! It unmaps memory, installs signal handlers, cancels threads, and sets limits.

use ferroce_interop::lab::Lab;

/// How many times each case runs; `./test soak` sets more.
fn rounds() -> u32 {
    std::env::var("FERROCE_PROCESS_ROUNDS").map_or(1, |text| text.parse().unwrap())
}

/// Runs the case of a program and expects nothing on standard error.
fn quietly(program: &str, case: &str) {
    run(Lab::new(case), program, case);
}

/// The same for a program that makes invalid calls, and checks the error numbers.
fn refused(program: &str, case: &str) {
    let mut lab = Lab::new(case);
    lab.set("FERROCE_LOG", "off");
    run(lab, program, case);
}

fn run(lab: Lab, program: &str, case: &str) {
    let program = lab.compile(program);
    for _ in 0..rounds() {
        let done = lab.run([program.to_str().unwrap(), case]).finish();
        assert!(done.status.success(), "{done}");
        assert_eq!(done.stderr, "", "{done}");
    }
}

macro_rules! cases {
    ($run:ident $program:literal: $($case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                super::$run($program, stringify!($case));
            }
        )*
    };
}

/// The same where the device accesses memory by system calls.
fn checked(program: &str, case: &str) {
    let mut lab = Lab::new(&format!("{case}-checked"));
    lab.set("FERROCE_CHECKED", "1");
    run(lab, program, case);
}

mod memory {
    cases!(quietly "process_memory":
        heap,
        unmapped,
        blocked,
        truncated,
        half,
        at_exit,
        write_barrier,
        crash_reporter,
        own_fault,
        probe,
    );
}

mod memory_by_system_calls {
    cases!(checked "process_memory":
        heap,
        unmapped,
        blocked,
        truncated,
        half,
    );
}

mod threads {
    cases!(quietly "process_threads":
        cancel_busy,
        cancel_waiting,
        cancel_cm,
        cancel_write,
        handlers,
    );
}

/// The same for a program that needs the largest number of opens of a device in one process.
fn on_so_many_cores(program: &str, case: &str) {
    let mut lab = Lab::new(case);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    lab.set("CORES", &cores.to_string());
    run(lab, program, case);
}

mod contexts {
    cases!(on_so_many_cores "process_contexts":
        of_threads,
        of_one_thread,
        between,
        imported,
        come_and_go,
    );
    cases!(refused "process_contexts":
        xrc_file,
    );
}

mod life {
    cases!(refused "process_life":
        closefrom_all,
        close_low,
        becomes_daemon,
        double_fork,
        vfork_exec,
        raw_clone,
        few_descriptors,
        few_threads,
        no_locked_memory,
        little_address_space,
        call_in_handler,
        jump_out,
    );
}
