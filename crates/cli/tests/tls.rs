//! Tests the command over TLS, with a server that accepts only TLS, and the error messages.

#[path = "../../dat/tests/certificates/mod.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
pub(crate) mod certificates;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use certificates::Authority;

/// A server of a directory that accepts only TLS.
struct Server {
    child: Child,
    directory: tempfile::TempDir,
    port: String,
}

impl Server {
    fn start(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let export = directory.path().join("export");
        std::fs::create_dir(&export).unwrap();
        let (certificate, key) = authority.issue("server", &["localhost"], |_| {});
        // The keys of the file are the names of the flags.
        let config = directory.path().join("config.toml");
        let text = format!(
            "tls-cert = {certificate:?}\ntls-key = {key:?}\ntls-client-ca = {:?}\n",
            authority.file()
        );
        std::fs::write(&config, text).unwrap();
        let who = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut child = Command::new(env!("CARGO_BIN_EXE_dafs"))
            .arg("serve")
            .arg(&export)
            .args(["--tcp", "127.0.0.1:0", "--no-socket", "--tls-only"])
            .args(["--anonymous", &format!("{}:{}", who.0, who.1), "--squash", "none"])
            .arg("--state")
            .arg(directory.path().join("state"))
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().unwrap().unwrap();
        let port = ready.rsplit(':').next().unwrap().to_owned();
        let advice = lines.next().unwrap().unwrap();
        assert!(advice.contains("dafs+tls://"), "{advice}");
        Self { child, directory, port }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}/", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dafs(arguments: &[&str], files: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dafs"));
    for name in ["DAFS_TLS", "DAFS_TLS_CA", "DAFS_TLS_CERT", "DAFS_TLS_KEY"] {
        command.env_remove(name);
    }
    command.args(arguments).envs(files.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn says(output: &Output, what: &str) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains(what), "{what:?} is not in {text}");
}

#[test]
fn files_go_by_tls_and_in_no_other_way() {
    let authority = Authority::new();
    let server = Server::start(&authority);
    let (certificate, key) = authority.issue("client", &[], |_| {});
    let ca = authority.file();
    let all: [(&str, &Path); 3] =
        [("DAFS_TLS_CA", &ca), ("DAFS_TLS_CERT", &certificate), ("DAFS_TLS_KEY", &key)];
    let url = server.url("dafs+tls");
    let file = server.directory.path().join("file");
    let content: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, &content).unwrap();
    let copied = dafs(&["cp", file.to_str().unwrap(), &url], &all);
    assert!(copied.status.success(), "{copied:?}");
    // TLS can be selected by a flag as well as by the URL.
    let read = dafs(&["cat", "--tls", &format!("{}file", server.url("dafs"))], &all);
    assert!(read.status.success() && read.stdout == content);
    says(&dafs(&["doctor", &url], &all), "by TLS 1.3, with a verified server certificate");
    says(&dafs(&["doctor", &url], &all), "tls: this client is client, for");

    says(&dafs(&["ls", &server.url("dafs")], &all), "accepts only TLS connections; write dafs+tls");
    says(&dafs(&["ls", &url], &all[..1]), "it requires a certificate of this side");
    says(&dafs(&["ls", &url], &[]), "give --tls-ca FILE");
    let elsewhere = dafs(&["ls", "--tls-name", "elsewhere", &url], &all);
    says(&elsewhere, "not valid for name \"elsewhere\"");
    let (other, shm) = (Authority::new(), ["ls", "--transport", "shm", &url]);
    let wrong = [("DAFS_TLS_CA", other.file())];
    says(&dafs(&["ls", &url], &[(wrong[0].0, &wrong[0].1)]), "UnknownIssuer");
    says(&dafs(&shm, &all), "TLS works over TCP");
}

#[test]
fn a_server_does_not_start_with_a_key_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let authority = Authority::new();
    let (certificate, key) = authority.issue("server", &["localhost"], |_| {});
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let serve = ["serve", "--memory", "1M", "--tcp", "127.0.0.1:0", "--no-socket"];
    let with_tls = [&serve[..], &["--tls-cert", certificate, "--tls-key", key]].concat();
    says(&dafs(&with_tls, &[]), "mode 644 lets other users access the private key");
    says(&dafs(&[&serve[..], &["--tls-only"]].concat(), &[]), "give --tls-cert FILE");
    says(
        &dafs(&[&serve[..], &["--tls-cert", certificate]].concat(), &[]),
        "must be given together",
    );
}
