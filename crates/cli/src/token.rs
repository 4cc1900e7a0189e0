//! `thalweg token`: credentials of tenants and operators.
// spec: E-04

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde::Serialize;
use thalweg_console::{Failure, files};
use thalweg_control::token::{Pattern, Role, Token, TokenError, TokenVerifier};
use thalweg_control::{random, since_1970_s};

use crate::daemon;

/// Longest time that a token may be valid: ten years.
const VALID_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// The long help of `thalweg token`.
pub(crate) const ABOUT: &str = "\
Make tokens for tenants and operators, and explain them.

Ranks show a token when they join a job at a server beyond loopback. A token names the jobs that it opens, the most ranks
of such a job, and its expiry. It is signed with the secret of the cluster: servers need only the secret to verify it, and
keep no list. A tenant's token opens and shows its own jobs and no others. An operator's token (--operator)
shows all jobs, and opens the load tables of switches to agents.

Everybody who has a token can use it until it expires. Give ranks the file of --out, and encrypt the control channel
(`thalweg server --tls-cert`); otherwise others can read the token and use it. A job that outlives its token goes on until a
rank has to connect again: make it valid for longer than the job.";

/// Name and version of the JSON document.
const SCHEMA: &str = "thalweg.token/1";

/// Commands of `thalweg token`.
#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it or write it to a file
    #[command(after_long_help = NEW_EXAMPLES)]
    New(NewArguments),
    /// Explain a token: the jobs, the ranks, the expiry; with the secret also its validity
    #[command(after_long_help = SHOW_EXAMPLES)]
    Show(ShowArguments),
}

const NEW_EXAMPLES: &str = "\
The jobs of a token are a name, or a pattern in which * stands for any characters. A name also covers all names that
begin with it and a /, such as those of groups of PyTorch: resnet covers resnet/0. Quote patterns for the shell.

Examples:
  thalweg token new --secret-file /etc/thalweg/secret --job 'resnet-*' --ranks 64 --valid 24h --out alice.token
      for the jobs of one tenant, for a day
  thalweg token new --secret-file /etc/thalweg/secret --operator --valid 30d --out operator.token
      for an operator, who sees all jobs and joins any";

const SHOW_EXAMPLES: &str = "\
Examples:
  thalweg token show $(cat alice.token)
      prints its content, which is not secret
  thalweg token show $(cat alice.token) --secret-file /etc/thalweg/secret --json
      the same and its validity at a server with this secret, for programs";

/// Arguments of `thalweg token new`.
#[derive(Args)]
pub(crate) struct NewArguments {
    /// A file with the secret of the cluster: 32 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// Jobs that the token opens: a name, or a pattern with * [default for operators: *]
    #[arg(long, value_name = "PATTERN", required_unless_present = "operator")]
    job: Option<String>,
    /// The most ranks of one of these jobs
    #[arg(long, value_name = "N", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Time for which the token is valid, such as 24h or 30d
    #[arg(long, value_name = "TIME", default_value = "24h")]
    valid: humantime::Duration,
    /// Make an operator's token, which shows all jobs
    #[arg(long)]
    operator: bool,
    /// Write the token to a new file that only its owner can read, in place of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Arguments of `thalweg token show`.
#[derive(Args)]
pub(crate) struct ShowArguments {
    /// The token
    #[arg(value_name = "TOKEN")]
    token: String,
    /// A file with the secret of the cluster, to verify the token
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The claims of a token, for people and programs.
#[derive(Serialize)]
struct Shown<'a> {
    schema: &'static str,
    id: String,
    role: String,
    jobs: &'a str,
    ranks_max: u32,
    expires: String,
    expires_in_s: i64,
    /// Absent without a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid: Option<bool>,
}

/// Runs it.
pub(crate) fn token(command: &TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::New(arguments) => new(arguments),
        TokenCommand::Show(arguments) => show(arguments),
    }
}

fn new(arguments: &NewArguments) -> Result<(), Failure> {
    let secrets = daemon::read(&arguments.secret_file)?;
    let job = arguments.job.as_deref().unwrap_or("*");
    let jobs = Pattern::new(job)
        .map_err(|error| Failure::Usage(format!("--job {job:?} cannot be used: {error}")))?;
    let valid = Duration::from(arguments.valid);
    if valid < Duration::from_secs(1) || valid > VALID_MAX {
        return Err(Failure::Usage(format!(
            "--valid {} is too short or too long: choose 1s to 3650d",
            arguments.valid
        )));
    }
    let token = Token {
        id: random::draw().map_err(|error| Failure::Ran(format!("no random numbers: {error}")))?,
        role: if arguments.operator { Role::Operator } else { Role::Tenant },
        jobs,
        ranks_max: arguments.ranks,
        expires: since_1970_s() + valid.as_secs(),
    };
    let text = format!("{}\n", token.sign(secrets.current()));
    match &arguments.out {
        Some(path) => files::write_private(path, &text),
        None => files::print(&text),
    }
}

fn show(arguments: &ShowArguments) -> Result<(), Failure> {
    let text = arguments.token.trim();
    let token = Token::read(text).map_err(|error| {
        Failure::Usage(format!("{error}; give what `thalweg token new` has printed"))
    })?;
    let now = since_1970_s();
    let secrets = arguments.secret_file.as_deref().map(daemon::read).transpose()?;
    let verified = secrets.map(|secrets| {
        let secrets: Vec<_> = secrets.all().collect();
        TokenVerifier::new(&secrets).verify(text, now).map(drop)
    });
    let expires = UNIX_EPOCH.checked_add(Duration::from_secs(token.expires.min(253_402_300_799)));
    let shown = Shown {
        schema: SCHEMA,
        id: format!("{:016x}", token.id),
        role: token.role.to_string(),
        jobs: token.jobs.as_str(),
        ranks_max: token.ranks_max,
        expires: expires
            .map_or(String::new(), |at| humantime::format_rfc3339_seconds(at).to_string()),
        expires_in_s: i64::try_from(token.expires).unwrap_or(i64::MAX) - now as i64,
        valid: verified.map(|verified| verified.is_ok()),
    };
    if arguments.json {
        let json =
            serde_json::to_string(&shown).map_err(|error| Failure::Ran(error.to_string()))?;
        files::print(&format!("{json}\n"))?;
    } else {
        files::print(&lines(&shown, verified))?;
    }
    match verified {
        Some(Err(error)) => Err(Failure::Ran(error.to_string())),
        _ => Ok(()),
    }
}

fn lines(shown: &Shown<'_>, verified: Option<Result<(), TokenError>>) -> String {
    let Shown { id, role, jobs, ranks_max, expires, expires_in_s, .. } = shown;
    let left = match expires_in_s {
        0 => "now".to_owned(),
        ago @ ..0 => format!("{} ago", time(ago.unsigned_abs())),
        left => format!("in {}", time(left.unsigned_abs())),
    };
    let sees = if role == "operator" { "; sees all jobs" } else { "" };
    let verdict = match verified {
        None => "not checked: give --secret-file to verify the signature".to_owned(),
        Some(Ok(())) => "valid: a server with this secret takes it".to_owned(),
        Some(Err(error)) => format!("not valid: {error}"),
    };
    format!(
        "role     {role}{sees}\njobs     {jobs}\nranks    at most {ranks_max} in a job\nexpires  {expires} ({left})\n\
         id       {id}\n{verdict}\n"
    )
}

fn time(seconds: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_explained_in_words() {
        let shown = |expires_in_s| Shown {
            schema: SCHEMA,
            id: "5".into(),
            role: "operator".into(),
            jobs: "a*",
            ranks_max: 3,
            expires: "2026-01-01T00:00:00Z".into(),
            expires_in_s,
            valid: None,
        };
        let text = lines(&shown(3_600), None);
        let words = ["operator; sees all", "a*", "at most 3", "in 1h", "--secret-file"];
        for words in words {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = lines(&shown(-60), Some(Err(TokenError::Seal)));
        assert!(
            text.contains("(1m ago)") && text.contains("not valid: the token is not"),
            "{text}"
        );
        assert!(lines(&shown(0), Some(Ok(()))).contains("(now)\n"));
    }
}
