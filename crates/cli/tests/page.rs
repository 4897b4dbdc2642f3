//! Tests the page of `dafs serve --http` in a headless Chromium: it loads nothing from other hosts,
//! shows the current state, survives a server restart, and is readable on a phone and in dark mode.
//!
//! With `DAFS_PICTURES=DIRECTORY` screenshots are saved there.

#[path = "watched/browser.rs"]
mod browser;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use dafs_client::{ClientConfig, LockKind, LockOptions, OpenOptions};
use serde_json::Value;

use crate::program::await_that;
use crate::watched::{Server, has};
use browser::Browser;

/// A thread that reads and writes all the time.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn start(socket: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (socket, is_over) = (socket.to_owned(), stop.clone());
        let thread = std::thread::spawn(move || {
            let client = dafs_client::Client::new(ClientConfig::default()).unwrap();
            let url = format!("dafs+shm://{socket}!/");
            let location = dafs_client::Location::parse(&url).unwrap();
            let session = client.connect(&location, &Default::default()).unwrap();
            let file = session.open("/busy", &OpenOptions::write()).unwrap();
            let mut bytes = vec![7; 64 << 10];
            while !is_over.load(Ordering::Relaxed) {
                file.write_at(&bytes[..4096], 0).unwrap();
                file.read_at(&mut bytes, 0).unwrap();
                let _ = session.metadata("/nothing");
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}

/// Computes the lowest contrast between any shown text and its background.
const CONTRAST: &str = "(() => {
  const channel = (value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
  };
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [red, green, blue] = numbers(colour).map(channel);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (place) => {
    for (let at = place; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const parts = numbers(colour);
      if (parts.length < 4 || parts[3] > 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  let least = 21;
  for (const place of document.querySelectorAll('h1,h2,h3,p,a,td,th,caption,span,.value,.note')) {
    if (!place.textContent.trim()) continue;
    const pair = [light(getComputedStyle(place).color), light(behind(place))].sort();
    pair.sort((left, right) => left - right);
    least = Math.min(least, (pair[1] + 0.05) / (pair[0] + 0.05));
  }
  return least;
})()";

fn text(browser: &mut Browser, selector: &str) -> String {
    let found = browser.evaluate(&format!("document.querySelector({selector:?})?.textContent"));
    found.as_str().unwrap_or("").to_owned()
}

fn answers(browser: &mut Browser) -> u64 {
    let found = browser.evaluate("Number(document.body?.dataset.answers || 0)");
    found.as_u64().unwrap_or(0)
}

fn leave_picture(browser: &mut Browser, name: &str) {
    let picture = browser.picture();
    assert!(picture.starts_with(b"\x89PNG"));
    if let Some(place) = std::env::var_os("DAFS_PICTURES") {
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(Path::new(&place).join(name), picture).unwrap();
    }
}

#[test]
fn the_page_is_live_alone_readable_and_outlives_its_server() {
    if !has("chromium") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &[]);
    let http = server.http().to_string();
    let load = Load::start(server.socket());
    let (_client, session) = server.session(0);
    let file = session.open("/locked", &OpenOptions::write()).unwrap();
    file.lock(LockKind::Exclusive, 0, 100, LockOptions::default(), None).unwrap();
    let mut browser = Browser::start();
    browser.look_like(1280, 900, "light");
    browser.go(&format!("http://{http}/"));

    // The page is live.
    await_that("the page has had two answers", || answers(&mut browser) >= 2);
    assert_eq!(browser.evaluate("document.querySelector('#state').dataset.state"), "live");
    await_that("throughput is shown", || {
        let shown = text(&mut browser, "#throughput .value");
        shown.ends_with("iB/s") && !shown.starts_with("0 ")
    });
    let rows = |browser: &mut Browser, table: &str| {
        browser.evaluate(&format!("document.querySelectorAll('#{table} tbody tr').length"))
    };
    assert_eq!(rows(&mut browser, "sessions"), 2);
    assert_eq!(rows(&mut browser, "locks"), 1);
    assert_eq!(rows(&mut browser, "transports"), 5);
    let procedures = text(&mut browser, "#procedures");
    for part in ["READ_DIRECT", "NoEnt", "µs"] {
        assert!(procedures.contains(part), "{part} in {procedures}");
    }
    let seen = answers(&mut browser);
    await_that("it asks again", || answers(&mut browser) > seen + 8);

    // The page is readable in any colour scheme and on a small screen.
    for (width, height, scheme) in
        [(1280, 900, "light"), (1280, 900, "dark"), (390, 844, "light"), (390, 844, "dark")]
    {
        browser.look_like(width, height, scheme);
        let contrast = browser.evaluate(CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "contrast {contrast} at {width} {scheme}");
        let overhang =
            "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.evaluate(overhang), 0, "wider than the screen at {width}");
        leave_picture(&mut browser, &format!("page-{width}-{scheme}.png"));
    }
    assert_eq!(browser.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"), true);

    // The server ends and restarts.
    drop(file);
    drop(load);
    drop(session);
    server.kill();
    let state = "document.querySelector('#state').dataset.state";
    await_that("the page notices", || browser.evaluate(state) == "away");
    assert_eq!(text(&mut browser, "#state"), "server unreachable, trying again");
    leave_picture(&mut browser, "page-away.png");
    let server = Server::start(place.path(), &http, &[]);
    await_that("the page is back", || browser.evaluate(state) == "live");
    let load = Load::start(server.socket());
    await_that("and live", || !text(&mut browser, "#throughput .value").starts_with("0 "));
    drop(load);

    // The page has sent no request to other hosts.
    let own = format!("http://{http}/");
    let is_own = |url: &&String| url.starts_with(&own) || url.starts_with("data:");
    let foreign: Vec<&String> = browser.asked.iter().filter(|url| !is_own(url)).collect();
    assert!(foreign.iter().all(|url| url.as_str() == "about:blank"), "{foreign:?}");
    assert!(browser.asked.len() > 5, "{:?}", browser.asked);
    assert_eq!(browser.complaints, Vec::<String>::new());
    assert_ne!(browser.evaluate("1 + 1"), Value::Null);
    server.stop();
}
