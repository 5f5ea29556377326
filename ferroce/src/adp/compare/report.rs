//! The comparison as a table and as JSON.

use ferroce_base::time::Span;
use ferroce_trial::Fared;

use super::Tried;
use crate::json::adp as json;
use crate::output::Table;

/// How a policy fared, for programs.
pub(in crate::adp) fn fared(policy: &str, fared: &Fared) -> json::Fared {
    let ns = |span: Span| (span != Span::NEVER).then_some(span.as_nanos());
    let ([lost_p50, lost_p99], [resumed_p50, resumed_p99]) = (fared.lost, fared.resumed_after);
    json::Fared {
        policy: policy.to_owned(),
        survived: fared.survived,
        lost_p50_ns: ns(lost_p50),
        lost_p99_ns: ns(lost_p99),
        lost_mean_ns: ns(fared.lost_mean).filter(|_| fared.survived > 0.0),
        resumed_after_p50_ns: ns(resumed_p50),
        resumed_after_p99_ns: ns(resumed_p99),
        retransmissions: fared.retransmissions,
        spurious: fared.spurious,
        spurious_share: fared.spurious_share,
    }
}

pub(in crate::adp) fn table(tried: &[Tried]) -> Table {
    let header = [
        "policy",
        ">survive",
        ">lost p50",
        ">p99",
        ">resume p50",
        ">p99",
        ">resent",
        ">spurious",
    ];
    let mut table = Table::new(&header);
    for Tried { name, fared, .. } in tried {
        let ([lost_p50, lost_p99], [resumed_p50, resumed_p99]) = (fared.lost, fared.resumed_after);
        table.row(vec![
            short_name(name),
            percent(fared.survived),
            lost_p50.about().to_string(),
            lost_p99.about().to_string(),
            resumed_p50.about().to_string(),
            resumed_p99.about().to_string(),
            count(fared.retransmissions),
            count(fared.spurious),
        ]);
    }
    table
}

/// What the columns are.
pub(in crate::adp) fn legend(per: &str) -> String {
    format!(
        "lost: time without progress for each {per}, never = the job died\n\
         resume: from the link's return to the next retransmission\n\
         resent: packets sent again for each {per}; spurious: those of them for nothing\n"
    )
}

/// The name that a table has room for: that of a built-in policy, or of a file without its directory.
pub(in crate::adp) fn short_name(name: &str) -> String {
    const ROOM: usize = 14;
    let file = name.rsplit('/').next().unwrap_or(name);
    let file = file.strip_suffix(".toml").unwrap_or(file);
    match file.char_indices().nth(ROOM) {
        Some((end, _)) => file[..end].to_owned(),
        None => file.to_owned(),
    }
}

/// A share, never rounded up to all of it.
pub(in crate::adp) fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1_000.0).floor() / 10.0)
}

/// A mean of counts: what is seldom is not none.
pub(in crate::adp) fn count(mean: f64) -> String {
    match mean {
        0.0 => "0".to_owned(),
        _ if mean < 0.1 => format!("{mean:.3}"),
        _ if mean < 10.0 => format!("{mean:.1}"),
        _ => format!("{mean:.0}"),
    }
}
