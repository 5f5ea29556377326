//! What polls wait for, the rest of a message and a reply: packet scripts between two devices in virtual time.

mod common;

use common::{A, B, World};
use ferroce_device::Span;
use ferroce_driver::patience::{
    REACTION, REACTIONS, REPLY, REST, REST_PAUSE, ROUND_PACKETS, STREAM_PACKETS,
};

const MICROSECOND: Span = Span::from_micros(1);
/// Packets that one receive call brings.
const BATCH: usize = STREAM_PACKETS + 1;
/// Packets of a message: several batches.
const PACKETS: usize = 2 * BATCH + 2;

/// A program at B that has posted one request, and whose messages come in batches.
fn asks() -> World {
    let mut world = World::new();
    world[B].driver.link.batch = BATCH;
    world[B].driver.link.call = MICROSECOND;
    world.post(B, 8, false);
    world
}

fn post_long(world: &mut World) {
    world.post(A, PACKETS as u32 * 4096, false);
    world.send(A);
}

#[test]
fn a_poll_receives_all_of_a_message() {
    let mut world = asks();
    post_long(&mut world);
    world.poll(B);
    assert_eq!(world.lying(B), 0);
    assert!(
        world[B].driver.is_deferred(),
        "the last answer waits for the reply"
    );
    world.post(B, 8, false);
    world.poll(A);
    assert_eq!(world.completed(A), 1);
}

/// However many packets that are: the answer to the request comes with them.
#[test]
fn a_message_of_a_whole_round_is_no_stream() {
    let mut world = asks();
    world[B].driver.link.batch = 2 * ROUND_PACKETS;
    world.post(A, ROUND_PACKETS as u32 * 4096, false);
    world.poll(A);
    world.poll(A);
    world.poll(B);
    assert_eq!(world.completed(B), 1);
    assert!(world[B].driver.is_deferred());
}

/// The peer sends its acknowledgement when it likes.
#[test]
fn an_acknowledgement_among_its_packets_does_not_end_it() {
    for behind in 1..PACKETS {
        let mut world = asks();
        world[B].driver.link.batch = STREAM_PACKETS;
        post_long(&mut world);
        world.poll(A);
        world.poll(A);
        assert_eq!(world.lying(B), PACKETS + 1);
        world.overtake(B, PACKETS - behind);
        world.poll(B);
        assert_eq!(world.completed(B), 1);
        assert_eq!(world.lying(B), 0, "behind {behind} packets");
    }
}

/// However many calls bring the first message.
#[test]
fn a_poll_does_so_once_for_each_request() {
    for batch in [BATCH, 2 * PACKETS] {
        let mut world = asks();
        world[B].driver.link.batch = batch;
        post_long(&mut world);
        world.poll(B);
        post_long(&mut world);
        world.keep(B, BATCH);
        let began = world.now();
        world.poll(B);
        assert!(world.now().since(began) < MICROSECOND * 3);
    }
}

/// The rest is lost, or its sender has stopped.
#[test]
fn a_poll_waits_for_the_rest_once_and_briefly() {
    let mut world = asks();
    post_long(&mut world);
    world.keep(B, BATCH);
    let began = world.now();
    world.poll(B);
    let waited = world.now().since(began);
    assert!((REST_PAUSE..REST_PAUSE + MICROSECOND * 3).contains(&waited));
    // What comes from others does not make it wait again.
    world.post(B, 8, false);
    world.poll(A);
    world.poll(A);
    world.post_other(B, 1, 8, false);
    let began = world.now();
    world.poll(B);
    assert!(world.now().since(began) < MICROSECOND * 3);
}

#[test]
fn a_poll_ends_although_a_message_does_not() {
    let mut world = asks();
    world[B].driver.link.batch = 1;
    world[B].driver.link.call = REST / 4;
    post_long(&mut world);
    world.poll(B);
    assert_eq!(world.lying(B), PACKETS - 5);
}

/// Messages of A that B's helper takes, to each of which the program at B replies after this time.
fn replies(world: &mut World, messages: u32, after: Span) {
    for _ in 0..messages {
        world.post(A, 8, false);
        world.help(B);
        world.pass(after);
        world.post(B, 8, false);
        world.poll(A);
    }
}

/// How long a poll of B takes if its first `silent` calls find nothing.
fn poll_time(world: &mut World, silent: usize) -> Span {
    world[B].driver.link.silent = silent;
    let began = world.now();
    world.poll(B);
    world[B].driver.link.silent = 0;
    world.now().since(began)
}

#[test]
fn a_poll_waits_for_the_reply_if_the_program_watches() {
    let mut world = World::new();
    world[B].driver.link.call = MICROSECOND;
    let soon = REACTION - Span::from_nanos(1);
    replies(&mut world, REACTIONS - 1, soon);
    assert_eq!(poll_time(&mut world, 10), MICROSECOND);
    replies(&mut world, 1, soon);
    // The reply comes with the answer to the request.
    world.post(A, 8, false);
    assert_eq!(poll_time(&mut world, 10), MICROSECOND * 11);
    // From now on polls take what the helper took.
    for _ in 0..10 {
        world.post(B, 8, false);
        world.poll(A);
        world.post(A, 8, false);
        assert_eq!(poll_time(&mut world, 3), MICROSECOND * 4);
    }
    // One that has asked for nothing does not wait.
    world.post(B, 8, false);
    world.post(B, 8, false);
    assert_eq!(poll_time(&mut world, 10), MICROSECOND);
}

/// The program computes, or its peer does not reply.
#[test]
fn a_poll_that_has_waited_in_vain_does_not_do_so_again() {
    let mut world = World::new();
    world[B].driver.link.call = MICROSECOND;
    replies(&mut world, REACTIONS, Span::ZERO);
    let waited = poll_time(&mut world, usize::MAX);
    assert!((REPLY..REPLY + MICROSECOND * 3).contains(&waited));
    world.post(B, 8, false);
    assert_eq!(poll_time(&mut world, usize::MAX), MICROSECOND);
    // One late reply, and the program does not watch.
    replies(&mut world, REACTIONS - 1, Span::ZERO);
    replies(&mut world, 1, REACTION);
    replies(&mut world, REACTIONS - 1, Span::ZERO);
    assert_eq!(poll_time(&mut world, 10), MICROSECOND);
}
