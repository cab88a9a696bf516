//! A badge in the form that shields.io reads from an endpoint.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::query::Counts;
use crate::server::Server;
use crate::server::answer::Answer;
use crate::server::question::Question;
use crate::server::refusal::Refusal;
use crate::visible_text::visible;

/// A badge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Badge {
    /// 1.
    pub schema_version: u32,
    /// The architecture.
    pub label: String,
    /// Cases that passed, of those that say something of the target; `unknown` where none does.
    pub message: String,
    /// The colour.
    pub color: String,
}

/// How an architecture stands in the newest complete run.
pub(in crate::server) async fn badge(server: Arc<Server>, question: Question) -> Result<Answer, Refusal> {
    let Some(architecture) = question.in_path("architecture").strip_suffix(".json").filter(|name| !name.is_empty()) else {
        return Err(Refusal::not_found("expected /badge/ARCHITECTURE.json"));
    };
    let mut counts = Counts::default();
    if let Some(run) = server.store.complete_runs(question.text("matrix"), 1).await?.first() {
        let mut filter = question.results(Some(run))?;
        filter.cases.architectures = vec![architecture.to_owned()];
        for row in server.store.architectures(&filter).await? {
            counts.pass += row.pass.unwrap_or_default();
            counts.fail += row.fail.unwrap_or_default();
            counts.inconclusive += row.inconclusive.unwrap_or_default();
        }
    }
    let (message, color) = told(counts);
    let label = visible(architecture).into_owned();
    Answer::json(&Badge { schema_version: 1, label, message, color: color.to_owned() })
}

fn told(Counts { pass, fail, inconclusive }: Counts) -> (String, &'static str) {
    let conclusive = pass + fail;
    let color = match conclusive {
        0 => "lightgrey",
        _ if fail == 0 => "brightgreen",
        _ if pass * 10 >= conclusive * 9 => "green",
        _ if pass * 2 >= conclusive => "yellow",
        _ => "red",
    };
    let message = if conclusive == 0 { "unknown".to_owned() } else { format!("{pass}/{conclusive} pass") };
    let unknown = if inconclusive == 0 { String::new() } else { format!(", {inconclusive} inconclusive") };
    (message + &unknown, color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_no_pass() {
        let told = |pass, fail, inconclusive| told(Counts { pass, fail, inconclusive });
        assert_eq!(told(0, 0, 0), ("unknown".into(), "lightgrey"));
        assert_eq!(told(0, 0, 3), ("unknown, 3 inconclusive".into(), "lightgrey"));
        assert_eq!(told(4, 0, 1), ("4/4 pass, 1 inconclusive".into(), "brightgreen"));
        assert_eq!(told(9, 1, 0), ("9/10 pass".into(), "green"));
        assert_eq!(told(5, 5, 0), ("5/10 pass".into(), "yellow"));
        assert_eq!(told(4, 6, 0), ("4/10 pass".into(), "red"));
    }
}
