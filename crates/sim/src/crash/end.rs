//! The end of a run: all members reconnect, all names and files are read back, and all members
//! disconnect. The server must then have released all their state, and the contents of the disk are
//! checked.
//!
//! Invariant: after `stop_faults` no more faults happen.

use dafs_memory::Memory;
use dafs_store::Store;
use dafs_types::{FileHandle, ShareAccess};

use super::cells::CellRange;
use super::holdings::Held;
use super::log::{PAGE_RECORDS, RECORD_BYTES};
use super::member::Phase;
use super::nfs::{NfsMember, NfsPhase};
use super::requests::{CELLS, File, MemberRequest, Reply};
use super::world::World;
use crate::operation::{Name, NameOperation};
use crate::plan::root as superuser;

impl World {
    /// Ends a run with all checks.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        self.gather()?;
        self.lift_fences()?;
        self.until("everybody", |world| {
            world.members.iter().all(|member| member.phase == Phase::Here)
                && world.nfs_members.iter().all(NfsMember::is_idle)
        })?;
        self.finish_all()?;
        self.read_back()?;
        self.give_up()?;
        self.disconnect_all()?;
        self.look_at_disk()
    }

    /// Makes the first member reconnect.
    fn gather(&mut self) -> Result<(), String> {
        self.until("the first member", |world| {
            world.servers.is_up() && world.members[0].phase == Phase::Here
        })
    }

    fn lift_fences(&mut self) -> Result<(), String> {
        // The requests that the first member wanted to repeat are no longer needed. Wait only for
        // its last fence requests, which are in flight.
        self.members[0].again.clear();
        self.until("fence requests in flight", |world| world.members[0].flights.is_empty())?;
        for file in [File::Data, File::Log] {
            self.ask_to_end(0, MemberRequest::Fence { file, members: Vec::new() })?;
        }
        Ok(())
    }

    /// Sends a request, repeats it as often as necessary, and waits for its reply.
    fn ask_to_end(&mut self, index: usize, ask: MemberRequest) -> Result<(), String> {
        for _ in 0..TRIES {
            self.until("a member", |world| world.members[index].phase == Phase::Here)?;
            if !self.ask(index, ask.clone(), None)? {
                self.turn()?;
                continue;
            }
            let number = self.number;
            self.until("an answer", |world| {
                let member = &world.members[index];
                member.phase != Phase::Here
                    || !member.flights.values().any(|flight| flight.number == number)
            })?;
            if self.members[index].phase == Phase::Here {
                return Ok(());
            }
        }
        Err(format!("{ask:?} never gets a reply"))
    }

    fn finish_all(&mut self) -> Result<(), String> {
        for member in &mut self.members {
            member.again.clear();
        }
        self.until("operations in flight", |world| {
            world.members.iter().all(|member| member.flights.is_empty())
        })
    }

    /// Reads all names and files through the server.
    fn read_back(&mut self) -> Result<(), String> {
        for directory in 0..2 {
            let operation = NameOperation::List { directory };
            self.ask_to_end(0, MemberRequest::Names { operation, is_file: false })?;
        }
        for page in 0..self.judge.log.pages() {
            self.ask_to_end(0, MemberRequest::ReadLog { from: page * PAGE_RECORDS })?;
        }
        for file in [File::Data, File::Locked] {
            for first in (0..CELLS).step_by(4) {
                self.ask_to_end(
                    0,
                    MemberRequest::Read { run: CellRange { file, first, count: 4 } },
                )?;
            }
        }
        self.ask_to_end(0, MemberRequest::Size)
    }

    /// Makes all members release their opens and locks.
    fn give_up(&mut self) -> Result<(), String> {
        loop {
            let mut held = self.holdings.all.iter();
            let next = held.find(|holding| !matches!(holding.held, Held::Base(_)));
            let Some(holding) = next else { return Ok(()) };
            let (member, number) = (holding.member, holding.number);
            let ask = match holding.held {
                Held::Lock(lock) => MemberRequest::Unlock { holding: number, run: lock.run },
                _ => MemberRequest::CloseShare { holding: number },
            };
            self.ask_to_end(member, ask)?;
        }
    }

    /// Disconnects all members and checks that the server has released their state.
    fn disconnect_all(&mut self) -> Result<(), String> {
        for at in 0..self.nfs_members.len() {
            self.until("an NFS member", |world| world.nfs_members[at].is_idle())?;
            self.leave_nfs(at);
            self.until("an NFS member to leave", |world| {
                let member = &world.nfs_members[at];
                member.phase == NfsPhase::Gone && member.is_free()
            })?;
        }
        self.stops_reconnecting = true;
        for index in 0..self.members.len() {
            self.until("a member", |world| {
                matches!(world.members[index].phase, Phase::Here | Phase::Gone)
            })?;
            self.ask(index, MemberRequest::Leave, None)?;
            self.members[index].phase = Phase::Leaving;
        }
        self.until("leaving", |world| {
            world.members.iter().all(|member| member.phase == Phase::Gone && member.line.is_free())
        })?;
        let guests = usize::from(!self.nfs_members.is_empty());
        self.until("the release of members' state", |world| {
            let Some(stats) = world.servers.stats() else { return false };
            let (filer, sessions) = (stats.filer, stats.sessions);
            let of_members = [sessions.channels, sessions.sessions, filer.opens, filer.files];
            let of_requests = [stats.parked_requests, stats.chains, stats.journaled_requests];
            of_members == [0; 4]
                && of_requests == [0; 3]
                && sessions.credits == 0
                && filer.clients == 0
                && stats.channels == 0
                && (stats.undone_files == 0 || world.may_keep_undo)
                && stats.open_files == 0
                && stats.loans == 0
                && stats.regions == (world.plan.reactors + guests) * ARENA
                && stats.cache.dirty_bytes == 0
                && world.servers.jobs_under_way() == 0
        })
    }

    /// Checks that the disk contains all data that replies have acknowledged, even after a power
    /// failure now.
    fn look_at_disk(&mut self) -> Result<(), String> {
        self.servers.crash(true);
        self.judge.crash(true);
        let disk = self.servers.disk.clone();
        for directory in 0..2 {
            let names = list(&disk, &self.directories[usize::from(directory)], directory)?;
            self.number += 1;
            let operation = NameOperation::List { directory };
            self.judge.begin(self.number, 0, &MemberRequest::Names { operation, is_file: false });
            self.judge.end(self.number, &Reply::Names(names))?;
        }
        let (begin, log) = (self.tick(), read(&disk, &self.files[File::Log as usize])?);
        let records = log.len().div_ceil(RECORD_BYTES) * RECORD_BYTES;
        self.judge.log.see(0, &log, records, begin, begin)?;
        for file in [File::Data, File::Locked] {
            let bytes = read(&disk, &self.files[file as usize])?;
            let begin = self.tick();
            if file == File::Data {
                self.judge.see_size(bytes.len() as u64, begin)?;
            }
            let run = CellRange { file, first: 0, count: CELLS };
            let cells =
                bytes.get(..super::requests::SIZE_BASE as usize).ok_or("cells are missing")?;
            self.judge.see_cells(&run, cells, begin)?;
        }
        Ok(())
    }
}

fn list(
    store: &dyn Store,
    directory: &FileHandle,
    number: u8,
) -> Result<Vec<(Name, FileHandle)>, String> {
    let failed = |error| format!("listing a directory: {error:?}");
    let mut names = Vec::new();
    for name in (0..4).map(|index| Name { directory: number, index }) {
        match store.lookup(&superuser(), directory, &name.bytes()) {
            Ok(object) => names.push((name, object.handle)),
            Err(dafs_store::StoreError::NotFound) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(names)
}

fn read(store: &dyn Store, handle: &FileHandle) -> Result<Vec<u8>, String> {
    let failed = |error| format!("reading a file: {error:?}");
    let file = store.open(&superuser(), handle, ShareAccess::Read).map_err(failed)?;
    let size = file.attributes().map_err(failed)?.size as usize;
    let memory = Memory::from_heap(vec![0; size].into());
    let length = file.read_at(&memory, 0, size, 0).map_err(failed)?;
    Ok(memory.to_vec(0, length))
}

/// The number of memory regions that each reactor of a server always has.
const ARENA: usize = 1;
/// The maximum number of times that a request is sent.
const TRIES: usize = 100;
