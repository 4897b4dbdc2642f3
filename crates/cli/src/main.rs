//! The `dafs` command: serves directories, and accesses directories on servers.
#![forbid(unsafe_code)]

/// Like the standard `print`, but does not panic if standard output is closed or full.
macro_rules! print {
    ($($what:tt)*) => { $crate::reported::print(format_args!($($what)*)) };
}

/// Like the standard `println`, but does not panic if standard output is closed or full.
macro_rules! println {
    () => { $crate::reported::print(format_args!("\n")) };
    ($($what:tt)*) => {
        $crate::reported::print(format_args!("{}\n", format_args!($($what)*)))
    };
}

mod access;
mod apps;
mod bench;
mod child_server;
mod cleanup;
mod copy;
mod demo;
mod doctor;
mod durability;
mod exec;
mod exiting;
mod exports;
mod external;
mod fence;
mod files;
mod generate;
mod gzip;
mod help;
mod ignored;
mod lock;
mod mount;
mod nfs;
mod passwd;
mod place;
mod postmark;
mod reactors;
mod recover;
mod reload;
mod reported;
mod secrets;
mod serve;
mod socket_users;
mod status;
mod terminal_text;
mod unauthenticated;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use apps::App;

/// Files over shared memory and RDMA-class networks.
#[derive(Debug, Parser)]
#[command(name = "dafs", version, about, max_term_width = 100)]
pub struct Cli {
    /// Log filter, as in RUST_LOG: error, warn, info, debug or module=level.
    #[arg(long, global = true, env = "DAFS_LOG", default_value = "warn")]
    log: String,
    /// Write log lines as JSON.
    #[arg(long, global = true)]
    log_json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve directories to clients.
    Serve(Box<serve::Arguments>),
    /// List a directory.
    Ls(files::ls::Arguments),
    /// Show the attributes of an object.
    Stat(files::stat::Arguments),
    /// Write files to standard output.
    Cat(files::cat::Arguments),
    /// Copy files between this machine and servers, or between servers.
    ///
    /// Copies keep modification times. New files have the modes of their sources, less the umask,
    /// or less what a default access list of their directory removes. Owners and the setuid and
    /// setgid bits are not copied.
    Cp(copy::Arguments),
    /// Rename objects on one server.
    Mv(files::mv::Arguments),
    /// Remove files and directories.
    Rm(files::rm::Arguments),
    /// Make directories.
    Mkdir(files::mkdir::Arguments),
    /// Make hard links and symbolic links.
    Ln(files::ln::Arguments),
    /// Show the space of the file system that contains a path.
    Df(files::df::Arguments),
    /// Run a program whose calls beneath chosen paths go to DAFS, without the kernel.
    Exec(exec::Arguments),
    /// Run the applications of the DAFS papers: gzip, sort, merge, a mail server.
    Apps(apps::Arguments),
    // The former names of the `apps` commands.
    #[command(hide = true)]
    Gzip(Box<gzip::Arguments>),
    #[command(hide = true)]
    Gunzip(Box<gzip::Arguments>),
    #[command(hide = true)]
    Sort(Box<external::Arguments>),
    #[command(hide = true)]
    Merge(Box<external::Arguments>),
    #[command(hide = true)]
    Postmark(Box<postmark::Arguments>),
    /// Show and change which clients may access a file or a file system (cluster fencing).
    Fence(fence::Arguments),
    /// Show the sessions of a server on this machine, and what limits them.
    Sessions(status::Target),
    /// Show live statistics of a server: throughput, latencies, sessions, cache.
    Top(status::top::Arguments),
    /// Show the requests of a server on this machine one by one, as they are answered.
    Follow(status::follow::Arguments),
    /// Show which NFS clients see which exports of a server on this machine, and reload its
    /// configuration.
    Exports(nfs::exports::Arguments),
    /// Hold a lock on a file while a command runs.
    Lock(lock::Arguments),
    /// Run a command on behalf of `dafs lock`.
    #[command(hide = true)]
    Held(lock::command::Arguments),
    /// Show the locks of a server on this machine, and which clients wait for them.
    Locks(status::Target),
    /// Kill a server under load, and check that no request is lost or executed twice.
    RecoverTest(recover::Arguments),
    /// Mount a directory of a server, so that every program can use it.
    Mount(mount::Arguments),
    /// Remove a mount.
    Unmount(mount::UnmountArguments),
    /// Measure the round-trip time to a server.
    Ping(files::ping::Arguments),
    /// Manage a password file.
    Passwd(passwd::Arguments),
    /// Measure reads and writes against local file access and the machine's limits.
    Bench(Box<bench::Arguments>),
    /// Run one of the processes that `dafs bench` compares DAFS with.
    #[command(hide = true)]
    BenchPeer(bench::PeerArguments),
    /// Serve a directory, copy it over every transport, verify the copies, show the speeds.
    Demo(demo::Arguments),
    /// Show which transport would be used for a server, and what is wrong on this machine.
    Doctor(doctor::Arguments),
    /// Print completions for a shell.
    Completions(generate::Completions),
    /// Write manual pages into a directory.
    Man(generate::Manual),
}

fn main() -> ExitCode {
    secrets::hide();
    let matches = help::grouped(Cli::command()).get_matches_from(secrets::arguments());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    start_logging(&cli);
    match reported::unless_output_closed(|| run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed the pipe, which is no failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<reported::AlreadyReported>() => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("dafs: {}", terminal_text::complaint(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Ls(arguments) => files::ls::run(&arguments),
        Command::Stat(arguments) => files::stat::run(&arguments),
        Command::Cat(arguments) => files::cat::run(&arguments),
        Command::Cp(arguments) => copy::run(&arguments),
        Command::Sort(arguments) => apps::run_app(App::Sort(arguments)),
        Command::Merge(arguments) => apps::run_app(App::Merge(arguments)),
        Command::Mv(arguments) => files::mv::run(&arguments),
        Command::Rm(arguments) => files::rm::run(&arguments),
        Command::Mkdir(arguments) => files::mkdir::run(&arguments),
        Command::Ln(arguments) => files::ln::run(&arguments),
        Command::Df(arguments) => files::df::run(&arguments),
        Command::Exec(arguments) => exec::run(&arguments),
        Command::Apps(arguments) => apps::run(arguments),
        Command::Gzip(arguments) => apps::run_app(App::Gzip(arguments)),
        Command::Gunzip(arguments) => apps::run_app(App::Gunzip(arguments)),
        Command::Fence(arguments) => fence::run(&arguments),
        Command::Sessions(target) => status::sessions::run(&target),
        Command::Top(arguments) => status::top::run(&arguments),
        Command::Follow(arguments) => status::follow::run(&arguments),
        Command::Exports(arguments) => nfs::exports::run(&arguments),
        Command::Lock(arguments) => lock::run(&arguments),
        Command::Held(arguments) => lock::command::run(&arguments),
        Command::Locks(target) => status::locks::run(&target),
        Command::RecoverTest(arguments) => recover::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Unmount(arguments) => mount::unmount(&arguments),
        Command::Ping(arguments) => files::ping::run(&arguments),
        Command::Passwd(arguments) => passwd::run(&arguments),
        Command::Postmark(arguments) => apps::run_app(App::Postmark(arguments)),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchPeer(arguments) => bench::serve_peer(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Completions(arguments) => generate::completions(&arguments),
        Command::Man(arguments) => generate::manual(&arguments),
    }
}

/// True if the reader of this program's output has closed the pipe. A broken connection to a server
/// is also a broken pipe error, but does not count.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_elsewhere = error
        .chain()
        .any(|cause| cause.is::<dafs_client::ClientError>() || cause.is::<dafs_extmem::Error>());
    if is_elsewhere {
        return false;
    }
    let io = error.root_cause().downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

fn start_logging(cli: &Cli) {
    let filter = tracing_subscriber::EnvFilter::new(&cli.log);
    // Use colours only on a terminal: they would confuse programs that read the log.
    let is_read_by_people = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_read_by_people)
        // Reporting such errors would panic when the terminal is gone.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    if cli.log_json { builder.json().init() } else { builder.init() }
}
