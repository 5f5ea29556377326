//! Nodes of `/dev/fwctl`.
//!
//! A program opens a file that identifies the device of the node. The library that answers for the
//! node therefore needs only the descriptor, whether the program opened, duplicated or inherited it
//! over `fork` and `exec`.

/// What such a file begins with.
const MARK: &str = "ferroce-fwctl ";

/// More bytes than any node's file has.
pub const FWCTL_NODE_MAX: usize = 128;

/// The line in the file of a device's node.
pub(crate) fn node(device: &str) -> String {
    format!("{MARK}{device}")
}

/// The device whose node has this content; `None` if it is not a node.
#[must_use]
pub fn fwctl_node_device(content: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(content).ok()?.strip_suffix('\n')?;
    line.strip_prefix(MARK)
}

#[cfg(test)]
mod tests {
    use ferroce_registry::DeviceSpec;

    use super::*;
    use crate::tree::Node;

    #[test]
    fn a_node_says_whose_it_is() {
        let name = "x".repeat(DeviceSpec::NAME_MAX);
        let Node::File(content) = Node::file(&node(&name)) else {
            panic!("a node is a file");
        };
        assert!(content.len() < FWCTL_NODE_MAX);
        assert_eq!(fwctl_node_device(content.as_bytes()), Some(name.as_str()));
        for other in ["", "\n", "fr0\n", "ferroce-fwctl fr0"] {
            assert_eq!(fwctl_node_device(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(fwctl_node_device(b"ferroce-fwctl \xff\n"), None);
    }
}
