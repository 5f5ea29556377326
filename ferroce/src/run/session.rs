//! Device settings for the duration of a run, and its counters.

use std::io;
use std::sync::Arc;

use ferroce_adp::Profile;
use ferroce_designer::command;
use ferroce_device::{
    Counter, DeviceState, Direction, HistogramConfig, Impairment, Method, Settings,
};
use ferroce_os::Clock;
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_registry::{DeviceSpec, Observer, Registry};

use crate::adp::Personality;
use crate::bins;
use crate::json::device::Histogram;
use crate::json::run as json;
use crate::json::shared::Bin;
use crate::leftover::{Note, Turn};
use crate::output::{Failure, Output, Table};

/// The devices of a run, and the cards whose functions they are.
pub(super) struct Session {
    registry: Registry,
    devices: Vec<Device>,
    cards: Vec<Card>,
    /// From before the first setting until all are noted.
    turn: Option<Turn>,
}

struct Device {
    observer: Observer,
    counters: Vec<u64>,
    waits: Vec<u64>,
}

struct Card {
    spec: DeviceSpec,
    state: DeviceState,
    /// Settings before the run.
    before: Arc<Settings>,
    /// Settings of the run, if it has any of its own.
    ours: Option<Arc<Settings>>,
    /// What the next command puts back if this process is killed.
    note: Option<Note>,
}

impl Session {
    /// Remembers what the devices have set and counted.
    pub(super) fn begin(registry: &Registry, devices: &[DeviceSpec]) -> Result<Self, Failure> {
        let turn = Turn::take(registry).map_err(|error| cannot_note(registry, &error))?;
        let mut session = Self {
            registry: registry.clone(),
            devices: Vec::new(),
            cards: Vec::new(),
            turn: Some(turn),
        };
        for spec in devices.iter().flat_map(DeviceSpec::links) {
            let observer = registry
                .observe_device(spec.clone())
                .map_err(Failure::broken)?;
            if session
                .cards
                .iter()
                .all(|card| card.spec.name != spec.pf().name)
            {
                let state = observer.card();
                session.cards.push(Card {
                    spec: spec.pf().clone(),
                    before: state.settings(),
                    state,
                    ours: None,
                    note: None,
                });
            }
            session.devices.push(Device {
                counters: counters(observer.state()),
                waits: observer.state().histogram(),
                observer,
            });
        }
        Ok(session)
    }

    pub(super) fn set_profile(&mut self, profile: &Profile) -> Result<(), Failure> {
        let mut payload = command::payload(profile);
        self.set(|state| state.access_register(ROCE_ACCL.id(), Method::Write, &mut payload))
    }

    pub(super) fn set_personality(&mut self, personality: Personality) -> Result<(), Failure> {
        self.set(|state| {
            state.set_personality(ferroce_device::Personality {
                adaptive: personality == Personality::Firmware,
                ..state.personality()
            })?;
            state.reset_registers()
        })
    }

    /// Impairs what the devices send. A packet from one of them to another is impaired once.
    pub(super) fn impair(&mut self, impairment: &Impairment) -> Result<(), Failure> {
        let now = Clock.now();
        let impairment = impairment.clone().beginning_at(now);
        self.set(|state| state.set_impairment(Direction::Egress, impairment.clone()))
    }

    /// Changes a setting on all cards; if one refuses, all are restored to their state before the
    /// run.
    fn set<E: std::fmt::Display>(
        &mut self,
        mut set: impl FnMut(&DeviceState) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for Card {
            spec, state, ours, ..
        } in &mut self.cards
        {
            let name = &spec.name;
            outcome = outcome.and_then(|()| {
                set(state).map_err(|error| Failure::input(format_args!("{name}: {error}")))
            });
            *ours = Some(state.settings());
        }
        if outcome.is_err() {
            self.put_back(&mut |_| ());
        }
        outcome
    }

    /// Makes sure that what was set is put back even if this process is killed.
    pub(super) fn note(&mut self) -> Result<(), Failure> {
        let Some(turn) = self.turn.take() else {
            return Ok(());
        };
        for card in &mut self.cards {
            let Some(ours) = &card.ours else { continue };
            match Note::write(&turn, &self.registry, &card.spec, &card.before, ours) {
                Ok(note) => card.note = Some(note),
                Err(error) => {
                    self.turn = Some(turn);
                    self.put_back(&mut |_| ());
                    return Err(cannot_note(&self.registry, &error));
                }
            }
        }
        Ok(())
    }

    /// Puts back what was set, and tells what could not be.
    fn put_back(&mut self, tell: &mut dyn FnMut(String)) {
        let turn = match self.turn.take() {
            Some(turn) => Ok(turn),
            None => Turn::take(&self.registry),
        };
        for card in &mut self.cards {
            let Some(ours) = &card.ours else { continue };
            let name = &card.spec.name;
            let put_back = match (card.note.take(), &turn) {
                (Some(note), Ok(turn)) => note.end(turn, &card.state),
                _ => card
                    .state
                    .put_back(&card.before, ours)
                    .map_err(io::Error::other),
            };
            match put_back {
                Ok(true) => {}
                Ok(false) => tell(format!(
                    "warning: something else has changed {name} meanwhile; its settings stay as they \
                     are now"
                )),
                Err(error) => tell(format!("warning: {name} stays as it is now: {error}")),
            }
        }
    }

    /// Puts back what was set. Returns what the devices have counted since the beginning.
    pub(super) fn end(mut self, to: &mut Output<'_>) -> Result<Vec<Counted>, Failure> {
        let mut warnings = Vec::new();
        self.put_back(&mut |warning| warnings.push(warning));
        for warning in warnings {
            to.remark(warning)?;
        }
        Ok(self.devices.iter().map(Device::counted).collect())
    }
}

fn cannot_note(registry: &Registry, error: &io::Error) -> Failure {
    let directory = registry.directory().display();
    Failure::broken(format_args!("cannot write into {directory}: {error}"))
}

/// What a device has counted in a run.
pub(super) struct Counted {
    device: String,
    /// In the order of the table.
    counters: Vec<u64>,
    bins: HistogramConfig,
    waits: Vec<u64>,
}

impl Device {
    fn counted(&self) -> Counted {
        let state = self.observer.state();
        // A counter has fallen: another program has replaced the device, which counts from zero.
        let moved = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let counters = counters(state).into_iter().zip(&self.counters);
        let (bins, waits) = state.histogram_snapshot();
        let before = |bin: usize| self.waits.get(bin).copied().unwrap_or(0);
        let waits = waits.into_iter().enumerate();
        Counted {
            device: self.observer.spec().name.clone(),
            counters: counters.map(|(now, before)| moved(now, *before)).collect(),
            bins,
            waits: waits.map(|(bin, now)| moved(now, before(bin))).collect(),
        }
    }
}

impl Counted {
    /// For people: what is not zero.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[&self.device, ">"]);
        for (info, moved) in Counter::TABLE.iter().zip(&self.counters) {
            if *moved > 0 {
                table.row(vec![info.name.to_owned(), moved.to_string()]);
            }
        }
        let column = [(self.device.clone(), self.waits.clone())];
        let histogram = bins::table(&self.bins, &column);
        let histogram =
            histogram.unwrap_or_else(|| "no adaptive-retransmission timeouts\n".to_owned());
        format!("{table}{histogram}")
    }

    /// For programs: everything.
    pub(super) fn json(&self) -> json::DeviceRan {
        let counters = Counter::TABLE.iter().zip(&self.counters);
        json::DeviceRan {
            device: self.device.clone(),
            counters: counters.map(|(info, moved)| (info.name, *moved)).collect(),
            histogram: Histogram {
                counting: self.bins.enabled,
                bins: Bin::all(&self.bins, &self.waits),
            },
        }
    }
}

fn counters(state: &DeviceState) -> Vec<u64> {
    let counter = |info: &ferroce_device::CounterInfo| state.counter(info.counter);
    Counter::TABLE.iter().map(counter).collect()
}
