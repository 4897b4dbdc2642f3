//! A realm for each test: MIT's key distribution center on loopback, with its database, keytabs and
//! configuration in a directory that is removed with it.
//!
//! Invariant: no test reads the system's Kerberos configuration, and the center ends with the test,
//! however the test ends.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// The name of the realm.
pub(crate) const REALM: &str = "DAFS.TEST";
/// The variable that passes the realm's directory to a scenario.
const FOLDER: &str = "DAFS_GSS_REALM";
/// The text that a scenario prints when it has run to its end.
const DONE: &str = "scenario ran to its end: ";
/// The number of ports that are tried.
const PORTS_MAX: usize = 8;

/// Runs a scenario in a separate process, because the library reads its configuration from the
/// environment. `name` must be the name of the test.
pub(crate) fn scenario(name: &str, act: fn(&Realm)) {
    scenario_in(name, "", act);
}

/// Runs a scenario with additional lines in `[libdefaults]` of `krb5.conf`.
pub(crate) fn scenario_in(name: &str, settings: &str, act: fn(&Realm)) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        act(&Realm { folder: folder.into() });
        println!("{DONE}{name}");
        return;
    }
    if let Some(missing) = Realm::missing_program() {
        let what = format!(
            "{missing} is missing: install krb5-kdc, krb5-admin-server and krb5-user (Debian)"
        );
        return dafs_tests::Required::Kdc.skip(what);
    }
    let centre = Centre::start(settings);
    let mut command = centre.realm.command(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    let output = command.env(FOLDER, &centre.realm.folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let finished = output.status.success() && said.contains(&format!("{DONE}{name}"));
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(finished, "{}\n{said}\n{complained}", output.status);
    print!("{said}");
}

/// The directory of a realm, and the programs that use it.
pub(crate) struct Realm {
    folder: PathBuf,
}

impl Realm {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs commands of `kadmin.local`.
    pub(crate) fn administer(&self, lines: &str) {
        // It reports failures only as text.
        let output = self.run(&mut self.command(find("kadmin.local").unwrap()), lines);
        let complaints = String::from_utf8_lossy(&output.stderr);
        let failed = complaints.lines().find(|line| line.contains(" while "));
        assert!(failed.is_none(), "{complaints}");
    }

    /// Obtains a ticket into a cache.
    pub(crate) fn ticket(&self, principal: &str, password: &str, cache: &Path, options: &[&str]) {
        let mut command = self.command(find("kinit").unwrap());
        command.arg("-c").arg(cache).args(options).arg(principal);
        let output = self.run(&mut command, &format!("{password}\n"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// True if `klist -s` considers a cache's tickets valid.
    pub(crate) fn holds_good(&self, cache: &Path) -> bool {
        let mut command = self.command(find("klist").unwrap());
        command.arg("-s").arg("-c").arg(cache).status().unwrap().success()
    }

    /// Adds to a keytab the key made from a password.
    pub(crate) fn forge_key(&self, keytab: &Path, principal: &str, version: u32, password: &str) {
        let lines = format!(
            "addent -password -p {principal} -k {version} -e aes256-cts-hmac-sha1-96\n\
             {password}\nwkt {}\n",
            keytab.display()
        );
        let output = self.run(&mut self.command(find("ktutil").unwrap()), &lines);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && keytab.exists(), "{complaints}");
    }

    fn run(&self, command: &mut Command, input: &str) -> Output {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Returns a command with the environment of the realm.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KRB5") {
                command.env_remove(name);
            }
        }
        command
            .env("KRB5_CONFIG", self.path("krb5.conf"))
            .env("KRB5_KDC_PROFILE", self.path("kdc.conf"))
            .env("KRB5CCNAME", self.path("default.cache"))
            .env("KRB5_KTNAME", self.path("default.keytab"))
            .env("KRB5_CLIENT_KTNAME", self.path("no.keytab"))
            .env("KRB5RCACHEDIR", &self.folder);
        command
    }

    fn missing_program() -> Option<&'static str> {
        ["kdb5_util", "kadmin.local", "krb5kdc", "kinit", "klist", "ktutil"]
            .into_iter()
            .find(|program| find(program).is_none())
    }

    fn configure(&self, settings: &str, port: u16) {
        let folder = self.folder.display();
        let client = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n \
             dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n \
             udp_preference_limit = 1\n {settings}\n\
             [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n \
             NOWHERE.TEST = {{\n  kdc = 127.0.0.1:1\n }}\n\
             [domain_realm]\n .dafs.test = {REALM}\n"
        );
        let centre = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  \
             key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n }}\n\
             [logging]\n kdc = FILE:{folder}/kdc.log\n default = FILE:{folder}/kdc.log\n"
        );
        std::fs::write(self.path("krb5.conf"), client).unwrap();
        std::fs::write(self.path("kdc.conf"), centre).unwrap();
    }
}

/// Finds a program, including in the directories of administrators' programs.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/lib/mit/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// A running center, and the directory of its realm.
struct Centre {
    realm: Realm,
    shell: Child,
    _complaints: BufReader<ChildStderr>,
    _folder: tempfile::TempDir,
}

impl Centre {
    fn start(settings: &str) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let realm = Realm { folder: folder.path().to_path_buf() };
        realm.configure(settings, 0);
        let mut create = realm.command(find("kdb5_util").unwrap());
        create.args(["create", "-s", "-r", REALM, "-P", "of no use to anybody"]);
        let output = realm.run(&mut create, "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for _ in 0..PORTS_MAX {
            realm.configure(settings, free_port());
            let (mut shell, mut complaints) = listen(&realm);
            if heard(&mut complaints, "starting") {
                return Self { realm, shell, _complaints: complaints, _folder: folder };
            }
            end(&mut shell);
        }
        panic!("{}", std::fs::read_to_string(realm.path("kdc.log")).unwrap_or_default());
    }
}

impl Drop for Centre {
    fn drop(&mut self) {
        end(&mut self.shell);
    }
}

/// Returns a free port for TCP and UDP. Another process may take it before the center does.
fn free_port() -> u16 {
    loop {
        let stream = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = stream.local_addr().unwrap().port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Starts the center under a shell that ends it when this side's end of a pipe is closed: by this
/// process, or by the kernel when this process is killed.
fn listen(realm: &Realm) -> (Child, BufReader<ChildStderr>) {
    let script = r#""$0" -n & exec 2>/dev/null; read _; kill $!; wait"#;
    let mut command = realm.command("/bin/sh");
    command.args([OsStr::new("-c"), OsStr::new(script), find("krb5kdc").unwrap().as_os_str()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut shell = command.spawn().unwrap();
    let complaints = BufReader::new(shell.stderr.take().unwrap());
    (shell, complaints)
}

fn end(shell: &mut Child) {
    shell.stdin.take();
    shell.wait().unwrap();
}

/// True if a line with a word comes before the end.
fn heard(from: &mut BufReader<impl Read>, word: &str) -> bool {
    from.lines().map_while(Result::ok).any(|line| line.contains(word))
}
