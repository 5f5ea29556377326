//! Explores the orders in which threads and processes can do what they do without a lock, and all that can
//! happen to a reliable connection (`rc`). docs/proofs.md has the figures.
//!
//! The product's own sources are compiled here with [loom](https://docs.rs/loom)'s atomics in place of the
//! standard library's. Each such model is explored as it is, where nothing may go wrong, and then with one
//! kind of memory order left out after the other: those that it depends on must be noticed.
//!
//! `ferroce-models [NAME]` runs the models whose names contain the text.

#![allow(
    unreachable_pub,
    reason = "the product's sources are public for others"
)]

mod cnps;
#[path = "../../crates/driver/src/handshake.rs"]
#[allow(dead_code, reason = "the product uses the rest")]
mod handshake;
mod helper;
mod rc;
#[allow(dead_code, reason = "the product uses the rest")]
mod ring;
#[allow(dead_code, reason = "the product uses the rest")]
mod shared;
mod sync;

/// What `handshake` uses of the driver.
mod doorbell {
    pub(crate) use ferroce_driver::Waiting;
}

use ferroce_driver::patience;

use std::env;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use sync::Weakness::{self, Acquire, AcquireFence, Fence, Release, ReleaseFence};

/// A model's name, what it does, and the orders that it depends on.
type Model = (&'static str, fn(), &'static [Weakness]);

macro_rules! models {
    ($($module:ident::$name:ident: $($weakness:ident)*;)*) => {
        &[$((
            concat!(stringify!($module), "::", stringify!($name)),
            $module::$name,
            &[$($weakness),*],
        )),*]
    };
}

const MODELS: &[Model] = models! {
    ring::published_packets_are_whole: Acquire Release;
    ring::room_is_reused: Acquire Release;
    shared::settings_are_read_in_one_piece: Acquire Release AcquireFence ReleaseFence;
    shared::no_writer_undoes_the_change_of_another: Acquire Release AcquireFence ReleaseFence;
    shared::a_ring_wakes_its_reader: Fence;
    shared::a_sleeping_reader_is_woken: Fence;
    shared::one_writer_wakes_the_reader:;
    helper::a_program_that_rests_is_not_missed: Fence;
    helper::a_deadline_is_not_slept_past:;
    helper::waiting_requests_are_watched:;
    cnps::one_process_sends_a_cnp:;
    cnps::processes_share_the_interval:;
};

fn main() -> ExitCode {
    let text = env::args().nth(1).unwrap_or_default();
    // A process that explores one model, with this left out.
    if let Some(weakened) = env::args().nth(2) {
        explore(&text, &weakened);
        return ExitCode::SUCCESS;
    }
    let mut failed = false;
    for (name, _, depends_on) in MODELS.iter().filter(|(name, ..)| name.contains(&text)) {
        let started = Instant::now();
        let noticed = Weakness::ALL
            .iter()
            .filter(|weakness| !holds(name, &format!("{weakness:?}"), Stdio::null()));
        let noticed: Vec<_> = noticed.copied().collect();
        let is_good = holds(name, "Nothing", Stdio::inherit()) && noticed == *depends_on;
        let seconds = started.elapsed().as_secs_f64();
        let verdict = if is_good { "ok" } else { "FAILED" };
        println!("{verdict} {name}: notices {noticed:?}, {seconds:.1} s");
        failed |= !is_good;
    }
    failed |= !rc::check(&text);
    ExitCode::from(u8::from(failed))
}

/// Whether a model holds with an order left out, in a process of its own.
fn holds(name: &str, weakened: &str, stderr: Stdio) -> bool {
    let program = env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args([name, weakened]).stdout(Stdio::null());
    let status = command.stderr(stderr).status();
    status.expect("this program runs").success()
}

fn explore(name: &str, weakened: &str) {
    let (_, model, _) = MODELS.iter().find(|it| it.0 == name).expect("a model");
    let mut weaknesses = Weakness::ALL.into_iter();
    if let Some(weakness) = weaknesses.find(|it| format!("{it:?}") == weakened) {
        weakness.apply();
    }
    sync::explore(*model);
}
