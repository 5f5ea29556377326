//! Parts that several documents have.

use ferroce_adp::QpTimeouts;
use ferroce_base::time::Span;
use ferroce_designer::ladder::word;
use ferroce_device::HistogramConfig;
use serde::ser::{Serialize, Serializer};

/// Values by name, in an order that means something to people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named<T>(Vec<(String, T)>);

impl<T> Named<T> {
    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<N: Into<String>, T> FromIterator<(N, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(values: I) -> Self {
        Self(values.into_iter().map(|(n, it)| (n.into(), it)).collect())
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        std::collections::BTreeMap::<String, T>::json_schema(generator)
    }
}

/// The timeout attributes of a QP.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct QueuePair {
    /// ACK timeout, a code of 5 bits: 4.096 us times two to the power of the code; 0 is never.
    pub(crate) timeout: u8,
    /// Retry count, 0 to 7.
    pub(crate) retry_cnt: u8,
}

impl From<QpTimeouts> for QueuePair {
    fn from(qp: QpTimeouts) -> Self {
        Self {
            timeout: qp.timeout,
            retry_cnt: qp.retry_cnt,
        }
    }
}

/// One timer of a QP whose peer is silent.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Wait {
    /// How long it runs; null has no end.
    pub(crate) wait_ns: Option<u64>,
    /// When it ends, counted from the first send.
    pub(crate) at_ns: Option<u64>,
    /// Doublings: of a profile's time_base under it, else of 4.096 us.
    pub(crate) exponent: u16,
    /// The timeout range of the profile in use; null with the initial timeout or without a profile.
    pub(crate) range: Option<u8>,
    /// What it ends with: initial, retransmit, error or never.
    pub(crate) event: &'static str,
}

impl From<&ferroce_adp::trace::Wait> for Wait {
    fn from(wait: &ferroce_adp::trace::Wait) -> Self {
        Self {
            wait_ns: wait.wait.map(Span::as_nanos),
            at_ns: wait.at.map(Span::as_nanos),
            exponent: wait.exponent,
            range: wait.range,
            event: word(wait.event),
        }
    }
}

/// A bin of a histogram of timeouts.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bin {
    /// The shortest wait that it counts.
    pub(crate) low_ns: u64,
    /// The shortest wait that it no longer counts; null for the last bin, which has no end.
    pub(crate) high_ns: Option<u64>,
    /// Waits of that length.
    pub(crate) count: u64,
}

impl Bin {
    /// All bins of a histogram.
    pub(crate) fn all(config: &HistogramConfig, counts: &[u64]) -> Vec<Self> {
        let bin = |(bin, &count)| {
            let (low_ns, high_ns) = config.edges_ns(bin);
            Self {
                low_ns,
                high_ns,
                count,
            }
        };
        counts.iter().enumerate().map(bin).collect()
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A retransmission policy.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Policy {
    /// ib, firmware or profile.
    pub(crate) kind: &'static str,
    /// The built-in profile that it is, or custom; null without a profile.
    pub(crate) profile: Option<&'static str>,
    /// CRC-32 of the profile's bytes in ROCE_ACCL, in hexadecimal digits; null without a profile.
    pub(crate) hash: Option<String>,
}
