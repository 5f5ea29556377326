//! The user's devices, and the state that the processes of one share.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process;

use common::{Place, address};
use ferroce_device::{Direction, HistogramConfig, Impairment, Method, Personality};
use ferroce_registry::{DeviceSpec, PortSpeed, Registry, RegistryError};
use ferroce_runtime::{AttachOptions, Device, OpenError};

const FILE: u8 = 17;

fn names(registry: &Registry) -> Vec<String> {
    let devices = registry.devices().unwrap();
    devices.into_iter().map(|spec| spec.name).collect()
}

fn attach(registry: &Registry, name: &str) -> Result<Device, OpenError> {
    Device::attach(registry, name, AttachOptions::default())
}

/// A registry with a device `a`.
fn with_device(test: u8) -> (Place, Registry) {
    let place = Place::new();
    let registry = place.registry();
    let spec = DeviceSpec::new("a", address(FILE, test, 0));
    registry.add(&spec).unwrap();
    (place, registry)
}

fn loss(loss: f64) -> Impairment {
    Impairment {
        loss,
        ..Impairment::default()
    }
}

#[test]
fn devices_come_and_go() {
    let place = Place::new();
    let registry = place.registry();
    assert_eq!(names(&registry), ["fr0"]);
    assert_eq!(
        registry.device("fr0").unwrap(),
        DeviceSpec::default_device()
    );

    let mut spec = DeviceSpec::new("mlx5_0", address(FILE, 1, 0));
    registry.add(&spec).unwrap();
    assert_eq!(names(&registry), ["fr0", "mlx5_0"]);
    assert!(matches!(
        registry.add(&spec),
        Err(RegistryError::Exists { .. })
    ));
    let same_address = DeviceSpec::new("b", spec.address);
    let error = registry.add(&same_address).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "b cannot have the address {}: the device mlx5_0 has it, and the same port; choose \
             another one (vf_address is that of the first VF)",
            spec.address
        )
    );

    spec.packet_lifetime = 16;
    registry.replace(&spec).unwrap();
    assert_eq!(registry.device("mlx5_0").unwrap(), spec);
    registry.remove("mlx5_0").unwrap();
    registry.remove("fr0").unwrap();
    assert_eq!(names(&registry), [""; 0]);
    let error = registry.remove("fr0").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no device \"fr0\"; available: none. `ferroce dev add NAME ADDRESS` makes one"
    );
    registry
        .add(&DeviceSpec::new("fr0", address(FILE, 2, 0)))
        .unwrap();
    assert_eq!(registry.device("fr0").unwrap().address, address(FILE, 2, 0));
}

#[test]
fn no_two_devices_have_one_pci_address() {
    let place = Place::new();
    let registry = place.registry();
    let mut spec = DeviceSpec::new("a", address(FILE, 3, 0));
    spec.pci = Some("1a:00.0".parse().unwrap());
    registry.add(&spec).unwrap();
    registry.replace(&spec).unwrap();
    let mut other = DeviceSpec::new("b", address(FILE, 4, 0));
    registry.add(&other).unwrap();
    other.pci = spec.pci;
    let error = registry.replace(&other).unwrap_err();
    assert!(matches!(error, RegistryError::PciTaken { name, .. } if name == "a"));
    let addresses = registry.devices().unwrap().into_iter().enumerate();
    let addresses: Vec<_> = addresses
        .map(|(place, spec)| spec.pci_at(place).to_string())
        .collect();
    assert_eq!(addresses, ["0000:1a:00.0", "10fe:00:00.1", "10fe:00:00.2"]);
}

#[test]
fn a_file_that_is_not_a_device_is_named() {
    let place = Place::new();
    let registry = place.registry();
    let path = registry.directory().join("a.toml");
    fs::write(&path, "adress = '127.0.0.1'").unwrap();
    let error = registry.devices().unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(error.contains("adress"), "{error}");
}

#[test]
fn directories_and_files_that_others_could_reach_are_refused() {
    let (place, beside) = (Place::new(), Place::new());
    let open = beside.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
    let error = Registry::at(&open).unwrap_err().to_string();
    assert!(error.contains("other users may enter it"), "{error}");
    let link = beside.path().join("link");
    symlink(place.registry().directory(), &link).unwrap();
    let error = Registry::at(&link).unwrap_err().to_string();
    assert!(error.contains("not a directory"), "{error}");

    let registry = place.registry();
    registry
        .add(&DeviceSpec::new("a", address(FILE, 3, 0)))
        .unwrap();
    drop(registry.observe("a").unwrap());
    let state = state_file(&registry);
    fs::set_permissions(&state, Permissions::from_mode(0o640)).unwrap();
    let error = registry.observe("a").unwrap_err().to_string();
    assert!(error.contains("mode 0600"), "{error}");
    let elsewhere = beside.path().join("elsewhere");
    fs::rename(&state, &elsewhere).unwrap();
    symlink(&elsewhere, &state).unwrap();
    registry.observe("a").unwrap_err();
}

/// The only state file.
fn state_file(registry: &Registry) -> PathBuf {
    let entries = fs::read_dir(registry.directory()).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_state = |path: &PathBuf| path.extension().is_some_and(|e| e == "state");
    paths.find(is_state).unwrap()
}

#[test]
fn a_slot_for_each_that_attaches_and_one_port_for_all() {
    let (_place, registry) = with_device(4);
    let observer = registry.observe("a").unwrap();
    let [first, second, third] = [(); 3].map(|()| attach(&registry, "a").unwrap());
    let slots = [&first, &second, &third].map(Device::slot);
    assert_eq!(slots, [1, 2, 3]);
    assert_eq!(first.address(), third.address());
    let processes = observer.processes().unwrap();
    assert_eq!(processes.len(), 3);
    assert!(processes.iter().all(|it| it.pid == process::id()));
    assert!(!processes[0].comm.is_empty());

    // A freed slot rests, because packets for it may still be in flight.
    drop(second);
    assert_eq!(attach(&registry, "a").unwrap().slot(), 4);
    let error = registry.remove("a").unwrap_err();
    assert!(matches!(error, RegistryError::InUse { .. }), "{error}");
    drop((first, third));
    assert_eq!(observer.processes().unwrap(), []);
    registry.remove("a").unwrap();
}

#[test]
fn an_address_of_another_device_is_refused() {
    let (_place, registry) = with_device(5);
    let (_elsewhere, other) = with_device(5);
    let holder = attach(&other, "a").unwrap();
    holder.join().unwrap();
    let error = attach(&registry, "a").unwrap_err().to_string();
    assert!(error.contains("is in use"), "{error}");
    assert!(error.contains("FERROCE_DIR"), "{error}");
    drop(holder);
    attach(&registry, "a").unwrap();
}

#[test]
fn an_observer_changes_a_running_device() {
    let (_place, registry) = with_device(6);
    let observer = registry.observe("a").unwrap();
    let impair = |direction, it| observer.state().set_impairment(direction, it).unwrap();
    impair(Direction::Egress, loss(0.25));
    let device = attach(&registry, "a").unwrap();
    let seen = |direction| device.with(|hca| hca.settings().impairment(direction).clone());
    assert_eq!(seen(Direction::Egress), loss(0.25));

    let personality = Personality {
        ib_multiplier: 4,
        ..Personality::default()
    };
    observer.state().set_personality(personality).unwrap();
    impair(Direction::Ingress, loss(0.5));
    device.progress();
    device.with(|hca| hca.poll_transmit(device.now()));
    assert_eq!(seen(Direction::Ingress), loss(0.5));
    assert_eq!(
        device.with(|hca| *hca.settings().personality()),
        personality
    );
}

#[test]
fn state_outlives_its_processes() {
    let (_place, registry) = with_device(7);
    let device = attach(&registry, "a").unwrap();
    device.with(|hca| hca.count(ferroce_device::Counter::TxDropped, 7));
    let config = HistogramConfig {
        bins: 5,
        ..HistogramConfig::default()
    };
    device.state().configure_histogram(config).unwrap();
    drop(device);
    let observer = registry.observe("a").unwrap();
    assert_eq!(
        observer.state().counter(ferroce_device::Counter::TxDropped),
        7
    );
    assert_eq!(observer.state().histogram_config(), config);
    // The next process in the slot continues its counts.
    let device = attach(&registry, "a").unwrap();
    device.with(|hca| hca.count(ferroce_device::Counter::TxDropped, 1));
    assert_eq!(
        observer.state().counter(ferroce_device::Counter::TxDropped),
        8
    );
}

/// Two observers, as two processes would, write registers and impairments at the same time: neither
/// undoes what the other wrote.
#[test]
fn writers_do_not_undo_each_other() {
    let (_place, registry) = with_device(8);
    let id = ferroce_prm::roce_accl::ROCE_ACCL.id();
    std::thread::scope(|scope| {
        for (direction, writes) in [(Direction::Egress, false), (Direction::Ingress, true)] {
            let observer = registry.observe("a").unwrap();
            scope.spawn(move || {
                let state = observer.state();
                let mut image = [0; 128];
                for n in 1..=500u32 {
                    for method in [Method::Query, Method::Write]
                        .into_iter()
                        .filter(|_| writes)
                    {
                        state.access_register(id, method, &mut image).unwrap();
                    }
                    let link = loss(f64::from(n) / 1000.0);
                    state.set_impairment(direction, link.clone()).unwrap();
                    assert_eq!(state.impairment(direction), link);
                }
            });
        }
    });
}

#[test]
fn a_file_of_another_release_is_replaced_unless_it_is_in_use() {
    let (_place, registry) = with_device(9);
    let device = attach(&registry, "a").unwrap();
    let state = state_file(&registry);
    let spoil = |at: u64, bytes: &[u8]| {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(&state).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    let in_use = || {
        let error = registry.observe("a").unwrap_err().to_string();
        assert!(error.contains("end it first"), "{error}");
    };
    // The number of its layout follows the mark: that of the previous release.
    let previous = fs::read(&state).unwrap()[8] - 1;
    spoil(8, &[previous]);
    in_use();
    drop(device);
    let device = attach(&registry, "a").unwrap();
    assert_eq!(device.slot(), 1);
    assert_eq!(fs::read(&state).unwrap()[8], previous + 1);

    // Files of other releases may also have another length.
    let other = fs::OpenOptions::new().write(true).open(&state).unwrap();
    let len = other.metadata().unwrap().len();
    other.set_len(len + 4096).unwrap();
    in_use();
    drop(device);
    assert_eq!(attach(&registry, "a").unwrap().slot(), 1);
    assert_eq!(fs::metadata(&state).unwrap().len(), len);

    // A process that died before it had finished the file.
    spoil(0, &[0; 8]);
    let observer = registry.observe("a").unwrap();
    assert_eq!(observer.state().impairment(Direction::Egress), loss(0.0));
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let error = Registry::at(Path::new("/nonexistent/ferroce")).unwrap_err();
    assert!(error.to_string().contains("FERROCE_DIR"), "{error}");
}

#[test]
fn a_device_has_the_speed_of_its_file() {
    let place = Place::new();
    let registry = place.registry();
    for (host, speed) in [(0, PortSpeed::G25), (1, PortSpeed::default())] {
        let name = format!("a{host}");
        let spec = DeviceSpec {
            speed,
            ..DeviceSpec::new(&name, address(FILE, 10, host))
        };
        registry.add(&spec).unwrap();
        let device = attach(&registry, &name).unwrap();
        assert_eq!(device.with(|hca| hca.config().speed), speed.rate());
    }
}
