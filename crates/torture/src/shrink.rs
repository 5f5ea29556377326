//! Shorter scripts with the same finding.

use std::sync::Arc;

use crate::play::{Finding, play_watched};
use crate::script::Script;
use crate::watch::Progress;

/// Looks for the shortest script that breaks the same rule: deletes lines in ever smaller groups until none can be
/// left out (delta debugging), and plays at most `plays` scripts for that. Returns the script with its finding;
/// `None` if the script given has none.
pub fn shrink(
    script: &Script,
    plays: usize,
    progress: &Arc<Progress>,
) -> Option<(Script, Finding)> {
    let mut found = play_watched(script, progress).finding?;
    let mut best = script.clone();
    let mut left = plays;
    let mut group = best.lines.len().div_ceil(2);
    while group > 0 && left > 0 {
        let before = best.lines.len();
        let mut at = 0;
        while at < best.lines.len() && left > 0 {
            let mut shorter = best.clone();
            shorter.lines.drain(at..(at + group).min(best.lines.len()));
            left -= 1;
            match play_watched(&shorter, progress).finding {
                Some(finding) if finding.rule == found.rule => (best, found) = (shorter, finding),
                _ => at += group,
            }
        }
        // What one pass has left out may make other lines superfluous.
        group = match best.lines.len() < before && group == 1 {
            true => 1,
            false => group / 2,
        };
    }
    Some((best, found))
}
