//! Timestamps, and fuzz tests of the parsing of tables and bundles by [`file`](super::file):
//! without the disk, which would dominate the time.

use super::appended_rows::part;
use super::file::parse_bytes;
use super::*;
use crate::bundle::Bundle;
use crate::certificates::CertificateTable;
use crate::pgo::PgoTable;
use crate::tuner::{Decision, DecisionRecord};
use std::path::Path;
use vyre_conform::fuzz::fuzz;

const TABLE: &[u8] = b"schema = 3\n\n[routes.\"a b\"]\nbackend = \"cpu\"\nverified = true\nelements = 12\n\n\
    [[routes.\"a b\".observations]]\nbackend = \"cpu\"\nlatency_ns = 1200\n\n\"v1-00\" = [64, 1, 1]\n";
const CERTIFICATE: &[u8] = b"schema = 1\n\n[[certificates]]\nhow = \"in a helper process\"\nstamp = \"x\"\ncertified_at_ns = 5\n\
    passed = [\"u32\"]\nunsupported = []\n\n[certificates.key]\nbackend = \"cpu\"\ndevice = \"d\"\ndriver = \"e\"\n";

fn read<T: TableFormat>(bytes: &[u8]) {
    drop(parse_bytes::<T>(Path::new("table.toml"), bytes.to_vec()));
}

#[test]
fn fuzz_tables() {
    let grown =
        [TABLE, &part("[routes.b]\nbackend = \"cpu\"\n"), &part("[routes.c]\nbackend = \"cpu\"\n")].concat();
    let seeds = [TABLE.to_vec(), CERTIFICATE.to_vec(), b"\"v1-00\" = [64, 1, 1]\n".to_vec(), grown];
    fuzz("tables", &seeds, |bytes| {
        read::<PgoTable>(bytes);
        read::<CertificateTable>(bytes);
        read::<Rows<Decision>>(bytes);
        read::<Rows<DecisionRecord>>(bytes);
    });
}

#[test]
fn fuzz_bundles() {
    let bundle = Bundle::new("here").print().expect("a bundle is text");
    let seeds = [bundle.into_bytes(), TABLE.to_vec(), CERTIFICATE.to_vec()];
    fuzz("bundles", &seeds, read::<Bundle>);
}

#[test]
fn a_stamp_is_later_than_the_one_it_follows() {
    let now = stamp_after(None);
    assert!(now > 1_700_000_000_000_000_000);
    let next = stamp_after(Some(now + AHEAD_NS / 2));
    assert_eq!(next, now + AHEAD_NS / 2 + 1);
    assert_eq!(stamp_counts(next, now), next);
}

#[test]
fn a_stamp_ahead_of_the_clock_holds_nothing_up() {
    let now = now_ns();
    for ahead in [now + 60 * AHEAD_NS, i64::MAX as u64, u64::MAX] {
        assert_eq!(stamp_counts(ahead, now), 0);
        assert!((now..now + 60 * AHEAD_NS).contains(&stamp_after(Some(ahead))));
    }
    assert_eq!(oldest([("b", 2), ("ahead", u64::MAX), ("a", 1)].into_iter(), 2), ["ahead", "a"]);
}
