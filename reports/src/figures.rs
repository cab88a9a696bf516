//! Numbers as people read them, each with its unit.

/// A count with thousands separators.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A count with its unit in the right number: `1 case`, `2 cases`.
pub fn counted(number: u64, singular: &str) -> String {
    format!("{} {singular}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A share in percent, with one decimal; a dash where there is nothing to divide by.
///
/// It says 100 % and 0 % only where that is exactly so.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    let shown = if part == whole || part == 0 { percent } else { percent.clamp(0.1, 99.9) };
    if shown.fract() == 0.0 { format!("{shown:.0} %") } else { format!("{shown:.1} %") }
}

/// A duration given in milliseconds.
pub fn milliseconds(duration: f64) -> String {
    if !duration.is_finite() || duration < 0.0 {
        return "–".to_owned();
    }
    match duration {
        d if d < 10.0 => format!("{d:.1} ms"),
        d if d < 999.5 => format!("{d:.0} ms"),
        d if d < 99_950.0 => format!("{:.1} s", d / 1e3),
        d if d < 3_599_500.0 => format!("{:.0} min {:02.0} s", (d / 60e3).floor(), (d % 60e3 / 1e3).floor()),
        d => format!("{} h {:02.0} min", count((d / 3600e3) as u64), (d % 3600e3 / 60e3).floor()),
    }
}

/// A measured number without unit, to three or four significant digits.
pub fn measured(number: f64) -> String {
    let size = number.abs();
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "∞".to_owned() } else { "−∞".to_owned() }
    } else if size == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e5).contains(&size) {
        format!("{number:.2e}")
    } else if size >= 100.0 {
        format!("{number:.0}")
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(1, 6) as usize;
        format!("{number:.decimals$}")
    }
}

/// A number of bytes, in binary units.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut size = number as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// An RFC 3339 instant in UTC as `2026-11-30 02:00:14 UTC`; any other text as it is.
pub fn instant(rfc3339: &str) -> String {
    match rfc3339.parse::<jiff::Timestamp>() {
        Ok(instant) => instant.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => crate::visible_text::one_line(rfc3339, 40),
    }
}

/// Milliseconds between two RFC 3339 instants, where both can be read.
pub fn milliseconds_between(start: &str, end: &str) -> Option<f64> {
    let (start, end): (jiff::Timestamp, jiff::Timestamp) = (start.parse().ok()?, end.parse().ok()?);
    Some((end.as_millisecond() - start.as_millisecond()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!((counted(1, "case"), counted(2, "case")), ("1 case".into(), "2 cases".into()));
        assert_eq!(
            [9.94, 120.0, 1200.0, 150_000.0, 7_500_000.0].map(milliseconds),
            ["9.9 ms", "120 ms", "1.2 s", "2 min 30 s", "2 h 05 min"]
        );
        assert_eq!(
            [0.0, 1.5e-7, 0.4567, 2.34567, 12345.6, f64::INFINITY].map(measured),
            ["0", "1.50e-7", "0.4567", "2.346", "12346", "∞"]
        );
        assert_eq!((bytes(10), bytes(1536), bytes(3 << 30)), ("10 B".into(), "1.5 KiB".into(), "3.0 GiB".into()));
        assert_eq!(instant("2026-11-30T02:00:14.123Z"), "2026-11-30 02:00:14 UTC");
        assert_eq!(milliseconds_between("2026-11-30T02:00:14Z", "2026-11-30T02:00:15Z"), Some(1000.0));
    }

    #[test]
    fn a_percentage_never_rounds_to_all_or_nothing() {
        assert_eq!(percent(9_999, 10_000), "99.9 %");
        assert_eq!(percent(1, 100_000), "0.1 %");
        assert_eq!((percent(4, 4), percent(0, 4), percent(0, 0)), ("100 %".into(), "0 %".into(), "–".into()));
    }
}
