//! What a person sees of a running farm: a bar on a terminal, a line now and then elsewhere. Always on standard error.

use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use modelfarm_matrix::event::{Event, Tally};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Where there is no terminal, a line is written this often.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Shows a run until its events end. Only committed events are seen here.
pub async fn show(mut events: Receiver<Event>) {
    let terminal = std::io::stderr().is_terminal();
    let bar =
        ProgressBar::with_draw_target(None, if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let template = if colours {
        "{spinner} {pos}/{len} cases [{bar:24.cyan/dim}] {msg} · {elapsed} · {eta} left"
    } else {
        "{spinner} {pos}/{len} cases [{bar:24}] {msg} · {elapsed} · {eta} left"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    let begun = Instant::now();
    let mut last_line = Instant::now();
    let mut tally = Tally::default();
    let (mut planned, mut already) = (0, 0);
    loop {
        match events.recv().await {
            Ok(Event::RunStarted { planned: all, already_final }) => {
                (planned, already) = (all, already_final);
                bar.set_length(all);
                bar.set_position(already_final);
                bar.reset_eta();
            }
            Ok(Event::AttemptFinished { outcome, unexpected, .. }) => {
                tally.add(outcome, unexpected);
                bar.set_position(already + tally.total());
                bar.set_message(counts(&tally, begun.elapsed()));
                if !terminal && last_line.elapsed() > LINE_EVERY {
                    last_line = Instant::now();
                    line(&format!("{}/{planned} cases: {}", already + tally.total(), counts(&tally, begun.elapsed())));
                }
            }
            Ok(Event::RunFinished { .. }) | Err(RecvError::Closed) => break,
            Ok(_) => {}
            // A display that cannot keep up skips; the store has everything.
            Err(RecvError::Lagged(_)) => {}
        }
    }
    bar.finish_and_clear();
}

fn counts(tally: &Tally, elapsed: Duration) -> String {
    let rate = tally.total() as f64 / elapsed.as_secs_f64().max(0.001) * 60.0;
    let Tally { pass, fail, inconclusive, unexpected } = tally;
    format!("{pass} pass, {fail} fail, {inconclusive} inconclusive, {unexpected} unexpected · {rate:.0} cases/min")
}

/// Writes a line for people to standard error. That nobody can read it must end nothing.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "modelfarm: {text}");
}

/// A spinner with a text, for work that has no count; a line where there is no terminal.
#[derive(Debug)]
pub struct Activity {
    bar: Option<ProgressBar>,
    last: String,
}

impl Activity {
    /// Begins to show an activity.
    pub fn begin(text: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        let mut activity = Self { bar, last: String::new() };
        activity.say(text);
        activity
    }

    /// Says what is going on now.
    pub fn say(&mut self, text: &str) {
        if self.last == text {
            return;
        }
        self.last = text.to_owned();
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => line(text),
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
