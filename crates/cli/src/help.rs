//! The text of `dafs --help`, with the commands in groups.
//!
//! Invariant: every visible command is in exactly one group, and no hidden command is in any.

use std::fmt::Write;

use clap::Command;

/// Returns the command with grouped help.
pub(crate) fn grouped(command: Command) -> Command {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in GROUPS {
        let _ = write!(text, "\n{heading}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<13} {}", about.trim_end_matches('.'));
        }
    }
    text.push_str("\nOptions:\n{options}\n\nSee dafs help COMMAND, and dafs-COMMAND(1).\n");
    command.help_template(text)
}

const GROUPS: [(&str, &[&str]); 5] = [
    ("Serve", &["serve", "passwd"]),
    (
        "Use",
        &[
            "ls", "stat", "cat", "cp", "mv", "rm", "mkdir", "ln", "df", "lock", "mount", "unmount",
            "exec", "apps",
        ],
    ),
    ("Operate", &["doctor", "top", "sessions", "locks", "follow", "fence", "exports"]),
    ("Measure", &["demo", "bench", "ping", "recover-test"]),
    ("Set up", &["completions", "man"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::Cli::command();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        let mut listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, shown);
    }
}
