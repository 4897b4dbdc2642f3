//! One simulated client: a real client, its session, and its operations in flight.
//!
//! Invariant: the end of every operation that was sent is returned by [`Actor::step`] or
//! [`Actor::leave`] exactly once.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dafs_client::{Client, ClientError, File, Group, Recovery, Session, SessionOptions};
use dafs_dat::{Address, Interface};
use dafs_types::{DeleteDisposition, FileHandle, ShareAccess, ShareDeny, Status};
use dafs_wire::messages::{Empty, Open, OpenCreation, OpenTarget};
use dafs_wire::{Path, Request, Response};

use crate::operation::{FileNumber, Operation, OperationNumber};
use crate::plan::Plan;
use crate::request::{Arrivals, Flight, Raw, Requester, decode_operation, finish, ready};

/// A simulated client.
pub(crate) struct Actor {
    pub node: u32,
    client: Client,
    group: Group,
    arrivals: Arrivals,
    life: Life,
    flights: Vec<InFlight>,
    /// The open files. Each has a number that this client uses for no other open.
    opens: BTreeMap<u64, Opened>,
    /// The client's open of the file to which all clients append records.
    records: Option<File>,
    opens_made: u64,
    sessions_made: u64,
    checksums: bool,
}

type Connecting = Pin<Box<dyn Future<Output = Result<(Session, File), ClientError>>>>;

enum Life {
    Away,
    Connecting(Connecting),
    Here(Session),
    /// The session has sent DISCONNECT and waits for the reply.
    Leaving(Session, Flight),
}

struct InFlight {
    number: OperationNumber,
    /// The number of the open that the operation uses. `None` if it uses no open.
    open: Option<u64>,
    flight: Flight,
}

struct Opened {
    file: File,
    number: FileNumber,
    /// The number of operations in flight that use this open.
    uses: usize,
}

/// The result of a step.
#[derive(Debug, Default)]
pub(crate) struct StepResult {
    pub ended: Vec<(OperationNumber, Raw)>,
    /// True if the session has ended or an attempt to connect has failed.
    pub is_cut: bool,
    /// The error of an attempt to connect that failed for another reason than a lost connection.
    pub trouble: Option<String>,
}

impl Actor {
    pub(crate) fn new(node: u32, interface: Interface, plan: &Plan) -> Self {
        let client = Client::over(interface);
        let group = client.group();
        Self {
            node,
            client,
            group,
            arrivals: Arrivals::default(),
            life: Life::Away,
            flights: Vec::new(),
            opens: BTreeMap::new(),
            records: None,
            opens_made: 0,
            sessions_made: 0,
            checksums: plan.checksums,
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        matches!(self.life, Life::Here(_))
    }

    pub(crate) fn is_away(&self) -> bool {
        matches!(self.life, Life::Away)
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.life, Life::Connecting(_))
    }

    pub(crate) fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Returns for each open its number, its file, and a flag that is true if no operation uses the
    /// open.
    pub(crate) fn opens(&self) -> impl Iterator<Item = (u64, FileNumber, bool)> + '_ {
        self.opens.iter().map(|(open, opened)| (*open, opened.number, opened.uses == 0))
    }

    // ---- sessions ----------------------------------------------------------------------

    pub(crate) fn connect(
        &mut self,
        address: &Address,
        root: FileHandle,
        keeps_name: bool,
    ) -> Result<(), ClientError> {
        self.sessions_made += 1;
        let generation = if keeps_name { 0 } else { self.sessions_made };
        let options = SessionOptions::default()
            .checksums(self.checksums)
            // Switch recovery off, because the model must decide whether a lost request was
            // executed.
            .recovery(Recovery::Off)
            .credits(16)
            .client_name(format!("client-{:03}-{generation:05}", self.node));
        let session = self.client.connect_async(address, &options)?;
        self.life = Life::Connecting(Box::pin(async move {
            let session = session.await?;
            let names = ["records"];
            let request = Request::Open(Open {
                target: OpenTarget::Null { directory: root, path: Path::new(&names) },
                creation: OpenCreation::NoCreate,
                delete_disposition: DeleteDisposition::DontCare,
                owner: b"records",
                access: ShareAccess::Both,
                deny: ShareDeny::None,
                key: None,
            });
            let reply = session.start(&request)?.await?;
            let (status, response) = reply.read()?;
            let Response::Open(opened) = response else {
                return Err(ClientError::Status { what: "records".into(), status });
            };
            let file = session.opened(opened.file, opened.state, "records");
            match status {
                Status::Ok => Ok((session, file)),
                status => Err(ClientError::Status { what: "records".into(), status }),
            }
        }));
        Ok(())
    }

    /// Disconnects cleanly, which closes all open files.
    pub(crate) fn disconnect(&mut self) {
        let life = std::mem::replace(&mut self.life, Life::Away);
        let Life::Here(session) = life else {
            self.life = life;
            return;
        };
        match session.start(&Request::Disconnect(Empty)) {
            Ok(call) => self.life = Life::Leaving(session, finish(call, decode_operation)),
            // The session has ended already.
            Err(_) => drop(self.leave()),
        }
    }

    /// Drops the session without DISCONNECT. Returns the numbers of the operations in flight, which
    /// are lost.
    pub(crate) fn leave(&mut self) -> Vec<OperationNumber> {
        let lost = self.flights.drain(..).map(|flight| flight.number).collect();
        self.opens.clear();
        self.records = None;
        self.life = Life::Away;
        self.arrivals.borrow_mut().clear();
        lost
    }

    // ---- operations ---------------------------------------------------------------------

    /// Sends an operation. Without a session, the operation counts as lost immediately. `file` is
    /// the handle that some operations on names need. `open` is the number of the open that an
    /// operation on content uses.
    pub(crate) fn send(
        &mut self,
        number: OperationNumber,
        operation: &Operation,
        (file, open): (Option<FileHandle>, Option<u64>),
        directories: &[FileHandle],
    ) {
        let Life::Here(session) = &self.life else {
            return self.flights.push(InFlight { number, open: None, flight: ready(Raw::Lost) });
        };
        let line = Requester {
            client: &self.client,
            session,
            directories,
            group: self.group,
            arrivals: &self.arrivals,
            checksums: self.checksums,
        };
        let opened = open.and_then(|open| self.opens.get(&open)).map(|opened| &opened.file);
        let sent = match (operation, opened, &self.records) {
            (Operation::Name(operation), _, _) => line.name(number, operation, file),
            (Operation::Data(_, operation), Some(file), _) => line.data(number, file, operation),
            (Operation::Record { length, way }, _, Some(records)) => {
                line.append(records, &crate::records::record(number, *length), *way)
            }
            (Operation::Records { length }, _, Some(records)) => {
                line.records(number, records, *length)
            }
            (Operation::Close(_), Some(_), _) => return self.close(number, open),
            _ => Err(Raw::Nonsense(format!("{operation:?} on a file that is not open"))),
        };
        let flight = sent.unwrap_or_else(ready);
        if let Some(opened) = open.and_then(|open| self.opens.get_mut(&open)) {
            opened.uses += 1;
        }
        self.flights.push(InFlight { number, open, flight });
    }

    fn close(&mut self, number: OperationNumber, open: Option<u64>) {
        let opened = open.and_then(|open| self.opens.remove(&open));
        let flight: Flight = match opened.map(|opened| opened.file.start_close()) {
            Some(Ok(call)) => finish(call, decode_operation),
            Some(Err(_)) | None => ready(Raw::Lost),
        };
        self.flights.push(InFlight { number, open: None, flight });
    }

    /// Drops an open. The client then closes the file and ignores errors.
    pub(crate) fn forget(&mut self, open: u64) {
        self.opens.remove(&open);
    }

    /// Stores an open that was granted.
    pub(crate) fn keep(
        &mut self,
        handle: FileHandle,
        state: dafs_types::StateId,
        number: FileNumber,
    ) {
        if let Life::Here(session) = &self.life {
            let file = session.opened(handle, state, "a file of the simulation");
            self.opens_made += 1;
            self.opens.insert(self.opens_made, Opened { file, number, uses: 0 });
        }
    }

    /// Processes the messages that have arrived, and advances all operations.
    pub(crate) fn step(&mut self) -> StepResult {
        self.client.poll(self.group);
        while let Some(completion) = self.client.next(self.group) {
            self.arrivals.borrow_mut().insert(completion.context, completion.result);
        }
        let mut stepped = StepResult::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = Vec::new();
        for mut flight in std::mem::take(&mut self.flights) {
            match flight.flight.as_mut().poll(&mut context) {
                Poll::Pending => waiting.push(flight),
                Poll::Ready(raw) => {
                    if let Some(opened) = flight.open.and_then(|open| self.opens.get_mut(&open)) {
                        opened.uses -= 1;
                    }
                    stepped.is_cut |= matches!(raw, Raw::Lost);
                    stepped.ended.push((flight.number, raw));
                }
            }
        }
        self.flights = waiting;
        self.step_life(&mut context, &mut stepped);
        if stepped.is_cut {
            let lost = self.leave();
            stepped.ended.extend(lost.into_iter().map(|number| (number, Raw::Lost)));
        }
        stepped
    }

    fn step_life(&mut self, context: &mut Context<'_>, stepped: &mut StepResult) {
        match &mut self.life {
            Life::Away | Life::Here(_) => {}
            Life::Connecting(connecting) => match connecting.as_mut().poll(context) {
                Poll::Pending => {}
                Poll::Ready(Ok((session, records))) => {
                    self.life = Life::Here(session);
                    self.records = Some(records);
                }
                Poll::Ready(Err(error)) => {
                    stepped.is_cut = true;
                    match error {
                        ClientError::Connect { .. } | ClientError::SessionEnded { .. } => {}
                        other => stepped.trouble = Some(other.to_string()),
                    }
                }
            },
            Life::Leaving(session, leaving) => {
                let _held = session;
                if leaving.as_mut().poll(context).is_ready() {
                    stepped.is_cut = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dafs_dat::InterfaceConfig;
    use dafs_dat::sim::{Network, NetworkConfig};

    use super::*;
    use crate::operation::NameOperation;

    #[test]
    fn an_operation_sent_without_a_session_is_lost_once() {
        let sim = Some(Network::new(NetworkConfig::new(1)).at(1));
        let interface = Interface::new(InterfaceConfig { sim, ..InterfaceConfig::default() });
        let mut actor = Actor::new(1, interface.unwrap(), &Plan::new(1));
        let number = OperationNumber(7);
        actor.send(number, &NameOperation::List { directory: 0 }.into(), (None, None), &[]);
        let ended = actor.step().ended;
        assert!(matches!(ended[..], [(ended, Raw::Lost)] if ended == number), "{ended:?}");
        assert!(actor.step().ended.is_empty());
    }
}
