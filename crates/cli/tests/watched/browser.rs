//! A headless Chromium, driven by its debugging protocol over a pair of pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

pub(super) struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: String,
    last: u64,
    /// Every address from which it has requested something.
    pub asked: Vec<String>,
    /// The errors that scripts have reported.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser with an empty tab.
    pub(super) fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-extensions",
            // Make all host names unresolvable.
            "--host-resolver-rules='MAP * ~NOTFOUND , EXCLUDE 127.0.0.1'",
            "--remote-debugging-pipe",
        ];
        let script = format!(
            "exec chromium {} --user-data-dir='{}' about:blank 3<&0 4>&1 0</dev/null 1>/dev/null",
            flags.join(" "),
            profile.path().display()
        );
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Self {
            child,
            commands,
            answers,
            session: String::new(),
            last: 0,
            asked: Vec::new(),
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let wish = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &wish);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Network.enable", "Runtime.enable"] {
            browser.call(domain, &json!({}));
        }
        browser
    }

    /// Runs a method and waits for its result.
    pub(super) fn call(&mut self, method: &str, arguments: &Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": arguments });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let what = &message["params"];
        match message["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.asked.push(what["request"]["url"].as_str().unwrap().to_owned());
            }
            Some("Runtime.exceptionThrown") => self.complaints.push(what.to_string()),
            _ => {}
        }
    }

    /// Evaluates a JavaScript expression.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let wish = json!({ "expression": expression, "returnByValue": true });
        let result = self.call("Runtime.evaluate", &wish);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Opens a page.
    pub(super) fn go(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// Sets the window size and the colour scheme.
    pub(super) fn look_like(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Takes a screenshot of the whole page, as a PNG.
    pub(super) fn picture(&mut self) -> Vec<u8> {
        use base64::Engine;
        let wish = json!({ "format": "png", "captureBeyondViewport": true });
        let result = self.call("Page.captureScreenshot", &wish);
        base64::engine::general_purpose::STANDARD.decode(result["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
