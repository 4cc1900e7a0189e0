//! The first page of help, on which commands stand in groups.

use std::fmt::Write;

use clap::Command;

/// Commands by what people want to do.
const GROUPS: &[(&str, &[&str])] = &[
    ("Try it", &["demo", "bench", "lab"]),
    ("Run a cluster", &["switch", "server", "agent", "secret", "token", "plan", "nccl"]),
    ("Look at a cluster", &["doctor", "jobs", "top"]),
    ("Research", &["sim", "figure", "predict"]),
    ("Shell", &["completions", "help"]),
];

/// Puts the commands of a program into groups, with examples below them.
pub(crate) fn arrange(command: Command, examples: &str) -> Command {
    let groups = groups(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}\n\n{examples}\n"
    ))
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{title}:");
        for name in *names {
            let found = command.find_subcommand(name).and_then(Command::get_about);
            let about = found.map_or("Print help of the given command".into(), ToString::to_string);
            let _ = writeln!(text, "  {name:<12} {about}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::Arguments::command();
        let mut visible: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .chain(["help"])
            .collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }
}
