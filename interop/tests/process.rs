//! The user's process is the user's: what a program does to itself while it has a device open. Memory
//! that goes away, handlers of its own, threads that are cancelled, limits.

use ferroce_interop::lab::Lab;

/// How often each case runs; `./test soak` says more.
fn rounds() -> u32 {
    std::env::var("FERROCE_PROCESS_ROUNDS").map_or(1, |text| text.parse().unwrap())
}

/// Runs the case of a program and expects nothing on standard error.
fn quietly(program: &str, case: &str) {
    let lab = Lab::new(case);
    let program = lab.compile(program);
    for _ in 0..rounds() {
        let done = lab.run(&[program.to_str().unwrap(), case]).finish();
        assert!(done.status.success(), "{done}");
        assert_eq!(done.stderr, "", "{done}");
    }
}

macro_rules! cases {
    ($program:literal: $($(#[$attribute:meta])* $case:ident),* $(,)?) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $case() {
                quietly($program, stringify!($case));
            }
        )*
    };
}

mod memory {
    use super::quietly;

    cases!("process_memory":
        heap,
        unmapped,
        truncated,
        half,
        at_exit,
        write_barrier,
        crash_reporter,
        own_fault,
        probe,
    );
}

mod threads {
    use super::quietly;

    cases!("process_threads":
        cancel_busy,
        cancel_waiting,
        cancel_cm,
        cancel_write,
        handlers,
    );
}
