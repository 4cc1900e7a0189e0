//! Files that daemons read again at `SIGHUP`.

use thalweg_console::Failure;

use super::{say, warn};

/// Reads files and puts their content into force, or leaves everything as it was.
type Renew<'a, D> = Box<dyn Fn(&D) -> Result<(), Failure> + 'a>;

/// Action of a daemon at `SIGHUP`.
pub(crate) struct Renewal<'a, D> {
    /// Does it.
    pub(crate) renew: Renew<'a, D>,
    /// Flags of the files that are read.
    pub(crate) read: Vec<&'static str>,
    /// Flags of the files that are read at the start alone.
    pub(crate) kept: Vec<&'static str>,
}

impl<D> Renewal<'_, D> {
    /// Runs it, and reports what became of it.
    pub(crate) fn run(&self, daemon: &D) {
        match (self.renew)(daemon) {
            Ok(()) => say(self.summary()),
            Err(failure) => warn(format_args!("SIGHUP: {failure}; nothing was changed")),
        }
    }

    fn summary(&self) -> String {
        let read = match &*self.read {
            [] => "no file to read again".to_owned(),
            flags => format!("read {} again", flags.join(" and ")),
        };
        let kept = match &*self.kept {
            [] => String::new(),
            flags => format!("; {} stay as they are until the next start", flags.join(" and ")),
        };
        format!("SIGHUP: {read}{kept}")
    }
}

/// The flags of the files that were given.
pub(crate) fn flags<const N: usize>(files: [(&'static str, bool); N]) -> Vec<&'static str> {
    files.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_learns_what_was_read_and_what_was_not() {
        let summary =
            |read, kept| Renewal::<()> { renew: Box::new(|_| Ok(())), read, kept }.summary();
        let none = flags([("--secret-file", false), ("--token-file", false)]);
        assert_eq!(summary(none.clone(), none), "SIGHUP: no file to read again");
        let both = flags([("--secret-file", true), ("--token-file", true)]);
        assert_eq!(
            summary(both, vec!["--tls-cert", "--tls-key"]),
            "SIGHUP: read --secret-file and --token-file again; --tls-cert and --tls-key stay as they are until the \
             next start"
        );
    }
}
