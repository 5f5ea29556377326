//! Two binary trees of the same nodes: most inner nodes of one are leaves of the other.

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tree {
    First,
    Second,
}

/// The parent of a node in a tree of `nodes` nodes; none for the root.
///
/// The second tree is the first one mirrored, or moved by a node if their number is odd.
pub(super) fn parent(tree: Tree, node: u32, nodes: u32) -> Option<u32> {
    match tree {
        Tree::First => in_order(node, nodes),
        Tree::Second if nodes.is_multiple_of(2) => {
            in_order(nodes - 1 - node, nodes).map(|parent| nodes - 1 - parent)
        }
        Tree::Second => {
            let moved = (node + nodes - 1) % nodes;
            in_order(moved, nodes).map(|parent| (parent + 1) % nodes)
        }
    }
}

/// Odd nodes are leaves. Above them are odd multiples of 2, above these odd multiples of 4, and so on, and above
/// all is node 0.
fn in_order(node: u32, nodes: u32) -> Option<u32> {
    if node == 0 {
        return None;
    }
    let lowest = 1 << node.trailing_zeros();
    let below = node ^ lowest;
    let parent = below | lowest << 1;
    Some(if parent < nodes { parent } else { below })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(tree: Tree, mut node: u32, nodes: u32) -> u32 {
        let mut depth = 0;
        while let Some(parent) = parent(tree, node, nodes) {
            node = parent;
            depth += 1;
            assert!(depth <= nodes, "a cycle at {node} of {nodes}");
        }
        depth
    }

    #[test]
    fn both_are_binary_trees_of_little_depth() {
        for nodes in 1..200 {
            for tree in [Tree::First, Tree::Second] {
                let mut children = vec![0; nodes as usize];
                let mut roots = 0;
                for node in 0..nodes {
                    match parent(tree, node, nodes) {
                        Some(parent) => children[parent as usize] += 1,
                        None => roots += 1,
                    }
                    assert!(depth(tree, node, nodes) <= nodes.ilog2() + 1);
                }
                assert_eq!(roots, 1);
                assert!(
                    children.iter().all(|count| *count <= 2),
                    "{nodes}: {children:?}"
                );
            }
        }
    }

    #[test]
    fn inner_nodes_of_one_are_leaves_of_the_other() {
        for nodes in 2_u32..200 {
            let inner = |tree| {
                let parents = (0..nodes).filter_map(move |node| parent(tree, node, nodes));
                parents.collect::<std::collections::BTreeSet<_>>()
            };
            let both = inner(Tree::First)
                .intersection(&inner(Tree::Second))
                .count();
            // Moved by one, a node of an odd number of nodes is inner twice.
            assert!(both <= nodes as usize % 2, "{nodes}: {both}");
        }
    }

    #[test]
    fn four_nodes_have_these_parents() {
        let of = |tree| [0, 1, 2, 3].map(|node| parent(tree, node, 4));
        assert_eq!(of(Tree::First), [None, Some(2), Some(0), Some(2)]);
        assert_eq!(of(Tree::Second), [Some(1), Some(3), Some(1), None]);
    }
}
