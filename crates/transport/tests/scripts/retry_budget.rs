//! The budget of retries, completely: every `retry_cnt` and `rnr_retry`, and every sequence of answers up to
//! a length, given to a real queue pair that sends one message.

use ferroce_adp::{AckTimeoutFloor, Policy, PolicyKind};
use ferroce_transport::{Data, Outgoing, Qp, QpState, Span, Time, WcStatus};
use ferroce_wire::{Aeth, Headers, NakCode, RNR_TIMER_NS, Syndrome};

use crate::common::{A, Setup, TestHost};

/// What comes back after a transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// Nothing: the ACK timer runs out, if there is one.
    Silence,
    /// A NAK for a PSN sequence error.
    Nak,
    /// An RNR NAK.
    NotReady,
    Ack,
}
use Answer::{Ack, Nak, NotReady, Silence};

const RNR_CODE: u8 = 1;

/// The rules of the standard (IBA vol 1, 9.7.5.1.4, 9.7.5.2.8, 9.7.6.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Budget {
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    retries: u8,
    rnr_retries: u8,
    transmissions: u32,
    /// Since the first transmission.
    elapsed_ns: u64,
    status: Option<WcStatus>,
}

impl Budget {
    fn new(timeout: u8, retry_cnt: u8, rnr_retry: u8) -> Self {
        Self {
            timeout,
            retry_cnt,
            rnr_retry,
            retries: 0,
            rnr_retries: 0,
            transmissions: 1,
            elapsed_ns: 0,
            status: None,
        }
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            //= D6: 0 is infinite.
            Silence if self.timeout == 0 => {}
            Silence => {
                self.elapsed_ns += 4_096 << self.timeout;
                self.retry();
            }
            Nak => self.retry(),
            NotReady => self.retry_later(),
            Ack => self.status = Some(WcStatus::Success),
        }
    }

    /// Timeouts and NAKs spend the same count; 7 means seven (D7).
    fn retry(&mut self) {
        if self.retries == self.retry_cnt {
            self.status = Some(WcStatus::RetryExcErr);
            return;
        }
        self.retries += 1;
        self.transmissions += 1;
    }

    /// The peer has received it, so nothing was lost; 7 means without end.
    fn retry_later(&mut self) {
        self.retries = 0;
        if self.rnr_retry != 7 && self.rnr_retries == self.rnr_retry {
            self.status = Some(WcStatus::RnrRetryExcErr);
            return;
        }
        self.rnr_retries += 1;
        self.elapsed_ns += RNR_TIMER_NS[usize::from(RNR_CODE)];
        self.transmissions += 1;
    }
}

/// A queue pair with one message.
#[derive(Clone)]
struct Sender {
    qp: Qp,
    host: TestHost,
    began: Time,
    now: Time,
    transmissions: u32,
}

impl Sender {
    fn new(budget: &Budget) -> Self {
        let mut pair = Setup {
            policy: Policy {
                floor: AckTimeoutFloor::Disabled,
                ..Policy::new(PolicyKind::IB)
            },
            timeout: budget.timeout,
            retry_cnt: budget.retry_cnt,
            rnr_retry: budget.rnr_retry,
            memory_bytes: 8,
            ..Setup::default()
        }
        .connect();
        pair.send(A, 1, 8);
        let mut sender = Self {
            qp: pair[A].qp.clone(),
            host: pair[A].host.clone(),
            began: pair.now,
            now: pair.now,
            transmissions: 0,
        };
        sender.transmit();
        sender
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            Silence => self.expire(),
            Nak => self.receive(Syndrome::Nak(NakCode::SequenceError)),
            NotReady => {
                self.receive(Syndrome::Rnr { timer: RNR_CODE });
                self.expire();
            }
            Ack => self.receive(Syndrome::default()),
        }
    }

    fn receive(&mut self, syndrome: Syndrome) {
        let msn = u32::from(syndrome == Syndrome::default());
        let headers = Headers::acknowledge(Aeth { syndrome, msn });
        let headers = headers.to(self.qp.qpn(), self.qp.attr().sq_psn);
        self.qp
            .handle_packet(self.now, &headers, Data::Bytes(&[]), &mut self.host);
        self.transmit();
    }

    fn expire(&mut self) {
        if let Some(deadline) = self.qp.poll_timeout() {
            self.now = deadline;
            self.qp.handle_timeout(deadline, &mut self.host);
            self.transmit();
        }
    }

    fn transmit(&mut self) {
        let mut made = Outgoing::empty();
        while self.qp.poll_transmit(self.now, &mut self.host, &mut made) {
            self.transmissions += 1;
        }
    }

    fn expect(&self, budget: &Budget, answers: &[Answer]) {
        let status = self.host.completions.first().map(|it| it.1.status);
        let is_over = matches!(
            status,
            Some(WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr)
        );
        let found = (status, self.transmissions, self.now.since(self.began));
        let elapsed = Span::from_nanos(budget.elapsed_ns);
        let expected = (budget.status, budget.transmissions, elapsed);
        assert_eq!(found, expected, "{budget:?} after {answers:?}");
        assert_eq!(self.qp.state() == QpState::Err, is_over);
        assert!(self.host.completions.len() <= 1);
    }
}

/// Every sequence of answers up to a length, as far as it goes on. Returns their number.
fn explore(sender: &Sender, budget: Budget, answers: &mut Vec<Answer>, length: usize) -> usize {
    sender.expect(&budget, answers);
    if budget.status.is_some() || answers.len() == length {
        return 1;
    }
    let mut sequences = 0;
    for answer in [Silence, Nak, NotReady, Ack] {
        let (mut sender, mut budget) = (sender.clone(), budget);
        sender.take(answer);
        budget.take(answer);
        answers.push(answer);
        sequences += explore(&sender, budget, answers, length);
        answers.pop();
    }
    sequences
}

fn explore_all(timeouts: impl Iterator<Item = u8> + Clone, length: usize) -> usize {
    let mut sequences = 0;
    for retry_cnt in 0..=7 {
        for rnr_retry in 0..=7 {
            for timeout in timeouts.clone() {
                let budget = Budget::new(timeout, retry_cnt, rnr_retry);
                sequences += explore(&Sender::new(&budget), budget, &mut Vec::new(), length);
            }
        }
    }
    sequences
}

/// Long enough to use up the largest counts.
#[test]
fn every_sequence_of_ten_answers() {
    let sequences = explore_all([14].into_iter(), 10);
    println!("{sequences} sequences");
    assert!(sequences > 1_000_000, "{sequences}");
}

#[test]
fn every_timeout_with_every_sequence_of_six_answers() {
    let sequences = explore_all(0..=31, 6);
    println!("{sequences} sequences");
    assert!(sequences > 1_000_000, "{sequences}");
}
