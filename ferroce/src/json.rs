//! What commands print with `-j`, all of it: one object, which names its schema and the version of it.
//!
//! docs/json.md is the promise that goes with it. The types here are the interface: their names,
//! fields and comments become the JSON Schemas in docs/schemas, which `ferroce schema` prints. A field
//! may be added at any time; what is there keeps its name, type, unit and meaning, or the version of
//! the document rises.
//!
//! Keys are in snake case and end with their unit (`_ns`, `_bytes`, `_gbps`); what is absent or has no
//! end is null; choices are in lower case, as on the command line.
//!
//! | module | documents of |
//! |---|---|
//! | `adp` | profiles, and how policies fare |
//! | `bench` | measurements of this machine |
//! | `capture` | captures and logs |
//! | `cc` | congestion control |
//! | `demo` | the demos |
//! | `drill` | drills |
//! | `device` | devices, and what is set on them and counted |
//! | `explain` | timeouts and errors |
//! | `reg` | registers |
//! | `res` | objects of running programs |
//! | `run` | running programs |
//! | `sim` | simulations and sweeps |
//! | `torture` | random programs and what they found |
//! | `shared` | parts that several documents have |
//! | `schema` | the commands that print schemas and the version |

pub(crate) mod adp;
pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod cc;
pub(crate) mod demo;
pub(crate) mod device;
pub(crate) mod drill;
pub(crate) mod explain;
pub(crate) mod reg;
pub(crate) mod res;
pub(crate) mod run;
mod schema;
pub(crate) mod shared;
pub(crate) mod sim;
#[cfg(test)]
mod tests;
pub(crate) mod torture;

pub(crate) use schema::{Schema, Version, files};

use ferroce_registry::{CmIdRow, CqRow, MrRow, PdRow, Process, QpRow, SrqRow};

use crate::output::Document;

/// A schema that `ferroce schema` knows.
struct Known {
    /// Its name without `ferroce.`.
    name: &'static str,
    version: u32,
    /// Who prints or reads what it describes.
    commands: &'static str,
    text: &'static str,
}

/// Gives types their names and versions, and lists them.
macro_rules! documents {
    ($($type:ty: $name:literal $version:literal, $commands:literal;)+) => {
        $(impl Document for $type {
            const SCHEMA: &'static str = concat!("ferroce.", $name);
            const VERSION: u32 = $version;
        })+

        /// All documents.
        const DOCUMENTS: &[Known] = &[$(Known {
            name: $name,
            version: $version,
            commands: $commands,
            // The test that writes these files must be built without them.
            #[cfg(not(test))]
            text: include_str!(concat!("../../docs/schemas/", $name, ".v", $version, ".json")),
            #[cfg(test)]
            text: "",
        }),+];

        /// The schemas of all documents as their types are now.
        #[cfg(test)]
        fn generated() -> Vec<(&'static str, u32, schemars::Schema)> {
            let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
            vec![$(($name, $version, settings.clone().into_generator().into_root_schema_for::<$type>())),+]
        }
    };
}

documents! {
    adp::Check: "adp.check" 1, "adp check";
    adp::Compared: "adp.compare" 1, "adp compare";
    adp::Emitted: "adp.emit" 1, "adp emit";
    adp::Encoded: "adp.encode" 1, "adp encode";
    adp::Fit: "adp.fit" 1, "adp fit";
    adp::Plot: "adp.plot" 1, "adp plot";
    adp::Decoded: "adp.profile" 1, "adp decode, adp import, adp profile show";
    adp::Profiles: "adp.profiles" 1, "adp profile list";
    adp::Show: "adp.show" 1, "adp show, adp apply, adp reset";
    adp::Trace: "adp.trace" 1, "adp trace";
    adp::Events: "adp.trace.events" 1, "adp trace --events";
    bench::Bench: "bench" 1, "bench";
    cc::Emitted: "cc.emit" 1, "cc emit";
    cc::Explained: "cc.explain" 1, "cc explain";
    cc::Presets: "cc.preset" 1, "cc preset list, cc preset show";
    cc::Shown: "cc.show" 1, "cc show, cc set, cc reset";
    cc::Watched<'_>: "cc.watch" 1, "cc rates";
    demo::Demo: "demo" 1, "demo";
    demo::Congestion: "demo.congestion" 1, "demo --congestion";
    device::Cards: "dev.cards" 1, "dev cards";
    device::Removed: "dev.del" 1, "dev del";
    device::Devices: "dev.show" 2, "dev show, dev add, dev set, dev reset";
    drill::Drill: "drill" 1, "drill nccl, drill mooncake, drill nixl, drill openmpi, drill ucx";
    run::Env: "env" 1, "env";
    explain::Causes: "explain.error" 1, "explain error";
    explain::Seen: "explain.error.device" 1, "explain error DEV";
    explain::Survive: "explain.survive" 1, "explain timeout --survive";
    explain::Timeout: "explain.timeout" 1, "explain timeout";
    device::Faults: "fault" 1, "fault list, fault add, fault clear";
    capture::Identified: "identify" 1, "identify";
    device::Impaired: "impair" 1, "impair show, impair set, impair clear";
    device::Ports: "link.show" 1, "link show, link set";
    capture::Check: "pcap.check" 1, "pcap check";
    reg::Calls: "reg.calls" 1, "--dry-run of reg get, reg set, adp apply";
    reg::Content: "reg.get" 1, "reg get, reg set";
    reg::List: "reg.list" 1, "reg list";
    reg::Fields: "reg.show" 1, "reg explain";
    res::Objects<res::Counts>: "res" 1, "res show";
    res::Objects<res::On<&CmIdRow>>: "res.cm_id" 1, "res show cm_id";
    res::Objects<res::On<&CqRow>>: "res.cq" 1, "res show cq";
    res::Objects<res::On<&Process>>: "res.ctx" 1, "res show ctx";
    res::Objects<res::On<&MrRow>>: "res.mr" 1, "res show mr";
    res::Objects<res::On<&PdRow>>: "res.pd" 1, "res show pd";
    res::Objects<res::On<&QpRow>>: "res.qp" 1, "res show qp";
    res::Objects<res::On<&SrqRow>>: "res.srq" 1, "res show srq";
    run::Ran: "run" 1, "run --stats-json";
    schema::List: "schema" 1, "schema";
    sim::Check: "sim.check" 1, "sim check";
    sim::Compared: "sim.compare" 1, "sim compare";
    sim::List: "sim.list" 1, "sim list";
    ferroce_scenario::results::Summary: "sim.run" 1, "sim run, summary.json of its results";
    device::HistogramRead: "stat.hist" 1, "stat hist show, stat hist set";
    device::CounterNames: "stat.names" 1, "stat explain";
    device::Counted: "stat.show" 1, "stat show, stat hist clear";
    device::Rates: "stat.watch" 1, "stat --watch";
    device::Status: "status" 1, "status";
    sim::Collected: "sweep.collect" 1, "sweep collect";
    sim::Plan: "sweep.plan" 1, "sweep plan";
    sim::Ran: "sweep.run" 1, "sweep run";
    torture::Tortured: "torture" 1, "torture";
    torture::Rounds: "torture.rounds" 1, "torture --world sockets";
    run::Version: "version" 1, "version";
}
