//! A headless browser, driven through the WebDriver standard.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Tool;
use crate::http;
use crate::lab::{Lab, Ready, Running, free_port, until};

/// The browser's own name for an element in answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys that have no letter.
pub mod key {
    /// To the next element.
    pub const TAB: &str = "\u{e004}";
    /// Does what the element is for.
    pub const ENTER: &str = "\u{e007}";
    /// Up one.
    pub const UP: &str = "\u{e013}";
    /// Down one.
    pub const DOWN: &str = "\u{e015}";
    /// Held down with what follows it.
    pub const CONTROL: &str = "\u{e009}";
}

/// A window of a browser without a screen.
#[derive(Debug)]
pub struct Browser {
    driver: Option<Running>,
    port: u16,
    session: String,
    /// Its profile.
    _directory: TempDir,
}

impl Browser {
    /// Opens a window of this size.
    ///
    /// # Panics
    ///
    /// Panics if there is no chromium or no chromedriver, or they do not work.
    pub fn open(lab: &Lab, (width, height): (u32, u32)) -> Self {
        for (program, package) in [
            ("chromedriver", "chromium-driver"),
            ("chromium", "chromium"),
        ] {
            let version = lab
                .beside(["sh", "-c", &format!("command -v {program}")])
                .finish();
            assert!(
                version.status.success(),
                "{program} is missing; apt-get install {package}"
            );
        }
        let port = free_port();
        let driver = lab.beside(format!("chromedriver --port={port}"));
        let driver = Ready::Tcp(port).wait(lab, driver);
        let directory = TempDir::with_prefix("ferroce-browser-").expect("a temporary directory");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open).expect("own directory");
        let home = directory.path().display();
        let args = [
            "--headless=new".to_owned(),
            // What it opens is ours, and a container has no room for its sandbox.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--hide-scrollbars".to_owned(),
            "--force-device-scale-factor=1".to_owned(),
            format!("--user-data-dir={home}"),
            format!("--window-size={width},{height}"),
        ];
        let mut browser = Self {
            driver: Some(driver),
            port,
            session: String::new(),
            _directory: directory,
        };
        let options = json!({"args": args, "binary": "/usr/bin/chromium"});
        let wanted = json!({
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
        });
        let session = browser.call(
            "POST",
            "",
            &json!({"capabilities": {"alwaysMatch": wanted}}),
        );
        let id = session["sessionId"].as_str().expect("a session has a name");
        browser.session = format!("/{id}");
        browser
    }

    /// One command of the protocol.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.try_call(method, path, body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = match method {
            "POST" => body.to_string(),
            _ => String::new(),
        };
        let request = format!(
            "{method} /session{}{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.session,
            self.port,
            body.len()
        );
        let page = http::send(self.port, &request);
        let answer: Value = serde_json::from_str(&page.body).map_err(|it| it.to_string())?;
        match answer["value"].get("error") {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].clone()),
        }
    }

    /// Opens a page, and waits until it is loaded.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be opened; so do the other functions if the browser does not answer.
    pub fn go(&self, url: &str) {
        self.call("POST", "/url", &json!({"url": url}));
    }

    /// What the body of a function returns in the page.
    pub fn run(&self, script: &str) -> Value {
        self.call(
            "POST",
            "/execute/sync",
            &json!({"script": script, "args": []}),
        )
    }

    /// The text that is seen of an element.
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.innerText ?? ''");
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an element's text has a part.
    pub fn until_text(&self, selector: &str, part: &str) {
        until(&format!("{part:?} in {selector}"), || {
            self.text(selector).contains(part).then_some(())
        });
    }

    fn element(&self, selector: &str) -> String {
        let by = json!({"using": "css selector", "value": selector});
        let found = self.call("POST", "/element", &by);
        found[ELEMENT]
            .as_str()
            .expect("an element has a name")
            .to_owned()
    }

    /// Clicks where an element is.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.call("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Replaces what is in a field by keys.
    pub fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.call("POST", &format!("/element/{element}/clear"), &json!({}));
        let keys = json!({"text": text});
        self.call("POST", &format!("/element/{element}/value"), &keys);
    }

    /// Keys, to whatever has the focus.
    pub fn keys(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            let key = key.to_string();
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}))
        });
        let strokes: Vec<_> = strokes.collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": strokes});
        self.call("POST", "/actions", &json!({"actions": [keyboard]}));
    }

    /// Another size of the window.
    pub fn resize(&self, (width, height): (u32, u32)) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// As someone has set up their system: dark or light.
    pub fn prefer(&self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.devtools(
            "Emulation.setEmulatedMedia",
            &json!({"features": [feature]}),
        );
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let command = json!({"cmd": command, "params": parameters});
        self.call("POST", "/goog/cdp/execute", &command)
    }

    /// Writes a picture of the window to a file, as PNG.
    pub fn save(&self, file: &Path) {
        let picture = self.devtools("Page.captureScreenshot", &json!({"format": "png"}));
        let shell = Tool {
            program: "sh",
            debian_package: "dash",
        };
        let program = format!("base64 -d > '{}'", file.display());
        let base64 = picture["data"].as_str().unwrap_or_default();
        drop(shell.run(&["-c", &program], base64.as_bytes()));
    }

    /// What the page complained of since it was last asked: errors of scripts, refused loads.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.call("POST", "/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().map_or(&[][..], Vec::as_slice);
        let entries = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        entries.map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser is the driver's child, and would stay.
        if !self.session.is_empty() {
            let _ = self.try_call("DELETE", "", &Value::Null);
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(driver) = self.driver.take() {
            driver.kill();
        }
    }
}
