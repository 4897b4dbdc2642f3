//! `dafs top`: a running server on a terminal, drawn anew every second.
//!
//! Invariant: the terminal is as it was before when this ends, however it ends; what is shown is
//! made of two of the server's documents ([`crate::document`]) and the time between them alone.

mod rates;
mod screen;

use std::time::{Duration, Instant};

use anyhow::Result;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;

pub use rates::{Rates, quantile};
pub use screen::draw;

/// How rows are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By requests a second.
    #[default]
    Requests,
    /// By bytes a second.
    Bytes,
    /// By how long they take; sessions by how long they have been silent.
    Time,
    /// By name.
    Name,
}

/// What the screen shows.
#[derive(Debug, Default)]
pub struct Top {
    /// The last document, and what has happened since the one before.
    pub rates: Option<Rates>,
    /// Why there is nothing newer.
    pub trouble: Option<String>,
    /// How rows are ordered.
    pub order: Order,
    /// Whether help is shown.
    pub helps: bool,
    /// There are no keys.
    pub is_page: bool,
}

/// Columns of [`page`].
const PAGE_COLUMNS: u16 = 140;

impl Top {
    /// A document has come, or none has.
    pub fn take(&mut self, found: Result<Value>) {
        match found {
            Ok(now) => {
                let before = self.rates.take().map(|rates| rates.now);
                self.rates = Some(Rates::between(before, now));
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    /// A key was pressed. False if that ends the program.
    pub fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('r') => self.order = Order::Requests,
            KeyCode::Char('o') => self.order = Order::Bytes,
            KeyCode::Char('t') => self.order = Order::Time,
            KeyCode::Char('n') => self.order = Order::Name,
            KeyCode::Char('?' | 'h') => self.helps = !self.helps,
            _ => {}
        }
        true
    }
}

/// Shows what `ask` tells, until the user has had enough.
///
/// # Errors
/// Whatever the terminal refuses. That the server does not answer is shown, and asked again.
pub fn run(mut ask: impl FnMut() -> Result<Value>, interval: Duration) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut top = Top::default();
    let ended = loop {
        top.take(ask());
        match show_until(&mut terminal, &mut top, Instant::now() + interval) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    Ok(ended?)
}

/// The screen as text, for scripts.
#[must_use]
pub fn page(rates: Rates) -> String {
    let rows = rates.procedures.len() + rates.sessions.len() + 12;
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(1000) * 2;
    let backend = ratatui::backend::TestBackend::new(PAGE_COLUMNS, height);
    let Ok(mut terminal) = ratatui::Terminal::new(backend);
    let top = Top { rates: Some(rates), is_page: true, ..Top::default() };
    let Ok(_) = terminal.draw(|frame| draw(frame, &top));
    let buffer = terminal.backend().buffer();
    let row = |y| -> String { (0..PAGE_COLUMNS).map(|x| buffer[(x, y)].symbol()).collect() };
    let text: Vec<String> = (0..height).map(row).collect();
    let lines: Vec<&str> = text.iter().map(|line| line.trim_end()).collect();
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    lines[..end].join("\n") + "\n"
}

/// Draws, and again after each key, until it is time to ask anew. False if that is never.
fn show_until(
    terminal: &mut ratatui::DefaultTerminal,
    top: &mut Top,
    until: Instant,
) -> std::io::Result<bool> {
    loop {
        terminal.draw(|frame| draw(frame, top))?;
        if !event::poll(until.saturating_duration_since(Instant::now()))? {
            return Ok(true);
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && !top.press(key.code, key.modifiers)
        {
            return Ok(false);
        }
    }
}
