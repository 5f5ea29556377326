//! What programs have posted since the host last checked.

/// What has been posted, for a host that decides when it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Posted {
    /// Send requests.
    pub requests: u32,
    /// Bytes that they send.
    pub bytes: u32,
    /// Nothing will come that the program could wait for before it leaves: the queue pair had nothing
    /// else to do, or what has been posted is to be executed here.
    pub at_once: bool,
    /// Peers acknowledge that all of it has arrived.
    pub is_answered: bool,
}

impl Posted {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32, at_once: bool, is_answered: bool) {
        self.is_answered = is_answered && (self.is_answered || self.requests == 0);
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.at_once |= at_once;
    }
}
