//! The search for a profile: what it finds keeps within the constraints, it can be resumed, and files that
//! it did not write are refused.

use ferroce_adp::{AckTimeoutFloor, Demand, Endurance, QpTimeouts, builtin};
use ferroce_base::time::Span;
use ferroce_trial::Link;
use ferroce_trial::fit::{FitError, Impossible, Question, State, StateError};
use proptest::prelude::*;

fn question() -> Question {
    Question {
        outages: "lognormal:median=300ms,p99=20s".parse().unwrap(),
        link: Link::default(),
        qp: QpTimeouts {
            timeout: 20,
            retry_cnt: 7,
        },
        floor: AckTimeoutFloor::DEFAULT,
        demand: Demand {
            survive: Span::from_secs(20),
            detect_within: Span::from_secs(60),
        },
        spurious_below: 0.01,
        death: Span::from_secs(300),
        count: 20,
        rounds: 3,
        steps: 12,
        seed: 7,
    }
}

fn rounds(question: &Question, mut state: State) -> State {
    while let Some(number) = state.next(question) {
        state.add(question.round(number, &|_| ()).unwrap());
    }
    state
}

#[test]
fn solutions_meet_the_constraints_at_lower_cost() {
    let question = question();
    let state = rounds(&question, State::new(&question));
    let best = question.best(&state.rounds).unwrap();
    assert!(question.admits(&best.profile));
    let policy = question.policy(&best.profile);
    let found = Endurance::of(&policy, question.qp).unwrap();
    assert!(found.survives >= Span::from_secs(20));
    assert!(found.gives_up_last <= Span::from_secs(60));
    // On the outages that it was fitted to; profiles that Ferroce comes with are where it began.
    let trains = question.outages.trains(question.count, question.seed);
    let cost = |profile| question.figures(profile, &trains).unwrap().0;
    assert_eq!(cost(&best.profile), best.cost);
    for shipped in builtin::all() {
        let is_worse = cost(&shipped.profile) >= best.cost;
        assert!(
            is_worse || !question.admits(&shipped.profile),
            "{}",
            shipped.name
        );
    }
}

#[test]
fn a_search_that_was_stopped_goes_on_with_the_same_result() {
    let question = question();
    let whole = rounds(&question, State::new(&question));
    let mut begun = State::new(&question);
    begun.add(question.round(0, &|_| ()).unwrap());
    let resumed = State::read(&begun.to_json(), &question).unwrap();
    assert_eq!(resumed, begun);
    assert_eq!(rounds(&question, resumed).to_json(), whole.to_json());
    // More rounds continue one that is done.
    let more = Question {
        rounds: 4,
        ..question.clone()
    };
    let state = State::read(&whole.to_json(), &more).unwrap();
    assert_eq!(state.next(&more), Some(3));
}

#[test]
fn contradictions_are_reported_before_the_search() {
    let asked = |survive, detect_within| {
        let demand = Demand {
            survive: Span::from_secs(survive),
            detect_within: Span::from_secs(detect_within),
        };
        let question = Question {
            demand,
            ..question()
        };
        question.possible().map_err(|error| error.to_string())
    };
    assert_eq!(asked(20, 60), Ok(()));
    assert_eq!(
        asked(30, 10).unwrap_err(),
        "nothing survives 30 s and detects in 10 s: choose one; a dead peer looks like an outage until \
         the outage is over"
    );
    assert_eq!(
        asked(20, 25).unwrap_err(),
        "no profile survives 20 s and detects in 25 s: a total is 2^n us, or the QP's 30.1 s; allow \
         --detect-within 31s, or ask for --survive of less than 16.8 s"
    );
}

#[test]
fn unsatisfiable_constraints_are_reported() {
    // The QP's timeout caps every wait at 268 ms, and each answer takes longer.
    let late = Question {
        link: Link {
            loss: 0,
            round_trip: ferroce_trial::Times::Same(Span::from_millis(400)),
        },
        qp: QpTimeouts {
            timeout: 14,
            retry_cnt: 7,
        },
        rounds: 1,
        steps: 3,
        count: 4,
        ..question()
    };
    let round = late.round(0, &|_| ()).unwrap();
    let error = late.best(&[round]).unwrap_err();
    assert!(matches!(error, Impossible::Spurious { .. }), "{error}");
    // All profiles within so short a time are deadly.
    let brief = Question {
        demand: Demand {
            survive: Span::ZERO,
            detect_within: Span::from_millis(100),
        },
        ..question()
    };
    let error = brief.round(0, &|_| ()).unwrap_err();
    assert!(
        matches!(error, FitError::Impossible(Impossible::Nothing { .. })),
        "{error}"
    );
}

#[test]
fn files_of_other_searches_are_refused() {
    let question = question();
    let mut state = State::new(&question);
    state.add(question.round(0, &|_| ()).unwrap());
    let json = state.to_json();
    let other = Question {
        seed: 8,
        ..question.clone()
    };
    let error = State::read(&json, &other).unwrap_err().to_string();
    assert!(error.contains("seed is 7 there and 8 here"), "{error}");
    let read = |text: &str| State::read(text, &question).unwrap_err();
    assert!(matches!(read("{"), StateError::Malformed(_)));
    let error = read(&json.replace("\"number\": 0", "\"number\": 3")).to_string();
    assert!(
        error.starts_with("rounds[0].number is 3: must be less than 3"),
        "{error}"
    );
    let digits = json.split('"').find(|it| it.len() == 96).unwrap();
    let error = read(&json.replace(digits, &"0".repeat(96))).to_string();
    assert!(error.starts_with("rounds[0].profile is 000"), "{error}");
    let error = read(&json.replace("\"cost_ps\"", "\"price\"")).to_string();
    assert!(
        error.contains("unknown key price") && error.contains("line"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn arbitrary_files_never_panic(at in 0usize..2_000, byte: u8, cut: bool, text: String) {
        let question = question();
        let _ = State::read(&text, &question);
        let mut state = State::new(&question);
        let profile = builtin::named("link-flap").unwrap().profile;
        state.add(ferroce_trial::fit::Round {
            number: 1,
            profile,
            cost: Span::from_millis(3),
            spurious_share: 0.5,
        });
        let mut bytes = state.to_json().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = State::read(&text, &question);
        }
        let _ = text.parse::<ferroce_trial::Outages>();
        let _ = ferroce_trial::Times::from_lines(&text);
    }

    #[test]
    fn outage_like_text_is_read_or_refused(
        text in "(flaps|lognormal|list|):(down|up|count|median|p99|[0-9]+)=?[0-9a-z.,=-]{0,20}",
    ) {
        if let Ok(outages) = text.parse::<ferroce_trial::Outages>() {
            let trains = outages.trains(3, 1);
            prop_assert!(trains.iter().all(|train| train.down > Span::ZERO));
        }
    }
}
