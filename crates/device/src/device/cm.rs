//! The connection manager as a part of the device.

use ferroce_transport::{Counter, Data, Outgoing};
use ferroce_wire::Opcode;
use ferroce_wire::cm::{GSI_QKEY, Mad};

use super::Hca;
use crate::cm::{Cm, CmEvent};
use crate::cq::Unpolled;
use crate::event::Event;
use crate::packet::Received;

impl Hca {
    /// The connection manager, to look at.
    pub fn cm(&self) -> &Cm {
        self.cm.get_or_init(|| {
            let secret = self.config.secret.unwrap_or_default();
            let (slot, port_mtu) = (self.config.slot, self.config.port_mtu);
            Box::new(Cm::new(self.common.state.clone(), slot, secret, port_mtu))
        })
    }

    /// The connection manager. What it has to send comes out of [`Self::poll_transmit`].
    pub fn cm_mut(&mut self) -> &mut Cm {
        self.cm();
        self.cm.get_mut().expect("made in the line before")
    }

    /// The next event of the connection manager.
    pub fn poll_cm_event(&mut self) -> Option<CmEvent> {
        let cm = self.cm.get_mut()?;
        let event = cm.poll_event();
        self.cm_told = cm.has_events();
        event
    }

    /// Whether it has something to send.
    #[inline]
    pub(crate) fn cm_wants_transmit(&self) -> bool {
        self.cm.get().is_some_and(|cm| cm.wants_transmit())
    }

    /// Says once that there are events of the connection manager.
    pub(crate) fn tell_cm(&mut self) {
        let (numbers, qps, now) = (&self.common.numbers, &self.qps, self.common.now);
        if let Some(cm) = self.cm.get_mut() {
            cm.tell_ends(now, |qpn| {
                let entry = numbers.index(qpn.value()).and_then(|index| qps.get(index));
                entry.is_some_and(|entry| entry.unpolled != Unpolled::default())
            });
        }
        if !self.cm_told && self.cm.get().is_some_and(|cm| cm.has_events()) {
            self.cm_told = true;
            self.common.events.push_back(Event::ConnectionManager);
        }
    }

    /// Takes a packet for queue pair 1.
    pub(crate) fn deliver_mad(&mut self, packet: &Received<'_>) {
        match Self::check_mad(packet) {
            Ok(mad) => {
                let state = self.common.link_state();
                state.count(Counter::RdmaRxPackets, 1);
                state.count(Counter::RdmaRxBytes, packet.data.len().into());
                let now = self.common.now;
                self.cm_mut().handle(now, packet, &mad);
                while let Some(dropped) = self.cm_mut().poll_dropped() {
                    self.common.events.push_back(Event::RequestDropped {
                        source: dropped.source,
                        service: dropped.service,
                        cause: dropped.cause,
                    });
                }
                self.tell_cm();
            }
            Err(cause) => self.common.count(cause, 1),
        }
    }

    /// The message for queue pair 1, or why there is none.
    fn check_mad(packet: &Received<'_>) -> Result<Mad, Counter> {
        let headers = packet.headers;
        if headers.opcode() != Opcode::UdSendOnly {
            return Err(Counter::RxWrongService);
        }
        if headers.deth().is_none_or(|deth| deth.qkey != GSI_QKEY) {
            return Err(Counter::RxWrongQkey);
        }
        if headers.pkey | 0x8000 != ferroce_wire::PKEY_DEFAULT {
            return Err(Counter::RxWrongPkey);
        }
        let Data::Bytes(payload) = packet.data else {
            return Err(Counter::RxMalformed);
        };
        Mad::parse(payload).map_err(|_| Counter::RxMalformed)
    }

    /// Writes the next message of the connection manager to `out`; false if there is none.
    pub(crate) fn poll_mad(&mut self, out: &mut Outgoing) -> bool {
        let Some(mad) = self.cm.get_mut().and_then(|cm| cm.poll_transmit()) else {
            return false;
        };
        let headers = ferroce_wire::cm::headers(mad.psn);
        *out = Outgoing::carrying(headers, mad.path, mad.mad);
        true
    }
}
