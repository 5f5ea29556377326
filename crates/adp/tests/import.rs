//! Profiles in all the forms that operators have them in.

mod common;

use common::plain_doubling;
use ferroce_adp::file::import::{Form, ImportError, import};
use ferroce_adp::file::to_toml;
use ferroce_adp::{PROFILE_SIZE, RawProfile, RawRange};
use ferroce_prm::roce_accl::{self as reg, ROCE_ACCL};
use ferroce_prm::{Field, Image};
use proptest::prelude::*;

/// The register of a card with this profile in use.
fn register(raw: &RawProfile) -> [u8; 128] {
    let mut bytes = [0; ROCE_ACCL.size()];
    bytes[reg::PROFILE_OFFSET..][..PROFILE_SIZE].copy_from_slice(&raw.to_register().unwrap());
    let mut image = Image::new(&ROCE_ACCL, &mut bytes[..]).unwrap();
    for (field, value) in [
        (&reg::ADP_RETX_PROFILE_SELECT, 1),
        (&reg::ADP_RETX_PROFILE_ID, 1),
        (&reg::ROCE_ADP_RETRANS_EN, 1),
    ] {
        image.set(field, value).unwrap();
    }
    bytes
}

fn rows(raw: &RawProfile, row: impl Fn(&Field, u32) -> String) -> String {
    let bytes = register(raw);
    let image = Image::new(&ROCE_ACCL, &bytes[..]).unwrap();
    let fields = ROCE_ACCL.fields().iter();
    fields
        .map(|field| row(field, image.get(field)) + "\n")
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The profile in every form that there is.
fn forms(raw: &RawProfile) -> Vec<(Form, String)> {
    let bytes = register(raw);
    let line = "=".repeat(60);
    let table = |rows: String| {
        format!("Sending access register...\n\nField Name | Data\n{line}\n{rows}{line}\n")
    };
    let dword = |at: usize| hex(&bytes[4 * at..][..4]);
    let dwords = |row: &dyn Fn(usize, String) -> String| -> String {
        (0..32).map(|at| row(4 * at, dword(at)) + "\n").collect()
    };
    let places = |field: &Field, value| {
        format!(
            "{:#x}.{}:{}={value}",
            field.offset(),
            field.lsb(),
            field.width()
        )
    };
    let image = Image::new(&ROCE_ACCL, &bytes[..]).unwrap();
    let profile = ROCE_ACCL
        .fields()
        .iter()
        .filter(|field| field.offset() >= reg::PROFILE_OFFSET);
    let list = |text: &dyn Fn(&Field, u32) -> String, by: &str| {
        let fields = profile.clone().map(|field| text(field, image.get(field)));
        fields.collect::<Vec<_>>().join(by)
    };
    let named = |field: &Field, value| format!("{}={value}", field.name());
    let by_name = list(&named, ",");
    let by_place = list(&places, ",");
    let generated: String = (0..5)
        .map(|at| format!("Word[{at:02}]: 0x0804000{at}\n"))
        .collect();
    vec![
        (Form::Toml, to_toml(raw)),
        (
            Form::Fields,
            table(rows(raw, |field, value| {
                format!("{:<48} | {value:#010x}", field.name())
            })),
        ),
        (
            Form::Fields,
            table(rows(raw, |field, value| {
                format!("{:<48} | {value:#010x}", field.path())
            })),
        ),
        (
            Form::Fields,
            table(rows(raw, |field, value| {
                let name = field.name().to_uppercase();
                format!(
                    "{name:<48} | {value:#010x} | {value:<10} | {:<30}",
                    "TO_DIV_2"
                )
            })),
        ),
        (
            Form::Dwords,
            format!(
                "Address    | Data\n{}",
                dwords(&|at, word| format!("{at:#010x} | 0x{word}"))
            ),
        ),
        (Form::Dump, hex(&bytes)),
        (Form::Dump, hex(&bytes[..64])),
        (Form::Dump, dwords(&|_, word| format!("0x{word}"))),
        (
            Form::Dump,
            dwords(&|at, word| format!("{at:08x}: {} {}  .._.", &word[..4], &word[4..])),
        ),
        (
            Form::Dump,
            dwords(&|at, word| format!("{at:08x}  {}  |.._.|", spaced(&word))),
        ),
        (
            Form::Dump,
            format!(
                "Generated SET buffer for register: ROCE_ACCL\nRaw Buffer Data:\n{line}\n{generated}{}",
                dwords(&|at, word| format!("Word[{:02}]: 0x{word}", at / 4 + 5))
            ),
        ),
        (
            Form::Command,
            format!(
                "mlxreg -d 1a:00.0 --yes --reg_name ROCE_ACCL --indexes \"adp_retx_profile_id=1\" \
                 --set \"adp_retx_profile_select=1,{by_name}\""
            ),
        ),
        (
            Form::Command,
            format!(
                "sudo /usr/bin/mstreg -d fwctl0 --yes --reg_name=ROCE_ACCL \\\n  -s '{by_name}'"
            ),
        ),
        (
            Form::Command,
            format!(
                "$ mlxreg -d DEV --reg_id 0x402c --reg_len 0x80 -i 0x4.28:3=1 --set {by_place}"
            ),
        ),
        (
            Form::Command,
            format!(
                "ferroce reg set fr0 ROCE_ACCL adp_retx_profile_id=1 {}",
                list(&named, " ")
            ),
        ),
        (
            Form::Command,
            format!(
                "ferroce reg set ROCE_ACCL -d fr0 adp_retx_profile_id 1 {}",
                list(&named, " ").replace('=', " ")
            ),
        ),
    ]
}

fn spaced(word: &str) -> String {
    let pairs = word.as_bytes().chunks(2);
    let pairs: Vec<_> = pairs
        .map(|pair| std::str::from_utf8(pair).unwrap())
        .collect();
    pairs.join(" ")
}

#[test]
fn every_form_is_the_same_profile() {
    for (form, text) in forms(&plain_doubling()) {
        assert_eq!(Form::of(&text), form, "{text}");
        let imported = import(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(*imported.document.raw(), plain_doubling(), "{text}");
        assert_eq!(imported.remarks, [""; 0], "{text}");
    }
}

#[test]
fn truncated_or_corrupt_data_is_refused() {
    let table = &forms(&plain_doubling())[1].1;
    let without = |name: &str| -> String {
        let lines = table.lines().filter(|line| !line.starts_with(name));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let error = |text: &str| import(text).unwrap_err().to_string();
    assert_eq!(
        import(&without("range_size_0")),
        Err(ImportError::Missing("range_size_0"))
    );
    assert!(import(&without("range_size_3")).is_ok());
    assert!(import(&without("ack_dscp")).is_ok());
    assert!(error(&without("time_base")).starts_with("the table has no row time_base; it seems"));
    assert!(error(&format!("{table}{table}")).contains("is there twice; give one table"));
    let wide = table.replace(
        "dec_mode_0                                       | 0x00000002",
        "dec_mode_0 | 0x00000004",
    );
    assert!(
        error(&wide).contains("dec_mode_0 = 0x4: must be 0 to 0x3"),
        "{}",
        error(&wide)
    );
    let factory: String = table
        .lines()
        .map(|line| match line.split_once(" | ") {
            Some((name, _)) if name.trim() != "Field Name" => format!("{name} | 0x00000000\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(import(&factory), Err(ImportError::NoProfile));
    assert_eq!(import("1000005f"), Err(ImportError::Size(4)));
    for (text, expected) in [
        (
            "0x00000010 | 0x1\n0x00000012 | 0x1",
            "0x00000012 is not the address of a dword",
        ),
        ("0x00000010 | 0x1\n0x00000010 | 0x1", "is there twice"),
        (
            "mlxreg -d x --reg_name ROCE_ACCL --get",
            "the command writes nothing",
        ),
        (
            "mlxreg -d x --reg_name PAOS --set a=1",
            "writes register \"PAOS\", not ROCE_ACCL",
        ),
        (
            "mlxreg -d x --reg_id 0x5006 --set 0x0.0:1=1",
            "writes register \"0x5006\"",
        ),
        (
            "mlxreg -d x --reg_name ROCE_ACCL --set time_bas=4",
            "Can't find field name: \"time_bas\"",
        ),
        (
            "mlxreg --reg_name ROCE_ACCL --set \"time_base=4",
            "without a second one",
        ),
        ("time_base = 4", "qp_total_timeout is missing"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn ambiguous_text_gets_a_remark() {
    let remarks = |text: &str| import(text).unwrap().remarks;
    let command = "mlxreg --reg_name ROCE_ACCL --set time_base=4,range_num=1,qp_total_timeout=1,\
                   range_low_bound_0=10,range_size_0=6,timeout_retry_num_0=1,dec_mode_0=2";
    assert_eq!(
        remarks(command),
        [
            "the command does not write time_unit, start_range_index, timeout_init_range_size, \
          timeout_init_low_bound, prev_range_index_0: the card keeps what it has there, which is \
          taken as 0"
        ]
    );
    assert_eq!(import(command).unwrap().document.raw().time_unit, 1);
    let table = &forms(&plain_doubling())[1].1;
    let off = table.replace(
        "roce_adp_retrans_en                              | 0x00000001",
        "roce_adp_retrans_en | 0x00000000",
    );
    assert_eq!(
        remarks(&off),
        ["roce_adp_retrans_en = 0: adaptive retransmission is off, and the profile waits"]
    );
    let more = format!("{table}ps_metadata_reg_id_select | 0x00000000\n");
    assert_eq!(
        remarks(&more),
        ["ps_metadata_reg_id_select is not a field of ROCE_ACCL; such rows are left out"]
    );
}

fn any_raw() -> impl Strategy<Value = RawProfile> {
    let range = (any::<[u8; 2]>(), 0u16..1024, 0u8..4, 0u8..8);
    (
        any::<u16>(),
        0u8..8,
        1u8..5,
        any::<bool>(),
        any::<[u8; 3]>(),
        prop::array::uniform4(range),
    )
        .prop_map(
            |(time_base, start, range_num, qp_total_timeout, bounds, ranges)| RawProfile {
                time_base,
                time_unit: 1,
                start_range_index: start,
                range_num,
                qp_total_timeout,
                retx_total_timeout: bounds[0],
                timeout_init_low_bound: bounds[1],
                timeout_init_range_size: bounds[2],
                timeout_range: ranges.map(|(bounds, timeout_retry_num, dec_mode, prev)| RawRange {
                    range_low_bound: bounds[0],
                    range_size: bounds[1],
                    timeout_retry_num,
                    dec_mode,
                    prev_range_index: prev,
                }),
            },
        )
}

proptest! {
    #[test]
    fn any_profile_survives_every_form(raw in any_raw()) {
        for (form, text) in forms(&raw) {
            let imported = import(&text);
            prop_assert_eq!(imported.map(|it| *it.document.raw()), Ok(raw), "{:?} {}", form, text);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = import(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn damaged_input_never_panics(
        which in 0usize..15, at: prop::sample::Index, with in "[ -~\n|]{0,8}", cut: bool,
    ) {
        let (_, text) = &forms(&plain_doubling())[which];
        let at = at.index(text.len());
        let rest = if cut { "" } else { &text[at..] };
        let _ = import(&format!("{}{with}{rest}", &text[..at]));
    }
}
