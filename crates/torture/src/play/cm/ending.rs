//! What has become of connections at the end, and that nothing is left of them.

use ferroce_device::cm::CmState;
use ferroce_device::{Counter, Time};

use super::{Answer, Dial, Phase, Side};
use crate::network::address;
use crate::play::Play;

impl Play {
    /// Programs look at everything from now on.
    pub(in crate::play) fn look_everywhere(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.look_again(host));
    }

    /// Whether connections may still be made, by which more messages may wait for receives.
    pub(in crate::play) fn is_dialling(&self) -> bool {
        let waits = |side: &Side| side.phase == Phase::Waits && self.runs(side);
        let may_be_made = |it: &&Dial| it.answer != Answer::Nothing && it.sides.iter().any(waits);
        self.dials.iter().any(|it| may_be_made(&it))
    }

    /// Each connection is established on both sides, or the sides that waited were told that it is not.
    pub(in crate::play) fn check_dials(&mut self) {
        for (host, it) in self.hosts.iter().enumerate() {
            let Some(it) = it else { continue };
            it.hca.audit();
            let dropped = it.hca.counter(Counter::CmBacklogFull);
            // An impaired link hands several packets over at once.
            if dropped > 0 && !it.program.has_looked_away && !it.loses {
                let what = format!(
                    "host {host}: {dropped} requests dropped, though its program took each at once"
                );
                return self.found("cm backlog", || what);
            }
        }
        for number in 0..self.dials.len() {
            let dial = &self.dials[number];
            let phase = |side: &Side| match self.runs(side) {
                true => side.phase,
                false => Phase::Over,
            };
            let [active, passive] = [0, 1].map(|side| phase(&dial.sides[side]));
            let is_settled = match (active, passive) {
                (Phase::Established, Phase::Established) => self.agree(dial),
                (Phase::Over, Phase::Asked) => dial.answer == Answer::Nothing,
                (Phase::Established, Phase::Over) | (Phase::Over, _) => passive != Phase::Waits,
                _ => false,
            };
            if !is_settled {
                let what = format!("{active:?} and {passive:?}: {dial:?}");
                return self.found("cm end", || what);
            }
        }
    }

    /// Whether both devices take a connection for established, with each other's queue pairs.
    fn agree(&self, dial: &Dial) -> bool {
        let is_right = |own: usize| {
            let (side, other) = (&dial.sides[own], &dial.sides[1 - own]);
            let it = self.hosts[side.host].as_ref()?;
            let mut connections = it.hca.cm().connections();
            let info = connections.find(|it| Some(it.comm) == side.comm)?;
            Some(
                info.state == CmState::Established
                    && (info.local_qpn, info.remote_qpn) == (side.qpn, other.qpn)
                    && info.peer == address(other.host),
            )
        };
        [0, 1].into_iter().all(|side| is_right(side) == Some(true))
    }

    /// Programs forget all connections and services, and nothing is left of them.
    pub(in crate::play) fn return_connections(&mut self) {
        for number in 0..self.dials.len() {
            for side in 0..2 {
                let own = &self.dials[number].sides[side];
                if own.comm.is_some() && self.runs(own) {
                    let host = own.host;
                    self.dials[number].let_go = true;
                    self.dials[number].sides[side].phase = Phase::Over;
                    self.disown(number, side);
                    self.drain(host);
                }
            }
        }
        for host in 0..self.hosts.len() {
            let listens = self.hosts[host].as_ref().map(|it| &it.program.listens);
            let services: Vec<u64> = listens.into_iter().flatten().map(|(it, _)| *it).collect();
            services.into_iter().for_each(|it| self.unlisten(host, it));
        }
        self.run_until(Time::NEVER);
        for (host, it) in self.hosts.iter().enumerate() {
            let Some(it) = it.as_ref().filter(|_| !self.dials.is_empty()) else {
                continue;
            };
            let (left, services) = (
                it.hca.cm().connections().count(),
                it.hca.cm().services().count(),
            );
            if (left, services) != (0, 0) {
                let what =
                    format!("host {host}: {left} connections and {services} services are left");
                return self.found("cm left", || what);
            }
        }
    }
}
