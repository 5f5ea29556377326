//! How commands name a device: by the first word after the verb, as in `ferroce link set fr0 down`.
//!
//! The word may be left out where there is only one device, and `-d DEV` may be written for it. What the
//! command line says about devices in other ways is rewritten by [`crate::spelling`].

use clap::Args;
use ferroce_registry::{DeviceSpec, Observer, PciAddress, Registry};

use crate::leftover;
use crate::output::{Failure, Output};

/// A device on the command line.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DeviceArg {
    /// The device, by its name or PCI address [default: the only one]
    #[arg(value_name = "DEV")]
    name: Option<String>,
    /// The same as an option, which every command takes
    #[arg(short, long, value_name = "DEV", hide = true)]
    device: Option<String>,
}

/// The device of a command that shows all devices unless one is named.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EachDevice {
    /// Only this device, by its name or PCI address [default: all]
    #[arg(value_name = "DEV")]
    name: Option<String>,
    /// The same as an option, which every command takes
    #[arg(short, long, value_name = "DEV", hide = true)]
    device: Option<String>,
}

impl EachDevice {
    /// The device of this name, or all.
    pub(crate) fn of(name: Option<String>) -> Self {
        Self { name, device: None }
    }

    /// The device that is named, if one is.
    pub(crate) fn named(self) -> Result<Option<String>, Failure> {
        let Self { name, device } = self;
        DeviceArg { name, device }.named()
    }

    /// The same for a command whose word for the device may be the first of those behind it.
    pub(crate) fn before(
        self,
        rest: Vec<String>,
        begins: impl Fn(&str) -> bool,
    ) -> (Option<String>, Vec<String>) {
        let Self { name, device } = self;
        DeviceArg { name, device }.before(rest, begins)
    }
}

impl DeviceArg {
    /// Whether a device is named.
    pub(crate) fn is_given(&self) -> bool {
        self.name.is_some() || self.device.is_some()
    }

    /// The device of this name.
    pub(crate) fn of(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            device: None,
        }
    }

    /// The device that is named, if one is.
    pub(crate) fn named(self) -> Result<Option<String>, Failure> {
        match (self.name, self.device) {
            (Some(name), Some(device)) => Err(Failure::input(format_args!(
                "two devices named: {name} and {device}; name one"
            ))),
            (name, device) => Ok(name.or(device)),
        }
    }

    /// The device that is named, if one is, and the words behind it. A word with which these may begin,
    /// as `begins` knows, is not a device's name.
    pub(crate) fn before(
        self,
        mut rest: Vec<String>,
        begins: impl Fn(&str) -> bool,
    ) -> (Option<String>, Vec<String>) {
        let is_name = |word: &String| self.device.is_none() && !begins(word);
        match self.name {
            Some(name) if is_name(&name) => (Some(name), rest),
            name => {
                rest.splice(0..0, name);
                (self.device, rest)
            }
        }
    }
}

/// The device of a name, `NAME/1` or a PCI address, or the only device if none is named.
pub(crate) fn find(registry: &Registry, name: Option<&str>) -> Result<DeviceSpec, Failure> {
    match name {
        Some(name) => named(registry, name),
        None => only(registry),
    }
}

/// The device of a name, `NAME/1` or a PCI address.
pub(crate) fn named(registry: &Registry, text: &str) -> Result<DeviceSpec, Failure> {
    if let Some(spec) = at_pci(registry, text)? {
        return Ok(spec);
    }
    Ok(registry.device(without_port(text)?)?)
}

/// The only device there is.
fn only(registry: &Registry) -> Result<DeviceSpec, Failure> {
    let mut devices = registry.devices()?;
    match devices.len() {
        1 => Ok(devices.remove(0)),
        0 => Err(Failure::input(
            "there is no device; add one: ferroce dev add fr0 127.0.0.1",
        )),
        _ => {
            let names: Vec<_> = devices.iter().map(|it| it.name.as_str()).collect();
            Err(Failure::input(format_args!(
                "no device named, and there are several; write one of {} after the verb",
                names.join(", ")
            )))
        }
    }
}

/// The device of `DEV` or `DEV/1`, as `rdma` names links.
fn without_port(text: &str) -> Result<&str, Failure> {
    match text.split_once('/') {
        None => Ok(text),
        Some((name, "1" | "-" | "")) => Ok(name),
        Some((name, port)) => Err(Failure::input(format_args!(
            "invalid port {port:?} of {name}: what this command shows and sets belongs to the whole \
             device; write {name}"
        ))),
    }
}

/// The links of a command that is about links: all, those of a device, or the one of `DEV/N`; each with
/// the place of its device among all.
pub(crate) fn links(
    registry: &Registry,
    name: Option<&str>,
) -> Result<Vec<(usize, DeviceSpec)>, Failure> {
    let (device, link) = match name.and_then(|name| name.split_once('/')) {
        Some((device, "-" | "")) => (Some(device), None),
        Some((device, _)) => (
            Some(device),
            name.map(|name| registry.link(name)).transpose()?,
        ),
        None => (name, None),
    };
    let devices = devices(registry, device)?;
    let of_device = |(place, spec): (usize, DeviceSpec)| spec.links().map(move |it| (place, it));
    let all = devices.into_iter().flat_map(of_device);
    let is_wanted = |spec: &DeviceSpec| link.as_ref().is_none_or(|it| it.name == spec.name);
    Ok(all.filter(|(_, spec)| is_wanted(spec)).collect())
}

/// The links that a command changes: those of a device, of the only device, or the one of `DEV/N`.
pub(crate) fn links_to_set(
    registry: &Registry,
    name: Option<&str>,
) -> Result<Vec<DeviceSpec>, Failure> {
    let links = match name {
        Some(name) => links(registry, Some(name))?,
        None => links(registry, Some(&only(registry)?.name))?,
    };
    Ok(links.into_iter().map(|(_, spec)| spec).collect())
}

/// What `look` finds of each of [`links`].
pub(crate) fn each_link<T>(
    registry: &Registry,
    name: Option<&str>,
    look: impl Fn(usize, &DeviceSpec) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let links = links(registry, name)?;
    let found = links.iter().map(|(place, spec)| look(*place, spec));
    found.collect()
}

/// Words of the form `KEY VALUE` or `KEY=VALUE` as `KEY=VALUE`. Some keys may have no value.
pub(crate) fn assignments(
    words: &[String],
    has_no_value: impl Fn(&str) -> bool,
) -> Result<Vec<String>, Failure> {
    let mut words = words.iter();
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        if word.contains('=') || has_no_value(word) {
            all.push(word.clone());
            continue;
        }
        let value = words.next().ok_or_else(|| {
            Failure::input(format_args!("{word:?} has no value; write {word} VALUE"))
        })?;
        all.push(format!("{word}={value}"));
    }
    Ok(all)
}

/// The user's devices, without what a run that was killed has left on them.
pub(crate) fn registry(to: &mut Output<'_>) -> Result<Registry, Failure> {
    let registry = Registry::open().map_err(Failure::broken)?;
    for remark in leftover::put_back(&registry) {
        to.remark(remark)?;
    }
    Ok(registry)
}

/// The device that has a PCI address, if the text is one.
pub(crate) fn at_pci(registry: &Registry, text: &str) -> Result<Option<DeviceSpec>, Failure> {
    let Ok(address) = text.parse::<PciAddress>() else {
        return Ok(None);
    };
    let devices = registry.devices()?;
    let mut devices = devices.into_iter().enumerate();
    let found = devices.find(|(place, spec)| spec.pci_at(*place) == address);
    Ok(found.map(|(_, spec)| spec))
}

/// The device that is named with its place among all, or all devices.
pub(crate) fn devices(
    registry: &Registry,
    name: Option<&str>,
) -> Result<Vec<(usize, DeviceSpec)>, Failure> {
    // Says which there are.
    let wanted = name.map(|name| named(registry, name)).transpose()?;
    let all = registry.devices()?;
    let all = all.into_iter().enumerate();
    let is_wanted = |spec: &DeviceSpec| wanted.as_ref().is_none_or(|it| spec.name == it.name);
    Ok(all.filter(|(_, spec)| is_wanted(spec)).collect())
}

/// What `look` finds of the device that is named, or of each of all.
pub(crate) fn each<T>(
    registry: &Registry,
    name: Option<&str>,
    look: impl Fn(usize, &DeviceSpec) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let devices = devices(registry, name)?;
    let found = devices.iter().map(|(place, spec)| look(*place, spec));
    found.collect()
}

pub(crate) fn observe(registry: &Registry, spec: &DeviceSpec) -> Result<Observer, Failure> {
    let observer = registry.observe_device(spec.clone());
    observer.map_err(Failure::broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// What is read from the words behind a verb, and from -d.
    fn read(text: &str, device: Option<&str>) -> (Option<String>, String) {
        let mut words = words(text).into_iter();
        let arg = DeviceArg {
            name: words.next(),
            device: device.map(str::to_owned),
        };
        let (device, rest) = arg.before(words.collect(), |word| word.starts_with("loss"));
        (device, rest.join(" "))
    }

    #[test]
    fn a_device_stands_before_the_rest_or_is_left_out() {
        let fr0 = Some("fr0".to_owned());
        let rest = "loss 1%".to_owned();
        assert_eq!(read("fr0 loss 1%", None), (fr0.clone(), rest.clone()));
        assert_eq!(read("loss 1%", None), (None, rest.clone()));
        assert_eq!(read("loss 1%", Some("fr0")), (fr0.clone(), rest));
        assert_eq!(read("fr0", None), (fr0.clone(), String::new()));
        assert_eq!(read("", Some("fr0")), (fr0, String::new()));
    }

    #[test]
    fn keys_and_values_are_two_words_or_one() {
        let all = assignments(&words("loss 1% delay=50us carrier"), |it| it == "carrier");
        assert_eq!(all.unwrap(), ["loss=1%", "delay=50us", "carrier"]);
    }
}
