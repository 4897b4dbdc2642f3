//! The operations on opens: OPEN, OPEN_DOWNGRADE and CLOSE.

use dafs_files::outcome::{Ended, NotDone, Now, Outcome};
use dafs_journal::RecordNumber;
use dafs_nfs_state::{FileNumber, StateKey, Stateid4};
use dafs_nfs_wire::nfs4::open::{
    CloseArgs, CreateHow, DelegationType, OpenArgs, OpenClaim, OpenDone, OpenDowngradeArgs,
    OpenFlags, OpenHow, ShareAccess as AskedAccess, ShareDeny as AskedDeny,
};
use dafs_nfs_wire::nfs4::types::check_name;
use dafs_nfs_wire::nfs4::{Answer, Bitmap, Reply, Status};
use dafs_ops::{Claim, Close, Creation, Downgrade, Names, Open, Opened};
use dafs_types::{
    DeleteDisposition, FileHandle, SetAttributes, ShareAccess, ShareDeny, StateId, Verifier,
};

use super::compound::Service;
use super::convert;
use super::convert::{change, status_of, status_of_machine};
use super::fault::{Result, failed, not_done};
use super::handles::NAME_BYTES_MAX;
use super::settings::{of_exclusive_files, of_verifiers, settings_of};
use super::states::{Asked, OpenState, wire_of};
use super::waiting::{Awaits, Did, Opening};
use crate::nfs::calls::Calls;
use crate::task::{Task, Work};

impl Service<'_, '_, '_> {
    pub(super) fn open(&mut self, asked: &OpenArgs<'_>) -> Result<Did> {
        let current = self.current()?;
        let wanted = asked_of(asked)?;
        let is_reclaim = matches!(asked.claim, OpenClaim::Previous(_));
        let client = self.nfs_client()?;
        let machine = &self.desk.v4.machine;
        machine.check_reclaim(client, is_reclaim).map_err(status_of_machine)?;
        machine.check_room(client, None).map_err(|_| Status::Delay)?;
        let (creation, mask) = creation_of(&asked.how)?;
        let name;
        let mut delegation = None;
        let names: &[&[u8]] = match &asked.claim {
            OpenClaim::Name(given) => {
                self.directory()?;
                name = [check_name(given, NAME_BYTES_MAX)?];
                &name
            }
            OpenClaim::Handle if creation.is_any() => return Err(Status::Inval),
            OpenClaim::Handle => {
                self.check_regular(&current)?;
                &[b"."]
            }
            OpenClaim::Previous(_) if creation.is_any() => return Err(Status::Inval),
            OpenClaim::Previous(_) => &[],
            OpenClaim::DelegateCurrent(_) | OpenClaim::DelegateCurrentHandle(_)
                if creation.is_any() =>
            {
                return Err(Status::Inval);
            }
            OpenClaim::DelegateCurrent(given) => {
                self.directory()?;
                delegation = Some(self.delegation_of(&given.state, None)?);
                name = [check_name(&given.name, NAME_BYTES_MAX)?];
                &name
            }
            OpenClaim::DelegateCurrentHandle(state) => {
                self.check_regular(&current)?;
                delegation = Some(self.delegation_of(state, Some(&current))?);
                &[b"."]
            }
            OpenClaim::DelegatePrevious(_) | OpenClaim::DelegatePreviousHandle => {
                return Err(Status::ReclaimBad);
            }
        };
        let path = Names::new(names);
        let owner = [b"o", asked.owner.owner.0].concat();
        let ask = Open {
            from: current,
            claim: match delegation {
                _ if is_reclaim => Claim::Previous,
                Some(state) => Claim::DelegateCurrent { state, path },
                None => Claim::Null { path },
            },
            creation,
            disposition: DeleteDisposition::DontCare,
            owner: &owner,
            access: wanted.access,
            deny: wanted.deny,
            key: None,
        };
        let by = self.by()?;
        // A client reclaims its delegation together with its open. Without the delegation it would
        // lose the locks that it has kept to itself.
        let can_recall = match &asked.claim {
            OpenClaim::Previous(DelegationType::None) => false,
            _ => self.may_delegate(wanted.wishes, wanted.access),
        };
        let mut opened = self.reactor.files().open(&by, can_recall, &ask);
        if let Err(why) = &opened
            && self.end_courtesy_for(&asked.claim, &current, why)
        {
            if let Err(why) = opened {
                self.reactor.without_waiting(why);
            }
            opened = self.reactor.files().open(&by, can_recall, &ask);
        }
        match opened {
            Ok(Now::Done((opened, after))) => {
                let opening = Opening { asked: wanted, owner: asked.owner.owner.0.into(), mask };
                self.push_opened(&opened, &opening, after)?;
                Ok(Did::Written)
            }
            Ok(Now::Later(left)) => {
                let owner = asked.owner.owner.0.into();
                let opening = Opening { asked: wanted, owner, mask };
                let to = self.wait_for(Awaits::Open(Box::new(opening)));
                self.reactor.start(Task::new(to, Work::from(*left)));
                Ok(Did::Later)
            }
            Err(why) => Err(self.open_failed(&current, why)),
        }
    }

    /// Returns the status of an OPEN that has failed.
    fn open_failed(&mut self, directory: &FileHandle, why: NotDone) -> Status {
        match why {
            NotDone::Partly(refusal) => failed(self.reactor, directory, refusal.fault),
            why => not_done(self.reactor, why),
        }
    }

    /// Ends an OPEN whose file was truncated. Returns its status.
    pub(super) fn end_open(&mut self, opening: &Opening, outcome: Outcome) -> Status {
        let status = convert::failure_of(&outcome);
        match outcome.result {
            Ok(Ended::Opened(opened)) => {
                let pushed = self.push_opened(&opened, opening, outcome.after);
                pushed.err().unwrap_or(Status::Ok)
            }
            _ => status,
        }
    }

    fn push_opened(
        &mut self,
        opened: &Opened,
        opening: &Opening,
        after: RecordNumber,
    ) -> Result<()> {
        self.c.after = self.c.after.max(after);
        let state = self.note_open(opened, opening)?;
        self.set_current(opened.file);
        let state = self.set_state(state);
        let (granted, wishes) = (opened.delegation.as_ref(), opening.asked.wishes);
        let delegation = self.show_delegation(&opened.file, granted, wishes);
        let client = self.nfs_client()?;
        let flags = match self.desk.v4.machine.has_back_channel(client) {
            true => OpenFlags::LOCKTYPE_POSIX.with(OpenFlags::MAY_NOTIFY_LOCK),
            false => OpenFlags::LOCKTYPE_POSIX,
        };
        let done = OpenDone {
            state,
            change: change(opened.directory),
            flags,
            attributes: opening.mask,
            delegation,
        };
        self.push(&Answer::Open(Reply::Ok(done))).map(|_| ())
    }

    /// Records a new open or a change of an open. Returns the open's new state id. If there is no
    /// room for the state id, the open ends.
    fn note_open(&mut self, opened: &Opened, opening: &Opening) -> Result<Stateid4> {
        let (client, nfs_client) = (self.client()?, self.nfs_client()?);
        // The filer has one open for each owner and file, so the number of the open stands for the
        // file.
        let (file, number) = (FileNumber(opened.state.0), opened.state.0);
        let machine = &mut self.desk.v4.machine;
        let (_, id) = match machine.opened(nfs_client, &opening.owner, file, number) {
            Ok(noted) => noted,
            Err(error) => {
                self.abandon_open(opened);
                return Err(status_of_machine(error));
            }
        };
        let Asked { access, deny, .. } = opening.asked;
        let new = || OpenState { client, file: opened.file, access, deny };
        let open = self.desk.v4.states.opens.entry(opened.state).or_insert_with(new);
        open.add(opening.asked);
        Ok(id)
    }

    /// Closes an open that gets no state id.
    fn abandon_open(&mut self, opened: &Opened) {
        let Ok(by) = self.by() else { return };
        let ask = Close { file: opened.file, state: opened.state };
        if let Ok(Now::Later(left)) = self.reactor.files().close(by.party, &ask) {
            let to = Calls::unanswered(self.c.id);
            self.reactor.start(Task::new(to, Work::from(*left)));
        }
    }

    pub(super) fn downgrade(&mut self, asked: &OpenDowngradeArgs) -> Result<Did> {
        let file = self.current()?;
        let (key, state) = self.open_of(&asked.state, &file)?;
        let access = access_of(asked.access)?;
        let deny = deny_of(asked.deny)?;
        // A downgrade may only reduce the access and the reservation of the open.
        if !self.desk.v4.states.open_for(state, &file)?.includes(access, deny) {
            return Err(Status::Inval);
        }
        let by = self.by()?;
        let ask = Downgrade { file, state, access, deny, key: None };
        self.reactor.files().open_downgrade(by.party, &ask).map_err(status_of)?;
        if let Some(open) = self.desk.v4.states.opens.get_mut(&state) {
            (open.access, open.deny) = (access, deny);
        }
        let changed = self.desk.v4.machine.changed(key).ok_or(Status::BadStateId)?;
        let shown = self.set_state(changed);
        self.push(&Answer::OpenDowngrade(Reply::Ok(shown)))
    }

    pub(super) fn close(&mut self, asked: &CloseArgs) -> Result<Did> {
        let file = self.current()?;
        let (key, state) = self.open_of(&asked.state, &file)?;
        self.desk.v4.machine.check_close(key).map_err(status_of_machine)?;
        let by = self.by()?;
        let closed = self.reactor.files().close(by.party, &Close { file, state });
        self.follow(Awaits::Close(key), closed.map_err(status_of)?)
    }

    /// Writes the result of a CLOSE. Returns its status. The open has ended even if data was lost.
    pub(super) fn end_close(&mut self, key: StateKey, outcome: &Outcome) -> Status {
        if let Some(view) = self.desk.v4.machine.state(key) {
            self.desk.v4.states.opens.remove(&StateId(view.inner));
        }
        // The lock states of the open, which hold no locks, end with it.
        self.desk.v4.machine.ended(key);
        if outcome.result.is_err() {
            return convert::failure_of(outcome);
        }
        self.c.current_state = None;
        // The state id of the open is no longer valid, so the result contains an invalid state id.
        let _ = self.push(&Answer::Close(Reply::Ok(wire_of(Stateid4::INVALID))));
        Status::Ok
    }
}

/// Returns the access, reservation and delegation that an OPEN asks for.
fn asked_of(asked: &OpenArgs<'_>) -> Result<Asked> {
    Ok(Asked {
        access: access_of(AskedAccess(asked.access.0 & AskedAccess::BOTH.0))?,
        deny: deny_of(asked.deny)?,
        wishes: asked.access,
    })
}

fn access_of(asked: AskedAccess) -> Result<ShareAccess> {
    match asked {
        AskedAccess::READ => Ok(ShareAccess::Read),
        AskedAccess::WRITE => Ok(ShareAccess::Write),
        AskedAccess::BOTH => Ok(ShareAccess::Both),
        _ => Err(Status::Inval),
    }
}

fn deny_of(asked: AskedDeny) -> Result<ShareDeny> {
    match asked {
        AskedDeny::NONE => Ok(ShareDeny::None),
        AskedDeny::READ => Ok(ShareDeny::Read),
        AskedDeny::WRITE => Ok(ShareDeny::Write),
        AskedDeny::BOTH => Ok(ShareDeny::Both),
        _ => Err(Status::Inval),
    }
}

/// Returns the way in which an OPEN creates its file, and the attributes that it sets. They include
/// those in which the store keeps the verifier of an exclusive creation, so that the client sets
/// their real values afterwards.
pub(super) fn creation_of(how: &OpenHow<'_>) -> Result<(Creation, Bitmap)> {
    Ok(match how {
        OpenHow::NoCreate => (Creation::NoCreate, Bitmap::default()),
        OpenHow::Create(CreateHow::Unchecked(given)) => {
            let settings = settings_of(given, true)?;
            let attributes: SetAttributes = settings.attributes;
            (Creation::Unchecked { attributes }, settings.mask)
        }
        OpenHow::Create(CreateHow::Guarded(given)) => {
            let settings = settings_of(given, true)?;
            (Creation::Guarded { attributes: settings.attributes }, settings.mask)
        }
        OpenHow::Create(CreateHow::Exclusive(verifier)) => {
            (Creation::Exclusive { verifier: Verifier(verifier.0) }, *of_verifiers())
        }
        OpenHow::Create(CreateHow::ExclusiveWithAttributes(asked)) => {
            if !asked.attributes.mask.without(of_exclusive_files()).is_empty() {
                return Err(Status::AttrNotSupp);
            }
            let settings = settings_of(&asked.attributes, true)?;
            let (verifier, attributes) = (Verifier(asked.verifier.0), settings.attributes);
            let creation = Creation::ExclusiveWithAttributes { verifier, attributes };
            (creation, settings.mask.or(of_verifiers()))
        }
    })
}
