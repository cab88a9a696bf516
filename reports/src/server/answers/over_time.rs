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

/// The most nights that a rhythm may have within the time that is asked about: rows are made of those that did not come too.
const MOST_NIGHTS: i64 = 10_000;

pub(in crate::server) async fn nights(server: Arc<Server>, question: Question) -> Result<Page<NightRow>, Refusal> {
    let every = match question.text("every").unwrap_or("24h").parse() {
        Ok(Since::Ago(ms)) if ms > 0 => ms,
        _ => return Err(Refusal::wrong_value("every", "expected a duration such as 12h, 24h or 7d")),
    };
    // A run that began in this minute has begun.
    let (from, now) = (question.from("30d")?, question.now + MINUTE_MS);
    if now.saturating_sub(from) / every > MOST_NIGHTS {
        let text =
            format!("more than {MOST_NIGHTS} nights lie in the time since then; expected a longer one, or a later `since`");
        return Err(Refusal::wrong_value("every", text));
    }
    let matrix = question.text("matrix").map(str::to_owned);
    Page::of(server.store.nights(&Rhythm { matrix, every, from, now }).await?, &question)
}
