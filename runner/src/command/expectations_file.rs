//! Which expectations file is meant, and what is in it.

use std::path::{Path, PathBuf};

use modelfarm_matrix::EXPECTATIONS_TOML;
use modelfarm_matrix::date::Date;
use modelfarm_matrix::expectation::Expectations;
use modelfarm_reports::store::{now_ms, rfc3339};

use super::prepare::read_text;
use crate::exit::Failure;

/// The name of the file that lies beside a matrix.
const NAME: &str = "expectations.toml";

/// An expectations file, read.
#[derive(Debug, Clone)]
pub struct ExpectationsFile {
    /// The file as messages name it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// What it declares.
    pub declared: Expectations,
}

impl ExpectationsFile {
    /// The named file, else the one beside the matrix, else the one that comes with the program.
    pub fn find(named: Option<&Path>, matrix_file: Option<&Path>) -> Result<Self, Failure> {
        let beside = matrix_file.and_then(beside).filter(|path| path.is_file());
        match named.map(Path::to_owned).or(beside) {
            Some(path) => Self::parse(path.display().to_string(), read_text("expectations", &path)?),
            None => Self::parse("matrix/expectations.toml".to_owned(), EXPECTATIONS_TOML.to_owned()),
        }
    }

    fn parse(name: String, text: String) -> Result<Self, Failure> {
        let declared = Expectations::parse(&name, &text).map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self { name, text, declared })
    }
}

/// An expectations file that can be written to.
#[derive(Debug, Clone)]
pub struct EditableFile {
    /// Where it is, or will be.
    pub path: PathBuf,
    /// What is in it; nothing where it does not exist yet.
    pub file: ExpectationsFile,
}

impl EditableFile {
    /// The named file, else the one beside the matrix, whether they exist or not.
    pub fn find(named: Option<&Path>, matrix_file: Option<&Path>) -> Result<Self, Failure> {
        let path = named.map(Path::to_owned).or_else(|| matrix_file.filter(|file| file.is_file()).and_then(beside));
        let Some(path) = path else {
            let message = "no file to edit: name one with --expectations FILE, or its matrix with --matrix FILE; the expectations \
                           that come with the program cannot be edited";
            return Err(Failure::usage(message));
        };
        let text = if path.exists() { read_text("expectations", &path)? } else { String::new() };
        Ok(Self { file: ExpectationsFile::parse(path.display().to_string(), text)?, path })
    }
}

fn beside(matrix_file: &Path) -> Option<PathBuf> {
    matrix_file.parent().map(|folder| folder.join(NAME))
}

/// Today, in UTC: nights are run on many hosts, and one clock is enough.
pub fn today() -> Result<Date, Failure> {
    let now = rfc3339(now_ms());
    now.get(..10).unwrap_or(&now).parse().map_err(|error| Failure::usage(format!("the clock of this host: {error}")))
}
