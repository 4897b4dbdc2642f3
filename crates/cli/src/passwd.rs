//! `dafs passwd`: manages the users in a password file.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_server::PasswordFile;
use dafs_types::Credentials;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The password file. It is created if it does not exist.
    #[arg(long)]
    file: PathBuf,
    /// The user to add, change or remove. If no user is named, the users are listed.
    user: Option<String>,
    /// Remove the user from the password file.
    #[arg(long)]
    remove: bool,
    /// The user id with which the user accesses files.
    #[arg(long, default_value_t = 65_534)]
    uid: u32,
    /// The group id with which the user accesses files.
    #[arg(long, default_value_t = 65_534)]
    gid: u32,
    /// The supplementary group ids with which the user accesses files.
    #[arg(long, value_delimiter = ',')]
    groups: Vec<u32>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut passwords = if arguments.file.exists() {
        PasswordFile::load_to_change(&arguments.file)?
    } else {
        PasswordFile::default()
    };
    let Some(user) = &arguments.user else {
        passwords.names().for_each(|name| println!("{name}"));
        return Ok(());
    };
    if arguments.remove {
        if !passwords.remove(user) {
            bail!("{} has no user {user}", arguments.file.display());
        }
        return Ok(passwords.save(&arguments.file)?);
    }
    let who = Credentials::new(arguments.uid, arguments.gid, arguments.groups.clone())
        .with_context(|| format!("user {user}"))?;
    let password = read_password(user)?;
    if password.is_empty() {
        bail!("an empty password would let anybody in; nothing was changed");
    }
    passwords.set(user, who, &password)?;
    Ok(passwords.save(&arguments.file)?)
}

fn read_password(user: &str) -> Result<String> {
    if std::io::stdin().is_terminal() {
        let first = rpassword::prompt_password(format!("new password of {user}: "))?;
        let second = rpassword::prompt_password("again: ")?;
        if first != second {
            bail!("the two passwords differ; nothing was changed");
        }
        return Ok(first);
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("reading the password from stdin")?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
