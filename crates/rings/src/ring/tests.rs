//! Both ends of a ring.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::thread;

use proptest::prelude::*;

use super::layout::{DATA, HEAD_AT, Header, LINE, START_AT, TAIL_AT, room_for};
use super::sizes::CAPACITY;
use super::*;

fn ends() -> (Producer, Consumer) {
    let (memory, file) = Memory::make().unwrap();
    let other = Memory::of(OwnedFd::from(file)).unwrap();
    (Producer::new(memory), Consumer::new(other))
}

/// Bytes that differ with the packet's number.
fn packet(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

fn push(producer: &mut Producer, number: usize, len: usize) -> Result<(), Refused> {
    producer.push(Kind::Bare, class(number), len, |room| {
        room.copy_from_slice(&packet(number, len));
        true
    })
}

fn read<'a>(
    consumer: &mut Consumer,
    buffer: &'a mut [u8; PACKET_BYTES_MAX],
) -> Result<Option<Entry<'a>>, Broken> {
    consumer.look()?;
    consumer.next(buffer)
}

/// That of a numbered packet.
fn class(number: usize) -> Class {
    Class {
        traffic_class: number as u8,
        sl: number as u8 & 7,
    }
}

fn check(entry: &Entry<'_>, number: usize) {
    assert_eq!(entry.class, class(number));
    assert!(entry.bytes == packet(number, entry.bytes.len()), "{number}");
}

#[test]
fn published_packets_arrive_in_order() {
    let (mut producer, mut consumer) = ends();
    let mut buffer = [0; PACKET_BYTES_MAX];
    assert!(!consumer.has_some());
    push(&mut producer, 0, 40).unwrap();
    assert!(!consumer.has_some());
    push(&mut producer, 1, PACKET_BYTES_MAX).unwrap();
    producer.publish();
    assert!(consumer.has_some());
    for (number, len) in [(0, 40), (1, PACKET_BYTES_MAX)] {
        let entry = read(&mut consumer, &mut buffer).unwrap().unwrap();
        assert_eq!(entry.bytes.len(), len);
        check(&entry, number);
    }
    assert_eq!(read(&mut consumer, &mut buffer), Ok(None));
    assert_eq!(
        push(&mut producer, 2, PACKET_BYTES_MAX + 1),
        Err(Refused::Never)
    );
}

#[test]
fn a_packet_that_is_taken_back_leaves_no_trace() {
    let (mut producer, mut consumer) = ends();
    let refused = producer.push(Kind::Bare, Class::default(), 40, |_| false);
    assert_eq!(refused, Err(Refused::Never));
    push(&mut producer, 3, 40).unwrap();
    producer.publish();
    let mut buffer = [0; PACKET_BYTES_MAX];
    check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), 3);
}

#[test]
fn a_full_ring_takes_more_when_something_was_read() {
    let (mut producer, mut consumer) = ends();
    let mut buffer = [0; PACKET_BYTES_MAX];
    let mut written = 0;
    while push(&mut producer, written, 4136).is_ok() {
        written += 1;
    }
    assert!(written * 4136 > CAPACITY * 95 / 100);
    assert_eq!(push(&mut producer, written, 4136), Err(Refused::Full));
    producer.note_dropped();
    producer.publish();
    assert_eq!((consumer.take_dropped(), consumer.take_dropped()), (1, 0));
    for number in 0..2 {
        check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), number);
    }
    consumer.release();
    push(&mut producer, written, 4136).unwrap();
    producer.publish();
    for number in 2..=written {
        check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), number);
    }
    assert_eq!(read(&mut consumer, &mut buffer), Ok(None));
}

#[test]
fn a_ring_that_is_emptied_stays_near_its_beginning() {
    let (mut producer, mut consumer) = ends();
    let mut buffer = [0; PACKET_BYTES_MAX];
    for number in 0..100_000 {
        push(&mut producer, number, 40).unwrap();
        producer.publish();
        check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), number);
        consumer.release();
    }
    // 64 bytes each: without that the ring would have wrapped once.
    let mut middle = vec![0; CAPACITY / 2];
    producer
        .memory()
        .region
        .read(DATA + CAPACITY / 4, &mut middle);
    assert!(middle.iter().all(|byte| *byte == 0));
}

/// Wherever the ring was found empty, what is written then has all of its room: a window that fits an
/// unused ring fits any.
#[test]
fn a_ring_that_was_found_empty_has_all_its_room() {
    const LEN: usize = 4136;
    let mut buffer = [0; PACKET_BYTES_MAX];
    for before in [0, 1, 10, 100, 200, 300, 1100] {
        let (mut producer, mut consumer) = ends();
        for number in 0..before {
            push(&mut producer, number, LEN).unwrap();
            producer.publish();
            check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), number);
            consumer.release();
        }
        let mut next = before;
        while push(&mut producer, next, LEN).is_ok() {
            next += 1;
        }
        let unused = CAPACITY as u64 - (next - before) as u64 * room_for(LEN);
        // The packet that does not fit, and another one that would not be in one piece.
        assert!(
            unused < 2 * room_for(LEN),
            "{before} packets, then {unused} bytes unused"
        );
        producer.publish();
        for number in before..next {
            check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), number);
        }
        assert_eq!(read(&mut consumer, &mut buffer), Ok(None));
    }
}

/// Positions beyond 2^32 and 2^63 are like others, and so are laps of the ring. 2^24 packets of one line
/// each come to 2^30.
#[test]
fn positions_may_be_far() {
    let mut buffer = [0; PACKET_BYTES_MAX];
    for limit in [1 << 30, 1 << 32, 1 << 63] {
        let begin = limit - 3 * CAPACITY as u64 / 2;
        let (memory, file) = Memory::make().unwrap();
        memory.head().store(begin, Ordering::Relaxed);
        memory.tail().store(begin, Ordering::Relaxed);
        let other = Memory::of(OwnedFd::from(file)).unwrap();
        let (mut producer, mut consumer) =
            (Producer::at(memory, begin), Consumer::at(other, begin));
        let mut number = 0;
        while consumer.position() < limit + CAPACITY as u64 {
            // Never empty, so that it does not begin anew.
            push(&mut producer, number, number % 8000).unwrap();
            producer.publish();
            if number >= 10 {
                let entry = read(&mut consumer, &mut buffer).unwrap().unwrap();
                check(&entry, number - 10);
                consumer.release();
            }
            number += 1;
        }
    }
}

#[test]
fn memory_of_heavy_traffic_is_given_back() {
    let (mut producer, mut consumer) = ends();
    let mut buffer = [0; PACKET_BYTES_MAX];
    let far = |producer: &Producer| {
        let mut bytes = [0; 4096];
        producer
            .memory()
            .region
            .read(DATA + CAPACITY / 2, &mut bytes);
        bytes.iter().any(|byte| *byte != 0)
    };
    let mut number = 0;
    for _ in 0..3 {
        let first = number;
        while push(&mut producer, number, 4000).is_ok() {
            number += 1;
        }
        producer.publish();
        assert!(!producer.rest() && far(&producer), "it was not read");
        for number in first..number {
            check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), number);
        }
        consumer.release();
        assert!(producer.rest() && !far(&producer));
        assert!(!producer.rest(), "there is nothing more");
    }
}

#[test]
fn a_consumer_that_lies_is_found_out() {
    let lies = [u64::MAX, 1, LINE * 3, CAPACITY as u64 + LINE];
    for lie in lies {
        let (memory, file) = Memory::make().unwrap();
        let mut other = Memory::of(OwnedFd::from(file)).unwrap();
        let mut producer = Producer::new(memory);
        push(&mut producer, 0, 40).unwrap();
        other.scribble(HEAD_AT, &lie.to_ne_bytes());
        let outcome = (1..).find_map(|n| push(&mut producer, n, 4136).err());
        // What lies within what is written cannot be told from the truth: it costs packets.
        let is_possible = lie == LINE * 3;
        let expected = [Refused::Broken, Refused::Full][usize::from(is_possible)];
        assert_eq!(outcome, Some(expected), "{lie}");
    }
}

#[test]
fn a_producer_that_lies_is_found_out() {
    let wrap = Header::Wrap.to_word();
    let long = u64::from(PACKET_BYTES_MAX as u32 + 1) << 32 | 1;
    let beyond = 4000 << 32 | 1;
    // What the first header says, and how far the tail is.
    let lies = [
        (0, LINE),
        (wrap, LINE),
        (wrap, CAPACITY as u64),
        (long, CAPACITY as u64),
        (beyond, LINE),
        (40 << 32 | 1, 8),
        (40 << 32 | 1, CAPACITY as u64 + LINE),
        (40 << 32 | 1, u64::MAX),
        (40 << 32 | 9, LINE),
        (40 << 32 | 8 << 16 | 1, LINE),
        (40 << 32 | 1 << 24 | 1, LINE),
    ];
    for (header, tail) in lies {
        let (mut memory, file) = Memory::make().unwrap();
        memory.scribble(DATA, &header.to_ne_bytes());
        memory.scribble(TAIL_AT, &tail.to_ne_bytes());
        let mut consumer = Consumer::new(Memory::of(OwnedFd::from(file)).unwrap());
        let mut buffer = [0; PACKET_BYTES_MAX];
        assert_eq!(
            read(&mut consumer, &mut buffer),
            Err(Broken),
            "{header:x} {tail}"
        );
    }
}

#[test]
fn a_ring_starts_again_only_where_all_was_read() {
    for lie in [0, LINE, 3 * LINE, u64::MAX, CAPACITY as u64] {
        let (mut producer, mut consumer) = ends();
        let mut buffer = [0; PACKET_BYTES_MAX];
        for number in 0..4 {
            push(&mut producer, number, 40).unwrap();
        }
        producer.publish();
        for number in 0..2 {
            check(&read(&mut consumer, &mut buffer).unwrap().unwrap(), number);
        }
        producer
            .memory()
            .region
            .word(START_AT)
            .store(lie, Ordering::Relaxed);
        // Where it has always been is not a lie.
        assert_eq!(
            consumer.look(),
            if lie == 0 { Ok(true) } else { Err(Broken) },
            "{lie}"
        );
    }
}

#[test]
fn two_threads_exchange_packets() {
    const COUNT: usize = 200_000;
    let (mut producer, mut consumer) = ends();
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                while push(&mut producer, number, number % 300) == Err(Refused::Full) {
                    producer.publish();
                    thread::yield_now();
                }
                if number % 7 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let mut buffer = [0; PACKET_BYTES_MAX];
        let mut number = 0;
        while number < COUNT {
            match read(&mut consumer, &mut buffer).unwrap() {
                Some(entry) => {
                    assert_eq!(entry.bytes.len(), number % 300);
                    check(&entry, number);
                    number += 1;
                }
                None => {
                    consumer.release();
                    thread::yield_now();
                }
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Any packets, read at any times, arrive as they were written.
    #[test]
    fn everything_arrives_once(steps in prop::collection::vec((0..8200_usize, 0..4_u8), 1..1000)) {
        let (mut producer, mut consumer) = ends();
        let mut buffer = [0; PACKET_BYTES_MAX];
        let mut under_way = std::collections::VecDeque::new();
        for (number, (len, reads)) in steps.into_iter().enumerate() {
            match push(&mut producer, number, len) {
                Ok(()) => under_way.push_back((number, len)),
                Err(refused) => prop_assert!(refused != Refused::Broken),
            }
            producer.publish();
            for _ in 0..reads {
                let found = read(&mut consumer, &mut buffer).unwrap();
                let expected = under_way.pop_front();
                prop_assert_eq!(found.is_some(), expected.is_some());
                if let (Some(entry), Some((number, len))) = (found, expected) {
                    prop_assert_eq!(entry.bytes.len(), len);
                    check(&entry, number);
                }
            }
            consumer.release();
        }
    }

    /// No bytes make the reader panic, read outside, or go on without end.
    #[test]
    fn any_bytes_are_packets_or_refused(
        patches in prop::collection::vec((0..16_usize, any::<u64>()), 0..40),
        tail in prop_oneof![any::<u64>(), (0..200_u64).prop_map(|n| n * LINE)],
    ) {
        let (mut memory, file) = Memory::make().unwrap();
        for (line, word) in patches {
            memory.scribble(DATA + line * 64, &(word & 0x0000_1fff_0000_ff03).to_ne_bytes());
        }
        memory.scribble(TAIL_AT, &tail.to_ne_bytes());
        let mut consumer = Consumer::new(Memory::of(OwnedFd::from(file)).unwrap());
        let mut buffer = [0; PACKET_BYTES_MAX];
        let limit = CAPACITY / LINE as usize;
        let mut count = 0;
        while let Ok(Some(_)) = read(&mut consumer, &mut buffer) {
            count += 1;
            prop_assert!(count <= limit);
        }
    }
}
