//! What goes wrong: the network, links and their devices, registers, processes, and calls of the program.

use super::{Draft, Pair};
use crate::script::{FAULT_TARGETS, Step};

impl Draft {
    pub(super) fn faults(&mut self) {
        self.flaps();
        self.rules();
        if self.dice.chance(30) {
            return; // nothing is wrong with the network
        }
        for host in 0..self.hosts {
            for _ in 0..self.dice.below(3) {
                let (at, step) = (self.dice.below(self.lasts), self.weather());
                self.add(at, host, step);
            }
        }
        for host in 0..self.hosts {
            for _ in 0..self.dice.pick(&[0, 0, 0, 1, 3]) {
                let (at, step) = (self.dice.below(self.lasts), self.device_fault());
                self.add(at, host, step);
            }
        }
        if self.dice.chance(10) {
            let (at, host) = (self.dice.below(self.lasts), self.host());
            self.add(at, host, Step::Kill {});
            if self.dice.chance(50) {
                self.restart(at + self.dice.clone().below(self.lasts), host);
            }
        }
        for _ in 0..self.dice.pick(&[0, 0, 1, 2]) {
            let (at, host) = (self.dice.below(self.lasts), self.host());
            let ns = self.dice.below(2 * self.lasts);
            let step = match self.dice.chance(50) {
                true => Step::Stop { ns },
                false => Step::Jump { ns },
            };
            self.add(at, host, step);
        }
    }

    /// Rules are set and withdrawn, in a few scripts.
    fn rules(&mut self) {
        if !self.dice.chance(12) {
            return;
        }
        for _ in 0..self.dice.within(1..=6) {
            let (host, at) = (self.host(), self.dice.below(self.lasts));
            let pair = self.dice.below(self.pairs.len() as u64) as usize;
            let pair = self.pairs[pair];
            let end = pair.hosts.iter().position(|it| *it == host);
            let dice = &mut self.dice;
            let id = dice.within(1..=3);
            let [nth, every, percent] = match dice.below(3) {
                0 => [dice.within(1..=30), 0, 0],
                1 => [0, dice.within(2..=30), 0],
                _ => [0, 0, dice.within(1..=20)],
            };
            let step = Step::Fault {
                id,
                target: dice.below(FAULT_TARGETS as u64),
                effect: dice.below(2),
                nth,
                every,
                percent,
                seed: dice.below(1_000),
                qp: end
                    .filter(|_| dice.chance(50))
                    .map_or(0, |end| pair.qps[end]),
            };
            self.add(at, host, step);
            if self.dice.chance(50) {
                let at = at + self.dice.below(self.lasts);
                self.add(at, host, Step::Unfault { id });
            }
        }
    }

    /// Links of bonds and of cards with two ports go down, and otherwise perhaps nothing happens.
    fn flaps(&mut self) {
        for host in (0..self.hosts)
            .filter(|host| self.links[*host] > 0)
            .collect::<Vec<_>>()
        {
            for _ in 0..self.dice.pick(&[0, 0, 1, 1, 2, 6]) {
                let at = self.dice.below(self.lasts);
                let (ns, link) = (self.dice.below(self.lasts), self.dice.within(1..=2));
                self.add(at, host, Step::Port { ns, link });
            }
            for _ in 0..self.dice.pick(&[0, 0, 2]) {
                let pair = self.dice.below(self.pairs.len() as u64) as usize;
                let (pair, end) = (self.pairs[pair], self.dice.below(2) as usize);
                let (qp, link) = (pair.qps[end], self.dice.below(4));
                let at = self.dice.below(self.lasts);
                self.add(at, pair.hosts[end], Step::Lag { qp, link });
            }
        }
    }

    /// A host that was killed is there again, with memory, and some connections.
    fn restart(&mut self, at: u64, host: usize) {
        let again: Vec<Step> = self
            .lines
            .iter()
            .filter(|line| line.host == host && line.at == 0)
            .map(|line| line.step.clone())
            .collect();
        for step in again {
            if !matches!(step, Step::Connect { .. }) {
                self.add(at, host, step);
            }
        }
        let pairs: Vec<Pair> = self
            .pairs
            .iter()
            .copied()
            .filter(|pair| pair.hosts.contains(&host))
            .collect();
        for pair in pairs {
            if self.dice.chance(70) {
                self.connect(at, pair);
            }
        }
    }

    /// Something happens to a device's own link or to its registers.
    fn device_fault(&mut self) -> Step {
        let dice = &mut self.dice;
        match dice.below(10) {
            0..4 => {
                let mut share = |percent: u64, most: u64| match dice.chance(percent) {
                    true => dice.below(most),
                    false => 0,
                };
                Step::Impair {
                    loss: share(50, 100_000),
                    duplicate: share(30, 100_000),
                    reorder: share(30, 200_000),
                    corrupt: share(20, 100_000),
                    mark: share(30, 1_000_000),
                    jitter: share(30, 30_000),
                    mbps: share(20, 100_000),
                    dark: share(20, 2_000_000),
                    carrier: share(30, 2),
                    direction: share(50, 2),
                }
            }
            4 => Step::Port {
                ns: dice.below(3_000_000),
                link: dice.within(1..=2),
            },
            5..7 => Step::Register {
                field: dice.within(1..=7),
                value: dice.below(2),
            },
            7..9 => Step::Profile {
                seed: dice.below(1 << 32),
            },
            _ => Step::Reset {
                firmware: dice.below(2),
            },
        }
    }

    fn weather(&mut self) -> Step {
        let dice = &mut self.dice;
        let mut share = |percent: u64, most: u64| match dice.chance(percent) {
            true => dice.below(most),
            false => 0,
        };
        Step::Network {
            loss: share(60, 200_000),
            duplicate: share(35, 200_000),
            reorder: share(35, 300_000),
            corrupt: share(20, 100_000),
            delay: share(30, 30_000),
            jitter: share(30, 30_000),
        }
    }
}
