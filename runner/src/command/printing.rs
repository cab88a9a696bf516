//! Printing rows to standard output.
use crate::cli::Output;
use crate::exit::Failure;
use modelfarm_reports::rows::AttemptDetail;
pub enum Shape { Table, Json, Csv }
pub fn shape(_o: &Output) -> Result<Shape, Failure> { Ok(Shape::Json) }
pub fn print_rows<T: serde::Serialize>(rows: &[T], _o: &Output) -> Result<(), Failure> { super::outputs::print(&format!("{}\n", serde_json::to_string_pretty(rows).unwrap_or_default())) }
pub fn print_details(a: &[AttemptDetail]) -> Result<(), Failure> { print_rows(a, &Output::default()) }
