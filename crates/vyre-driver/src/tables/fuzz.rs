//! Fuzzes the parsing of tables and bundles by [`file`](super::file), without the disk, which would
//! dominate the time.

use super::added::part;
use super::file::parse_bytes;
use super::{Rows, TableFormat};
use crate::bundle::Bundle;
use crate::certificates::CertificateTable;
use crate::pgo::PgoTable;
use crate::tuner::{Decision, Evidence};
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
        read::<Rows<Evidence>>(bytes);
    });
}

#[test]
fn fuzz_bundles() {
    let bundle = Bundle::new("here").print().expect("a bundle is text");
    let seeds = [bundle.into_bytes(), TABLE.to_vec(), CERTIFICATE.to_vec()];
    fuzz("bundles", &seeds, read::<Bundle>);
}
