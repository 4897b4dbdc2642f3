//! `dafs top`: shows a running server on a terminal, updated every second.
//!
//! Invariant: the terminal is restored when the program ends for any reason. The screen is computed
//! only from two of the server's documents ([`crate::document`]) and the time between them.

mod rates;
mod screen;

use std::time::{Duration, Instant};

use anyhow::Result;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;

pub use rates::{Rates, quantile};
pub use screen::draw;

/// The order of the rows on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Rows are ordered by requests per second.
    #[default]
    Requests,
    /// Rows are ordered by bytes per second.
    Bytes,
    /// Rows are ordered by latency, and sessions by the time since their last request.
    Time,
    /// Rows are ordered by their names.
    Name,
}

/// The contents of the screen.
#[derive(Debug, Default)]
pub struct Top {
    /// The most recent document, with the rates since the one before it. `None` before the first.
    pub rates: Option<Rates>,
    /// The error of the most recent attempt to get a document; `None` if it succeeded.
    pub error: Option<String>,
    /// The order of the rows.
    pub order: Order,
    /// True if the help text is shown.
    pub shows_help: bool,
    /// True for output without a keyboard.
    pub is_page: bool,
}

/// The width of a [`page`] in columns.
const PAGE_COLUMNS: u16 = 140;

impl Top {
    /// Stores a new document, or the error of the attempt to get one.
    pub fn update(&mut self, found: Result<Value>) {
        match found {
            Ok(now) => {
                let before = self.rates.take().map(|rates| rates.now);
                self.rates = Some(Rates::between(before, now));
                self.error = None;
            }
            Err(error) => self.error = Some(format!("{error:#}")),
        }
    }

    /// Handles a key. Returns false if the key ends the program.
    pub fn on_key(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('r') => self.order = Order::Requests,
            KeyCode::Char('o') => self.order = Order::Bytes,
            KeyCode::Char('t') => self.order = Order::Time,
            KeyCode::Char('n') => self.order = Order::Name,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            _ => {}
        }
        true
    }
}

/// Shows the documents that `ask` returns, until the user quits.
///
/// # Errors
/// An error of the terminal. If `ask` fails, the screen shows the error and `ask` is called again.
pub fn run(mut ask: impl FnMut() -> Result<Value>, interval: Duration) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut top = Top::default();
    let ended = loop {
        top.update(ask());
        match show_until(&mut terminal, &mut top, Instant::now() + interval) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    Ok(ended?)
}

/// Returns the screen as text, for scripts.
#[must_use]
pub fn page(rates: Rates) -> String {
    let rows = rates.procedures.len() + rates.sessions.len() + rates.nfs_clients.len() + 12;
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

/// Draws the screen, and draws it again after each key, until the next document is due. Returns
/// false if the user quits.
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
            && !top.on_key(key.code, key.modifiers)
        {
            return Ok(false);
        }
    }
}
