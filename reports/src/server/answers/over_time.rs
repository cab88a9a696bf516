//! Questions about time.

use std::sync::Arc;

use crate::query::{FlakeRow, HostRow, NightRow, PassRateRow, PassingVersionsRow, RepairRow, Rhythm, Since, StandingRow};
use crate::server::Server;
use crate::server::answer::Page;
use crate::server::parameter::WINDOW;
use crate::server::question::{MINUTE_MS, Question};
use crate::server::refusal::Refusal;

pub(in crate::server) async fn standing(server: Arc<Server>, question: Question) -> Result<Page<StandingRow>, Refusal> {
    Page::of(server.store.standing(&question.history("3650d")?).await?, &question)
}

pub(in crate::server) async fn pass_rate(server: Arc<Server>, question: Question) -> Result<Page<PassRateRow>, Refusal> {
    Page::of(server.store.pass_rate(&question.history("90d")?).await?, &question)
}

pub(in crate::server) async fn repairs(server: Arc<Server>, question: Question) -> Result<Page<RepairRow>, Refusal> {
    Page::of(server.store.repairs(&question.history("365d")?).await?, &question)
}

pub(in crate::server) async fn versions(server: Arc<Server>, question: Question) -> Result<Page<PassingVersionsRow>, Refusal> {
    Page::of(server.store.passing_versions(&question.history("365d")?).await?, &question)
}

pub(in crate::server) async fn flakes(server: Arc<Server>, question: Question) -> Result<Page<FlakeRow>, Refusal> {
    Page::of(server.store.flakes(question.text("matrix"), window(&question)?).await?, &question)
}

pub(in crate::server) async fn hosts(server: Arc<Server>, question: Question) -> Result<Page<HostRow>, Refusal> {
    Page::of(server.store.host_flakes(question.text("matrix"), window(&question)?).await?, &question)
}

fn window(question: &Question) -> Result<u32, Refusal> {
    Ok(u32::try_from(question.number(WINDOW)?).unwrap_or(u32::MAX))
}

/// The most nights that are looked back: those that did not come are rows too, and a short rhythm would make millions of them.
const MOST_NIGHTS: i64 = 10_000;

pub(in crate::server) async fn nights(server: Arc<Server>, question: Question) -> Result<Page<NightRow>, Refusal> {
    let every = match question.text("every").unwrap_or("24h").parse() {
        Ok(Since::Ago(ms)) if ms > 0 => ms,
        _ => return Err(Refusal::wrong_value("every", "expected a duration such as 12h, 24h or 7d")),
    };
    // A run that began in this minute has begun.
    let now = question.now + MINUTE_MS;
    let from = beginning(question.from("30d")?, now, every);
    let matrix = question.text("matrix").map(str::to_owned);
    Page::of(server.store.nights(&Rhythm { matrix, every, from, now }).await?, &question)
}

/// `from`, or the time so many nights before now, whichever is later.
fn beginning(from: i64, now: i64, every: i64) -> i64 {
    from.max(now.saturating_sub(every.saturating_mul(MOST_NIGHTS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_rhythm_is_not_looked_back_far() {
        assert_eq!(beginning(0, 50_000, 5), 0);
        assert_eq!(beginning(0, 50_001, 5), 1);
        assert_eq!(beginning(-7, i64::MAX, i64::MAX), 0);
        assert_eq!(beginning(i64::MIN, 0, i64::MAX), -i64::MAX);
    }
}
