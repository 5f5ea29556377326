//! What holds at every moment, whatever has happened.

use ferroce_transport::{QpState, WcStatus, WorkQueue};

use super::connection::{A, ADDEND, B, Connection, Id, MTU, Message};
use super::scenario::Kind;

/// Sends complete once and in order, and so do receives; after an error everything is flushed.
pub(super) fn completes_in_order(connection: &Connection) -> bool {
    [A, B].into_iter().all(|id| {
        let sends = 0..connection.messages(id).len() as u64;
        let messages = (0..).zip(connection.messages(id.peer()));
        let receives = messages.filter(|(_, message)| message.is_send());
        is_in_order(connection, id, WorkQueue::Send, sends)
            && is_in_order(
                connection,
                id,
                WorkQueue::Recv,
                receives.map(|(wr_id, _)| wr_id),
            )
    })
}

fn is_in_order(
    connection: &Connection,
    id: Id,
    queue: WorkQueue,
    mut posted: impl Iterator<Item = u64>,
) -> bool {
    let mut has_failed = false;
    connection.completions(id, queue).all(|(wr_id, status)| {
        let is_due = match (status, has_failed) {
            (WcStatus::Success, false) => true,
            (WcStatus::RetryExcErr, false) => queue == WorkQueue::Send,
            (WcStatus::WrFlushErr, _) => connection.state(id) == QpState::Err,
            _ => false,
        };
        has_failed |= status != WcStatus::Success;
        is_due && posted.next() == Some(wr_id)
    })
}

/// What is complete has the bytes that were sent, at the end to which they belong, and was executed once.
pub(super) fn has_the_bytes(connection: &Connection) -> bool {
    [A, B].into_iter().all(|id| {
        let (messages, done) = (
            connection.messages(id),
            connection.done(id, WorkQueue::Send),
        );
        let received = connection.done(id.peer(), WorkQueue::Recv);
        let mut receives = 0;
        (0..).zip(messages).all(|(index, message)| {
            let is_done = index < done;
            let is_same = || connection.here(id, message) == connection.there(id, message);
            match message.kind {
                Kind::Send(_) => {
                    receives += 1;
                    let is_received = receives <= received;
                    (is_received || !is_done) && (!is_received || is_same())
                }
                Kind::Write(_) => !is_done || is_written(connection, id, index),
                Kind::Read(_) => !is_done || is_same(),
                Kind::Add => is_added(connection, id, message, is_done),
            }
        })
    })
}

/// Each packet of the common target holds the bytes of this WRITE or of one after it.
fn is_written(connection: &Connection, id: Id, index: usize) -> bool {
    let from = &connection.messages(id)[index..];
    let writes = || from.iter().filter(|it| matches!(it.kind, Kind::Write(_)));
    let target = connection.there(id, &from[0]).chunks(MTU as usize);
    target.enumerate().all(|(at, found)| {
        let mut packets = writes().map(|it| connection.here(id, it).chunks(MTU as usize).nth(at));
        packets.any(|packet| packet == Some(found))
    })
}

/// An atomic was executed at most once, and if it is complete, once; then it has brought what was there.
fn is_added(connection: &Connection, id: Id, message: &Message, is_done: bool) -> bool {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    let (before, value) = (word(&message.before), word(connection.there(id, message)));
    match is_done {
        true => value == before + ADDEND && word(connection.here(id, message)) == before,
        false => [before, before + ADDEND].contains(&value),
    }
}

/// If from now on nothing goes wrong, everything ends: all is done, unless the retries were used up.
pub(super) fn recovers(connection: &Connection) -> bool {
    let Some(end) = connection.calmed() else {
        return false;
    };
    let has_failed = [A, B].map(|id| end.state(id)).contains(&QpState::Err);
    let is_complete = [A, B].into_iter().all(|id| {
        let messages = end.messages(id);
        let receives = messages.iter().filter(|it| it.is_send()).count();
        end.done(id, WorkQueue::Send) == messages.len()
            && end.done(id.peer(), WorkQueue::Recv) == receives
    });
    let is_right = is_complete || has_failed && end.scenario.may_fail;
    is_right
        && end.panic.is_none()
        && end.is_at_rest()
        && completes_in_order(&end)
        && has_the_bytes(&end)
}
