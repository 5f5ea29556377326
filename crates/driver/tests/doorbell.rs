//! When posted requests leave: scripts in virtual time.

mod common;

use common::{A, B, World};
use ferroce_device::{Counter, Psn, Span, Time};
use ferroce_driver::patience::{
    BATCH_BYTES, BATCH_REQUESTS, CALL_REQUESTS, LATE, SUCCESSION, TRUST_MAX, TRUST_MIN, WATCH,
    WATCH_WAITS,
};
use ferroce_driver::{Ring, Waiting, Watch, Watched};

const LEAVES: Ring = Ring::Leaves { wants_watch: false };
const WANTS_WATCH: Ring = Ring::Leaves { wants_watch: true };
const MICROSECOND: Span = Span::from_micros(1);

/// A program that has posted enough for requests to wait, with one of its requests in flight.
fn stream() -> World {
    let mut world = World::new();
    for _ in 0..=CALL_REQUESTS {
        world.post(A, 8, false);
        world.pass(MICROSECOND);
    }
    world[A].driver.link.sends.clear();
    world
}

#[test]
fn the_first_request_of_an_idle_queue_pair_leaves_at_once() {
    let mut world = stream();
    world.poll(B);
    world.poll(B);
    world.poll(A);
    world[A].driver.link.sends.clear();
    assert_eq!(world.post(A, 8, true), LEAVES);
    assert_eq!(world[A].driver.link.sends, [1]);
    assert_eq!(world.post(A, 8, true), Ring::Waits);
}

#[test]
fn requests_wait_only_after_quick_ones_and_for_a_watch() {
    let mut world = World::new();
    assert_eq!(world.post(A, 8, true), LEAVES, "an idle queue pair");
    for _ in 0..CALL_REQUESTS {
        assert_eq!(world.post(A, 8, true), LEAVES);
    }
    assert_eq!(world.post(A, 8, false), WANTS_WATCH);
    assert_eq!(world.post(A, 8, true), Ring::Waits);
    assert_eq!(world[A].driver.link.sends, [1; CALL_REQUESTS as usize + 2]);
}

#[test]
fn a_program_that_posts_now_and_then_needs_no_watch() {
    let mut world = World::new();
    for _ in 0..3 * CALL_REQUESTS {
        assert_eq!(world.post(A, 8, true), LEAVES);
        world.pass(SUCCESSION);
    }
}

/// The number of outstanding READs is limited, so further ones do not leave when posted.
#[test]
fn requests_that_cannot_leave_need_no_watch() {
    let mut world = World::new();
    // The fifth cannot leave, and further ones wait behind it.
    for _ in 0..5 {
        assert_eq!(world.read(A, 8), LEAVES);
    }
    for _ in 5..4 * CALL_REQUESTS {
        assert_eq!(world.read(A, 8), Ring::Waits);
    }
    assert_eq!(
        world.waiting(A),
        Waiting::default(),
        "for answers, not for a call"
    );
    assert_eq!(world.lying(B), 4);
    for side in [B, B, A, A] {
        world.poll(side);
    }
    assert_eq!(world.lying(B), 4, "the next ones");
}

/// Batches of two requests that wait and leave with a poll, until one needs no watch; returns their number.
fn batches_until_trusted(world: &mut World) -> u32 {
    for batches in 0.. {
        // Each of these tries is a batch without a watch as well, if it may wait.
        if world.post(A, 8, false) == Ring::Waits {
            return batches;
        }
        assert_eq!(world.post(A, 8, true), Ring::Waits);
        world.poll(A);
        world.pass(MICROSECOND);
        if batches % 32 == 0 {
            world.poll(B);
            world.poll(B);
        }
    }
    unreachable!()
}

#[test]
fn a_program_that_only_posts_and_polls_needs_no_watch() {
    let mut world = stream();
    assert_eq!(batches_until_trusted(&mut world), TRUST_MIN);
    // The watch sees nothing that waits, and ends.
    let waiting = world.waiting(A);
    for _ in 0..10 {
        world.poll(A);
        assert_eq!(world.post(A, 8, false), Ring::Waits);
        assert_eq!(world.waiting(A), waiting);
    }
    // Each pause makes it need one for longer.
    for needed in [2, 4] {
        world.has_paused = true;
        world.poll(A);
        assert_eq!(batches_until_trusted(&mut world), needed * TRUST_MIN);
    }
    for _ in 0..20 {
        world.has_paused = true;
        world.poll(A);
        assert!(batches_until_trusted(&mut world) <= TRUST_MAX);
        world.poll(B);
        world.poll(B);
        world.poll(A);
    }
}

#[test]
fn staged_requests_leave_when_the_program_polls() {
    let mut world = stream();
    for _ in 0..5 {
        assert_eq!(world.post(A, 8, true), Ring::Waits);
    }
    assert_eq!(world[A].driver.link.sends, [0_usize; 0]);
    world.poll(A);
    assert_eq!(world[A].driver.link.sends, [5]);
}

#[test]
fn a_request_of_an_idle_queue_pair_takes_along_what_waits() {
    let mut world = stream();
    world.post(A, 8, true);
    world.post_other(A, 1, 8, true);
    assert_eq!(
        world[A].driver.link.sends,
        [2],
        "one batch of two queue pairs"
    );
}

#[test]
fn a_batch_leaves_when_it_is_full() {
    let mut world = stream();
    for _ in 1..BATCH_REQUESTS {
        assert_eq!(world.post(A, 8, true), Ring::Waits);
    }
    assert_eq!(world.post(A, 8, true), LEAVES);
    assert_eq!(world[A].driver.link.sends, [BATCH_REQUESTS as usize]);
    assert_eq!(world.post(A, 8, true), Ring::Waits);
}

/// One call takes 15 packets of the largest MTU, and the rest begins the next one.
#[test]
fn the_rest_of_a_full_batch_waits_for_the_next() {
    let mut world = stream();
    (world[A].driver.link.room, world[A].driver.link.reported) = (15, 4096);
    for _ in 1..BATCH_BYTES / 4096 {
        assert_eq!(world.post(A, 4096, true), Ring::Waits);
    }
    assert_eq!(world.post(A, 4096, true), Ring::Fill);
    assert_eq!(world[A].driver.link.sends, [15]);
    assert_ne!(world.waiting(A), Waiting::default());
    world.poll(A);
    assert_eq!(world[A].driver.link.sends, [15, 1]);
}

#[test]
fn most_of_a_batch_is_as_good_as_a_full_one() {
    let mut world = stream();
    world[A].driver.link.reported = 4096;
    for _ in 0..BATCH_BYTES / 4096 {
        world.post(A, 4096, true);
    }
    assert_eq!(world[A].driver.link.sends, [16]);
}

/// As after 16 million packets: the PSNs wrap among the waiting packets.
#[test]
fn waiting_packets_may_cross_the_psn_wrap() {
    let requests = 10 * BATCH_REQUESTS;
    let first = Psn::ZERO.wrapping_sub(CALL_REQUESTS + requests / 2);
    let mut world = World::with(1, first);
    for _ in 0..=CALL_REQUESTS {
        world.post(A, 8, true);
    }
    world[A].driver.link.sends.clear();
    for count in 1..=requests {
        let expected = match count % BATCH_REQUESTS {
            0 => LEAVES,
            _ => Ring::Waits,
        };
        assert_eq!(world.post(A, 8, true), expected, "request {count}");
        if expected == LEAVES {
            // Answers are taken while this batch is in flight.
            world.poll(A);
            world.poll(B);
        }
    }
    for side in [A, B, A, B, A] {
        world.poll(side);
    }
    assert_eq!(world[A].driver.link.sends, [BATCH_REQUESTS as usize; 10]);
    assert_eq!(world.completed(A), (1 + CALL_REQUESTS + requests) as usize);
    assert_eq!(world.count(A, Counter::RetransmittedPackets), 0);
}

#[test]
fn thousands_of_queue_pairs_that_post_at_once_share_batches() {
    const QUEUE_PAIRS: usize = 4000;
    let mut world = World::with(QUEUE_PAIRS, Psn::ZERO);
    let post_all = |world: &mut World, first| {
        let mut waiting = 0;
        for queue_pair in 0..QUEUE_PAIRS {
            waiting = match world.post_other(A, queue_pair, 8, true) {
                Ring::Waits => waiting + 1,
                _ => 0,
            };
            assert!(waiting < BATCH_REQUESTS, "the batch is full");
            assert!(first || waiting > 0 || !world[A].driver.link.sends.is_empty());
        }
    };
    // Each of them was idle. No process answers meanwhile.
    post_all(&mut world, true);
    assert_eq!(world[A].driver.link.sends, vec![1; QUEUE_PAIRS]);
    world[A].driver.link.sends.clear();
    post_all(&mut world, false);
    world.poll(A);
    let sends = std::mem::take(&mut world[A].driver.link.sends);
    let alone = CALL_REQUESTS as usize;
    assert_eq!(sends[..alone], [1; CALL_REQUESTS as usize]);
    let full = (QUEUE_PAIRS - alone) / BATCH_REQUESTS as usize;
    assert_eq!(
        sends[alone..alone + full],
        vec![BATCH_REQUESTS as usize; full]
    );
    assert_eq!(
        sends[alone + full..].iter().sum::<usize>(),
        (QUEUE_PAIRS - alone) % 64
    );
    while world.completed(A) < 2 * QUEUE_PAIRS {
        let before = (world.lying(A), world.lying(B), world.completed(A));
        world.poll(B);
        world.poll(A);
        let after = (world.lying(A), world.lying(B), world.completed(A));
        assert_ne!(before, after, "nothing goes on");
    }
    assert_eq!(world.count(A, Counter::RetransmittedPackets), 0);
}

/// A machine without a core for the watch: requests wait for it once, and then no more.
#[test]
fn requests_that_came_too_late_make_others_leave_at_once() {
    let mut world = stream();
    assert_eq!(world.post(A, 8, true), Ring::Waits);
    world.pass(LATE + MICROSECOND);
    world.poll(A);
    for _ in 0..CALL_REQUESTS {
        assert_eq!(world.post(A, 8, true), LEAVES);
    }
    assert_eq!(world.post(A, 8, true), Ring::Waits);
}

/// A watch over a program that has just begun a batch.
struct Scene {
    watch: Watch,
    now: Time,
    is_at_rest: bool,
    waiting: Waiting,
}

impl Scene {
    fn begin(waiting: u64) -> Self {
        let now = Time::from_nanos(1_000_000_000);
        let mut scene = Self {
            watch: Watch::new(now),
            now,
            is_at_rest: false,
            waiting: Waiting::from_bits(waiting),
        };
        assert_eq!(scene.look(Span::ZERO), Watched::Again);
        scene
    }

    fn look(&mut self, later: Span) -> Watched {
        self.now = self.now.after(later);
        self.watch.look(self.now, self.waiting, self.is_at_rest)
    }
}

const BATCH: u64 = 3;
const NO_BATCH: u64 = 2;

#[test]
fn the_watch_sends_what_the_program_leaves() {
    let mut scene = Scene::begin(BATCH);
    assert_eq!(scene.look(WATCH_WAITS - MICROSECOND), Watched::Again);
    assert_eq!(scene.look(MICROSECOND), Watched::Send);
    scene.waiting = Waiting::from_bits(NO_BATCH);
    assert_eq!(scene.look(MICROSECOND), Watched::Again);
}

/// A program that computes is promised this time.
#[test]
fn a_watch_that_has_a_core_sends_within_20_microseconds() {
    let mut scene = Scene::begin(NO_BATCH);
    scene.waiting = Waiting::from_bits(BATCH);
    let mut looks = (1..=20).map(|_| scene.look(MICROSECOND));
    assert!(looks.any(|watched| watched == Watched::Send));
}

#[test]
fn a_program_that_goes_on_needs_no_help() {
    let mut scene = Scene::begin(BATCH);
    for batch in 1..1000 {
        scene.waiting = Waiting::from_bits(BATCH + 2 * batch);
        assert_eq!(scene.look(WATCH_WAITS), Watched::Again);
    }
}

#[test]
fn the_watch_ends_when_the_program_is_absent_or_rests() {
    let mut scene = Scene::begin(NO_BATCH);
    assert_eq!(scene.look(WATCH - MICROSECOND), Watched::Again);
    assert_eq!(scene.look(MICROSECOND), Watched::End);
    let mut scene = Scene::begin(BATCH);
    scene.is_at_rest = true;
    assert_eq!(scene.look(MICROSECOND), Watched::End);
}
