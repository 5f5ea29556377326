//! Which thread drives a device, and when the helper sleeps: scripts in virtual time.

use ferroce_device::{Span, Time};
use ferroce_driver::patience::{
    AROUND, LATE, LONG_PAUSE, LOOK_AGAIN, LOOK_SOON, PAUSE, PAUSES, POLLING, SPARED_MAX, SPIN,
    STAND_BACK, TURN,
};
use ferroce_driver::{Handshake, Helper, Look, Next, Round, Sent, Waited};

/// A helper, the time, and when the program polled last.
struct Scene {
    helper: Helper,
    now: Time,
    polled: Option<Time>,
    pauses: bool,
    is_crowded: bool,
}

impl Scene {
    fn begin() -> Self {
        let now = Time::from_nanos(1_000_000_000);
        Self {
            helper: Helper::new(now),
            now,
            polled: None,
            pauses: false,
            is_crowded: false,
        }
    }

    fn pass(&mut self, time: Span) {
        self.now = self.now.after(time);
    }

    fn poll(&mut self) {
        self.polled = Some(self.now);
    }

    fn look(&mut self) -> Look {
        self.helper
            .look(self.now, self.polled, self.pauses, self.is_crowded)
    }

    /// Drives the device, which takes this many packets and sends all it has.
    fn drive(&mut self, packets: usize, deadline: Option<Time>) -> Next {
        let Look::Drive { is_around } = self.look() else {
            panic!("{:?} does not drive", self.helper);
        };
        self.helper.has_begun();
        let round = Round {
            received: Some(packets),
            is_stream: false,
            is_due: false,
            is_around,
        };
        self.helper.next(self.now, round, Sent::All, deadline)
    }
}

const MICROSECOND: Span = Span::from_micros(1);

#[test]
fn the_helper_drives_a_passive_device() {
    let mut scene = Scene::begin();
    assert_eq!(scene.look(), Look::Drive { is_around: false });
    assert_eq!(scene.drive(100, None), Next::Again);
}

#[test]
fn the_helper_spins_after_a_packet_and_then_sleeps() {
    let mut scene = Scene::begin();
    assert_eq!(scene.drive(1, None), Next::Again);
    scene.pass(SPIN - MICROSECOND);
    assert_eq!(scene.drive(0, None), Next::Spin);
    scene.pass(MICROSECOND);
    assert_eq!(scene.drive(0, None), Next::Sleep(None));
    let deadline = Some(scene.now.after(Span::from_micros(5)));
    assert_eq!(scene.drive(0, deadline), Next::Sleep(deadline));
    assert_eq!(scene.drive(1, deadline), Next::Again);
    assert_eq!(scene.drive(0, deadline), Next::Spin, "a packet came");
}

#[test]
fn the_helper_does_not_sleep_while_there_is_more_to_send() {
    let mut scene = Scene::begin();
    scene.pass(SPIN);
    let round = Round {
        received: Some(0),
        is_stream: false,
        is_due: false,
        is_around: false,
    };
    let next = scene.helper.next(scene.now, round, Sent::More, None);
    assert_eq!(next, Next::Spin);
    // The link will report when it takes more.
    let next = scene.helper.next(scene.now, round, Sent::Blocked, None);
    assert_eq!(next, Next::Sleep(None));
}

#[test]
fn a_program_that_polls_is_left_alone() {
    let mut scene = Scene::begin();
    scene.poll();
    for _ in 0..SPARED_MAX {
        scene.pass(MICROSECOND);
        assert_eq!(scene.look(), Look::AwaitAbsence(LOOK_AGAIN));
        scene.helper.has_waited(Waited::Arrived);
        scene.poll();
    }
    assert_eq!(scene.look(), Look::StandBack(LOOK_AGAIN));
    scene.pass(STAND_BACK - MICROSECOND);
    assert_eq!(scene.look(), Look::StandBack(LOOK_AGAIN));
    scene.pass(MICROSECOND);
    assert_eq!(scene.look(), Look::Drive { is_around: true });
}

#[test]
fn packets_wait_only_briefly_for_a_program_that_pauses() {
    let mut scene = Scene::begin();
    scene.pauses = true;
    scene.poll();
    for _ in 0..SPARED_MAX {
        assert_eq!(scene.look(), Look::AwaitAbsence(LOOK_AGAIN));
        scene.helper.has_waited(Waited::Arrived);
    }
    assert_eq!(scene.look(), Look::StandBack(LOOK_SOON));
    scene.pass(POLLING);
    assert_eq!(scene.look(), Look::Drive { is_around: true });
    scene.helper.has_begun();
    scene.poll();
    scene.pass(PAUSE);
    assert_eq!(scene.look(), Look::Drive { is_around: true });
}

/// A program without a core will soon have one again, and take what has arrived.
#[test]
fn the_helper_waits_for_a_program_s_turn_in_a_crowd() {
    let mut scene = Scene::begin();
    scene.is_crowded = true;
    scene.poll();
    for _ in 0..SPARED_MAX {
        scene.pass(TURN / 8);
        assert_eq!(scene.look(), Look::AwaitAbsence(LOOK_AGAIN));
        scene.helper.has_waited(Waited::Arrived);
    }
    assert_eq!(scene.look(), Look::StandBack(TURN));
    scene.pass(TURN);
    assert_eq!(scene.look(), Look::Drive { is_around: true });
    // One that pauses has it drive at once.
    scene.helper.has_begun();
    scene.poll();
    scene.pauses = true;
    scene.pass(PAUSE);
    assert_eq!(scene.look(), Look::Drive { is_around: true });
}

/// A program's thread, which polls.
#[derive(Default)]
struct Thread {
    handshake: Handshake,
    now: Time,
    ran: Span,
}

impl Thread {
    /// Runs for so long, and polls then; returns whether it pauses.
    fn poll_after(&mut self, time: Span) -> bool {
        self.now = self.now.after(time);
        self.ran += time;
        self.handshake.note_poll(self.now, || self.ran);
        self.handshake.pauses()
    }

    /// Has no core for so long.
    fn stalls(&mut self, time: Span) {
        self.now = self.now.after(time);
    }
}

#[test]
fn a_program_pauses_if_it_runs_between_polls() {
    let mut thread = Thread::default();
    thread.stalls(Span::from_secs(1));
    // A loop that loses its core now and then, also to its helper.
    for _ in 0..100 {
        for _ in 0..2000 {
            assert!(!thread.poll_after(MICROSECOND / 2));
        }
        thread.stalls(PAUSE * 4);
        assert!(!thread.poll_after(MICROSECOND));
        thread.stalls(PAUSE * 1000);
    }
    // It does something else after some polls, and the helper takes the core for most of that.
    for _ in 0..10 {
        for _ in 0..100 {
            thread.poll_after(MICROSECOND);
        }
        thread.stalls(PAUSE * 8);
        assert!(thread.poll_after(PAUSE));
    }
    // It polls in a loop again.
    let polls = PAUSES / MICROSECOND;
    for _ in 0..polls {
        thread.poll_after(MICROSECOND);
    }
    assert!(!thread.poll_after(MICROSECOND));
}

#[test]
fn posts_and_long_polls_are_no_pauses() {
    let mut thread = Thread::default();
    thread.stalls(Span::from_secs(1));
    thread.poll_after(MICROSECOND);
    // Posts that wait for more.
    thread.handshake.note_post();
    assert!(!thread.poll_after(PAUSE * 2));
    // A poll that sends a window.
    thread.now = thread.now.after(PAUSE * 4);
    thread.ran += PAUSE * 4;
    thread.handshake.note_end(|| thread.now);
    assert!(!thread.poll_after(MICROSECOND));
    // From the first time on it is known how long the thread has run.
    thread.poll_after(PAUSE);
    assert!(thread.poll_after(PAUSE));
    assert!(!thread.handshake.take_pause());
    thread.poll_after(LONG_PAUSE);
    assert!(thread.handshake.take_pause() && !thread.handshake.take_pause());
    // Nor do posts take so long.
    thread.handshake.note_post();
    thread.poll_after(LATE);
    assert!(thread.handshake.take_pause());
    let (now, ran) = (thread.now.after(PAUSES), thread.ran + PAUSES);
    thread.handshake.note_poll_unless_at_rest(|| now, || ran);
    assert!(thread.handshake.pauses());
    // One that has come to rest stays there.
    let _ = thread.handshake.rest();
    thread.handshake.note_poll_unless_at_rest(|| now, || ran);
    thread.handshake.note_end(|| now);
    assert_eq!(thread.handshake.last_poll(), None);
}

#[test]
fn the_helper_stands_back_when_no_packet_is_left_waiting() {
    let mut scene = Scene::begin();
    scene.poll();
    assert_eq!(scene.look(), Look::AwaitAbsence(LOOK_AGAIN));
    scene.helper.has_waited(Waited::InVain);
    assert_eq!(scene.look(), Look::StandBack(LOOK_AGAIN));
    // When woken, it checks which thread drives.
    scene.helper.has_waited(Waited::Woken);
    assert_eq!(scene.look(), Look::AwaitAbsence(LOOK_AGAIN));
}

#[test]
fn the_helper_counts_from_zero_after_it_has_driven() {
    let mut scene = Scene::begin();
    for _ in 0..3 {
        for _ in 0..SPARED_MAX {
            scene.poll();
            assert_eq!(scene.look(), Look::AwaitAbsence(LOOK_AGAIN));
            scene.helper.has_waited(Waited::Arrived);
        }
        scene.pass(POLLING);
        scene.drive(1, None);
    }
}

#[test]
fn a_program_that_goes_to_sleep_is_replaced_at_once() {
    let mut scene = Scene::begin();
    scene.poll();
    for _ in 0..=SPARED_MAX {
        scene.look();
    }
    assert_eq!(scene.look(), Look::StandBack(LOOK_AGAIN));
    scene.polled = None;
    assert_eq!(scene.look(), Look::Drive { is_around: false });
}

/// The program may spin on its memory: it waits for a packet, and its next request carries the
/// acknowledgement.
#[test]
fn an_active_program_acknowledges_short_bursts_itself() {
    let helper = Helper::new(Time::ZERO);
    let round = |packets, is_due, is_around| Round {
        received: Some(packets),
        is_stream: false,
        is_due,
        is_around,
    };
    assert!(helper.leaves_answer(round(1, false, true)));
    let stream = Round {
        is_stream: true,
        ..round(1, false, true)
    };
    assert!(!helper.leaves_answer(stream));
    assert!(!helper.leaves_answer(round(0, false, true)));
    assert!(
        !helper.leaves_answer(round(1, true, true)),
        "a timer is due"
    );
    assert!(
        !helper.leaves_answer(round(1, false, false)),
        "nobody is there"
    );
}

#[test]
fn the_helper_does_not_spin_on_an_active_program_s_core() {
    let mut scene = Scene::begin();
    scene.poll();
    scene.pass(POLLING);
    assert_eq!(scene.drive(1, None), Next::Again);
    assert_eq!(scene.drive(0, None), Next::Sleep(None));
    scene.pass(AROUND);
    assert_eq!(scene.look(), Look::Drive { is_around: false });
}

#[test]
fn a_lost_link_is_checked_from_time_to_time() {
    let mut scene = Scene::begin();
    let round = Round {
        received: None,
        is_stream: false,
        is_due: false,
        is_around: false,
    };
    let next = scene.helper.next(scene.now, round, Sent::All, None);
    assert_eq!(next, Next::Pause(LOOK_AGAIN));
}
