//! Fault rules.

use ferroce_fault::{Effect, Kind, Occasion, Rules, read_lines};

/// How often the rules of a text are met.
const MET: usize = 50;

/// Any text is a file of fault rules or is refused with a reason. Rules that are read come back as they were
/// written, and what is due is an effect that the target can have.
pub fn fault(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let rules = match read_lines(text) {
        Ok(rules) => rules,
        Err(error) => return assert!(!error.to_string().is_empty(), "a reason"),
    };
    for rule in &rules {
        assert_eq!(rule.to_string().parse().as_ref(), Ok(rule));
    }
    if let Err(error) = ferroce_fault::check(&rules) {
        return assert!(!error.to_string().is_empty(), "a reason");
    }
    let in_force = Rules::new((1..).zip(rules.clone()));
    for rule in &rules {
        let occasion = Occasion {
            target: rule.target,
            device: rule.scope.device.as_deref(),
            qp: rule.scope.qp,
        };
        for _ in 0..MET {
            let mut struck = 0;
            let effect = in_force.meet(occasion, |_, strikes| struck += u32::from(strikes));
            assert_eq!(struck, u32::from(effect.is_some()));
            let kind = rule.target.kind();
            match effect {
                Some(Effect::Fail(_) | Effect::QpError | Effect::DeviceFatal) => {
                    assert!([Kind::QpCall, Kind::Call, Kind::EarlyCall].contains(&kind));
                }
                Some(Effect::Late(_) | Effect::Status { .. }) => {
                    assert_eq!(kind, Kind::Completion);
                }
                Some(Effect::Port(_)) => assert_eq!(kind, Kind::PortEvent),
                Some(Effect::Twice | Effect::Never) | None => {}
            }
        }
    }
}
