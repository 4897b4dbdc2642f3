//! A place named on the command line: a local path, or a path on a server.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use dafs_client::{
    Client, ClientConfig, Location, Login, Session, SessionOptions, TransportChoice,
};

/// How servers are reached.
#[derive(Clone, Debug, Args)]
pub struct Access {
    /// Transport to use.
    #[arg(long, value_enum, default_value = "auto")]
    pub transport: Transport,
    /// File whose first line is the password of the user in the URL.
    #[arg(long)]
    pub password_from: Option<PathBuf>,
    /// This client's fence identity, by which others can shut it out (`dafs fence`).
    #[arg(long, value_name = "ID", env = "DAFS_FENCE_ID", default_value = "")]
    pub fence_id: String,
    /// Checksum every message and all data.
    #[arg(long)]
    pub checksums: bool,
}

/// A transport, as people name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Shared memory where the server offers it, else TCP.
    Auto,
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
}

/// A local path or a path on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Local(PathBuf),
    Remote(Location),
}

impl Place {
    pub fn parse(text: &str) -> Result<Self> {
        if Location::is_url(text) || text.contains("://") {
            Ok(Self::Remote(Location::parse(text)?))
        } else {
            Ok(Self::Local(PathBuf::from(text)))
        }
    }
}

/// A session with the server of a URL, and the path in it.
pub fn open(url: &str, access: &Access) -> Result<(Session, String)> {
    let location = Location::parse(url)?;
    let session = connect(&location, access)?;
    Ok((session, location.path))
}

pub fn connect(location: &Location, access: &Access) -> Result<Session> {
    connect_by(&Client::new(ClientConfig::default())?, location, access)
}

pub fn connect_by(client: &Client, location: &Location, access: &Access) -> Result<Session> {
    Ok(client.connect(location, &options(location, access)?)?)
}

/// What a session with a location's server is asked for. Asks for a missing password.
pub fn options(location: &Location, access: &Access) -> Result<SessionOptions> {
    let transport = match access.transport {
        Transport::Auto => TransportChoice::Automatic,
        Transport::Shm => TransportChoice::SharedMemory,
        Transport::Tcp => TransportChoice::Tcp,
    };
    let mut login = Login::None;
    if let Some((user, Some(password))) = &location.user {
        login = Login::Password { user: user.clone(), password: password.clone() };
    } else if let Some((user, None)) = &location.user {
        let password = match &access.password_from {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("reading the password from {}", path.display()))?
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
            None => rpassword::prompt_password(format!("password of {user}: "))
                .context("asking for the password; give --password-from FILE without a terminal")?,
        };
        login = Login::Password { user: user.clone(), password };
    }
    Ok(SessionOptions {
        transport,
        login,
        checksums: access.checksums,
        fence_id: access.fence_id.clone(),
        ..SessionOptions::default()
    })
}

/// Where a server listens, and is looked for, unless told otherwise.
pub const DEFAULT_PORT: u16 = 2050;
