//! Ping-pong over two rings in shared memory, with nothing around them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ferroce_rings::{Class, Consumer, Kind, Memory, PACKET_BYTES_MAX, Producer};

use super::{Contention, Latency, PingPong};

/// Bounces packets as long as an 8-byte WRITE's between two threads that spin.
///
/// # Errors
/// Returns an error when there is no memory.
pub fn ring_ping_pong(config: &PingPong) -> io::Result<Latency> {
    let ((mut there, mut at_far), (mut back, mut at_near)) = (ring()?, ring()?);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let echo = scope.spawn(move || {
            let contention = Contention::begin();
            while take(&mut at_far, stop) {
                put(&mut back);
            }
            contention.end()
        });
        let contention = Contention::begin();
        let mut course = config.course();
        for round in 0.. {
            let started = Instant::now();
            if course.is_over(round, started) {
                break;
            }
            put(&mut there);
            take(&mut at_near, stop);
            course.note(round, started);
        }
        stop.store(true, Ordering::Relaxed);
        let waited = echo.join().expect("the echo does not panic");
        Ok(course.latency(contention.end().max(waited)))
    })
}

fn ring() -> io::Result<(Producer, Consumer)> {
    let (memory, file) = Memory::make()?;
    let other = Memory::of(OwnedFd::from(file))?;
    Ok((Producer::new(memory), Consumer::new(other)))
}

fn put(producer: &mut Producer) {
    const LEN: usize = 12 + 16 + 8 + 4;
    let pushed = producer.push(Kind::Bare, Class::default(), LEN, |room| {
        room.fill(1);
        true
    });
    pushed.expect("one packet at a time has room");
    producer.publish();
}

/// Waits for a packet and takes it; `false` if it was stopped before one came.
fn take(consumer: &mut Consumer, stop: &AtomicBool) -> bool {
    let mut buffer = [0; PACKET_BYTES_MAX];
    while !consumer.look().is_ok_and(|there| there) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::hint::spin_loop();
    }
    let entry = consumer.next(&mut buffer);
    entry.expect("the other end keeps the rules");
    consumer.release();
    true
}
