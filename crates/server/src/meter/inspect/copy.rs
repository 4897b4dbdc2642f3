//! Copies the state of a server for inspection.

use dafs_filer::{FenceInformation, FencedObject, Filer};
use dafs_files::ledger::{Ledger, locked_file_of};
use dafs_files::opened::Opened;
use dafs_sessions::{SessionView, Sessions};
use dafs_store::cache::Cache;
use dafs_types::{Moment, QuickMap, SessionId};

use super::{FenceView, FileView, Inspection, LockView, SessionInspection, WaiterView};
use crate::channel::{Channel, Channels};
use crate::meter::Meter;
use crate::meter::stats::ServerStats;

/// References to the components whose state is copied.
pub(crate) struct Shown<'r> {
    pub filer: &'r Filer,
    pub sessions: &'r Sessions,
    pub channels: &'r Channels,
    pub opened: &'r Opened,
    pub ledger: Option<&'r Ledger>,
    pub meter: &'r Meter,
    pub cache: &'r Cache,
    pub stats: ServerStats,
    pub now: Moment,
}

impl Shown<'_> {
    /// Copies the state of all components.
    pub(crate) fn copy(&self) -> Inspection {
        let locks = self.filer.locks().map(|lock| LockView {
            file: self.file_view(lock.file),
            client: lock.client,
            client_name: lock.client_name.into(),
            owner: lock.owner.into(),
            offset: lock.range.first(),
            length: lock.range.length(),
            mode: lock.mode,
            persist: lock.attributes.persist,
            auto_recovery: lock.attributes.auto_recovery,
            condition: lock.condition,
        });
        let waiters = self.filer.lock_waiters().map(|waiter| WaiterView {
            file: self.file_view(waiter.file),
            client: waiter.client,
            owner: waiter.owner.into(),
            offset: waiter.range.first(),
            length: waiter.range.length(),
            mode: waiter.mode,
            waits_for: waiter.waits_for.iter().map(|(client, _)| *client).collect(),
        });
        let stats = self.stats;
        let live = self.channels.iter().map(|channel| (channel.peer.transport, channel.traffic));
        Inspection {
            stats,
            lock_counters: self.filer.lock_counters(),
            is_in_grace: self.filer.is_in_grace(),
            sessions: self.sessions(),
            locks: locks.collect(),
            waiters: waiters.collect(),
            fences: self.filer.fences().map(|fence| self.fence_view(&fence)).collect(),
            fence_counters: self.filer.fence_counters(),
            credits: (self.sessions.config().credits.budget, stats.sessions.credits),
            procedures: self.meter.procedures(),
            transports: self.meter.transports(live),
            nfs: self.meter.nfs_numbers(),
            cache_bytes: self.cache.arena().length() as u64,
            uptime: self.now.since(Moment(0)),
        }
    }

    fn sessions(&self) -> Vec<SessionInspection> {
        let id_of = |channel: &Channel| self.sessions.ids(channel.id).map(|(session, _)| session);
        let channels = self.channels.iter().filter(|channel| channel.back.is_none());
        let channels: QuickMap<SessionId, &Channel> =
            channels.filter_map(|channel| Some((id_of(channel)?, channel))).collect();
        let inspect = |view: SessionView| {
            let channel = channels.get(&view.credits.session)?;
            let silent = self.now.since(view.last_heard).as_nanos();
            Some(SessionInspection {
                silent_ns: u64::try_from(silent).unwrap_or(u64::MAX),
                reactor: channel.endpoint.owner(),
                transport: channel.peer.transport,
                address: channel.peer.address,
                traffic: channel.traffic,
                view,
            })
        };
        self.sessions.views(self.filer).filter_map(inspect).collect()
    }

    fn fence_view(&self, fence: &FenceInformation<'_>) -> FenceView {
        let (file, handle): (_, Box<[u8]>) = match &fence.object {
            FencedObject::File(handle) => {
                let place = self.opened.file(handle).and_then(|file| file.place());
                (Some(FileView { handle: Some(*handle), place }), handle.0.into())
            }
            FencedObject::FileSystem(handle) => (None, handle.0.into()),
        };
        FenceView {
            file,
            handle,
            fence_ids: fence.fence_ids.iter().map(|id| id.as_str().to_owned()).collect(),
            waits_for: fence.change.map(|(_, waits_for)| waits_for),
        }
    }

    fn file_view(&self, key: dafs_filer::FileKey) -> FileView {
        let found = locked_file_of(self.opened, self.ledger, key);
        let place = found.as_ref().and_then(|(_, file)| file.place());
        FileView { handle: found.map(|(handle, _)| handle), place }
    }
}
