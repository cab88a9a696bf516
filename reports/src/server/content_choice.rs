//! Whether rows are answered as JSON or as CSV.

use axum::http::{HeaderMap, header};
use modelfarm_matrix::word::UnknownWord;

use crate::table::Format;

/// The words of the parameter `format`.
pub(super) const WORDS: [&str; 2] = ["json", "csv"];

/// What `format` asks for, or the header `Accept` where there is none; JSON where neither says anything that is known.
pub(super) fn choose(format: Option<&str>, headers: &HeaderMap) -> Result<Format, UnknownWord> {
    match format {
        Some("json") => Ok(Format::Json),
        Some("csv") => Ok(Format::Csv),
        Some(other) => Err(UnknownWord::new("format", other, WORDS)),
        None => Ok(accepted(headers)),
    }
}

fn accepted(headers: &HeaderMap) -> Format {
    let ranges =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut best = (0.0, Format::Json);
    for range in ranges.take(32) {
        let mut parts = range.split(';').map(str::trim);
        let format = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "text/csv" | "text/*" => Format::Csv,
            "application/json" | "application/*" | "*/*" => Format::Json,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok()).unwrap_or(1.0);
        if weight > best.0 {
            best = (weight, format);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_most_is_chosen() {
        for (accept, format) in [
            ("", Format::Json),
            ("*/*", Format::Json),
            ("text/csv", Format::Csv),
            ("text/csv;q=0.5, application/json", Format::Json),
            ("application/json;q=0.5, text/csv;q=0.9", Format::Csv),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Json),
            ("image/png", Format::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(choose(None, &headers).unwrap(), format, "{accept}");
            assert_eq!(choose(Some("csv"), &headers).unwrap(), Format::Csv);
        }
        assert_eq!(choose(Some("csvv"), &HeaderMap::new()).unwrap_err().nearest.as_deref(), Some("csv"));
    }
}
