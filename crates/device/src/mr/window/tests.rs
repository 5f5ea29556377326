//! Any sequence of registrations, binds and their ends against a list of what is permitted.

use std::collections::BTreeSet;

use ferroce_transport::{Data, Key, Segment};
use proptest::prelude::*;

use super::*;
use crate::Memory;

/// A permission, and what it covers.
#[derive(Clone, Copy, Debug)]
struct Grant {
    key: u32,
    pd: PdId,
    /// If set, the only queue pair that has it.
    qpn: Option<Qpn>,
    first: u64,
    len: u64,
    access: AccessFlags,
    /// Key of the region that is opened.
    region: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Register {
        pd: u32,
        len: u64,
        access: u32,
    },
    Reregister {
        nth: usize,
        pd: u32,
        access: u32,
    },
    Deregister {
        nth: usize,
    },
    Allocate {
        pd: u32,
        type_2: bool,
    },
    Deallocate {
        nth: usize,
    },
    Bind {
        nth: usize,
        region: usize,
        who: usize,
        bind: BindStep,
    },
    Invalidate {
        nth: usize,
        who: usize,
        by_peer: bool,
    },
    DestroyQp {
        who: usize,
    },
}

#[derive(Clone, Debug)]
struct BindStep {
    tag: u8,
    offset: u64,
    len: u64,
    access: u32,
    zero_based: bool,
}

/// Two queue pairs of one domain, one of another.
const WHO: [KeyHolder; 3] = [
    KeyHolder {
        pd: PdId(0),
        qpn: Qpn::new(10),
    },
    KeyHolder {
        pd: PdId(0),
        qpn: Qpn::new(11),
    },
    KeyHolder {
        pd: PdId(1),
        qpn: Qpn::new(12),
    },
];

fn step() -> impl Strategy<Value = Step> {
    let (nth, who, pd) = (|| 0..6_usize, || 0..WHO.len(), || 0..2_u32);
    let access = || prop_oneof![3 => Just(AccessFlags::all().bits()), 1 => 0..32_u32];
    let bind = (any::<u8>(), 0..70_u64, 0..70_u64, access(), any::<bool>()).prop_map(
        |(tag, offset, len, access, zero_based)| BindStep {
            tag,
            offset,
            len,
            access,
            zero_based,
        },
    );
    prop_oneof![
        2 => (pd(), 1..64_u64, access())
            .prop_map(|(pd, len, access)| Step::Register { pd, len, access }),
        1 => (nth(), pd(), access())
            .prop_map(|(nth, pd, access)| Step::Reregister { nth, pd, access }),
        1 => nth().prop_map(|nth| Step::Deregister { nth }),
        2 => (pd(), any::<bool>()).prop_map(|(pd, type_2)| Step::Allocate { pd, type_2 }),
        1 => nth().prop_map(|nth| Step::Deallocate { nth }),
        6 => (nth(), nth(), who(), bind)
            .prop_map(|(nth, region, who, bind)| Step::Bind { nth, region, who, bind }),
        3 => (0..60_usize, who(), any::<bool>())
            .prop_map(|(nth, who, by_peer)| Step::Invalidate { nth, who, by_peer }),
        1 => who().prop_map(|who| Step::DestroyQp { who }),
    ]
}

#[derive(Default)]
struct Model {
    grants: Vec<Grant>,
    regions: Vec<MrKey>,
    windows: Vec<MwId>,
    /// Every key there ever was.
    keys: Vec<u32>,
    /// The edges of everything that was ever opened.
    edges: BTreeSet<u64>,
}

fn pick<T: Copy>(list: &[T], nth: usize) -> Option<T> {
    list.get(nth % list.len().max(1)).copied()
}

impl Model {
    fn perform(&mut self, table: &mut KeyTable, step: Step) {
        match step {
            Step::Register { pd, len, access } => {
                let access = AccessFlags::from_bits_truncate(access);
                let memory = Memory::Phantom { addr: 0, len };
                let va = 0x1000 * (1 + self.regions.len() as u64);
                let info = table.insert_region(PdId(pd), va, access, memory).unwrap();
                self.regions.push(info.key);
                self.keys.push(info.key.0);
                self.grant(Grant {
                    key: info.key.0,
                    pd: info.pd,
                    qpn: None,
                    first: va,
                    len,
                    access: access & AccessFlags::REMOTE,
                    region: info.key.0,
                });
            }
            Step::Reregister { nth, pd, access } => {
                let Some(key) = pick(&self.regions, nth) else {
                    return;
                };
                if self.is_bound_to(key) {
                    return; // the verb refuses it
                }
                let mut info = table.region(key).unwrap().info;
                (info.pd, info.access) = (PdId(pd), AccessFlags::from_bits_truncate(access));
                table.change_region(info, None);
                let grant = self.grants.iter_mut().find(|g| g.key == key.0).unwrap();
                (grant.pd, grant.access) = (info.pd, info.access & AccessFlags::REMOTE);
            }
            Step::Deregister { nth } => {
                let Some(key) = pick(&self.regions, nth) else {
                    return;
                };
                table.remove_region(key);
                assert_eq!(table.region(key).is_some(), self.is_bound_to(key));
                if !self.is_bound_to(key) {
                    self.revoke(key.0);
                    self.regions.retain(|region| *region != key);
                }
            }
            Step::Allocate { pd, type_2 } => {
                let kind = [MwType::Type1, MwType::Type2][usize::from(type_2)];
                let info = table.insert_window(PdId(pd), kind).unwrap();
                self.windows.push(info.id);
                self.keys.push(info.rkey);
            }
            Step::Deallocate { nth } => {
                let Some(id) = pick(&self.windows, nth) else {
                    return;
                };
                let rkey = table.window(id).unwrap().rkey;
                table.remove_window(id);
                self.revoke(rkey);
                self.windows.retain(|window| *window != id);
            }
            Step::Bind {
                nth,
                region,
                who,
                bind,
            } => self.bind(table, nth, region, WHO[who], &bind),
            Step::Invalidate { nth, who, by_peer } => {
                let granted: Vec<u32> = self.grants.iter().map(|grant| grant.key).collect();
                let keys = if nth % 2 == 0 { &self.keys } else { &granted };
                let Some(key) = pick(keys, nth / 2) else {
                    return;
                };
                let who = WHO[who];
                let own = |g: &&Grant| g.key == key && g.pd == who.pd && g.qpn == Some(who.qpn);
                let bound = self.grants.iter().any(|g| own(&g));
                let result = if by_peer {
                    table.invalidate(who, key)
                } else {
                    table.invalidate_local(who, key)
                };
                assert!(result.is_ok() || !bound);
                assert!(!by_peer || result.is_ok() == bound);
                if bound {
                    self.revoke(key);
                }
            }
            Step::DestroyQp { who } => {
                table.unbind_all_of(WHO[who].qpn);
                self.grants.retain(|g| g.qpn != Some(WHO[who].qpn));
            }
        }
    }

    fn bind(
        &mut self,
        table: &mut KeyTable,
        nth: usize,
        region: usize,
        who: KeyHolder,
        bind: &BindStep,
    ) {
        let (Some(id), Some(region)) = (pick(&self.windows, nth), pick(&self.regions, region))
        else {
            return;
        };
        let info = table.region(region).unwrap().info;
        let window = table.window(id).unwrap();
        let access = AccessFlags::from_bits_truncate(bind.access);
        let mw_bind = MwBind {
            rkey: window.rkey & !0xff | u32::from(bind.tag),
            lkey: region.0,
            va: info.va + bind.offset,
            length: bind.len,
            access,
            zero_based: bind.zero_based,
        };
        let type_2 = window.kind == MwType::Type2;
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let unbinds = bind.len == 0 && !type_2;
        let may_open = bind.len > 0
            && info.pd == who.pd
            && bind.offset + bind.len <= info.len
            && info.access.contains(AccessFlags::MW_BIND)
            && (!access.intersects(writes) || info.access.contains(AccessFlags::LOCAL_WRITE));
        let expected = window.pd == who.pd && !(type_2 && window.bound) && (unbinds || may_open);
        assert_eq!(table.bind(who, &mw_bind).is_ok(), expected, "{mw_bind:?}");
        if !expected {
            return;
        }
        self.revoke(window.rkey);
        self.keys.push(mw_bind.rkey);
        if bind.len > 0 {
            self.grant(Grant {
                key: mw_bind.rkey,
                pd: who.pd,
                qpn: type_2.then_some(who.qpn),
                first: if bind.zero_based { 0 } else { mw_bind.va },
                len: bind.len,
                access: access & AccessFlags::REMOTE,
                region: region.0,
            });
        }
    }

    fn grant(&mut self, grant: Grant) {
        let Grant { first, len, .. } = grant;
        let edges = [first.wrapping_sub(1), first, first + len - 1, first + len];
        self.edges.extend(edges);
        self.grants.push(grant);
    }

    fn revoke(&mut self, key: u32) {
        self.grants.retain(|grant| grant.key != key);
    }

    fn is_bound_to(&self, region: MrKey) -> bool {
        let mut grants = self.grants.iter();
        grants.any(|g| g.region == region.0 && g.key != region.0)
    }

    /// Tries every key that ever existed, as every holder, at the edges of every range ever
    /// granted.
    fn check(&self, table: &KeyTable) {
        for who in WHO {
            for key in &self.keys {
                for va in &self.edges {
                    self.probe(table, who, *key, *va);
                }
            }
        }
    }

    fn probe(&self, table: &KeyTable, who: KeyHolder, key: u32, va: u64) {
        let segment = Segment {
            key: Key::Remote(key),
            va,
            len: 1,
        };
        let may = |access| {
            self.grants.iter().any(|grant| {
                grant.key == key
                    && grant.pd == who.pd
                    && grant.qpn.is_none_or(|qpn| qpn == who.qpn)
                    && grant.access.contains(access)
                    && va >= grant.first
                    && va - grant.first < grant.len
            })
        };
        let read = table.open_read(who, &segment).is_ok();
        assert_eq!(read, may(AccessFlags::REMOTE_READ), "{who:?} {segment:?}");
        let write = table.write(who, segment.key, va, Data::Length(1)).is_ok();
        assert_eq!(write, may(AccessFlags::REMOTE_WRITE), "{who:?} {segment:?}");
    }
}

proptest! {
    #[test]
    fn nobody_touches_what_is_not_granted(steps in prop::collection::vec(step(), 1..60)) {
        let mut table = KeyTable::new(1 << 10, 1 << 10, crate::Secret::default());
        let mut model = Model::default();
        for step in steps {
            model.perform(&mut table, step);
            table.audit();
        }
        model.check(&table);
    }
}

#[test]
fn the_next_key_differs_in_its_tag_only() {
    assert_eq!(next_tag(0x1234_56ff), 0x1234_5600);
    assert_eq!(next_tag(0x1234_5600), 0x1234_5601);
}

/// Keys that the program chose for a window are not given to the next owner of its index.
#[test]
fn tags_go_on_where_a_window_left_them() {
    let mut table = KeyTable::new(1 << 10, 1 << 10, crate::Secret::default());
    let who = WHO[0];
    let memory = || Memory::Phantom { addr: 0, len: 8 };
    let all = AccessFlags::all();
    let region = table.insert_region(who.pd, 0, all, memory()).unwrap();
    let window = table.insert_window(who.pd, MwType::Type2).unwrap();
    let chosen = next_tag(window.rkey);
    let bind = MwBind {
        rkey: chosen,
        lkey: region.key.0,
        va: 0,
        length: 8,
        access: AccessFlags::REMOTE,
        zero_based: false,
    };
    table.bind(who, &bind).unwrap();
    table.remove_window(window.id);
    // Until the index is used again.
    let next = std::iter::repeat_with(|| {
        let key = table.insert_region(who.pd, 0, all, memory()).unwrap().key;
        table.remove_region(key);
        key.0
    })
    .take(100_000)
    .find(|key| key >> 8 == window.rkey >> 8);
    assert_eq!(next, Some(next_tag(chosen)));
}

#[test]
fn the_keys_of_a_window_have_any_tag_and_those_of_others_none() {
    let mut table = KeyTable::new(1 << 10, 1 << 10, crate::Secret::default());
    let [one, two] = [(); 2].map(|()| table.insert_window(PdId(0), MwType::Type2).unwrap());
    for tag in 0..=u8::MAX {
        let key = one.id.key(tag);
        assert_eq!(key as u8, tag);
        assert_eq!(MwId::of_key(key), Some(one.id));
        assert_ne!(key, two.id.key(tag));
    }
    assert_eq!(one.id.key(one.rkey as u8), one.rkey);
}
