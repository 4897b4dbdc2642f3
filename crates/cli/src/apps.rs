//! `dafs apps`: the applications with which the DAFS papers measured DAFS.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{external, gzip, postmark};

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    app: App,
}

#[derive(Debug, Subcommand)]
pub(crate) enum App {
    /// Compress files on this machine or on servers, as gzip does.
    Gzip(Box<gzip::Arguments>),
    /// Decompress files on this machine or on servers, as gunzip does.
    Gunzip(Box<gzip::Arguments>),
    /// Sort files of lines or records, of any size, on this machine and on servers.
    ///
    /// The order of lines, and the meaning of -k, -t, -b, -n, -r, -s, -u and -z, are those of
    /// sort(1) in the C locale.
    Sort(Box<external::Arguments>),
    /// Merge sorted files of lines or records into one.
    ///
    /// The files must be sorted as the options say. A file that is found to be out of order is
    /// refused.
    Merge(Box<external::Arguments>),
    /// Read, create and remove small files as a mail server does, and report transactions per
    /// second.
    Postmark(Box<postmark::Arguments>),
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    run_app(arguments.app)
}

pub(crate) fn run_app(app: App) -> Result<()> {
    match app {
        App::Gzip(arguments) => gzip::run(&arguments),
        App::Gunzip(arguments) => gzip::gunzip(*arguments),
        App::Sort(arguments) => external::sort::run(&arguments),
        App::Merge(arguments) => external::merge::run(&arguments),
        App::Postmark(arguments) => postmark::run(&arguments),
    }
}
