//! `ferroce adp plot`: pictures of all kinds of ladders.

use proptest::prelude::*;

use crate::common::{good, run, scratch};

/// A profile file of one to four ranges in order, with any other values.
fn any_profile() -> impl Strategy<Value = String> {
    let range = (0..=255_u8, 0..=255_u8, 0..=1023_u16);
    let ranges = prop::collection::vec(range, 1..=4);
    (2..=15_u8, any::<bool>(), any::<u8>(), any::<u8>(), ranges).prop_map(
        |(base, qp_total, total, init, mut ranges)| {
            ranges.sort();
            ranges.dedup_by_key(|range| range.0);
            let mut text = format!(
                "time_base = {}\nqp_total_timeout = {qp_total}\nretx_total_timeout = {total}\n\
                 timeout_init_low_bound = {init}\n",
                1 << base
            );
            for (low, size, num) in ranges {
                text += &format!(
                    "[[timeout_range]]\nrange_low_bound = {low}\nrange_size = {size}\n\
                     timeout_retry_num = {num}\ndec_mode = \"TO_DIV_2\"\n"
                );
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_profile_can_be_drawn(
        profile in any_profile(),
        timeout in 1..=31_u8,
        retry_cnt in 0..=7_u8,
        width in 60..200_u16,
    ) {
        let file = scratch("plot", &profile);
        let svg = format!("{file}.svg");
        let (timeout, retry_cnt) = (timeout.to_string(), retry_cnt.to_string());
        let plot = format!("adp plot {file} --timeout {timeout} --retry-cnt {retry_cnt}");
        let width_text = width.to_string();
        let text = good(format!("{plot} --width {width_text}"));
        for line in text.lines().skip(3) {
            prop_assert!(line.chars().count() <= usize::from(width) + 24, "{line}");
        }
        prop_assert_eq!(run(format!("{plot} -o {svg}")), (0, String::new(), String::new()));
        let picture = std::fs::read_to_string(&svg).unwrap();
        prop_assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
        std::fs::remove_file(&svg).unwrap();
    }
}

#[test]
fn the_picture_shows_ranges_cap_total_and_error() {
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../profiles/fast-recovery.toml"
    );
    let text = good(format!("adp plot {profile} --timeout 18"));
    for word in [
        "range 0",
        "range 3",
        "cap 1.07 s",
        "┊ total",
        "✗ IBV_WC_RETRY_EXC_ERR",
    ] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}
