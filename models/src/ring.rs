//! The same-host ring.

#[path = "../../crates/rings/src/ring/consumer.rs"]
mod consumer;
#[path = "../../crates/rings/src/ring/layout.rs"]
mod layout;
mod memory;
#[path = "../../crates/rings/src/ring/producer.rs"]
mod producer;
mod sizes;

use self::consumer::Consumer;
use self::layout::{Class, Kind};
use self::memory::Memory;
use self::producer::{Producer, Refused};
use self::sizes::PACKET_BYTES_MAX;
use crate::sync::concurrently;

/// Both ends of a new ring.
pub fn ends() -> (Producer, Consumer) {
    let [one, other] = Memory::pair();
    (Producer::new(one), Consumer::new(other))
}

/// Writes a packet that holds its number as often as there is room; false if the ring is full.
pub fn push(producer: &mut Producer, number: u8, len: usize) -> bool {
    let pushed = producer.push(Kind::Bare, class(number), len, |room| {
        room.fill(number);
        true
    });
    assert!(matches!(pushed, Ok(()) | Err(Refused::Full)), "{pushed:?}");
    pushed.is_ok()
}

/// That of a packet with this number.
fn class(number: u8) -> Class {
    Class {
        traffic_class: number,
        sl: number & 7,
    }
}

/// Reads all that is there, which must be the packets that follow on those that were read.
fn read(consumer: &mut Consumer, seen: &mut u8) {
    let mut buffer = [0; PACKET_BYTES_MAX];
    consumer.look().expect("the producer keeps the rules");
    while let Some(entry) = consumer.next(&mut buffer).expect("here as well") {
        assert_eq!(entry.class, class(*seen));
        assert!(entry.bytes.iter().all(|byte| byte == seen), "{entry:?}");
        *seen += 1;
    }
    consumer.release();
}

/// Packets of these lengths are written while the other end reads, each published by itself; what found
/// no room is tried again at the end.
fn exchange(lengths: &'static [usize], looks: usize) {
    let (mut producer, mut consumer) = ends();
    let writer = move || {
        let mut written = 0;
        for &len in lengths {
            if !push(&mut producer, written, len) {
                break;
            }
            producer.publish();
            written += 1;
        }
        (producer, written)
    };
    let reader = move || {
        let mut seen = 0;
        for _ in 0..looks {
            read(&mut consumer, &mut seen);
        }
        (consumer, seen)
    };
    let ((mut producer, mut written), (mut consumer, mut seen)) = concurrently(writer, reader);
    read(&mut consumer, &mut seen);
    for &len in &lengths[usize::from(written)..] {
        assert!(push(&mut producer, written, len), "all has been read");
        producer.publish();
        written += 1;
        read(&mut consumer, &mut seen);
    }
    assert_eq!(usize::from(seen), lengths.len());
}

/// What is published is whole. Three packets fill the ring.
pub fn published_packets_are_whole() {
    exchange(&[8, 40, 8], 2);
}

/// More packets than there is room for: the producer reuses what has been read, starts again where all
/// has been read, and leaves out what is too short for the next packet.
pub fn room_is_reused() {
    exchange(&[8, 64, 8, 8, 64], 2);
}
