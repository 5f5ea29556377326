//! Applications' settings, and how they become the QP's attributes.

mod ucx;

use clap::ValueEnum;
use ferroce_adp::{QpTimeouts, ack_timeout};
use ferroce_base::names::instead;

pub(super) use crate::json::explain::{Remark, Setting};
use crate::output::Failure;

/// The applications whose settings are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum App {
    /// NCCL, and what takes its variables
    Nccl,
    /// RCCL, which takes NCCL's variables
    Rccl,
    /// UCX, transports rc_mlx5, rc_verbs and dc_mlx5
    Ucx,
    /// NIXL with its default backend, UCX
    Nixl,
    /// Open MPI up to 4.x, openib BTL
    Openmpi,
    /// MPICH on libfabric (device ch4:ofi)
    Mpich,
    /// libfabric's verbs provider
    Libfabric,
    /// Mooncake's transfer engine
    Mooncake,
    /// perftest: `ib_write_bw` and its kin
    Perftest,
    /// Programs that connect through librdmacm
    RdmaCm,
}

impl Setting {
    /// For messages about its value.
    fn whence(&self) -> &'static str {
        match self.source {
            "environment" => " (in the environment)",
            _ => "",
        }
    }
}

/// What arrives at the verbs.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) settings: Vec<Setting>,
    /// The steps between settings and attributes, where there are any.
    pub(super) steps: Vec<String>,
    pub(super) timeout: u64,
    pub(super) retry_cnt: u64,
    pub(super) remarks: Vec<Remark>,
    /// Settings that another one overrides.
    idle: Vec<&'static str>,
}

/// The variables of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl App {
    /// The one of this name.
    pub(super) fn named(name: &str) -> Result<Self, Failure> {
        let app = <Self as ValueEnum>::from_str(&name.replace('-', "_"), true);
        app.map_err(|_| {
            let names: Vec<_> = Self::value_variants().iter().map(|it| it.name()).collect();
            Failure::input(format_args!(
                "--from {name}: unknown application; write one of {}, or env for the one whose \
                 variables are set",
                names.join(", ")
            ))
        })
    }

    /// The application whose variables are set.
    pub(super) fn in_environment(environment: Environment<'_>) -> Result<Self, Failure> {
        let set = |app: &Self| {
            let mut keys = app
                .keys()
                .into_iter()
                .filter(|key| key.sets != Sets::Neither);
            keys.find_map(|key| {
                app.variable(key.name)
                    .filter(|name| environment(name).is_some())
            })
        };
        // Others take the variables of these.
        let found: Vec<(Self, String)> = [Self::Nccl, Self::Ucx, Self::Openmpi]
            .iter()
            .filter_map(|app| Some((*app, set(app)?)))
            .collect();
        match &found[..] {
            [(app, _)] => Ok(*app),
            [] => Err(Failure::input(
                "--from env: no variable of nccl, ucx or openmpi is set; set one, as in \
                 NCCL_IB_TIMEOUT=22, or write --from nccl",
            )),
            [(_, first), (_, second), ..] => {
                let apps: Vec<_> = found
                    .iter()
                    .map(|(app, _)| format!("--from {}", app.name()))
                    .collect();
                Err(Failure::input(format_args!(
                    "--from env: {first} and {second} are set; write {}",
                    apps.join(" or ")
                )))
            }
        }
    }

    /// What a setting is called in the environment; `None` if it is not taken from there.
    fn variable(self, name: &str) -> Option<String> {
        match self {
            Self::Nccl | Self::Rccl | Self::Ucx | Self::Nixl => Some(name.to_owned()),
            Self::Openmpi => Some(format!("OMPI_MCA_{name}")),
            Self::Mpich | Self::Libfabric | Self::Mooncake | Self::Perftest | Self::RdmaCm => None,
        }
    }

    /// Whether a variable of this name has a say in the QP's attributes.
    pub(super) fn takes(self, variable: &str) -> bool {
        let is_it = |key: &Key| self.variable(key.name).is_some_and(|it| it == variable);
        self.keys().iter().any(is_it)
    }

    /// Whether it has settings for the QP's attributes at all.
    pub(super) fn is_fixed(self) -> bool {
        matches!(self, Self::Mpich | Self::Libfabric | Self::Mooncake)
    }

    /// What to set for these attributes; what the default does already is left out.
    pub(super) fn assignments(self, qp: QpTimeouts) -> String {
        let QpTimeouts { timeout, retry_cnt } = qp;
        let (timeout, retries) = match self {
            Self::Mpich | Self::Libfabric | Self::Mooncake => return "as it is".to_owned(),
            Self::Nccl | Self::Rccl => (format!("NCCL_IB_TIMEOUT={timeout}"), "NCCL_IB_RETRY_CNT"),
            Self::Ucx | Self::Nixl => (
                format!("UCX_RC_TIMEOUT={}", ucx::duration(ack_timeout(timeout))),
                "UCX_RC_RETRY_COUNT",
            ),
            Self::Openmpi => (
                format!("OMPI_MCA_btl_openib_ib_timeout={timeout}"),
                "OMPI_MCA_btl_openib_ib_retry_count",
            ),
            Self::Perftest => (format!("--qp-timeout={timeout}"), "--retry_count"),
            Self::RdmaCm => (
                format!("{ACK_TIMEOUT}={}", option_for(timeout)),
                "retry_count",
            ),
        };
        match retry_cnt {
            7 => timeout,
            _ => format!("{timeout} {retries}={retry_cnt}"),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::Rccl => "rccl",
            Self::Ucx => "ucx",
            Self::Nixl => "nixl",
            Self::Openmpi => "openmpi",
            Self::Mpich => "mpich",
            Self::Libfabric => "libfabric",
            Self::Mooncake => "mooncake",
            Self::Perftest => "perftest",
            Self::RdmaCm => "rdma_cm",
        }
    }

    /// What the application asks of the QP with these settings. Flags stand for the attributes that
    /// no setting names.
    pub(super) fn asks(
        self,
        given: &[String],
        environment: Environment<'_>,
        timeout: Option<u64>,
        retry_cnt: Option<u64>,
    ) -> Result<Asked, Failure> {
        let mut given = Given::parse(self, given, environment)?;
        let mut asked = Asked::default();
        match self {
            Self::Nccl | Self::Rccl => {
                asked.timeout = given.number("NCCL_IB_TIMEOUT", timeout)?;
                asked.retry_cnt = given.number("NCCL_IB_RETRY_CNT", retry_cnt)?;
                if given.is_default("NCCL_IB_TIMEOUT") && timeout.is_none() {
                    asked.note(match self {
                        Self::Rccl => {
                            "RCCL's default timeout is 20 since it follows NCCL 2.23.4, was 18 \
                             before, and 14 in early releases; give NCCL_IB_TIMEOUT for another \
                             version"
                        }
                        _ => {
                            "NCCL's default timeout is 20 since 2.23.4, was 18 from 2.14.3 to \
                             2.22, and 14 before; give NCCL_IB_TIMEOUT for another version"
                        }
                    });
                }
            }
            Self::Ucx | Self::Nixl => {
                ucx::ask(&mut given, &mut asked, timeout, retry_cnt)?;
                asked.lower_retry_cnt("UCX", "with a warning");
                if self == Self::Nixl {
                    asked.note(
                        "NIXL's backends Mooncake and Libfabric ask for other values: see \
                         --from mooncake and --from libfabric",
                    );
                }
            }
            Self::Mooncake => {
                asked.timeout = given.number("TIMEOUT", timeout)?;
                asked.retry_cnt = given.number("RETRY_CNT", retry_cnt)?;
                asked.note(
                    "both are constants in Mooncake's sources, which no variable changes: \
                     MC_RETRY_CNT counts the transfer engine's own attempts, after the QP has \
                     failed",
                );
            }
            Self::Openmpi => {
                asked.timeout = given.number("btl_openib_ib_timeout", timeout)?;
                asked.retry_cnt = given.number("btl_openib_ib_retry_count", retry_cnt)?;
                asked.lower_retry_cnt("Open MPI", "with a message");
                if asked.timeout > 31 {
                    let text = format!(
                        "timeout = {} does not fit its 5 bits (0 to 31): Open MPI lowers it to 31 \
                         with a message",
                        asked.timeout
                    );
                    asked.remark("does_not_fit", text);
                    asked.timeout = 31;
                }
                asked.note("Open MPI 5 has no openib BTL; there, --from ucx applies");
            }
            Self::Perftest => {
                asked.timeout = given.number("qp-timeout", timeout)?;
                asked.retry_cnt = given.number("retry_count", retry_cnt)?;
            }
            Self::RdmaCm | Self::Libfabric | Self::Mpich => {
                asked.retry_cnt = given.number("retry_count", retry_cnt)?;
                asked.lower_retry_cnt("the kernel's rdma_cm", "silently");
                let option = match self {
                    Self::RdmaCm => given.number(ACK_TIMEOUT, None)?,
                    _ => 0,
                };
                let life = given.number("cma_iboe_packet_lifetime", None)?;
                let delay = given.number("local_ca_ack_delay", None)?;
                match timeout.filter(|_| given.is_all_default()) {
                    Some(timeout) => {
                        asked.timeout = timeout;
                        given
                            .settings
                            .retain(|setting| setting.name == "retry_count");
                    }
                    None => asked.connect(option, life, delay),
                }
                if timeout.is_none() && option == 0 && given.is_default("cma_iboe_packet_lifetime")
                {
                    asked.note(
                        "kernels from before late 2022 have cma_iboe_packet_lifetime 18, \
                                and then timeout 19",
                    );
                }
                if self != Self::RdmaCm {
                    asked.note(
                        "libfabric's verbs provider leaves the timeout to rdma_cm, and no variable \
                         changes it or the retry count",
                    );
                }
                if self == Self::Mpich {
                    asked.note("if MPICH is built with ch4:ucx, --from ucx applies");
                }
            }
        }
        for (flag, value, sets) in [
            ("--timeout", timeout, Sets::Timeout),
            ("--retry-cnt", retry_cnt, Sets::RetryCnt),
        ] {
            let mut keys = self.keys().into_iter().filter(|key| key.sets == sets);
            let setter = keys.find(|key| given.has(key.name) && !asked.is_idle(key.name));
            if let (Some(value), Some(setter)) = (value, setter) {
                let text = format!("{flag} {value} has no effect: {} decides", setter.name);
                asked.remark("no_effect", text);
            }
        }
        given.settings.retain(|setting| setting.source != "unset");
        given
            .settings
            .sort_by_key(|setting| setting.source == "default");
        asked.settings = given.settings;
        Ok(asked)
    }

    fn keys(self) -> Vec<Key> {
        use Sets::{RetryCnt, Timeout};
        let key = |name, default, sets| Key {
            name,
            default,
            sets,
        };
        match self {
            Self::Nccl | Self::Rccl => {
                vec![
                    key("NCCL_IB_TIMEOUT", "20", Timeout),
                    key("NCCL_IB_RETRY_CNT", "7", RetryCnt),
                ]
            }
            Self::Ucx | Self::Nixl => ucx::keys(),
            Self::Mooncake => vec![
                key("TIMEOUT", "14", Timeout),
                key("RETRY_CNT", "7", RetryCnt),
            ],
            Self::Mpich | Self::Libfabric => vec![
                key("cma_iboe_packet_lifetime", "16", Timeout),
                key("local_ca_ack_delay", "16", Timeout),
                key("retry_count", "15", RetryCnt),
            ],
            Self::Openmpi => vec![
                key("btl_openib_ib_timeout", "20", Timeout),
                key("btl_openib_ib_retry_count", "7", RetryCnt),
            ],
            Self::Perftest => {
                vec![
                    key("qp-timeout", "14", Timeout),
                    key("retry_count", "7", RetryCnt),
                ]
            }
            Self::RdmaCm => vec![
                key(ACK_TIMEOUT, "0", Timeout),
                key("cma_iboe_packet_lifetime", "16", Timeout),
                key("local_ca_ack_delay", "16", Timeout),
                key("retry_count", "7", RetryCnt),
            ],
        }
    }
}

impl Asked {
    /// Attributes that no application asks for.
    pub(super) fn of(timeout: u64, retry_cnt: u64) -> Self {
        Self {
            timeout,
            retry_cnt,
            ..Self::default()
        }
    }

    pub(super) fn remark(&mut self, kind: &'static str, text: String) {
        self.remarks.push(Remark { kind, text });
    }

    fn is_idle(&self, name: &str) -> bool {
        self.idle.contains(&name)
    }

    fn note(&mut self, text: &str) {
        self.remark("note", text.to_owned());
    }

    fn lower_retry_cnt(&mut self, who: &str, how: &str) {
        if self.retry_cnt > 7 {
            let text = format!(
                "retry_cnt = {} does not fit its 3 bits (0 to 7): {who} lowers it to 7 {how}",
                self.retry_cnt
            );
            self.remark("does_not_fit", text);
            self.retry_cnt = 7;
        }
    }

    /// What the connection manager makes of packet life and ACK delay: twice the path and the
    /// responder's delay, rounded up to a power of two.
    fn connect(&mut self, option: u64, life: u64, delay: u64) {
        let life = match option {
            0 => life,
            option => {
                self.steps.push(format!(
                    "ack timeout {option} asks for packet life {}",
                    option - 1
                ));
                option - 1
            }
        };
        self.timeout = connected(life, delay);
        self.steps.push(format!(
            "packet life {life} and responder's ack delay {delay} make timeout {}",
            self.timeout
        ));
    }
}

/// The timeout that comes of packet life and ACK delay.
fn connected(life: u64, delay: u64) -> u64 {
    let path = life + 1;
    let timeout = if path >= delay {
        path + u64::from(delay >= path - 1)
    } else {
        delay + u64::from(path >= delay - 1)
    };
    timeout.min(31)
}

/// The smallest option of librdmacm that makes a timeout, with the usual ACK delay.
fn option_for(timeout: u8) -> u64 {
    let makes = |option: &u64| connected(option - 1, 16) >= timeout.into();
    (1..=31).find(makes).unwrap_or(31)
}

/// The option of librdmacm that asks for a timeout.
const ACK_TIMEOUT: &str = "RDMA_OPTION_ID_ACK_TIMEOUT";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sets {
    Neither,
    RetryCnt,
    Timeout,
}

#[derive(Clone, Copy, Debug)]
struct Key {
    name: &'static str,
    /// Empty if another setting stands for it while it is not set.
    default: &'static str,
    sets: Sets,
}

/// The settings of an application, each once.
struct Given {
    settings: Vec<Setting>,
}

impl Given {
    fn parse(app: App, given: &[String], environment: Environment<'_>) -> Result<Self, Failure> {
        let keys = app.keys();
        let initial = keys.iter().map(|key| {
            let variable = app.variable(key.name);
            let set = variable.and_then(|name| environment(&name));
            let (value, source) = match (set, key.default) {
                (Some(value), _) => (value, "environment"),
                (None, "") => (String::new(), "unset"),
                (None, default) => (default.to_owned(), "default"),
            };
            let name = key.name;
            Setting {
                name,
                value,
                source,
            }
        });
        let mut settings: Vec<_> = initial.collect();
        for text in given {
            let names = || keys.iter().map(|key| key.name);
            let Some((name, value)) = text.split_once('=') else {
                return Err(Failure::input(format_args!(
                    "--from {}: {text:?} has no value; write {text}=VALUE",
                    app.name()
                )));
            };
            // As in environments, on command lines, and in `-u`.
            let bare = name.trim_start_matches('-').trim_start_matches("OMPI_MCA_");
            let bare = match (app, bare) {
                (App::Perftest, "u" | "qp_timeout") => "qp-timeout",
                (App::Perftest, "retry-count") => "retry_count",
                _ => bare,
            };
            let Some(setting) = settings.iter_mut().find(|setting| setting.name == bare) else {
                return Err(Failure::input(format_args!(
                    "--from {}: unknown setting {name}; {}",
                    app.name(),
                    instead(name, names())
                )));
            };
            value.clone_into(&mut setting.value);
            setting.source = "given";
        }
        Ok(Self { settings })
    }

    fn find(&mut self, name: &str) -> &mut Setting {
        let setting = self
            .settings
            .iter_mut()
            .find(|setting| setting.name == name);
        setting.expect("every key of an application is among its settings")
    }

    /// Whether it was set, on the command line or in the environment.
    fn has(&self, name: &str) -> bool {
        let is_set = |setting: &Setting| matches!(setting.source, "given" | "environment");
        let mut settings = self.settings.iter();
        settings.any(|setting| setting.name == name && is_set(setting))
    }

    fn is_default(&mut self, name: &str) -> bool {
        self.find(name).source == "default"
    }

    /// Whether nothing but the retry count was given.
    fn is_all_default(&self) -> bool {
        let mut others = self
            .settings
            .iter()
            .filter(|setting| setting.name != "retry_count");
        others.all(|setting| setting.source == "default")
    }

    /// A setting that is a number. A flag beats its default.
    fn number(&mut self, name: &str, flag: Option<u64>) -> Result<u64, Failure> {
        let setting = self.find(name);
        if let Some(flag) = flag.filter(|_| setting.source == "default") {
            setting.value = flag.to_string();
            setting.source = "flag";
            return Ok(flag);
        }
        // Far beyond any field, and far from overflow.
        let number = setting
            .value
            .trim()
            .parse()
            .ok()
            .filter(|number| *number <= 1 << 32);
        number.ok_or_else(|| {
            Failure::input(format_args!(
                "{name}={}{} is not a number of this field; write a small number, as in {name}=7",
                setting.value,
                setting.whence()
            ))
        })
    }
}
