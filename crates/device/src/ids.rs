//! Handles of domains.

/// Handle of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// Handle of an XRC domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct XrcdId(pub u32);
