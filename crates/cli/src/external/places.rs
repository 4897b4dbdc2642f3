//! Locations of files: the local file system, and the servers named in URLs.
//!
//! Invariant: there is one session per server and user, and all sessions belong to one client, so
//! that one thread waits for all of them.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::rc::Rc;

use anyhow::Result;
use dafs_client::{Client, Location, ServerName, SessionEvent};
use dafs_extmem::{DafsEngine, Engine, LocalEngine, Watch};

use crate::place::{Access, Place, client, connect_by};

/// A file or directory, and the engine that opens it.
#[derive(Clone)]
pub(super) struct FileLocation {
    pub engine: Rc<dyn Engine>,
    pub path: OsString,
}

/// The engines in use: one for local files, and one for each server and login.
pub(super) struct Places<'a> {
    client: Client,
    access: &'a Access,
    watch: Watch,
    local: Rc<dyn Engine>,
    servers: Vec<(Who, Rc<dyn Engine>)>,
}

/// The key of a session: a server and a login.
type Who = (ServerName, Option<(String, Option<String>)>);

impl FileLocation {
    /// Returns the directory that contains this location.
    pub(super) fn parent(&self) -> Self {
        let parent = match Path::new(&self.path).parent() {
            Some(parent) if parent.as_os_str().is_empty() => ".".into(),
            Some(parent) => parent.as_os_str().to_owned(),
            None => "/".into(),
        };
        Self { engine: self.engine.clone(), path: parent }
    }
}

impl<'a> Places<'a> {
    pub(super) fn new(access: &'a Access, watch: Watch) -> Result<Self> {
        let client = client(access)?;
        let local = Rc::new(LocalEngine);
        Ok(Self { client, access, watch, local, servers: Vec::new() })
    }

    pub(super) fn find(&mut self, text: &OsStr) -> Result<FileLocation> {
        match Place::parse(text)? {
            Place::Local(path) => {
                Ok(FileLocation { engine: self.local.clone(), path: path.into_os_string() })
            }
            Place::Remote(location) => {
                let engine = self.server(&location)?;
                Ok(FileLocation { engine, path: location.path })
            }
        }
    }

    fn server(&mut self, location: &Location) -> Result<Rc<dyn Engine>> {
        let who: Who = (location.server.clone(), location.user.clone());
        if let Some((_, engine)) = self.servers.iter().find(|(there, _)| *there == who) {
            return Ok(engine.clone());
        }
        let session = connect_by(&self.client, location, self.access)?;
        let address = session.address().to_string();
        session.on_event(move |event| match event {
            SessionEvent::Lost { reason } => {
                let reason = crate::terminal_text::message(reason);
                eprintln!("dafs: lost the connection to {address} ({reason}); reconnecting");
            }
            SessionEvent::Recovered { .. } => eprintln!("dafs: reconnected to {address}"),
            _ => {}
        });
        let engine: Rc<dyn Engine> = Rc::new(DafsEngine::new(session, self.watch.clone()));
        self.servers.push((who, engine.clone()));
        Ok(engine)
    }
}
