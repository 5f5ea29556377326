//! What a driver does and when: packet scripts between two devices in virtual time.

mod common;

use common::{A, B, World};
use ferroce_device::{Counter, Span, Time};
use ferroce_driver::patience::{LEND, ROUND_PACKETS, STREAM_PACKETS, UNREAD};
use ferroce_driver::{Both, Next, Round, Sent};

/// A request and its reply cost each side one call: the acknowledgement of the request leaves with the
/// reply.
#[test]
fn an_acknowledgement_waits_for_the_programs_reply() {
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    assert_eq!(world[A].driver.link.sends, [1]);
    world.poll(B);
    assert!(world[B].driver.is_deferred());
    assert_eq!(world[B].driver.link.sends, [0_usize; 0]);
    assert_eq!(
        world.wanted_at(B),
        Some(Time::ZERO),
        "the helper may not sleep"
    );
    world.write(B, 8);
    world.send(B);
    assert_eq!(
        world[B].driver.link.sends,
        [2],
        "the answer, and the request"
    );
    assert!(!world[B].driver.is_deferred());
}

#[test]
fn without_a_reply_it_leaves_in_the_next_round() {
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    world.poll(B);
    world.poll(B);
    assert_eq!(world[B].driver.link.sends, [1]);
    world.poll(A);
    assert_eq!(world.completed(A), 1);
}

#[test]
fn a_stream_is_answered_in_the_round_in_which_it_comes() {
    for packets in [STREAM_PACKETS, STREAM_PACKETS + 1] {
        let mut world = World::new();
        for _ in 0..packets {
            world.write(A, 8);
        }
        world.send(A);
        world.poll(B);
        let is_stream = packets > STREAM_PACKETS;
        assert_eq!(world[B].driver.is_deferred(), !is_stream);
        assert_eq!(world[B].driver.link.sends.len(), usize::from(is_stream));
    }
}

/// A program that posts for each message wants the answer together with the peer's next message,
/// however long that is: it polls until its own request is answered, and then watches its memory.
#[test]
fn a_long_message_is_answered_with_the_reply() {
    let packets = STREAM_PACKETS as u32 + 1;
    let exchange = |world: &mut World, from: usize| {
        world.post(from, packets * 4096, false);
        world.send(from);
        let to = 1 - from;
        world.poll(to);
        world[to].driver.is_deferred()
    };
    let mut world = World::new();
    assert!(
        !exchange(&mut world, A),
        "the program at B has posted nothing"
    );
    for _ in 0..10 {
        assert!(exchange(&mut world, B));
        assert!(exchange(&mut world, A));
    }
    let calls = world[B].driver.link.sends.len();
    assert_eq!(calls, 1 + 10, "one for each message, and the first answer");
    // Now A streams.
    world.post(B, 8, false);
    assert!(exchange(&mut world, A));
    for _ in 0..10 {
        assert!(!exchange(&mut world, A));
    }
}

/// More packets than a round takes are more than one message that is answered.
#[test]
fn a_whole_round_is_a_stream_whatever_the_program_posts() {
    let mut world = World::new();
    world.post(B, 8, false);
    for _ in 0..=ROUND_PACKETS {
        world.write(A, 8);
    }
    world.send(A);
    world.poll(B);
    assert!(!world[B].driver.is_deferred());
}

/// Sending costs more than receiving.
#[test]
fn several_batches_of_a_stream_get_one_answer() {
    let mut world = World::new();
    world[B].driver.link.batch = STREAM_PACKETS + 1;
    for _ in 0..2 * ROUND_PACKETS {
        world.write(A, 8);
    }
    world.send(A);
    world.poll(B);
    let calls = ROUND_PACKETS.div_ceil(STREAM_PACKETS + 1);
    assert_eq!(world[B].driver.link.receives, calls);
    assert_eq!(world[B].driver.link.sends, [1]);
    assert_eq!(
        world.lying(B),
        2 * ROUND_PACKETS - calls * (STREAM_PACKETS + 1)
    );
}

/// When each batch waits for the answer to the previous one, a second call receives nothing.
#[test]
fn second_calls_without_packets_become_rare() {
    let mut world = World::new();
    world[B].driver.link.batch = STREAM_PACKETS + 1;
    let mut calls = |batches: usize| {
        for _ in 0..batches * (STREAM_PACKETS + 1) {
            world.write(A, 8);
        }
        world.send(A);
        world[B].driver.link.receives = 0;
        world.poll(B);
        world.poll(A);
        world[B].driver.link.receives
    };
    let rounds: Vec<_> = (0..38).map(|_| calls(1)).collect();
    let second = (0..).zip(&rounds).filter(|(_, calls)| **calls == 2);
    let second: Vec<usize> = second.map(|(round, _)| round).collect();
    assert_eq!(second, [0, 2, 6, 14, 30]);
    // The second call is made again when several batches wait.
    let rounds: Vec<_> = (0..10).map(|_| calls(2)).collect();
    assert!(rounds[8..].iter().all(|calls| *calls > 1), "{rounds:?}");
}

/// With a card, an acknowledgement never waits in a buffer: the requests that it covers have
/// completed.
#[test]
fn acknowledged_requests_are_not_flushed() {
    for batch in [1, 64] {
        let mut world = World::new();
        world[A].driver.link.batch = batch;
        for _ in 0..3 {
            world.write(A, 8);
            world.send(A);
            world.poll(B);
            world.poll(B);
        }
        assert_eq!((world.lying(A), world.completed(A)), (3, 0));
        world.write(A, 8);
        world.end(A);
        assert_eq!((world.completed(A), world.failed(A)), (3, 1));
    }
}

/// The same for the peer, to which a request has arrived.
#[test]
fn arrived_packets_are_acknowledged_before_the_end() {
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    world.end(B);
    world.poll(A);
    assert_eq!((world.completed(A), world.failed(A)), (1, 0));
}

/// Each call costs as much as several packets.
#[test]
fn a_call_that_has_emptied_the_link_is_the_last_one() {
    let mut world = World::new();
    for _ in 0..ROUND_PACKETS / 2 {
        world.write(A, 8);
    }
    world.send(A);
    world.poll(B);
    assert_eq!(world[B].driver.link.receives, 1);
    // The link is checked in any case before a timer expires.
    let deadline = world.wanted_at(A).unwrap();
    world[A].driver.link.receives = 0;
    world.pass_until(deadline);
    world.poll(A);
    assert_eq!(world[A].driver.link.receives, 2);
}

/// A thread that had no processor does not mistake its own absence for a lost packet.
#[test]
fn an_answer_taken_late_still_stops_its_timer() {
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    world.poll(B);
    world.poll(B);
    let deadline = world.wanted_at(A).unwrap();
    world.pass_until(deadline.after(Span::from_secs(10)));
    world.poll(A);
    assert_eq!(world.completed(A), 1);
    assert_eq!(world.count(A, Counter::RetransmittedPackets), 0);
}

#[test]
fn many_answers_are_all_taken_before_a_timer_runs_out() {
    let mut world = World::new();
    world[A].driver.link.batch = 1;
    for _ in 0..4 * ROUND_PACKETS {
        world.write(A, 8);
        world.send(A);
        world.poll(B);
        world.poll(B);
    }
    assert_eq!(world.lying(A), 4 * ROUND_PACKETS);
    let deadline = world.wanted_at(A).unwrap();
    world.pass_until(deadline);
    world.poll(A);
    assert_eq!(world.completed(A), 4 * ROUND_PACKETS);
    assert_eq!(world.count(A, Counter::RetransmittedPackets), 0);
}

#[test]
fn a_lost_packet_is_resent_exactly_at_its_timeout() {
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    world.lose(B);
    let deadline = world.wanted_at(A).unwrap();
    world.pass_until(deadline.before(Span::from_picos(1)));
    world.poll(A);
    assert_eq!(world[A].driver.link.sends, [1]);
    world.pass_until(deadline);
    world.poll(A);
    assert_eq!(world[A].driver.link.sends, [1, 1]);
}

#[test]
fn a_link_that_takes_no_more_loses_nothing() {
    let mut world = World::new();
    world[A].driver.link.is_blocked = true;
    world.write(A, 3 * 4096);
    assert_eq!(world.transmit(A), Sent::Blocked);
    assert_eq!(world.wanted_at(A), Some(Time::ZERO));
    world.poll(A);
    assert_eq!(world.lying(B), 0);
    world[A].driver.link.is_blocked = false;
    world.poll(A);
    assert_eq!(world.lying(B), 3);
    world.poll(B);
    world.poll(B);
    world.poll(A);
    assert_eq!(world.completed(A), 1);
}

/// Other threads wait for the device.
#[test]
fn the_packets_that_one_call_sends_are_bounded() {
    let mut world = World::new();
    world[A].driver.link.reported = 3 << 20;
    world[A].driver.link.room = 1;
    for _ in 0..8 {
        world.write(A, 8);
    }
    assert_eq!(world.transmit(A), Sent::More);
    assert_eq!(world.lying(B), 2);
    assert_eq!(world.transmit(A), Sent::More);
    assert_eq!(world.lying(B), 4);
}

#[test]
fn timers_run_on_a_link_that_is_gone() {
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    world[A].driver.link.is_gone = true;
    for _ in 0..100 {
        if let Some(deadline) = world.wanted_at(A).filter(|at| *at > world.now()) {
            world.pass_until(deadline);
        }
        world.poll(A);
    }
    assert_eq!(world.failed(A), 1);
}

#[test]
fn completions_do_not_keep_polls_from_the_link_for_long() {
    let mut world = World::new();
    world.poll(A);
    let polled = world.now();
    let stale = polled.after(UNREAD);
    assert!(world[A].driver.is_fresh(stale.before(Span::from_picos(1))));
    assert!(!world[A].driver.is_fresh(stale));
}

/// A program that will continue soon keeps the memory that traffic needed; a long sleep frees it.
#[test]
fn a_device_tidies_up_before_a_long_sleep() {
    let round = |is_around| Round {
        received: Some(0),
        is_stream: false,
        is_due: false,
        is_around,
    };
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    world.poll(B);
    world.poll(B);
    world.poll(A);
    let driver = &mut world[A].driver;
    let sleep = Next::Sleep(None);
    assert_eq!(driver.tidy(round(true), sleep), sleep);
    assert_eq!(driver.tidy(round(false), Next::Again), Next::Again);
    assert_eq!(driver.tidy(round(false), sleep), sleep, "all in one go");
}

/// One thread drives both ends, and returns after a long time.
#[test]
fn two_devices_of_one_thread_never_miss_what_both_have() {
    let mut world = World::new();
    world.write(A, 8);
    world.send(A);
    let deadline = world.wanted_at(A).unwrap();
    world.pass_until(deadline.after(Span::from_secs(1)));
    let mut rounds = 0;
    while world.drive_both() == Both::Busy {
        rounds += 1;
        assert!(rounds < 4);
    }
    assert_eq!(world.completed(A), 1);
    assert_eq!(world.count(A, Counter::RetransmittedPackets), 0);
    assert_eq!(world.drive_both(), Both::Idle(None));
}

#[test]
fn a_program_waits_for_its_peer_soon_after_the_last_packet() {
    let mut world = World::new();
    world.write(A, 8);
    world[A].driver.send();
    let sent = world.now();
    assert!(!world[A].driver.is_waiting(sent));
    assert!(world[A].driver.is_waiting(sent.after(LEND)));
    world.pass(LEND);
    world.poll(B);
    world.poll(B);
    world.poll(A);
    assert!(!world[A].driver.is_waiting(world.now()));
}
