//! A real Prometheus that scrapes `ferroce serve` and evaluates our rules.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::http;
use crate::lab::{Lab, Ready, Running, free_port};

/// Where rules and dashboards are.
pub fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards")
}

/// A Prometheus with a time series database of its own.
#[derive(Debug)]
pub struct Prometheus {
    running: Running,
    web: u16,
}

/// A series that Prometheus has answered with.
#[derive(Clone, Debug)]
pub struct Series {
    /// Labels and their values, with the name as `__name__`.
    pub labels: serde_json::Map<String, Value>,
    /// Seconds since 1970 and values; of a query for one moment, one.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The value of a label; empty without one.
    pub fn label(&self, name: &str) -> &str {
        self.labels
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

impl Prometheus {
    /// Starts one that scrapes the exporter on a port of loopback, five times a second.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be started: the package is `prometheus`.
    pub fn start(lab: &Lab, metrics: u16) -> Self {
        let rules = lab.path().join("rules.yml");
        fs::copy(dashboards().join("ferroce.rules.yml"), &rules).expect("own directory");
        let config = lab.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: ferroce, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]\n",
            rules.display()
        );
        fs::write(&config, text).expect("own directory");
        let web = free_port();
        let running = lab.beside([
            "prometheus",
            &format!("--config.file={}", config.display()),
            "--storage.tsdb.path=tsdb",
            &format!("--web.listen-address=127.0.0.1:{web}"),
        ]);
        let running = Ready::Tcp(web).wait(lab, running);
        Self { running, web }
    }

    /// Ends it.
    pub fn kill(self) {
        self.running.kill();
    }

    /// What it answers on a path.
    pub fn get(&self, path: &str) -> String {
        http::get(self.web, path).body
    }

    /// The value of a query that has one result, once it has any.
    pub fn value(&self, query: &str) -> Option<f64> {
        let answer = self.query(query).ok()?;
        Some(answer.first()?.points.first()?.1)
    }

    /// The answer to a query at this moment, or what is wrong with the query.
    ///
    /// # Errors
    ///
    /// Returns Prometheus's message if it cannot evaluate the query.
    pub fn query(&self, query: &str) -> Result<Vec<Series>, String> {
        self.ask(&format!("/api/v1/query?query={}", escaped(query)))
    }

    /// The answer to a query at moments that many seconds apart.
    ///
    /// # Errors
    ///
    /// Returns Prometheus's message if it cannot evaluate the query.
    pub fn range(
        &self,
        query: &str,
        (from, to): (f64, f64),
        step: f64,
    ) -> Result<Vec<Series>, String> {
        let query = escaped(query);
        self.ask(&format!(
            "/api/v1/query_range?query={query}&start={from}&end={to}&step={step}"
        ))
    }

    fn ask(&self, path: &str) -> Result<Vec<Series>, String> {
        let body = self.get(path);
        let answer: Value =
            serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        if answer["status"] != "success" {
            return Err(answer["error"].to_string());
        }
        let results = answer["data"]["result"].as_array();
        Ok(results.into_iter().flatten().map(series).collect())
    }
}

fn series(result: &Value) -> Series {
    let point = |pair: &Value| {
        let value = pair[1].as_str().and_then(|text| text.parse().ok());
        Some((pair[0].as_f64()?, value?))
    };
    let points = match &result["values"] {
        Value::Array(values) => values.iter().filter_map(point).collect(),
        _ => point(&result["value"]).into_iter().collect(),
    };
    Series {
        labels: result["metric"].as_object().cloned().unwrap_or_default(),
        points,
    }
}

fn escaped(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
