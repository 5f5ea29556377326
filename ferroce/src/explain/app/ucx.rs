//! UCX: seconds instead of codes, and variables for each transport.
//!
//! A transport uses the variable with its own name first, then that of its family, then that of rc,
//! from which all of them inherit the setting (UCX's configuration parser, checked against its
//! sources of August 2026).

use ferroce_base::time::Span;

use super::{Asked, Given, Key, Sets};
use crate::output::Failure;

/// The reliable transports over verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    RcMlx5,
    RcVerbs,
    DcMlx5,
}

/// What a transport takes, the strongest first; the last one has the default.
struct Names {
    timeout: &'static [&'static str],
    retry_count: &'static [&'static str],
}

impl Transport {
    const ALL: [Self; 3] = [Self::RcMlx5, Self::RcVerbs, Self::DcMlx5];

    fn name(self) -> &'static str {
        match self {
            Self::RcMlx5 => "rc_mlx5",
            Self::RcVerbs => "rc_verbs",
            Self::DcMlx5 => "dc_mlx5",
        }
    }

    fn names(self) -> Names {
        match self {
            Self::RcMlx5 => Names {
                timeout: &["UCX_RC_MLX5_TIMEOUT", "UCX_RC_TIMEOUT"],
                retry_count: &["UCX_RC_MLX5_RETRY_COUNT", "UCX_RC_RETRY_COUNT"],
            },
            Self::RcVerbs => Names {
                timeout: &["UCX_RC_VERBS_TIMEOUT", "UCX_RC_TIMEOUT"],
                retry_count: &["UCX_RC_VERBS_RETRY_COUNT", "UCX_RC_RETRY_COUNT"],
            },
            Self::DcMlx5 => Names {
                timeout: &["UCX_DC_MLX5_TIMEOUT", "UCX_DC_TIMEOUT", "UCX_RC_TIMEOUT"],
                retry_count: &[
                    "UCX_DC_MLX5_RETRY_COUNT",
                    "UCX_DC_RETRY_COUNT",
                    "UCX_RC_RETRY_COUNT",
                ],
            },
        }
    }

    /// Those of one transport only, or of its family.
    fn own(self) -> impl Iterator<Item = &'static str> {
        let Names {
            timeout,
            retry_count,
        } = self.names();
        let own = |names: &'static [&'static str]| &names[..names.len() - 1];
        own(timeout).iter().chain(own(retry_count)).copied()
    }

    /// The one that a list in `UCX_TLS` names first.
    fn listed(list: &str) -> Option<Self> {
        list.split(',').find_map(|name| match name.trim() {
            "rc" | "rc_x" | "rc_mlx5" => Some(Self::RcMlx5),
            "rc_v" | "rc_verbs" => Some(Self::RcVerbs),
            "dc" | "dc_x" | "dc_mlx5" => Some(Self::DcMlx5),
            _ => None,
        })
    }

    /// The transport in question: the one that is listed, else the one with settings of its own,
    /// else the one that UCX prefers on a card.
    fn choose(given: &mut Given) -> Self {
        let with_own = Self::ALL
            .into_iter()
            .find(|transport| transport.own().any(|name| given.has(name)));
        let listed = Self::listed(&given.find(TLS).value);
        listed.or(with_own).unwrap_or(Self::RcMlx5)
    }
}

const TLS: &str = "UCX_TLS";

/// All settings, the defaults of both values in those of rc.
pub(super) fn keys() -> Vec<Key> {
    use Sets::{RetryCnt, Timeout};
    let mut keys: Vec<Key> = Vec::new();
    let mut add = |name, default, sets| {
        if keys.iter().all(|key| key.name != name) {
            keys.push(Key {
                name,
                default,
                sets,
            });
        }
    };
    add("UCX_RC_TIMEOUT", "1.0s", Timeout);
    add("UCX_RC_RETRY_COUNT", "7", RetryCnt);
    for transport in Transport::ALL {
        let names = transport.names();
        names.timeout.iter().for_each(|name| add(name, "", Timeout));
        for name in names.retry_count {
            add(name, "", RetryCnt);
        }
    }
    add(TLS, "", Sets::Neither);
    keys
}

/// What UCX asks of the QP.
pub(super) fn ask(
    given: &mut Given,
    asked: &mut Asked,
    timeout: Option<u64>,
    retry_cnt: Option<u64>,
) -> Result<(), Failure> {
    let transport = Transport::choose(given);
    let names = transport.names();
    let strongest = |given: &Given, names: &[&'static str]| {
        let set = names.iter().copied().find(|name| given.has(name));
        set.unwrap_or(names[names.len() - 1])
    };
    let (of_timeout, of_count) = (
        strongest(given, names.timeout),
        strongest(given, names.retry_count),
    );
    for key in keys() {
        let setter = match key.sets {
            Sets::Timeout => of_timeout,
            Sets::RetryCnt => of_count,
            Sets::Neither => continue,
        };
        if key.name == setter {
            continue;
        }
        asked.idle.push(key.name);
        if given.has(key.name) {
            let is_own = names.timeout.contains(&key.name) || names.retry_count.contains(&key.name);
            let text = match is_own {
                true => format!("{} has no effect: {setter} decides", key.name),
                false => format!(
                    "{} has no effect on transport {}; give UCX_TLS=NAME to explain another one",
                    key.name,
                    transport.name()
                ),
            };
            asked.remark("no_effect", text);
        } else {
            given.find(key.name).source = "unset";
        }
    }
    asked.steps.push(format!("transport {}", transport.name()));
    asked.timeout = seconds(given, of_timeout, timeout, &mut asked.steps)?;
    asked.retry_cnt = given.number(of_count, retry_cnt)?;
    Ok(())
}

/// A setting that is a duration, which UCX rounds to the nearest power of two.
fn seconds(
    given: &mut Given,
    name: &str,
    flag: Option<u64>,
    steps: &mut Vec<String>,
) -> Result<u64, Failure> {
    let setting = given.find(name);
    if let Some(flag) = flag.filter(|_| setting.source == "default") {
        setting.value = flag.to_string();
        setting.source = "flag";
        return Ok(flag);
    }
    let text = setting.value.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "m" => Some(60.0),
        "" | "s" => Some(1.0),
        "ms" => Some(1e-3),
        "us" => Some(1e-6),
        "ns" => Some(1e-9),
        _ => None,
    };
    let number: Option<f64> = digits.parse().ok().filter(|number| *number > 0.0);
    let (Some(number), Some(unit)) = (number, unit) else {
        return Err(Failure::input(format_args!(
            "{name}={text}{} is not a duration; write it with a unit, as in {name}=1.0s",
            setting.whence()
        )));
    };
    let exact = (number * unit / 4.096e-6).log2();
    let code = match exact {
        _ if exact < 1.0 => 1,
        _ if exact + 0.5 >= 32.0 => 0,
        // Between 1 and 31.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        _ => (exact + 0.5) as u64,
    };
    steps.push(match code {
        0 => format!("{text} is beyond the longest timeout, and UCX turns the timer off"),
        code => format!("UCX rounds {text} to timeout {code}"),
    });
    Ok(code)
}

/// A duration that UCX rounds to this ACK timeout: three digits are near enough.
pub(super) fn duration(ack_timeout: Option<Span>) -> String {
    let Some(timeout) = ack_timeout else {
        return "300m".to_owned();
    };
    let us = timeout.as_nanos() / 1_000;
    match us {
        0..10_000 => format!("{us}us"),
        10_000..10_000_000 => format!("{}ms", us / 1_000),
        _ => format!("{}s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use ferroce_adp::ack_timeout;

    use super::*;

    #[test]
    fn proposals_are_rounded_back() {
        for code in 1..=31 {
            let proposed = duration(ack_timeout(code));
            let mut given = Given {
                settings: vec![super::super::Setting {
                    name: "UCX_RC_TIMEOUT",
                    value: proposed.clone(),
                    source: "given",
                }],
            };
            let read = seconds(&mut given, "UCX_RC_TIMEOUT", None, &mut Vec::new());
            assert_eq!(read.unwrap(), u64::from(code), "{proposed}");
        }
    }
}
