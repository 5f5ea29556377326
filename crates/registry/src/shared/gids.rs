//! The GID table that the processes of a device share. All of them get the same notifications, in
//! any order, and reach the same state.

use std::io;
use std::net::IpAddr;

use ferroce_os as os;

use super::SharedFile;
use super::locks::{PATIENCE, byte};
use crate::gids::{Address, GidTable};

impl SharedFile {
    /// The table.
    pub fn gids(&self) -> GidTable {
        GidTable::from_words(&self.layout.gids().load().1)
    }

    /// Makes the table that of these addresses, for a process that opens the device: a new one if no
    /// other has it open. Returns the table's generation.
    pub fn begin_gids(&self, own: IpAddr, all: &[Address]) -> io::Result<u64> {
        match self.others()?.is_empty() {
            true => self.change_gids(|table| *table = GidTable::new(all)),
            false => self.follow_gids(own, all),
        }
    }

    /// Takes over which addresses the device's interface has now. Returns the table's generation.
    pub fn follow_gids(&self, own: IpAddr, all: &[Address]) -> io::Result<u64> {
        self.change_gids(|table| table.follow(own, all))
    }

    fn change_gids(&self, change: impl FnOnce(&mut GidTable)) -> io::Result<u64> {
        os::lock_when_free(&self.file, byte::GIDS, PATIENCE)?;
        let before = self.gids();
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            self.layout.gids().store(&after.to_words());
        }
        let generation = self.layout.gids().generation();
        os::unlock(&self.file, byte::GIDS)?;
        Ok(generation)
    }
}
