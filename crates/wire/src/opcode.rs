//! BTH opcodes: the service in the upper three bits, the operation in the lower five
//! (IBA vol 1, 9.2.2).

use core::fmt;

use crate::lengths::{
    AETH_LEN, ATOMIC_ACK_ETH_LEN, ATOMIC_ETH_LEN, BTH_LEN, CNP_RESERVED_LEN, DC_CONNECT_LEN,
    DCETH_LEN, DETH_LEN, IETH_LEN, IMM_LEN, RETH_LEN, XRCETH_LEN,
};

/// Transport service that an opcode belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Dynamically connected transport, in Ferroce's own format among the opcodes that
    /// manufacturers define.
    Dc,
    /// Congestion notification of RoCEv2; belongs to no queue pair's packet sequence.
    Cnp,
}

impl Service {
    /// The upper three bits of the service's opcodes.
    #[inline]
    const fn bits(self) -> u8 {
        match self {
            Self::Rc => 0x00,
            Self::Uc => 0x20,
            Self::Ud => 0x60,
            Self::Cnp => 0x80,
            Self::Xrc => 0xa0,
            Self::Dc => 0xc0,
        }
    }
}

macro_rules! opcodes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        /// Operation of a packet: all opcodes of RC, UC, UD and XRC, the CNP, those of DC, and the
        /// report of selective repeat.
        ///
        /// Opcodes of RD and the reserved ones have no value here.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(u8)]
        pub enum Opcode {
            $(#[doc = concat!($text, ", `", stringify!($value), "`.")] $name = $value,)*
        }

        impl Opcode {
            /// Every opcode, in ascending order of its byte.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the opcode for a BTH's first byte, or `None` if Ferroce does not know it.
            #[inline]
            pub const fn from_u8(byte: u8) -> Option<Self> {
                BY_BYTE[byte as usize]
            }

            /// Returns a human-readable name, for example `RC SEND first`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

opcodes! {
    RcSendFirst = 0x00, "RC SEND first";
    RcSendMiddle = 0x01, "RC SEND middle";
    RcSendLast = 0x02, "RC SEND last";
    RcSendLastImm = 0x03, "RC SEND last with immediate";
    RcSendOnly = 0x04, "RC SEND only";
    RcSendOnlyImm = 0x05, "RC SEND only with immediate";
    RcWriteFirst = 0x06, "RC RDMA WRITE first";
    RcWriteMiddle = 0x07, "RC RDMA WRITE middle";
    RcWriteLast = 0x08, "RC RDMA WRITE last";
    RcWriteLastImm = 0x09, "RC RDMA WRITE last with immediate";
    RcWriteOnly = 0x0a, "RC RDMA WRITE only";
    RcWriteOnlyImm = 0x0b, "RC RDMA WRITE only with immediate";
    RcReadRequest = 0x0c, "RC RDMA READ request";
    RcReadResponseFirst = 0x0d, "RC RDMA READ response first";
    RcReadResponseMiddle = 0x0e, "RC RDMA READ response middle";
    RcReadResponseLast = 0x0f, "RC RDMA READ response last";
    RcReadResponseOnly = 0x10, "RC RDMA READ response only";
    RcAcknowledge = 0x11, "RC acknowledge";
    RcAtomicAcknowledge = 0x12, "RC atomic acknowledge";
    RcCompareSwap = 0x13, "RC compare and swap";
    RcFetchAdd = 0x14, "RC fetch and add";
    RcSendLastInvalidate = 0x16, "RC SEND last with invalidate";
    RcSendOnlyInvalidate = 0x17, "RC SEND only with invalidate";
    UcSendFirst = 0x20, "UC SEND first";
    UcSendMiddle = 0x21, "UC SEND middle";
    UcSendLast = 0x22, "UC SEND last";
    UcSendLastImm = 0x23, "UC SEND last with immediate";
    UcSendOnly = 0x24, "UC SEND only";
    UcSendOnlyImm = 0x25, "UC SEND only with immediate";
    UcWriteFirst = 0x26, "UC RDMA WRITE first";
    UcWriteMiddle = 0x27, "UC RDMA WRITE middle";
    UcWriteLast = 0x28, "UC RDMA WRITE last";
    UcWriteLastImm = 0x29, "UC RDMA WRITE last with immediate";
    UcWriteOnly = 0x2a, "UC RDMA WRITE only";
    UcWriteOnlyImm = 0x2b, "UC RDMA WRITE only with immediate";
    UdSendOnly = 0x64, "UD SEND only";
    UdSendOnlyImm = 0x65, "UD SEND only with immediate";
    Cnp = 0x81, "congestion notification";
    XrcSendFirst = 0xa0, "XRC SEND first";
    XrcSendMiddle = 0xa1, "XRC SEND middle";
    XrcSendLast = 0xa2, "XRC SEND last";
    XrcSendLastImm = 0xa3, "XRC SEND last with immediate";
    XrcSendOnly = 0xa4, "XRC SEND only";
    XrcSendOnlyImm = 0xa5, "XRC SEND only with immediate";
    XrcWriteFirst = 0xa6, "XRC RDMA WRITE first";
    XrcWriteMiddle = 0xa7, "XRC RDMA WRITE middle";
    XrcWriteLast = 0xa8, "XRC RDMA WRITE last";
    XrcWriteLastImm = 0xa9, "XRC RDMA WRITE last with immediate";
    XrcWriteOnly = 0xaa, "XRC RDMA WRITE only";
    XrcWriteOnlyImm = 0xab, "XRC RDMA WRITE only with immediate";
    XrcReadRequest = 0xac, "XRC RDMA READ request";
    XrcReadResponseFirst = 0xad, "XRC RDMA READ response first";
    XrcReadResponseMiddle = 0xae, "XRC RDMA READ response middle";
    XrcReadResponseLast = 0xaf, "XRC RDMA READ response last";
    XrcReadResponseOnly = 0xb0, "XRC RDMA READ response only";
    XrcAcknowledge = 0xb1, "XRC acknowledge";
    XrcAtomicAcknowledge = 0xb2, "XRC atomic acknowledge";
    XrcCompareSwap = 0xb3, "XRC compare and swap";
    XrcFetchAdd = 0xb4, "XRC fetch and add";
    XrcSendLastInvalidate = 0xb6, "XRC SEND last with invalidate";
    XrcSendOnlyInvalidate = 0xb7, "XRC SEND only with invalidate";
    DcSendFirst = 0xc0, "DC SEND first";
    DcSendMiddle = 0xc1, "DC SEND middle";
    DcSendLast = 0xc2, "DC SEND last";
    DcSendLastImm = 0xc3, "DC SEND last with immediate";
    DcSendOnly = 0xc4, "DC SEND only";
    DcSendOnlyImm = 0xc5, "DC SEND only with immediate";
    DcWriteFirst = 0xc6, "DC RDMA WRITE first";
    DcWriteMiddle = 0xc7, "DC RDMA WRITE middle";
    DcWriteLast = 0xc8, "DC RDMA WRITE last";
    DcWriteLastImm = 0xc9, "DC RDMA WRITE last with immediate";
    DcWriteOnly = 0xca, "DC RDMA WRITE only";
    DcWriteOnlyImm = 0xcb, "DC RDMA WRITE only with immediate";
    DcReadRequest = 0xcc, "DC RDMA READ request";
    DcReadResponseFirst = 0xcd, "DC RDMA READ response first";
    DcReadResponseMiddle = 0xce, "DC RDMA READ response middle";
    DcReadResponseLast = 0xcf, "DC RDMA READ response last";
    DcReadResponseOnly = 0xd0, "DC RDMA READ response only";
    DcAcknowledge = 0xd1, "DC acknowledge";
    DcAtomicAcknowledge = 0xd2, "DC atomic acknowledge";
    DcCompareSwap = 0xd3, "DC compare and swap";
    DcFetchAdd = 0xd4, "DC fetch and add";
    DcSendLastInvalidate = 0xd6, "DC SEND last with invalidate";
    DcSendOnlyInvalidate = 0xd7, "DC SEND only with invalidate";
    DcConnect = 0xd8, "DC connect";
    DcDisconnect = 0xd9, "DC disconnect";
    RcAcknowledgeReport = 0xfa, "RC acknowledge with report";
}

// Every packet asks several of the questions below, some of them more than once: each answer is a
// load and a test of bits.

/// The opcodes by their byte.
static BY_BYTE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode as usize] = Some(opcode);
        index += 1;
    }
    table
};

/// Which extension headers packets carry. Each opcode belongs to one class; the XRCETH or DCETH comes first, and
/// the others in the order of the names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Class {
    None,
    Imm,
    Ieth,
    Reth,
    RethImm,
    Atomic,
    Aeth,
    AtomicAck,
    Deth,
    DethImm,
    Lead,
    LeadImm,
    LeadIeth,
    LeadReth,
    LeadRethImm,
    LeadAtomic,
    DcConnect,
    /// A reserved field.
    Cnp,
}

/// The classes by the byte of an opcode.
static CLASSES: [Class; 256] = {
    let mut table = [Class::None; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode as usize] = opcode.classify();
        index += 1;
    }
    table
};

/// What is asked of an opcode: the answers, by its byte.
static PROPERTIES: [Properties; 256] = {
    let mut table = [Properties(0); 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode as usize] = Properties::of(opcode);
        index += 1;
    }
    table
};

#[derive(Clone, Copy)]
struct Properties(u16);

impl Properties {
    const SEND: u16 = 1;
    const WRITE: u16 = 1 << 1;
    const READ_RESPONSE: u16 = 1 << 2;
    const FIRST: u16 = 1 << 3;
    const MIDDLE: u16 = 1 << 4;
    const LAST: u16 = 1 << 5;
    const ONLY: u16 = 1 << 6;
    const RESPONSE: u16 = 1 << 7;
    const CNP: u16 = 1 << 8;
    const REPORT: u16 = 1 << 9;

    const fn of(opcode: Opcode) -> Self {
        use Opcode::*;
        if matches!(opcode, Cnp) {
            return Self(Self::CNP);
        }
        Self(match opcode.operation() {
            RcSendFirst => Self::SEND | Self::FIRST,
            RcSendMiddle => Self::SEND | Self::MIDDLE,
            RcSendLast | RcSendLastImm | RcSendLastInvalidate => Self::SEND | Self::LAST,
            RcSendOnly | RcSendOnlyImm | RcSendOnlyInvalidate => Self::SEND | Self::ONLY,
            RcWriteFirst => Self::WRITE | Self::FIRST,
            RcWriteMiddle => Self::WRITE | Self::MIDDLE,
            RcWriteLast | RcWriteLastImm => Self::WRITE | Self::LAST,
            RcWriteOnly | RcWriteOnlyImm => Self::WRITE | Self::ONLY,
            RcReadResponseFirst => Self::RESPONSE | Self::READ_RESPONSE | Self::FIRST,
            RcReadResponseMiddle => Self::RESPONSE | Self::READ_RESPONSE | Self::MIDDLE,
            RcReadResponseLast => Self::RESPONSE | Self::READ_RESPONSE | Self::LAST,
            RcReadResponseOnly => Self::RESPONSE | Self::READ_RESPONSE | Self::ONLY,
            RcAcknowledge | RcAtomicAcknowledge => Self::RESPONSE,
            RcAcknowledgeReport => Self::RESPONSE | Self::REPORT,
            _ => 0,
        })
    }
}

/// The same operation of RC, by the byte of an opcode.
static OPERATIONS: [Opcode; 256] = {
    let mut table = [Opcode::Cnp; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode as usize] = match opcode.of_service(Service::Rc) {
            Some(operation) => operation,
            None => opcode,
        };
        index += 1;
    }
    table
};

/// Length of the headers, by the byte of an opcode.
#[allow(clippy::cast_possible_truncation, reason = "headers are short")]
static HEADER_LENS: [u8; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode as usize] = opcode.add_up_headers() as u8;
        index += 1;
    }
    table
};

impl Opcode {
    /// Returns the opcode's byte in the BTH.
    #[inline]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// Returns the same operation of another service, or `None` if that service does not have it.
    #[inline]
    pub const fn of_service(self, service: Service) -> Option<Self> {
        if matches!(self, Self::Cnp) != matches!(service, Service::Cnp) {
            return None;
        }
        Self::from_u8(self.as_u8() & 0x1f | service.bits())
    }

    /// Returns the same operation of RC; a CNP, a report and the two operations that only DC has are
    /// returned unchanged.
    #[inline]
    pub const fn operation(self) -> Self {
        OPERATIONS[self as usize]
    }

    /// Returns the transport service that the opcode belongs to.
    #[inline]
    pub const fn service(self) -> Service {
        match self.as_u8() {
            // The latter in Ferroce's own format, among those that manufacturers define.
            0x00..=0x1f | 0xe0..=0xff => Service::Rc,
            0x20..=0x3f => Service::Uc,
            0x60..=0x7f => Service::Ud,
            0xa0..=0xbf => Service::Xrc,
            0xc0..=0xdf => Service::Dc,
            _ => Service::Cnp,
        }
    }

    /// Travels from requester to responder: SEND, WRITE, READ request and atomics.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.has(Properties::RESPONSE | Properties::CNP)
    }

    /// Travels from responder to requester: READ responses and acknowledges.
    #[inline]
    pub const fn is_response(self) -> bool {
        self.has(Properties::RESPONSE)
    }

    /// First of several packets of a SEND, a WRITE or a READ response.
    #[inline]
    pub const fn is_first(self) -> bool {
        self.has(Properties::FIRST)
    }

    /// Neither first nor last of several packets of a SEND, a WRITE or a READ response.
    #[inline]
    pub const fn is_middle(self) -> bool {
        self.has(Properties::MIDDLE)
    }

    /// Last of several packets of a SEND, a WRITE or a READ response.
    #[inline]
    pub const fn is_last(self) -> bool {
        self.has(Properties::LAST)
    }

    /// The one packet of a SEND, a WRITE or a READ response.
    ///
    /// Operations that always have one packet (READ request, atomics, acknowledges) are not
    /// "only"; see [`starts_message`](Self::starts_message).
    #[inline]
    pub const fn is_only(self) -> bool {
        self.has(Properties::ONLY)
    }

    /// Begins a message: first, only, and the operations that always have one packet (READ request,
    /// atomics, both acknowledges). A CNP is not a message.
    #[inline]
    pub const fn starts_message(self) -> bool {
        !self.has(Properties::MIDDLE | Properties::LAST | Properties::CNP)
    }

    /// Ends a message: last, only, and the operations that always have one packet.
    #[inline]
    pub const fn ends_message(self) -> bool {
        !self.has(Properties::MIDDLE | Properties::FIRST | Properties::CNP)
    }

    /// SEND of any service and position.
    #[inline]
    pub const fn is_send(self) -> bool {
        self.has(Properties::SEND)
    }

    /// RDMA WRITE of any service and position.
    #[inline]
    pub const fn is_write(self) -> bool {
        self.has(Properties::WRITE)
    }

    /// RDMA READ response of any position.
    #[inline]
    pub const fn is_read_response(self) -> bool {
        self.has(Properties::READ_RESPONSE)
    }

    /// Compare-and-swap or fetch-and-add.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self.operation(), Self::RcCompareSwap | Self::RcFetchAdd)
    }

    /// Carries a RETH.
    #[inline]
    pub const fn has_reth(self) -> bool {
        matches!(self.operation(), Self::RcReadRequest)
            || (self.is_write() && self.starts_message())
    }

    /// Carries an AETH.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        self.is_response() && !matches!(self.operation(), Self::RcReadResponseMiddle)
    }

    /// Carries an AtomicETH.
    #[inline]
    pub const fn has_atomic_eth(self) -> bool {
        self.is_atomic()
    }

    /// Carries an AtomicAckETH.
    #[inline]
    pub const fn has_atomic_ack(self) -> bool {
        matches!(self.operation(), Self::RcAtomicAcknowledge)
    }

    /// Carries immediate data.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(
            self.operation(),
            Self::RcSendLastImm | Self::RcSendOnlyImm | Self::RcWriteLastImm | Self::RcWriteOnlyImm
        )
    }

    /// Carries an IETH, the remote key to invalidate.
    #[inline]
    pub const fn has_ieth(self) -> bool {
        matches!(
            self.operation(),
            Self::RcSendLastInvalidate | Self::RcSendOnlyInvalidate
        )
    }

    /// Carries a DETH.
    #[inline]
    pub const fn has_deth(self) -> bool {
        matches!(self.service(), Service::Ud)
    }

    /// Carries an XRCETH.
    #[inline]
    pub const fn has_xrceth(self) -> bool {
        matches!(self.service(), Service::Xrc) && self.is_request()
    }

    /// Carries a DCETH.
    #[inline]
    pub const fn has_dceth(self) -> bool {
        matches!(self.service(), Service::Dc) && self.is_request()
    }

    /// May carry payload (possibly of length 0).
    #[inline]
    pub const fn has_payload(self) -> bool {
        let any = Properties::SEND | Properties::WRITE | Properties::READ_RESPONSE;
        self.has(any | Properties::REPORT)
    }

    #[inline]
    const fn has(self, any_of: u16) -> bool {
        PROPERTIES[self as usize].0 & any_of != 0
    }

    /// Returns the length of the BTH and all extension headers in bytes; always a multiple of 4.
    ///
    /// The 16 reserved bytes of a CNP count as a header.
    #[inline]
    pub const fn header_len(self) -> usize {
        HEADER_LENS[self as usize] as usize
    }

    /// Which extension headers it carries.
    #[inline]
    pub(crate) const fn class(self) -> Class {
        CLASSES[self as usize]
    }

    const fn classify(self) -> Class {
        if matches!(self, Self::Cnp) {
            return Class::Cnp;
        }
        if matches!(self, Self::DcConnect) {
            return Class::DcConnect;
        }
        let lead = self.has_xrceth() || self.has_dceth();
        let (deth, imm) = (self.has_deth(), self.has_imm());
        match (self.has_reth(), self.has_atomic_eth(), self.has_aeth()) {
            (true, ..) if lead && imm => Class::LeadRethImm,
            (true, ..) if lead => Class::LeadReth,
            (true, ..) if imm => Class::RethImm,
            (true, ..) => Class::Reth,
            (_, true, _) if lead => Class::LeadAtomic,
            (_, true, _) => Class::Atomic,
            (.., true) if self.has_atomic_ack() => Class::AtomicAck,
            (.., true) => Class::Aeth,
            _ if self.has_ieth() && lead => Class::LeadIeth,
            _ if self.has_ieth() => Class::Ieth,
            _ if lead && imm => Class::LeadImm,
            _ if lead => Class::Lead,
            _ if deth && imm => Class::DethImm,
            _ if deth => Class::Deth,
            _ if imm => Class::Imm,
            _ => Class::None,
        }
    }

    const fn add_up_headers(self) -> usize {
        let mut len = BTH_LEN;
        if self.has_deth() {
            len += DETH_LEN;
        }
        if self.has_xrceth() {
            len += XRCETH_LEN;
        }
        if self.has_dceth() {
            len += DCETH_LEN;
        }
        if matches!(self, Self::DcConnect) {
            len += DC_CONNECT_LEN;
        }
        if self.has_reth() {
            len += RETH_LEN;
        }
        if self.has_aeth() {
            len += AETH_LEN;
        }
        if self.has_atomic_eth() {
            len += ATOMIC_ETH_LEN;
        }
        if self.has_atomic_ack() {
            len += ATOMIC_ACK_ETH_LEN;
        }
        if self.has_imm() {
            len += IMM_LEN;
        }
        if self.has_ieth() {
            len += IETH_LEN;
        }
        if matches!(self, Self::Cnp) {
            len += CNP_RESERVED_LEN;
        }
        len
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_known_or_refused_and_the_known_round_trip() {
        let mut known = Vec::new();
        for byte in 0..=u8::MAX {
            if let Some(opcode) = Opcode::from_u8(byte) {
                assert_eq!(opcode.as_u8(), byte);
                known.push(opcode);
            }
        }
        assert_eq!(known, Opcode::ALL);
        assert_eq!(known.len(), 23 + 12 + 2 + 23 + 1 + 23 + 2 + 1);
    }

    #[test]
    fn services_follow_the_upper_three_bits() {
        for &opcode in Opcode::ALL {
            let expected = match opcode.as_u8() >> 5 {
                0 | 7 => Service::Rc,
                1 => Service::Uc,
                3 => Service::Ud,
                4 => Service::Cnp,
                5 => Service::Xrc,
                6 => Service::Dc,
                other => panic!("{opcode}: unexpected service bits {other}"),
            };
            assert_eq!(opcode.service(), expected, "{opcode}");
        }
    }

    #[test]
    fn an_operation_keeps_its_name_in_another_service() {
        use Opcode::{DcConnect, DcDisconnect, RcAcknowledgeReport};
        for &opcode in Opcode::ALL {
            let own = [DcConnect, DcDisconnect, RcAcknowledgeReport];
            if opcode != RcAcknowledgeReport {
                assert_eq!(opcode.of_service(opcode.service()), Some(opcode));
            }
            let operation = |opcode: Opcode| opcode.name().split_once(' ').unwrap().1;
            for service in [Service::Uc, Service::Xrc, Service::Dc] {
                if let Some(other) = opcode.of_service(service) {
                    assert_eq!(operation(other), operation(opcode));
                }
            }
            if own.contains(&opcode) {
                assert_eq!(opcode.operation(), opcode);
            } else if opcode != Opcode::Cnp {
                assert_eq!(operation(opcode.operation()), operation(opcode));
                assert_eq!(opcode.operation().service(), Service::Rc);
            }
        }
        assert_eq!(Opcode::RcReadRequest.of_service(Service::Uc), None);
        let datagram = Opcode::RcSendOnlyImm.of_service(Service::Ud);
        assert_eq!(datagram, Some(Opcode::UdSendOnlyImm));
    }

    /// The predicates must agree with the names, which are written independently of them.
    #[test]
    fn predicates_agree_with_the_names() {
        for &opcode in Opcode::ALL {
            let name = opcode.name();
            let has = |word: &str| name.split(' ').any(|part| part == word);
            assert_eq!(opcode.is_send(), has("SEND"), "{name}");
            assert_eq!(opcode.is_write(), has("WRITE"), "{name}");
            assert_eq!(opcode.is_read_response(), has("response"), "{name}");
            assert_eq!(opcode.is_first(), has("first"), "{name}");
            assert_eq!(opcode.is_middle(), has("middle"), "{name}");
            assert_eq!(opcode.is_last(), has("last"), "{name}");
            assert_eq!(opcode.is_only(), has("only"), "{name}");
            assert_eq!(opcode.has_imm(), has("immediate"), "{name}");
            assert_eq!(opcode.has_ieth(), has("invalidate"), "{name}");
            assert_eq!(opcode.is_atomic(), has("compare") || has("fetch"), "{name}");
            assert_eq!(
                opcode.is_response(),
                has("response") || has("acknowledge"),
                "{name}"
            );
            let xrceth = name.starts_with("XRC") && opcode.is_request();
            assert_eq!(opcode.has_xrceth(), xrceth, "{name}");
            let dceth = name.starts_with("DC") && opcode.is_request();
            assert_eq!(opcode.has_dceth(), dceth, "{name}");
            assert_eq!(opcode.has_deth(), name.starts_with("UD"), "{name}");
            if opcode != Opcode::Cnp {
                assert_ne!(opcode.is_request(), opcode.is_response(), "{name}");
            }
        }
    }

    #[test]
    fn header_lengths() {
        for (len, opcodes) in [
            (
                12,
                &[0x00u8, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0e, 0x20, 0x24, 0x27][..],
            ),
            (
                16,
                &[
                    0x03, 0x05, 0x09, 0x0d, 0x0f, 0x10, 0x11, 0x16, 0x17, 0x23, 0x29, 0xa0, 0xa1,
                    0xa7, 0xad, 0xb1, 0xc0, 0xd1, 0xd9, 0xfa,
                ],
            ),
            (20, &[0x64, 0xa5, 0xa9, 0xb6]),
            (24, &[0x12, 0x65, 0xb2]),
            (28, &[0x06, 0x0a, 0x0c, 0x26, 0x2a, 0x81, 0xd8]),
            (32, &[0x0b, 0x2b, 0xa6, 0xaa, 0xac]),
            (36, &[0xab]),
            (40, &[0x13, 0x14]),
            (44, &[0xb3, 0xb4, 0xd3, 0xd4]),
        ] {
            for &byte in opcodes {
                let opcode = Opcode::from_u8(byte).unwrap();
                assert_eq!(opcode.header_len(), len, "{opcode}");
            }
        }
    }

    #[test]
    fn message_boundaries_of_single_packet_operations() {
        use Opcode::*;
        for opcode in [
            RcReadRequest,
            RcCompareSwap,
            RcFetchAdd,
            RcAcknowledge,
            RcAtomicAcknowledge,
        ] {
            assert!(opcode.starts_message() && opcode.ends_message() && !opcode.is_only());
            assert!(!opcode.has_payload());
        }
        assert!(!Cnp.starts_message() && !Cnp.ends_message() && !Cnp.has_payload());
        assert!(!Cnp.is_request() && !Cnp.is_response());
    }
}
