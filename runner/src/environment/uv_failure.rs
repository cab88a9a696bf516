//! What uv or pip meant when it failed.

use std::path::Path;

use super::credentials::redact;
use super::error::EnvironmentError;
use super::spec::this_platform;

const SHOWN_LINES: usize = 15;

/// Reads the last lines of a failed tool; `folder` is what it wrote to, `python` the version it worked for.
pub(super) fn explain(step: &'static str, stderr: &str, folder: &Path, python: &str) -> EnvironmentError {
    let stderr = redact(stderr);
    let has = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
    if has(&["No space left on device", "os error 28", "Disk quota exceeded", "os error 122"]) {
        return EnvironmentError::DiskFull { step, path: folder.to_owned(), free_gib: free_gib(folder).unwrap_or(0.0) };
    }
    if has(&["Hash mismatch for", "DO NOT MATCH THE HASHES"]) {
        return EnvironmentError::HashMismatch { step, package: mismatched_package(&stderr) };
    }
    if has(&[
        "error sending request",
        "Failed to fetch",
        "dns error",
        "Connection refused",
        "operation timed out",
        "Failed to establish a new connection",
        "NewConnectionError",
        "ProxyError",
        "Network connectivity is disabled",
    ]) {
        let lines: Vec<_> = stderr.lines().map(|line| line.trim().trim_start_matches("cause: ")).collect();
        let what = lines.iter().find(|line| line.contains("://")).or(lines.first()).unwrap_or(&"");
        let why = lines.last().filter(|why| *why != what).map(|why| format!("; {why}")).unwrap_or_default();
        return EnvironmentError::Network { step, detail: format!("{what}{why}") };
    }
    let detail = last_lines(&stderr);
    if has(&["wheel for the current platform", "no wheels with a matching", "has no usable wheels", "no matching distribution"])
    {
        return EnvironmentError::NoWheel { step, platform: this_platform(), python: python.to_owned(), detail };
    }
    EnvironmentError::Tool { step, detail }
}

fn mismatched_package(stderr: &str) -> String {
    let after = stderr.split("Hash mismatch for `").nth(1).and_then(|rest| rest.split('`').next());
    let pip = stderr.lines().map(str::trim).find(|line| line.contains(" from ") && line.contains("://"));
    after.or_else(|| pip.and_then(|line| line.split(' ').next())).unwrap_or("a package").to_owned()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
    if shown.is_empty() { "it printed nothing".to_owned() } else { shown }
}

/// Space that this user may still fill on the file system of a folder.
pub(super) fn free_gib(folder: &Path) -> Option<f64> {
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    Some(stat.f_bavail as f64 * stat.f_frsize as f64 / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(stderr: &str) -> EnvironmentError {
        explain("install the packages", stderr, Path::new("/tmp"), "3.11")
    }

    #[test]
    fn each_cause_is_recognised() {
        let network = told(
            "error: Request failed after 3 retries in 6.2s\n  cause: Failed to fetch: https://u:hunter2@h/simple/six/\n  cause: Connection refused (os error 111)",
        );
        assert!(matches!(&network, EnvironmentError::Network { .. }));
        let shown = network.to_string();
        assert!(
            shown.contains("https://***@h/simple/six/; Connection refused")
                && shown.contains("HTTPS_PROXY")
                && !shown.contains("hunter2"),
            "{shown}"
        );

        let mismatch = told("error: Failed to download `six==1.17.0`\n  cause: Hash mismatch for `six==1.17.0`\n\n Expected:");
        assert!(matches!(&mismatch, EnvironmentError::HashMismatch { package, .. } if package == "six==1.17.0"));

        assert!(matches!(
            told("error: Failed to write\n  cause: No space left on device (os error 28)"),
            EnvironmentError::DiskFull { .. }
        ));
        assert!(matches!(
            told(
                "error: Distribution `x` can't be installed because it doesn't have a source distribution or wheel for the current platform"
            ),
            EnvironmentError::NoWheel { .. }
        ));
        assert!(
            matches!(told("error: something else"), EnvironmentError::Tool { detail, .. } if detail == "error: something else")
        );
    }
}
