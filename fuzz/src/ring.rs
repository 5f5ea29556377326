//! Rings of packets whose other end is broken.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use ferroce_rings::{Class, Consumer, Kind, Memory, PACKET_BYTES_MAX, Producer, Refused};

use crate::Cursor;

/// Packets that fit into a ring at a time, and more.
const PACKETS_MAX: usize = 1 << 17;

/// Packets, reads and scribbles in any order. Without a scribble everything arrives as it was sent;
/// with some neither end panics, reads outside, or loops without end.
pub fn ring(data: &[u8]) {
    let mut input = Cursor::new(data);
    let (memory, file) = Memory::make().expect("there is memory");
    let file = OwnedFd::from(file);
    let again = file.try_clone().expect("there are descriptors");
    let mut consumer = Consumer::new(Memory::of(file).expect("it is a ring"));
    // That of a process that may write anything.
    let mut stray = Memory::of(again).expect("it is a ring");
    let mut producer = Producer::new(memory);
    let mut sent = Some(VecDeque::new());
    let mut next = 0;
    while !input.is_empty() {
        match input.u8() % 8 {
            0..4 => push(&mut producer, &mut input, &mut next, &mut sent),
            4 => producer.publish(),
            5 => consumer.release(),
            6 => read(&mut consumer, &mut sent),
            _ => {
                let offset = match input.u8() {
                    0 => 128,
                    1 => 256,
                    u8::MAX => 144,
                    n => 4096 + usize::from(n - 2) * 64,
                };
                stray.scribble(offset, &input.u64().to_le_bytes());
                sent = None;
            }
        }
    }
    producer.publish();
    read(&mut consumer, &mut sent);
    assert!(sent.is_none_or(|sent| sent.is_empty()));
}

/// What has been sent and not been read yet, as long as there was no scribble.
type Sent = Option<VecDeque<(u8, usize)>>;

fn push(producer: &mut Producer, input: &mut Cursor<'_>, next: &mut u8, sent: &mut Sent) {
    let len = usize::from(input.u16()) % (PACKET_BYTES_MAX + 2);
    let pushed = producer.push(Kind::Bare, class(*next), len, |room| {
        room.fill(*next);
        true
    });
    match (pushed, &mut *sent) {
        (Ok(()), Some(sent)) => sent.push_back((*next, len)),
        (Err(Refused::Never), _) => assert!(len > PACKET_BYTES_MAX),
        (Err(refused), Some(_)) => assert_eq!(refused, Refused::Full),
        _ => {}
    }
    *next = next.wrapping_add(1);
}

/// That of a packet with this number.
fn class(number: u8) -> Class {
    Class {
        traffic_class: number,
        sl: number & 7,
    }
}

/// Reads to the end.
fn read(consumer: &mut Consumer, sent: &mut Sent) {
    let mut buffer = [0; PACKET_BYTES_MAX];
    if consumer.look().is_err() {
        assert!(sent.is_none(), "without a scribble");
        return;
    }
    for packets in 0.. {
        assert!(packets < PACKETS_MAX, "it goes on for ever");
        let entry = match consumer.next(&mut buffer) {
            Ok(Some(entry)) => entry,
            Ok(None) => return,
            Err(_) => {
                assert!(sent.is_none(), "without a scribble");
                return;
            }
        };
        assert!(entry.bytes.len() <= PACKET_BYTES_MAX);
        if let Some(sent) = sent {
            let expected = sent.pop_front().expect("it was sent");
            assert_eq!(
                (entry.class, entry.bytes.len()),
                (class(expected.0), expected.1)
            );
            assert!(entry.bytes.iter().all(|byte| *byte == expected.0));
        }
    }
}
