//! Client processes and the orders sent to them.
//!
//! Invariant: a client ends when the value that started it is dropped, and when this process ends
//! for any reason, because either closes its standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dafs_bench::scale::{ClientPlan, ScaleClient, Tally, Work};
use serde::{Deserialize, Serialize};

use super::Host;
use crate::child_server::{self, Pass};
use crate::cleanup;

/// A client process of the benchmark, which sends requests to the servers.
pub(super) struct Client {
    number: usize,
    child: Child,
    /// The standard input of the process. Closing this pipe ends the process.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// An order for a client.
#[derive(Serialize, Deserialize)]
struct Order {
    server: usize,
    work: Work,
    seconds: f64,
}

impl Client {
    pub(super) fn start(number: usize, files: usize, hosts: &[Host], pass: &Pass) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command
            .args(["bench-peer", "scale-client", &number.to_string(), &files.to_string()])
            .args(hosts.iter().map(|host| host.address.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        cleanup::join(&mut command);
        let mut child = command.spawn().context("starting a client")?;
        let mut orders = child.stdin.take().context("a client without standard input")?;
        let answers = child.stdout.take().context("a client without standard output")?;
        // If the write fails, the client has already ended and printed the reason.
        let _ = pass.write(&mut orders);
        Ok(Self { number, child, orders: Some(orders), answers: BufReader::new(answers) })
    }

    pub(super) fn await_ready(&mut self) -> Result<()> {
        self.line().map(drop)
    }

    pub(super) fn begin(&mut self, server: usize, work: Work, span: Duration) -> Result<()> {
        let order = Order { server, work, seconds: span.as_secs_f64() };
        let line = serde_json::to_string(&order)? + "\n";
        let orders = self.orders.as_mut().context("a client has been ended")?;
        orders.write_all(line.as_bytes()).with_context(|| format!("client {}", self.number))
    }

    pub(super) fn end(&mut self) -> Result<Tally> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("client {}: {line}", self.number))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.is_empty() {
            bail!("client {} has ended; see its message above", self.number);
        }
        Ok(line)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.orders.take();
        // A failure to wait is ignored: nothing else can be done.
        let _ = self.child.wait();
    }
}

/// Runs in the client process. Executes orders until the standard input ends.
pub(crate) fn serve_client(number: &str, files: &str, addresses: &[String]) -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let password = lines.next().context("a client needs a password in its first line")??;
    let address = |text: &String| {
        child_server::address(text).with_context(|| format!("{text:?} is no address of a server"))
    };
    let plan = ClientPlan {
        number: number.parse().context("the number of a client")?,
        files: files.parse().context("the number of files")?,
        servers: addresses.iter().map(address).collect::<Result<_>>()?,
        session: Pass::from_password(password).options(),
    };
    let mut client = ScaleClient::new(&plan)?;
    println!("ready");
    for line in lines {
        let Order { server, work, seconds } = serde_json::from_str(&line?)?;
        let tally = client.run(server, work, Duration::from_secs_f64(seconds))?;
        println!("{}", serde_json::to_string(&tally)?);
    }
    Ok(())
}
