//! Reports of simulated runs in a real browser: what they show can be read.
//!
//! `FERROCE_UPDATE=1 cargo test -p ferroce-interop --test lab reports::` makes the pictures of docs/simulator.md and
//! docs/topologies.md again.

use std::env;
use std::path::Path;

use ferroce_interop::browser::Browser;
use ferroce_interop::lab::Lab;
use ferroce_testing::has;

/// Pairs of texts in a plot that cover each other, and what is wider than the window.
const UNREADABLE: &str = "
    const found = [];
    for (const plot of document.querySelectorAll('svg')) {
        const texts = [...plot.querySelectorAll('text')].map(it => [it.textContent, it.getBoundingClientRect()]);
        texts.forEach(([a, one], at) => texts.slice(at + 1).forEach(([b, other]) => {
            const apart = one.right <= other.left || other.right <= one.left ||
                one.bottom <= other.top + 4 || other.bottom <= one.top + 4; // the room around letters
            if (!apart) found.push(a + ' / ' + b);
        }));
    }
    if (document.documentElement.scrollWidth > innerWidth) found.push('wide');
    return found;";

/// Runs an example of the documentation and looks at its report, which has these texts. The window shows it up to the
/// end of the first plot.
fn look(name: &str, example: &str, height: u32, texts: &[&str]) {
    let lab = Lab::new(&format!("report-{name}"));
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let scenario = docs.join("examples").join(example);
    let results = lab.path().join("state/results");
    let run = format!("sim run {} -o {}", scenario.display(), results.display());
    lab.ferroce(&run).success();
    let browser = Browser::open(&lab, (1000, height));
    browser.go(&format!("file://{}/report.html", results.display()));
    browser.until_text("h2", "Jobs");
    has(&browser.text("body"), texts);
    if env::var_os("FERROCE_UPDATE").is_some() {
        browser.save(&docs.join(format!("report-{name}.png")));
    }
    let none = serde_json::json!([]);
    assert_eq!(browser.run(UNREADABLE), none, "{example}");
}

#[test]
fn the_report_of_a_training_step_names_the_slow_link() {
    let texts = ["leaf0-spine1", "h3 to h4"];
    look("training", "training/resnet50.toml", 1500, &texts);
}

#[test]
fn the_report_of_an_infiniband_fabric_can_be_read() {
    let texts = ["leaf1:33-spine1:1 down", "node6 to node3"];
    look("fabric", "fabrics/infiniband.toml", 1600, &texts);
}
