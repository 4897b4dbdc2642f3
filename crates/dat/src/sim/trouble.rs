//! Faults: random faults, broken links, and killed or partitioned nodes.
//!
//! Invariant: a link that loses a packet also loses all later packets of that direction, and the
//! break is reported to both of its sides.

use super::Fault;
use super::lane::Side;
use super::packet::Packet;
use super::state::{Arrival, Entry, State};
use crate::BreakReason;

impl State {
    /// Returns the fault that affects the next packet of data, if any.
    pub(crate) fn draw_fault(&mut self) -> Option<Fault> {
        let mut ordered = None;
        self.orders.retain_mut(|(fault, skip)| {
            let due = *skip == 0 && ordered.is_none();
            if due {
                ordered = Some(*fault);
            }
            *skip = skip.saturating_sub(1);
            !due
        });
        if ordered.is_some() {
            return ordered;
        }
        let draw = self.random.between(0, 999_999);
        if self.faults_done >= self.config.faults.count_max {
            return None;
        }
        let mut bound = 0;
        for (fault, ppm) in self.config.faults.chances() {
            bound += u64::from(ppm);
            if draw < bound {
                self.faults_done += 1;
                return Some(fault);
            }
        }
        None
    }

    /// Applies a fault that replaces or changes an arriving packet. Returns true if no packet
    /// arrives.
    pub(crate) fn strike_before(&mut self, arrival: &mut Arrival) -> bool {
        let reason = match arrival.fault {
            None | Some(Fault::Delay | Fault::BreakAfter) => return false,
            Some(Fault::BreakBefore) => {
                self.statistics.breaks_before += 1;
                "connection lost"
            }
            Some(Fault::FlipCaught) => {
                self.statistics.flips_caught += 1;
                "corrupted data caught by the checksum"
            }
            Some(Fault::FlipSilent) => {
                self.flip(&mut arrival.packet);
                return false;
            }
        };
        self.snap(arrival.link, arrival.to, reason);
        true
    }

    /// Applies a fault that follows the arrival of a packet.
    pub(crate) fn strike_after(&mut self, fault: Option<Fault>, link: u64, to: usize) {
        if fault == Some(Fault::BreakAfter) {
            self.statistics.breaks_after += 1;
            self.snap(link, to, "connection lost");
        }
    }

    /// Breaks a link. The receiver at `to` sees the break immediately, the sender later.
    fn snap(&mut self, link: u64, to: usize, reason: &str) {
        let mut purge = [true, true];
        purge[to] = self.random.chance(EVEN_PPM);
        let mut prompt = [false, false];
        prompt[to] = true;
        let reason = || BreakReason::System(reason.into());
        self.sever(link, purge, prompt, [reason(), reason()]);
    }

    fn flip(&mut self, packet: &mut Packet) {
        let Some(payload) = packet.payload_mut() else { return };
        let bytes = payload.fetch();
        if bytes.is_empty() {
            return;
        }
        let bit = self.random.between(0, bytes.len() as u64 * 8 - 1);
        let index = usize::try_from(bit / 8).unwrap_or(0);
        bytes[index] ^= 1 << (bit % 8);
        self.statistics.flips_silent += 1;
    }

    /// Breaks a link. `purge` is true for each sending side whose data in flight is lost. `prompt`
    /// is true for each side to which the break is reported immediately.
    pub(crate) fn sever(
        &mut self,
        id: u64,
        purge: [bool; 2],
        prompt: [bool; 2],
        reasons: [BreakReason; 2],
    ) {
        let latencies = [self.draw_latency(), self.draw_latency()];
        let Some(link) = self.links.get_mut(&id) else { return };
        self.statistics.severed += 1;
        link.answered = true;
        link.held.clear();
        link.holds += 1;
        let mut later = Vec::new();
        for (to, reason) in reasons.into_iter().enumerate() {
            let lane = &mut link.lanes[1 - to];
            lane.cut = true;
            // A connect request that has reached no listener is lost for ever.
            if purge[1 - to] || !link.is_offered {
                lane.purge();
            }
            let packet = Packet::Lost(reason);
            if prompt[to] {
                link.sides[to].push(packet);
                continue;
            }
            let at = lane.schedule(&packet, self.now_ns.saturating_add(latencies[to]));
            later.push((at, Arrival { link: id, to, epoch: lane.epoch, packet, fault: None }));
        }
        for (at, arrival) in later {
            self.enter(at, Entry::Arrival(arrival));
        }
        self.forget_left(id);
    }

    /// Breaks a link as a failing cable would: the data in flight to each side may or may not
    /// arrive.
    pub(crate) fn cut_cable(&mut self, id: u64) {
        let purge = [self.random.chance(EVEN_PPM), self.random.chance(EVEN_PPM)];
        let reason = || BreakReason::System("connection lost".into());
        self.note("cut", id, 0, 0);
        self.sever(id, purge, [false, false], [reason(), reason()]);
    }

    /// Kills a node. Its own endpoints break immediately, those of its peers after some time.
    pub(crate) fn kill(&mut self, node: u32) {
        let entry = self.nodes.entry(node).or_default();
        entry.down = true;
        let backlogs = std::mem::take(&mut entry.listeners);
        self.note("kill", u64::from(node), 0, 0);
        let ids: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.sides.iter().any(|side| side.node == node))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(link) = self.links.get(&id) else { continue };
            let dead = [link.sides[0].node == node, link.sides[1].node == node];
            let purge = dead.map(|dead| !dead || self.random.chance(EVEN_PPM));
            let reason = |dead: bool| {
                let what = if dead { "this node was killed" } else { "the peer's node died" };
                BreakReason::System(what.into())
            };
            self.sever(id, purge, dead, [reason(dead[0]), reason(dead[1])]);
        }
        backlogs.into_values().for_each(|backlog| self.refuse_all(backlog));
    }

    // ---- partitions -----------------------------------------------------------

    pub(crate) fn is_parted(&self, id: u64) -> bool {
        let isolated = |side: &Side| self.nodes.get(&side.node).is_some_and(|n| n.isolated);
        self.links.get(&id).is_some_and(|link| {
            let [initiator, acceptor] = &link.sides;
            initiator.node != acceptor.node && (isolated(initiator) || isolated(acceptor))
        })
    }

    /// Holds back a packet until the partition ends or lasts too long.
    pub(crate) fn hold(&mut self, arrival: Arrival) {
        let id = arrival.link;
        self.note("hold", id, arrival.to, 0);
        self.statistics.holds += 1;
        let over = self.moment_after(self.config.hold_ns_max);
        let Some(link) = self.links.get_mut(&id) else { return };
        let first = link.held.is_empty();
        link.held.push(arrival);
        let holds = link.holds;
        if let Some(at) = over.filter(|_| first) {
            self.enter(at, Entry::HoldOver { link: id, holds });
        }
    }

    /// Delivers the held packets before those sent after them.
    pub(crate) fn heal(&mut self, node: u32) {
        self.nodes.entry(node).or_default().isolated = false;
        self.note("heal", u64::from(node), 0, 0);
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for id in ids {
            if !self.is_parted(id) {
                self.resume(id);
            }
        }
    }

    fn resume(&mut self, id: u64) {
        let at = self.now_ns.saturating_add(self.draw_latency());
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.held.is_empty() {
            return;
        }
        link.holds += 1;
        let held = std::mem::take(&mut link.held);
        for lane in &mut link.lanes {
            lane.raise(at);
        }
        let behind: Vec<(u64, u64)> = self
            .calendar
            .range(..(at, u64::MAX))
            .filter(|(_, entry)| matches!(entry, Entry::Arrival(a) if a.link == id))
            .map(|(key, _)| *key)
            .collect();
        for arrival in held {
            self.enter(at, Entry::Arrival(arrival));
        }
        for key in behind {
            if let Some(entry) = self.calendar.remove(&key) {
                self.enter(at, entry);
            }
        }
    }
}

const EVEN_PPM: u32 = 500_000;
