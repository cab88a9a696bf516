//! What a person sees while an environment is made, read from what uv prints.

use std::collections::BTreeSet;
use std::time::Duration;

/// A step of [`super::sync`]. uv prints few lines when it does not write to a terminal, so a display shows the last event with
/// a moving sign and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEvent {
    /// Another process makes the same environment; this one waits for it.
    Waiting,
    /// A half-made or damaged environment was found and is made anew.
    Repairing {
        /// What was wrong with it.
        reason: String,
    },
    /// uv is not on this computer and is being fetched.
    FetchingUv,
    /// The packages are looked up.
    Resolving,
    /// It is known which packages go in.
    Resolved {
        /// How many packages.
        packages: usize,
    },
    /// A package's download began or ended. Only large ones are told.
    Downloading {
        /// The package's name.
        package: String,
        /// Its size as uv tells it (`504.0MiB`), at the beginning.
        size: Option<String>,
        /// Downloads begun so far.
        begun: usize,
        /// Downloads ended so far.
        ended: usize,
    },
    /// All files are there; they are linked into the environment.
    Installing {
        /// How many packages.
        packages: usize,
    },
    /// The packages' bytecode is compiled, so that no worker has to: their file system is read-only.
    Compiling {
        /// How many packages.
        packages: usize,
    },
    /// The environment is complete.
    Done {
        /// How many packages it holds.
        packages: usize,
        /// How long the call took.
        elapsed: Duration,
        /// Whether it was there already.
        reused: bool,
    },
}

/// Turns uv's lines into events.
#[derive(Debug, Default)]
pub(super) struct UvProgress {
    packages: usize,
    begun: BTreeSet<String>,
    ended: BTreeSet<String>,
}

impl UvProgress {
    /// What a line that uv printed on standard error means; most mean nothing new.
    pub(super) fn read(&mut self, line: &str) -> Option<SyncEvent> {
        let (verb, rest) = line.trim().split_once(' ')?;
        match verb {
            "Resolved" => {
                self.packages = first_number(rest)?;
                Some(SyncEvent::Resolved { packages: self.packages })
            }
            "Downloading" => {
                let (package, size) = rest.split_once(' ').unwrap_or((rest, ""));
                self.begun.insert(package.to_owned()); // Told again when it is tried again.
                let size = size.trim_matches(['(', ')']);
                Some(self.download(package, (!size.is_empty()).then(|| size.to_owned())))
            }
            "Downloaded" => {
                self.ended.insert(rest.to_owned());
                Some(self.download(rest, None))
            }
            "Prepared" => Some(SyncEvent::Installing { packages: self.packages }),
            "Installed" => Some(SyncEvent::Compiling { packages: first_number(rest)? }),
            _ => None,
        }
    }

    fn download(&self, package: &str, size: Option<String>) -> SyncEvent {
        SyncEvent::Downloading { package: package.to_owned(), size, begun: self.begun.len(), ended: self.ended.len() }
    }
}

fn first_number(text: &str) -> Option<usize> {
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uv_lines_become_events() {
        let mut progress = UvProgress::default();
        let events: Vec<_> = [
            "Using Python 3.11.7 environment at: v1",
            "Resolved 4 packages in 126ms",
            "Downloading numpy (16.1MiB)",
            "Downloading pillow (6.8MiB)",
            "Downloading pillow (6.8MiB)",
            " Downloaded pillow",
            " Downloaded numpy",
            "Prepared 4 packages in 301ms",
            "Installed 4 packages in 20ms",
            " + numpy==2.4.6",
        ]
        .iter()
        .filter_map(|line| progress.read(line))
        .collect();
        let download = |package: &str, size: Option<&str>, begun, ended| SyncEvent::Downloading {
            package: package.into(),
            size: size.map(Into::into),
            begun,
            ended,
        };
        assert_eq!(
            events,
            [
                SyncEvent::Resolved { packages: 4 },
                download("numpy", Some("16.1MiB"), 1, 0),
                download("pillow", Some("6.8MiB"), 2, 0),
                download("pillow", Some("6.8MiB"), 2, 0),
                download("pillow", None, 2, 1),
                download("numpy", None, 2, 2),
                SyncEvent::Installing { packages: 4 },
                SyncEvent::Compiling { packages: 4 },
            ]
        );
    }
}
