//! Captures and logs of unknown origin.

use ferroce_capture::{Log, Policy, analyse, explain_failures, identify};

/// Reads the input as a capture and as a log.
pub fn capture(data: &[u8]) {
    if let Ok(analysis) = analyse(data) {
        for way in &analysis.conversations.ways {
            let requests = &way.requests;
            assert!(
                requests.late <= requests.missing,
                "more came late than were missing"
            );
            assert!(
                requests.repeated <= requests.packets,
                "more was repeated than sent"
            );
            for policy in identify(&requests.ladders).policies {
                if let Policy::Plain { retry_cnt, .. } | Policy::Firmware { retry_cnt, .. } = policy
                {
                    assert!(
                        *retry_cnt.end() <= 7 && !retry_cnt.is_empty(),
                        "{retry_cnt:?}"
                    );
                }
            }
        }
    }
    let log = Log::read(data).expect("memory can be read");
    assert!(log.errors <= log.lines);
    if let Some(failures) = explain_failures(&log.gaps()) {
        assert!(failures.repeated > 0, "a time that was not seen");
    }
}
