//! `dafs apps`: the applications that the papers on DAFS measured it with.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{external, gzip, postmark};

/// Arguments of `dafs apps`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    app: App,
}

/// An application.
#[derive(Debug, Subcommand)]
pub enum App {
    /// Compress files here or on servers, as gzip does.
    Gzip(Box<gzip::Arguments>),
    /// Decompress files here or on servers, as gunzip does.
    Gunzip(Box<gzip::Arguments>),
    /// Sort files of lines or records, however large, here and on servers.
    ///
    /// The order of lines, and what -k, -t, -b, -n, -r, -s, -u and -z mean, are those of sort(1)
    /// in the C locale.
    Sort(Box<external::Arguments>),
    /// Merge sorted files of lines or records into one.
    ///
    /// The files must be sorted by what the options say. One that is seen not to be is refused.
    Merge(Box<external::Arguments>),
    /// Read, make and remove small files as a mail server does, and say how many a second.
    Postmark(Box<postmark::Arguments>),
}

pub fn run(arguments: Arguments) -> Result<()> {
    run_app(arguments.app)
}

pub fn run_app(app: App) -> Result<()> {
    match app {
        App::Gzip(arguments) => gzip::run(&arguments),
        App::Gunzip(arguments) => gzip::gunzip(*arguments),
        App::Sort(arguments) => external::sort::run(&arguments),
        App::Merge(arguments) => external::merge::run(&arguments),
        App::Postmark(arguments) => postmark::run(&arguments),
    }
}
