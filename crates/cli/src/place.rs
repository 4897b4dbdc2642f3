//! An operand of the command line: a local path, or a path on a server.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use dafs_client::{
    Client, ClientConfig, Label, Location, Login, ServerName, Session, SessionOptions, Tickets,
    TlsClient, TlsClientFiles, TransportChoice, Umask, process_umask,
};
use dafs_types::check_secret;

/// Options for connections to servers.
#[derive(Clone, Debug, Args)]
pub(crate) struct Access {
    /// The transport to connect with.
    #[arg(long, value_enum, default_value = "auto")]
    pub transport: Transport,
    /// How to authenticate. `auto` uses a password if the URL names a user, else Kerberos if the
    /// server offers it and there is a ticket, else no authentication. Over shared memory the
    /// kernel vouches for the user.
    #[arg(long, value_enum, default_value = "auto")]
    pub login: LoginChoice,
    /// Kerberos service name of the server; requires Kerberos. Default: dafs@HOST.
    #[arg(long, value_name = "NAME")]
    pub kerberos_service: Option<String>,
    /// File whose first line is the password of the user in the URL.
    #[arg(long)]
    pub password_from: Option<PathBuf>,
    /// This client's fence identity. Other clients can fence it off by this name (`dafs fence`).
    #[arg(long, value_name = "ID", env = "DAFS_FENCE_ID", default_value = "")]
    pub fence_id: String,
    /// Label all requests with this hexadecimal number of at most 40 bits, so that they can be
    /// followed on the server (`dafs follow`).
    #[arg(long, value_name = "HEX", env = "DAFS_LABEL", default_value = "0", value_parser = label)]
    pub label: Label,
    /// Poll for a reply for this many microseconds before sleeping. More than the default of 50
    /// costs up to a core, and makes successive requests faster over TCP.
    #[arg(long, value_name = "MICROSECONDS", env = "DAFS_SPIN",
          value_parser = clap::value_parser!(u32).range(..=SPIN_MAX_US).map(microseconds))]
    pub spin: Option<Duration>,
    /// Number of connections to spread transfers over: 1 to 8, but at most as many as the server
    /// can use, or `auto` for that maximum. All transfers of one file use the same connection.
    #[arg(long, value_name = "NUMBER", env = "DAFS_CHANNELS", default_value = "1",
          value_parser = channels)]
    pub channels: u16,
    /// Add a checksum to every message and to all data.
    #[arg(long)]
    pub checksums: bool,
    #[command(flatten)]
    pub tls: Tls,
}

/// TLS settings, for dafs+tls:// or --tls.
#[derive(Clone, Debug, Args)]
pub(crate) struct Tls {
    /// Use TLS with every server, as if its URL began with dafs+tls://.
    #[arg(id = "tls", long, env = "DAFS_TLS")]
    pub always: bool,
    /// PEM file of the authorities that sign server certificates.
    #[arg(id = "tls-ca", long, value_name = "FILE", env = "DAFS_TLS_CA")]
    pub authorities: Option<PathBuf>,
    /// PEM file of this client's certificate, for servers that ask for one.
    #[arg(id = "tls-cert", long, value_name = "FILE", env = "DAFS_TLS_CERT", requires = "tls-key")]
    pub certificate: Option<PathBuf>,
    /// PEM file of the certificate's key. No other user may be able to read it.
    #[arg(id = "tls-key", long, value_name = "FILE", env = "DAFS_TLS_KEY", requires = "tls-cert")]
    pub key: Option<PathBuf>,
    /// Name in the server's certificate. Default: the host of the URL.
    #[arg(id = "tls-name", long, value_name = "NAME")]
    pub name: Option<String>,
}

impl Tls {
    /// Loads the TLS settings for a location. Returns `None` if the location does not use TLS.
    pub(crate) fn load(&self, location: &Location) -> Result<Option<TlsClient>> {
        match self.applied(location).server {
            ServerName::Host { tls: true, .. } => {}
            ServerName::Verbs { .. } if self.always => {
                anyhow::bail!("TLS works over TCP only, not over RDMA devices; write dafs://");
            }
            ServerName::Host { .. } | ServerName::Verbs { .. } | ServerName::Socket(_) => {
                return Ok(None);
            }
        }
        let authorities = self.authorities.clone().context(
            "TLS needs the certificate authorities of the servers; give --tls-ca FILE or \
            DAFS_TLS_CA",
        )?;
        let identity = self.certificate.clone().zip(self.key.clone());
        let files = TlsClientFiles::new(authorities).identity(identity);
        Ok(Some(TlsClient::load(&files).context("--tls-ca, --tls-cert, --tls-key")?))
    }

    /// Returns the location, changed to use TLS if --tls is set.
    pub(crate) fn applied(&self, location: &Location) -> Location {
        let mut location = location.clone();
        if let ServerName::Host { tls, .. } = &mut location.server {
            *tls |= self.always;
        }
        location
    }
}

/// A transport, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Shared memory if the server offers it, else TCP.
    Auto,
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
}

/// An authentication method, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoginChoice {
    /// The best available method.
    Auto,
    /// A Kerberos ticket.
    Kerberos,
    /// The user in the URL and a password.
    Password,
    /// No authentication.
    None,
}

/// A local path or a path on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Local(PathBuf),
    Remote(Location),
}

impl Place {
    pub(crate) fn parse(text: impl AsRef<OsStr>) -> Result<Self> {
        let text = text.as_ref();
        let bytes = text.as_bytes();
        if Location::is_url(text) || bytes.windows(3).any(|three| three == b"://") {
            Ok(Self::Remote(Location::parse(text)?))
        } else {
            Ok(Self::Local(PathBuf::from(text)))
        }
    }
}

/// Opens a session with the server of a URL. Returns the session and the path in the URL.
pub(crate) fn open(url: impl AsRef<OsStr>, access: &Access) -> Result<(Session, OsString)> {
    let location = Location::parse(url)?;
    let session = connect(&location, access)?;
    Ok((session, location.path))
}

/// Returns the path of a name in a directory.
pub(crate) fn below(directory: impl AsRef<OsStr>, name: impl AsRef<OsStr>) -> OsString {
    Path::new(&directory).join(name.as_ref()).into_os_string()
}

/// Returns a path as text, for uses that need UTF-8.
pub(crate) fn text(path: &OsStr) -> Result<&str> {
    path.to_str().with_context(|| format!("{path:?} is not UTF-8, which this command needs"))
}

/// The sessions of one client, one for each server and user that the operands name.
pub(crate) struct Sessions<'a> {
    access: &'a Access,
    client: Client,
    open: Vec<(Location, Session)>,
}

impl<'a> Sessions<'a> {
    pub(crate) fn new(access: &'a Access) -> Result<Self> {
        Ok(Self { access, client: client(access)?, open: Vec::new() })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a session with the server of a URL, and the path in the URL.
    pub(crate) fn open(&mut self, url: impl AsRef<OsStr>) -> Result<(Session, OsString)> {
        let location = Location::parse(url)?;
        let session = self.connect(&location)?;
        Ok((session, location.path))
    }

    /// Returns a session with the server of a location.
    pub(crate) fn connect(&mut self, location: &Location) -> Result<Session> {
        let mut server = location.clone();
        server.path = "/".into();
        if let Some((_, session)) = self.open.iter().find(|(known, _)| *known == server) {
            return Ok(session.clone());
        }
        let session = connect_by(&self.client, location, self.access)?;
        self.open.push((server, session.clone()));
        Ok(session)
    }
}

/// Returns the client configuration with the requested time to poll before sleeping.
pub(crate) fn client_config(access: &Access) -> ClientConfig {
    let mut config = ClientConfig::default();
    if let Some(spin) = access.spin {
        config.wait.spin_max = spin;
    }
    config
}

/// Creates a client with the configuration of [`client_config`].
pub(crate) fn client(access: &Access) -> Result<Client> {
    Ok(Client::new(client_config(access))?)
}

pub(crate) fn connect(location: &Location, access: &Access) -> Result<Session> {
    connect_by(&client(access)?, location, access)
}

pub(crate) fn connect_by(client: &Client, location: &Location, access: &Access) -> Result<Session> {
    Ok(client.connect(&access.tls.applied(location), &options(location, access)?)?)
}

/// Returns the session options for the server of a location. Asks the user for a missing password.
pub(crate) fn options(location: &Location, access: &Access) -> Result<SessionOptions> {
    let transport = match access.transport {
        Transport::Auto => TransportChoice::Automatic,
        Transport::Shm => TransportChoice::SharedMemory,
        Transport::Tcp => TransportChoice::Tcp,
    };
    let login = login(location, access)?;
    let location = access.tls.applied(location);
    let tls_name = match &location.server {
        ServerName::Host { host, tls: true, .. } => access.tls.name.clone().or(Some(host.clone())),
        ServerName::Host { .. } | ServerName::Verbs { .. } | ServerName::Socket(_) => None,
    };
    Ok(SessionOptions::default()
        .transport(transport)
        .login(login)
        .channels(access.channels)
        .checksums(access.checksums)
        .tls(access.tls.load(&location)?)
        .tls_name(tls_name)
        .fence_id(access.fence_id.clone())
        .umask(Umask::Bits(process_umask()))
        .label(access.label))
}

fn microseconds(count: u32) -> Duration {
    Duration::from_micros(count.into())
}

/// Parses a maximum number of connections for one session.
fn channels(text: &str) -> Result<u16> {
    let most = SessionOptions::CHANNELS_MAX;
    let number = if text == "auto" { Some(most) } else { text.parse().ok() };
    let number = number.filter(|number| (1..=most).contains(number));
    number.with_context(|| {
        format!("{text:?} is not a number of connections: write 1 to {most}, or auto")
    })
}

/// Parses a hexadecimal label.
fn label(text: &str) -> Result<Label> {
    let number = u64::from_str_radix(text.trim_start_matches("0x"), 16);
    let label = number.ok().and_then(Label::new);
    label.with_context(|| format!("{text:?} is not a label: write at most 10 hexadecimal digits"))
}

fn login(location: &Location, access: &Access) -> Result<Login> {
    let service = access.kerberos_service.as_deref().map(str::parse).transpose();
    let tickets = Tickets::default().service(service.context("--kerberos-service")?);
    match (access.login, &location.user) {
        (LoginChoice::Auto | LoginChoice::Password, Some((user, password))) => {
            let password = match password {
                Some(password) => password.clone(),
                None => ask_password(user, access)?,
            };
            Ok(Login::Password { user: user.clone(), password })
        }
        (LoginChoice::Kerberos | LoginChoice::None, Some((user, _))) => bail!(
            "the URL names user {user}, which needs a password; remove the user, or \
             give --login password"
        ),
        (LoginChoice::Auto, None) if tickets.service.is_some() => Ok(Login::Kerberos(tickets)),
        (LoginChoice::Auto, None) => Ok(Login::Automatic),
        (LoginChoice::Kerberos, None) => Ok(Login::Kerberos(tickets)),
        (LoginChoice::None, None) => Ok(Login::None),
        (LoginChoice::Password, None) => {
            bail!("--login password needs a user in the URL: dafs://USER@HOST/")
        }
    }
}

fn ask_password(user: &str, access: &Access) -> Result<String> {
    match &access.password_from {
        Some(path) => read_secret(path)
            .with_context(|| format!("reading the password from {}", path.display())),
        None => rpassword::prompt_password(format!("password of {user}: "))
            .context("asking for the password; give --password-from FILE without a terminal"),
    }
}

/// Reads the first line of a pipe, or of a file that other users can neither read nor write.
fn read_secret(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path)?;
    // Check the open file and not its name, which may refer to another file a moment later.
    let metadata = file.metadata()?;
    if metadata.is_file() {
        let user = rustix::process::geteuid().as_raw();
        check_secret(metadata.uid(), metadata.mode(), user)?;
    }
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The maximum size of a file with a password, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;
/// The longest time to poll before sleeping: one second. A longer wait is for a disk or a person,
/// and polling would not make it shorter.
const SPIN_MAX_US: i64 = 1_000_000;
/// The default port of servers.
pub(crate) const DEFAULT_PORT: u16 = 2050;
