//! The page of `ferroce serve` in a real browser, by mouse and by keyboard; it shows what the
//! commands print.
//!
//! `FERROCE_UPDATE=1 cargo test -p ferroce-interop --test lab web::` makes the pictures of docs/web.md
//! again.

use std::path::Path;
use std::{env, fs};

use ferroce_interop::browser::{Browser, key};
use ferroce_interop::lab::{Lab, Ready, Running, free_port, until};
use ferroce_testing::has;
use serde_json::Value;

const WIDE: (u32, u32) = (1280, 900);
const NARROW: [(u32, u32); 2] = [(400, 740), (360, 740)];

/// A server in a lab, and the link to its page.
struct Server {
    running: Running,
    link: String,
}

impl Server {
    fn new(lab: &Lab, options: &str) -> Self {
        let port = free_port();
        let said = lab.path().join(format!("state/said-{port}"));
        let program = lab.path().join("prefix/bin/ferroce");
        let command = format!(
            "exec {} serve --listen {port} {options} 2>{}",
            program.display(),
            said.display()
        );
        let running = Ready::Tcp(port).wait(lab, lab.beside(["sh", "-c", &command]));
        let link = until("the link", || {
            let said = fs::read_to_string(&said).ok()?;
            let link = said
                .lines()
                .find_map(|line| line.strip_prefix("page at "))?;
            Some(link.to_owned())
        });
        Self { running, link }
    }

    fn designer(&self) -> String {
        format!("{}#designer", self.link.split('#').next().unwrap())
    }
}

/// The designer, after its first answer.
fn open_designer(server: &Server, browser: &Browser) {
    browser.go(&server.designer());
    browser.until_text("#verdict", "Valid");
}

/// The figures that are shown for a policy.
fn figures(browser: &Browser, policy: &str) -> Vec<String> {
    let rows = browser.run(
        "return [...document.querySelectorAll('#figures tbody tr')]
             .map((row) => [...row.children].map((cell) => cell.innerText))",
    );
    let rows: Vec<Vec<String>> = serde_json::from_value(rows).unwrap();
    let row = rows.into_iter().find(|row| row[0] == policy);
    row.map(|row| row[1..].to_vec()).unwrap_or_default()
}

fn exported(browser: &Browser) -> String {
    let text = browser.run("return document.getElementById('exported').value");
    text.as_str().unwrap().to_owned()
}

/// A range's field, as a selector.
fn of_range(index: usize, name: &str) -> String {
    format!("[data-path='timeout_range[{index}].{name}']")
}

fn save(browser: &Browser, name: &str) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    browser.save(&docs.join(name));
}

#[test]
fn the_designer_shows_what_the_commands_print() {
    let lab = Lab::new("web-designer");
    let server = Server::new(&lab, "");
    let browser = Browser::open(&lab, WIDE);
    open_designer(&server, &browser);

    // The table of `adp check` has the same words.
    let of_check = |profile: &str, timeout: &str| {
        let check = [
            "adp",
            "check",
            profile,
            "--timeout",
            timeout,
            "--retry-cnt",
            "7",
        ];
        lab.ferroce(check).success()
    };
    let agree = |profile: &str, timeout: &str| {
        let row = of_check(profile, timeout)
            .lines()
            .last()
            .unwrap()
            .to_owned();
        let shown = figures(&browser, "profile");
        assert_eq!(shown.len(), 4, "{shown:?}");
        for word in shown {
            assert!(row.contains(&word), "{word:?} is not in {row:?}");
        }
    };
    agree("link-flap", "14");
    browser.fill("#timeout", "20");
    until("other figures", || {
        figures(&browser, "plain InfiniBand")[2]
            .contains("34")
            .then_some(())
    });
    agree("link-flap", "20");
    assert_eq!(browser.text("#verdict"), "Valid");

    // Three ladders with axes that have units, and dots at retransmissions.
    let count = |selector: &str| {
        let script = format!("return document.querySelectorAll({selector:?}).length");
        browser.run(&script).as_u64().unwrap()
    };
    assert_eq!(count("#ladder svg path:not(.cross)"), 3);
    assert_eq!(count("#ladder svg .band"), 2);
    assert!(count("#ladder svg circle") > 20);
    let axes = browser.text("#ladder");
    has(
        &axes,
        [
            "1 ms",
            "100 ms",
            "10 s",
            "time since the first send",
            "wait",
        ],
    );
    browser.click("#series label:nth-child(2) input");
    assert_eq!(count("#ladder svg path:not(.cross)"), 2);
    browser.click("#series label:nth-child(2) input");

    // A value that a card refuses is marked with the words of `adp check`, and nothing is exported.
    let exported_before = exported(&browser);
    browser.fill(&of_range(1, "range_low_bound"), "5");
    browser.until_text("#verdict", "Invalid");
    let complaint = "timeout_range[1].range_low_bound = 5: must be more than 8, the low bound of \
                     range 0; write range_low_bound = 9 or more, or sort the ranges";
    browser.until_text("#findings", complaint);
    let marked = "return document.querySelector('[aria-invalid]').dataset.path";
    assert_eq!(browser.run(marked), "timeout_range[1].range_low_bound");
    assert_eq!(exported(&browser), "");
    browser.fill(&of_range(1, "range_low_bound"), "11");
    browser.until_text("#verdict", "Valid");
    assert_eq!(exported(&browser), exported_before);

    // Each picture follows the profile: another value, another ladder.
    let path = "return document.querySelector('#ladder path.s0').getAttribute('d')";
    let before = browser.run(path);
    browser.fill(&of_range(0, "timeout_retry_num"), "9");
    until("another picture", || {
        (browser.run(path) != before).then_some(())
    });
    assert_eq!(browser.complaints(), [""; 0]);
    server.running.kill();
}

#[test]
fn profiles_come_in_and_go_out_in_every_form() {
    let lab = Lab::new("web-forms");
    let server = Server::new(&lab, "");
    let browser = Browser::open(&lab, WIDE);
    open_designer(&server, &browser);
    browser.click("#import summary");
    let import = |text: &str| {
        let script = format!(
            "document.getElementById('paste').value = {}",
            Value::from(text)
        );
        browser.run(&script);
        browser.click("#read");
    };
    let toml = |profile: &str| {
        let hex = lab.ferroce(format!("adp encode {profile}")).success();
        lab.ferroce(format!("adp decode {}", hex.trim())).success()
    };
    let emit = |profile: &str, tool: &str| {
        lab.ferroce(format!("adp emit {profile} --tool {tool} -d 0000:3a:00.0"))
            .success()
    };

    lab.ferroce("adp apply patient -d fr0").success();
    let table = lab
        .ferroce("mlxreg -d fr0 --reg_name ROCE_ACCL --get")
        .success();
    let patient = toml("patient");
    for (form, text) in [
        ("a command line", emit("backoff", "mlxreg")),
        ("a table of fields", table),
        (
            "a register dump",
            lab.ferroce("adp encode backoff").success(),
        ),
        ("a profile file", patient.clone()),
    ] {
        import(&text);
        browser.until_text("#imported", &format!("Read as {form}."));
        let expected = match form {
            "a command line" | "a register dump" => toml("backoff"),
            _ => patient.clone(),
        };
        assert_eq!(exported(&browser), expected, "{form}");
    }
    // Fields show what was read; as the file, to be downloaded.
    let low = "return document.getElementById('field-timeout_init_low_bound').value";
    let low = browser.run(low).as_str().unwrap().to_owned();
    assert!(patient.contains(&format!("timeout_init_low_bound = {low}")));
    let link = browser.run("return decodeURIComponent(document.getElementById('download').href)");
    assert!(link.as_str().unwrap().ends_with(&patient), "{link}");

    for tool in ["mlxreg", "mlxreg-raw", "mstreg", "ferroce"] {
        let script = format!(
            "const tool = document.getElementById('tool'); tool.value = '{tool}';
             tool.dispatchEvent(new Event('change'));"
        );
        browser.run(&script);
        browser.fill("#card", "0000:3a:00.0");
        let expected = emit("patient", tool);
        until(tool, || {
            exported(&browser).starts_with(&expected).then_some(())
        });
    }

    for (text, complaint) in [
        (
            "time_base = 5\n",
            "qp_total_timeout is missing; add qp_total_timeout = true",
        ),
        ("time_base = \n", "line 1: not TOML"),
        (
            "00 11 22",
            "ROCE_ACCL has 128 bytes (64 in older tools), not 3",
        ),
    ] {
        import(text);
        browser.until_text("#imported", complaint);
    }
    // The fields keep their values.
    browser.until_text("#verdict", "Valid");
    assert_eq!(browser.complaints(), [""; 0]);
    server.running.kill();
}

#[test]
fn devices_are_shown_live_until_the_server_is_gone() {
    let mut lab = Lab::new("web-live");
    lab.two_devices();
    let server = Server::new(&lab, "");
    let browser = Browser::open(&lab, WIDE);
    browser.go(&server.link);
    browser.until_text("#state", "live");
    browser.until_text("#list", "fr1");
    let card = "#list article:first-child";
    browser.until_text(card, "ACTIVE");
    assert!(browser.text("#changes").starts_with("Read only."));
    assert!(!browser.text(card).contains("Take the port down"));

    lab.ferroce("impair set fr0 loss=2%").success();
    browser.until_text(card, "loss=2%");
    lab.ferroce("adp apply link-flap -d fr0").success();
    browser.until_text(card, "link-flap");
    let tcp = free_port().to_string();
    // One message at a time, so that a lost one waits for its timer; both stay until all have arrived.
    let listen = format!("ib_write_bw -s 64 -t 1 -n 500 -F -d fr0 -p {tcp}");
    let connect = format!("{listen} 127.0.0.1");
    lab.pair(&listen, Ready::Tcp(tcp.parse().unwrap()), &connect);
    browser.until_text(card, "rdma_tx_packets");
    browser.until_text(card, "roce_adp_retrans");
    // Bars, each with its bin and count, and lines of the rates.
    until("the histogram", || {
        let bars = "return document.querySelectorAll('#list .bar title').length";
        browser.run(bars).as_u64().filter(|bars| *bars > 0)
    });
    let lines = "return document.querySelectorAll('#list article:first-child .plot path').length";
    assert_eq!(browser.run(lines), 7);

    // A program that waits has queue pairs.
    let waiting = lab.run(format!("ibv_rc_pingpong -g 1 -p {} -d fr0", free_port()));
    browser.until_text(card, "ibv_rc_pingpong (");
    browser.until_text(&format!("{card} table"), "RC");
    browser.until_text(&format!("{card} table"), "100 Gbit/s");
    if env::var_os("FERROCE_UPDATE").is_some() {
        save(&browser, "web-devices.png");
    }
    // In a narrow window as well, everything about it can be read.
    browser.resize(NARROW[0]);
    until("records", || {
        let head = "return getComputedStyle(document.querySelector('#list thead')).display";
        (browser.run(head) == "none").then_some(())
    });
    assert_eq!(browser.run(CLIPPED), serde_json::json!([]));
    browser.resize(WIDE);
    waiting.kill();
    browser.until_text(card, "No queue pairs.");

    // A page that is opened later shows the rates of the previous minutes at once.
    browser.go("about:blank");
    browser.go(&server.link);
    browser.until_text(card, "ACTIVE");
    let points = "return document.querySelector('#list article:first-child .plot path')
                      .getAttribute('d').split('L').length";
    until("the lines", || {
        (browser.run(points).as_u64()? > 2).then_some(())
    });
    let first = "return devices.cards.get('fr0').history[0].at";
    assert!(
        browser.run(first).as_u64().unwrap() < 2000,
        "since the server's start"
    );

    // A hidden page sends no requests.
    let hide = |hidden: bool| {
        browser.run(&format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}});
             document.dispatchEvent(new Event('visibilitychange'));"
        ));
    };
    hide(true);
    browser.until_text("#state", "paused");
    hide(false);
    browser.until_text("#state", "live");

    server.running.kill();
    browser.until_text("#state", "The server is gone.");
    assert!(browser.text(card).contains("rdma_tx_packets"));
}

#[test]
fn the_designer_needs_no_server() {
    let file = env::var("FERROCE_DESIGNER").expect(
        "FERROCE_DESIGNER names the file that crates/designer/examples/page.rs makes; ./test does it",
    );
    let lab = Lab::new("web-file");
    let page = lab.path().join("designer.html");
    fs::copy(file, &page).unwrap();
    let browser = Browser::open(&lab, WIDE);
    browser.go(&format!("file://{}", page.display()));
    browser.until_text("#verdict", "Valid");
    let of_file = (
        figures(&browser, "profile"),
        figures(&browser, "firmware"),
        exported(&browser),
    );
    browser.fill("#timeout", "40");
    let refusal = "invalid timeout 40: must be a number from 0 to 31";
    browser.until_text("#verdict", refusal);
    assert_eq!(browser.complaints(), [""; 0]);

    let server = Server::new(&lab, "");
    open_designer(&server, &browser);
    let of_server = (
        figures(&browser, "profile"),
        figures(&browser, "firmware"),
        exported(&browser),
    );
    assert_eq!(of_file, of_server);
    server.running.kill();
}

/// The focused element: its accessible name, and whether the focus is visible.
fn focused(browser: &Browser) -> (String, bool) {
    let found = browser.run(
        "const it = document.activeElement;
         const label = it.labels?.[0]?.innerText || it.getAttribute('aria-label') || it.innerText;
         const style = getComputedStyle(it);
         // After the last element the browser's own have the focus.
         if (it === document.body) return ['the browser', true];
         return [label, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2];",
    );
    serde_json::from_value(found).unwrap()
}

/// Presses Tab until an element whose name begins with `name` has the focus. Every element on the
/// way must have a name and show its focus.
fn tab_to(browser: &Browser, name: &str) {
    for _ in 0..80 {
        browser.keys(key::TAB);
        let (label, is_seen) = focused(browser);
        assert!(
            !label.trim().is_empty(),
            "something without a name on the way to {name}"
        );
        assert!(is_seen, "the focus cannot be seen at {label}");
        if label.trim().starts_with(name) {
            return;
        }
    }
    panic!("Tab does not lead to {name}");
}

#[test]
fn everything_can_be_done_by_keyboard() {
    let lab = Lab::new("web-keys");
    let server = Server::new(&lab, "--allow-changes");
    let browser = Browser::open(&lab, WIDE);
    browser.go(&server.link);
    browser.until_text("#changes", "You opened this page with its token");
    // The token is not left where it could be read over a shoulder or copied with the address.
    assert!(
        !browser
            .run("return location.href")
            .to_string()
            .contains("token")
    );

    tab_to(&browser, "Take the port down");
    browser.keys(key::ENTER);
    browser.until_text("#list", "DOWN");
    let is_down = || lab.ferroce("link").success().contains("state DOWN");
    assert!(is_down());
    tab_to(&browser, "Bring it up");
    browser.keys(key::ENTER);
    browser.until_text("#list", "ACTIVE");
    tab_to(&browser, "Impair");
    browser.keys(&format!("loss=200%{}", key::ENTER));
    browser.until_text("#list", "invalid loss \"200%\": must be a probability");
    // Typed text stays while the page updates.
    let typed = "return document.activeElement.value";
    assert_eq!(browser.run(typed), "loss=200%");
    let erase = "\u{e003}".repeat(9);
    browser.keys(&format!("{erase}delay=5us{}", key::ENTER));
    browser.until_text("#list", "sent: delay=5us");

    browser.go(&server.designer());
    browser.until_text("#verdict", "Valid");
    browser.run("document.activeElement.blur(); scrollTo(0, 0)");
    tab_to(&browser, "Built-in profile");
    let about = browser.text("#about");
    browser.keys(key::UP);
    until("another profile", || {
        (browser.text("#about") != about).then_some(())
    });
    tab_to(&browser, "timeout_init_low_bound");
    let low = || {
        let value = browser.run("return document.activeElement.value");
        value.as_str().unwrap().parse::<u32>().unwrap()
    };
    let before = low();
    browser.keys(key::UP);
    assert_eq!(low(), before + 1);
    browser.until_text("#verdict", "alid");
    tab_to(&browser, "Remove this range");
    tab_to(&browser, "Device");
    tab_to(&browser, "Apply");
    browser.keys(key::ENTER);
    browser.until_text("#apply-place", "fr0 has this profile now.");
    let shown = lab.ferroce("adp show -d fr0").success();
    has(
        &shown,
        [&format!("timeout_init_low_bound = {} ", before + 1)],
    );
    assert_eq!(browser.complaints().len(), 1, "the loss that was refused");
    server.running.kill();
}

#[test]
fn narrow_windows_and_dark_systems_are_served() {
    let lab = Lab::new("web-looks");
    let server = Server::new(&lab, "");
    let browser = Browser::open(&lab, WIDE);
    open_designer(&server, &browser);
    if env::var_os("FERROCE_UPDATE").is_some() {
        save(&browser, "web-designer.png");
    }
    let none = serde_json::json!([]);
    assert_eq!(browser.run(CLIPPED), none, "{WIDE:?}");
    for size in NARROW {
        browser.resize(size);
        for view in ["#designer", "#devices"] {
            browser.run(&format!("location.hash = '{view}'"));
            until("the view", || {
                let shown = format!("return document.querySelector('{view}').hidden");
                (browser.run(&shown) == false).then_some(())
            });
            // Nothing is wider than the window except what scrolls by itself.
            let widths = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
            assert_eq!(widths[0], widths[1], "{view}");
            assert_eq!(browser.run(CLIPPED), none, "{size:?} {view}");
        }
    }
    browser.run("location.hash = '#designer'");
    until("a picture that fits", || {
        let wide =
            "return document.querySelector('#ladder svg')?.getBoundingClientRect().width ?? 0";
        let wide = browser.run(wide).as_f64().unwrap();
        (wide > 250.0 && wide <= 360.0).then_some(())
    });

    browser.resize(WIDE);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let is_dark = browser.run(
            "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g)
                 .reduce((sum, part) => sum + Number(part), 0) < 200",
        );
        assert_eq!(is_dark, scheme == "dark");
        let faint = browser.run(FAINT);
        assert_eq!(
            faint,
            serde_json::json!([]),
            "{scheme}: texts that are hard to read"
        );
    }
    assert_eq!(browser.complaints(), [""; 0]);
    server.running.kill();
}

/// Choices whose text is clipped, names of fields that are broken, and tables that are cut.
const CLIPPED: &str = "
    const clipped = [];
    for (const it of document.querySelectorAll('select')) {
        if (!it.getClientRects().length) continue;
        const alone = it.cloneNode(true);
        Object.assign(alone.style, {position: 'absolute', width: 'auto', maxWidth: 'none'});
        document.body.append(alone);
        if (alone.offsetWidth > it.offsetWidth) clipped.push(it.id);
        alone.remove();
    }
    for (const it of document.querySelectorAll('.field label')) {
        const range = document.createRange();
        range.selectNodeContents(it);
        if (range.getClientRects().length > 1) clipped.push(it.textContent);
    }
    for (const it of document.querySelectorAll('.device .wide')) {
        if (it.scrollWidth > it.clientWidth) clipped.push(it.getAttribute('aria-label'));
    }
    return clipped;";

/// Texts whose contrast to their background is below 4.5, as WCAG 2 computes it.
const FAINT: &str = "
    const parts = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (color) => {
        const [r, g, b] = parts(color).map((part) => {
            const c = part / 255;
            return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (it) => {
        for (; it; it = it.parentElement) {
            const color = getComputedStyle(it).backgroundColor;
            if (parts(color)[3] !== 0) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    const faint = [];
    for (const it of document.querySelectorAll('body *')) {
        const own = [...it.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        if (!own || it.disabled || !it.getClientRects().length) continue;
        const style = getComputedStyle(it);
        const color = it.namespaceURI.endsWith('svg') ? style.fill : style.color;
        const [a, b] = [light(color), light(ground(it))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) faint.push(`${it.tagName} ${it.textContent.slice(0, 40)}: ${contrast}`);
    }
    return faint;";
