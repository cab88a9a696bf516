//! Answers that are still right, in a bounded memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::answer::Answer;

/// All of them together.
const MOST_BYTES: usize = 32 << 20;
/// One that is longer is made each time.
const LONGEST: usize = 4 << 20;

/// The newest answer to each question, with its tag.
#[derive(Debug, Default)]
pub(super) struct AnswerCache(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<String, (String, Answer)>,
    /// Questions, those that were answered longest ago first.
    order: VecDeque<String>,
    bytes: usize,
}

impl AnswerCache {
    /// The answer to a question, if it has this tag.
    pub(super) fn get(&self, key: &str, tag: &str) -> Option<Answer> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.answers.get(key).filter(|(known, _)| known == tag).map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer in place of an earlier one to the same question.
    pub(super) fn put(&self, key: String, tag: String, answer: Answer) {
        let size = size(&key, &answer);
        if size > LONGEST {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&key);
        while kept.bytes + size > MOST_BYTES {
            let Some(oldest) = kept.order.front().cloned() else { break };
            kept.remove(&oldest);
        }
        kept.bytes += size;
        kept.order.push_back(key.clone());
        kept.answers.insert(key, (tag, answer));
    }
}

impl Kept {
    fn remove(&mut self, key: &str) {
        if let Some((_, answer)) = self.answers.remove(key) {
            self.bytes -= size(key, &answer);
            self.order.retain(|known| known != key);
        }
    }
}

/// Bytes, with what a short answer costs besides.
fn size(key: &str, answer: &Answer) -> usize {
    2 * key.len() + answer.body.len() + answer.next.as_ref().map_or(0, String::len) + 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_another_tag_is_none_and_the_oldest_make_room() {
        let cache = AnswerCache::default();
        let answer = |bytes: usize| Answer::text("text/plain", vec![b'x'; bytes]);
        cache.put("a".into(), "1".into(), answer(10));
        assert!(cache.get("a", "1").is_some() && cache.get("a", "2").is_none() && cache.get("b", "1").is_none());
        cache.put("a".into(), "2".into(), answer(10));
        assert!(cache.get("a", "1").is_none() && cache.get("a", "2").is_some());
        cache.put("long".into(), "1".into(), answer(LONGEST));
        assert!(cache.get("long", "1").is_none());
        for number in 0..20 {
            cache.put(format!("{number}"), "1".into(), answer(LONGEST - 1000));
        }
        assert!(cache.get("a", "2").is_none() && cache.get("0", "1").is_none() && cache.get("19", "1").is_some());
        let kept = cache.0.lock().unwrap();
        assert!(kept.bytes <= MOST_BYTES && kept.bytes > MOST_BYTES / 2);
        assert_eq!(kept.order.len(), kept.answers.len());
    }
}
