//! Memory windows: binds, and invalidations by either side.

use std::collections::hash_map::Entry;

use ferroce_device::{
    AccessFlags, MrKey, MwBind, MwBindWr, MwType, Qpn, SendFlags, SendOp, SendTo, SendWr, Sges,
    Time, VerbsError, WcStatus,
};

use super::Play;
use super::posts::BAD_KEY;
use crate::model::{Id, Kind, Named, Outcome, Request, Verdict};
use crate::rules::Reason;
use crate::script::Step;
use crate::windows::{Binding, Window};

/// Binds of a window, so that none of its keys comes again.
const BINDS_MAX: usize = 200;

impl Play {
    pub(super) fn allocate_window(&mut self, host: usize, id: u64, kind: u64, pd: u64) {
        let place = self.windows.len();
        let it = self.host(host);
        let pd = it.pds[usize::from(pd == 1)];
        let kind = match kind {
            2 => MwType::Type2,
            _ => MwType::Type1,
        };
        let Entry::Vacant(entry) = it.windows.entry(id) else {
            return;
        };
        match it.hca.alloc_mw(pd, kind) {
            Ok(info) => {
                entry.insert(place);
                self.windows.push(Window {
                    id: info.id,
                    kind,
                    pd,
                    bindings: Vec::new(),
                });
            }
            Err(error) => self.found("create", || format!("host {host}, window {id}: {error}")),
        }
    }

    /// Frees a window, unless a request for it waits: that would name whatever takes its place.
    pub(super) fn free_window(&mut self, host: usize, id: u64) {
        let now = self.now;
        let Some(&place) = self.host(host).windows.get(&id) else {
            return;
        };
        let waits = |request: &Request| {
            let Some(Named::Binding(binding)) = request.named else {
                return false;
            };
            request.outcome == Outcome::Pending && self.bindings[binding].window == place
        };
        if self.requests.iter().any(waits) {
            return;
        }
        let mw = self.windows[place].id;
        let it = self.host(host);
        it.windows.remove(&id);
        if let Err(error) = it.hca.dealloc_mw(mw) {
            return self.found("destroy", || format!("host {host}, window {id}: {error}"));
        }
        for binding in &self.windows[place].bindings {
            self.bindings[*binding].end(now);
        }
    }

    /// Posts the bind of a window: with the call for its type, or with the other one.
    pub(super) fn post_bind(&mut self, host: usize, step: &Step) {
        let Step::Bind {
            qp,
            window,
            region,
            at,
            len,
            access,
            zero,
            flags,
            wrong,
        } = *step
        else {
            return;
        };
        let (now, id, place) = (self.now, self.requests.len(), self.bindings.len());
        let it = self.host(host);
        let (Some(qp), Some(&window)) = (it.qp(qp), it.windows.get(&window)) else {
            return;
        };
        let (qpn, qp_pd) = (it.qps[qp].qpn, it.qps[qp].pd);
        let region = it.regions.get(&region).copied();
        let own = &self.windows[window];
        let (mw, kind, pd) = (own.id, own.kind, own.pd);
        if own.bindings.len() >= BINDS_MAX {
            return;
        }
        let at = at / 8 * 8;
        let info = region.map(|region| self.regions[region].info);
        let first = info.map_or(0, |info| info.va);
        let lkey = info.map_or(BAD_KEY, |info| info.key.lkey());
        let by_call = (kind == MwType::Type1) != (wrong != 0);
        let bind = MwBindWr {
            wr_id: id as u64,
            flags: SendFlags::from_bits_truncate(flags as u32)
                & (SendFlags::FENCE | SendFlags::SIGNALED),
            mr: Some(MrKey(lkey)),
            va: first + at,
            length: len,
            access: AccessFlags::from_bits_truncate(access as u32),
        };
        // Tags of type 2 are the program's.
        let rkey = mw.key(self.windows[window].bindings.len() as u8);
        let mut binding = Binding {
            window,
            kind,
            pd,
            rkey,
            region,
            at,
            len,
            access: bind.access,
            zero_based: zero != 0 && !by_call,
            qpn,
            qp_pd,
            posted: now,
            sure: None,
            contested: false,
            refused: false,
            may_end: Time::NEVER,
            over: None,
        };
        let wr = bind_request(&bind, &binding);
        let mut reasons = self.reasons_against(host, qp, &wr);
        if wrong != 0 {
            reasons.push(Reason::WindowType);
        }
        let request = Request {
            named: Some(Named::Binding(place)),
            ..self.local_request(host, qp, Kind::Bind, bind.flags)
        };
        let before = self.host(host).standing(qpn);
        let hca = &mut self.host(host).hca;
        let outcome: Result<u32, VerbsError> = match by_call {
            true => hca.bind_mw(qpn, mw, &bind),
            false => hca.post_send(qpn, wr).map(|()| rkey),
        };
        if let Ok(rkey) = outcome {
            binding.rkey = rkey;
        }
        if !self.take_over(host, qp, request, outcome.map(drop), &reasons, before) {
            return;
        }
        let earlier = self.windows[window].bindings.clone();
        let is_rival = |it: &Binding| it.qpn != qpn && it.waits();
        binding.contested = earlier.iter().any(|it| is_rival(&self.bindings[*it]));
        if binding.contested {
            binding.may_end = now;
        }
        for earlier in earlier {
            if kind == MwType::Type1 || is_rival(&self.bindings[earlier]) {
                self.may_end(Named::Binding(earlier));
            }
        }
        self.windows[window].bindings.push(place);
        self.bindings.push(binding);
    }

    /// Posts the invalidation of a window's last key, of a region's key, or of none.
    pub(super) fn post_invalidation(&mut self, host: usize, step: &Step) {
        let Step::Invalidate {
            qp,
            window,
            region,
            flags,
        } = *step
        else {
            return;
        };
        let Some(qp) = self.host(host).qp(qp) else {
            return;
        };
        let (named, rkey) = self.key_of(Some(host), window, region);
        let flags =
            SendFlags::from_bits_truncate(flags as u32) & (SendFlags::FENCE | SendFlags::SIGNALED);
        let wr = SendWr {
            wr_id: self.requests.len() as u64,
            op: SendOp::LocalInvalidate { rkey },
            flags,
            sges: Sges::new(),
            inline: None,
            to: SendTo::Peer,
        };
        let reasons = self.reasons_against(host, qp, &wr);
        let request = Request {
            named: Some(named),
            ..self.local_request(host, qp, Kind::Invalidate, flags)
        };
        let it = self.host(host);
        let qpn = it.qps[qp].qpn;
        let before = it.standing(qpn);
        let outcome = it.hca.post_send(qpn, wr);
        if self.take_over(host, qp, request, outcome, &reasons, before) {
            self.may_end(named);
        }
    }

    /// What an invalidation names at a host: the last binding of a window, a region, or nothing; and its key.
    pub(super) fn key_of(&self, host: Option<usize>, window: u64, region: u64) -> (Named, u32) {
        let it = host.and_then(|host| self.hosts[host].as_ref());
        let window = it.and_then(|it| it.windows.get(&window));
        if let Some(binding) = window.and_then(|place| self.windows[*place].bindings.last()) {
            return (Named::Binding(*binding), self.bindings[*binding].rkey);
        }
        match it.and_then(|it| it.regions.get(&region)) {
            Some(place) => (Named::Region, self.regions[*place].info.key.rkey()),
            None => (Named::Nothing, BAD_KEY),
        }
    }

    /// Something that may end a binding is under way.
    pub(super) fn may_end(&mut self, named: Named) {
        let now = self.now;
        if let Named::Binding(binding) = named {
            let it = &mut self.bindings[binding];
            it.may_end = it.may_end.min(now);
        }
    }

    /// A request that names a key has ended: what it has done to the key, and whether it could.
    pub(super) fn note_key(&mut self, id: Id) {
        let request = self.requests[id].clone();
        let Some(named) = request.named else {
            return;
        };
        let could = self.could(&request);
        let is_right = match request.outcome {
            Outcome::Done => could != Verdict::Never,
            Outcome::Failed(WcStatus::MwBindErr) => could != Verdict::Always,
            _ => return,
        };
        if !is_right {
            return self.found("window", || {
                format!("request {id} could {could:?} succeed, {named:?}: {request:?}")
            });
        }
        let Named::Binding(binding) = named else {
            return;
        };
        let is_done = request.outcome == Outcome::Done;
        match request.kind {
            Kind::Bind if is_done => {
                let it = &mut self.bindings[binding];
                it.sure = Some(request.ended);
                let (posted, qpn) = (it.posted, it.qpn);
                // A window has one key.
                for earlier in self.windows[it.window].bindings.clone() {
                    let it = &mut self.bindings[earlier];
                    let was_sure = it.sure.is_some_and(|sure| sure <= posted);
                    if earlier < binding && (was_sure || it.qpn == qpn) {
                        it.end(request.ended);
                    }
                }
            }
            Kind::Bind => self.bindings[binding].refused = true,
            _ if is_done => self.bindings[binding].end(request.ended),
            _ => {}
        }
    }

    /// Whether a request that names a key could succeed until now.
    pub(super) fn could(&self, request: &Request) -> Verdict {
        let Some(Named::Binding(place)) = request.named else {
            return Verdict::Never; // neither a region nor nothing can be invalidated
        };
        let binding = &self.bindings[place];
        let window = &self.windows[binding.window].bindings;
        let is_last = window.last() == Some(&place);
        match request.kind {
            Kind::Bind => {
                let region = binding.region.map(|region| &self.regions[region]);
                let others = window.iter().filter(|it| **it != place);
                let others = others.map(|it| &self.bindings[*it]);
                binding.could_bind(region, others, self.now)
            }
            Kind::Invalidate => {
                let who = request.by;
                binding.could_invalidate(true, who, request.posted, is_last, self.now)
            }
            _ => match request.target {
                Some(target) => {
                    let who = (target.pd, target.qpn);
                    binding.could_invalidate(false, who, request.posted, is_last, self.now)
                }
                None => Verdict::Never,
            },
        }
    }

    /// Windows that were for a queue pair which is destroyed are bound no more.
    pub(super) fn unbind_all_of(&mut self, host: usize, qpn: Qpn) {
        let now = self.now;
        let it = self.host(host);
        let windows: Vec<usize> = it.windows.values().copied().collect();
        for window in windows {
            for binding in self.windows[window].bindings.clone() {
                let it = &mut self.bindings[binding];
                if it.kind == MwType::Type2 && it.qpn == qpn {
                    it.end(now);
                }
            }
        }
    }

    /// Whether a window is bound to a region now: certainly, and perhaps.
    fn is_bound_to(&self, host: usize, region: usize) -> (bool, bool) {
        let (mut certainly, mut perhaps) = (false, false);
        let windows = self.hosts[host].iter().flat_map(|it| it.windows.values());
        for window in windows {
            for binding in &self.windows[*window].bindings {
                let it = &self.bindings[*binding];
                if it.region == Some(region) {
                    certainly |= it.holds(self.now, self.now);
                    perhaps |= it.may_hold(self.now);
                }
            }
        }
        (certainly, perhaps)
    }

    /// Whether the outcome of a call that changes a region is right: none may succeed while windows are bound to it. `may`
    /// is whether it succeeds without windows.
    pub(super) fn is_right_for_windows<T>(
        &mut self,
        host: usize,
        region: usize,
        outcome: &Result<T, VerbsError>,
        may: bool,
    ) -> bool {
        let (certainly, perhaps) = self.is_bound_to(host, region);
        match outcome {
            Ok(_) if may && !certainly => {
                self.none_is_bound_to(host, region);
                true
            }
            Ok(_) => false,
            Err(VerbsError::Busy { .. }) => perhaps,
            Err(_) => !may,
        }
    }

    /// A call has shown that no window is bound to a region.
    fn none_is_bound_to(&mut self, host: usize, region: usize) {
        let now = self.now;
        let windows = self.hosts[host].iter().flat_map(|it| it.windows.values());
        for window in windows {
            for binding in &self.windows[*window].bindings {
                let it = &mut self.bindings[*binding];
                // One that waits may be executed later, and then finds no such region.
                if it.region == Some(region) && it.sure.is_some() {
                    it.end(now);
                }
            }
        }
    }
}

fn bind_request(bind: &MwBindWr, binding: &Binding) -> SendWr {
    SendWr {
        wr_id: bind.wr_id,
        op: SendOp::BindMw(MwBind {
            rkey: binding.rkey,
            lkey: bind.mr.map_or(0, MrKey::lkey),
            va: bind.va,
            length: bind.length,
            access: bind.access,
            zero_based: binding.zero_based,
        }),
        flags: bind.flags,
        sges: Sges::new(),
        inline: None,
        to: SendTo::Peer,
    }
}
