//! Encrypted connections.

use crate::tofino::lab::{counting, failure, options, settings};
use flowgauge_bfruntime::server::{self, RunningServer, Target};
use flowgauge_dataplane::tofino::Tls;
use flowgauge_dataplane::{Dataplane, Tofino};
use flowgauge_testing::frames::uniques;
use flowgauge_testing::switch::Switch;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::sync::Arc;

/// A certificate and its key.
struct Pem {
    certificate: String,
    key: String,
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> Pem {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pem { certificate, key: key.serialize_pem() }
    }
}

#[test]
fn both_ends_prove_who_they_are_or_nothing_is_said() {
    let (authority, other) = (Authority::new(), Authority::new());
    let of_switch = authority.sign("switch.test");
    let tls = server::Tls {
        certificate: of_switch.certificate,
        key: of_switch.key,
        client_authority: Some(authority.certificate.clone()),
    };
    let switch = Switch::new(settings(6), 2);
    let target = Arc::clone(&switch.memory) as Arc<dyn Target>;
    let running = RunningServer::start(([127, 0, 0, 1], 0).into(), Some(tls), target).unwrap();
    let with = |authority: &Authority, identity: Option<Pem>, name: &str| {
        let identity = identity.map(|pem| (pem.certificate, pem.key));
        let (authority, server_name) = (authority.certificate.clone(), Some(name.to_owned()));
        let mut options = options(running.address());
        options.tls = Some(Tls { authority, identity, server_name });
        options
    };
    let known = with(&authority, Some(authority.sign("client")), "switch.test");
    let mut tofino = counting(known, settings(6));
    switch.count(&uniques(0..100));
    assert_eq!(tofino.rotate().unwrap().packets_after, 100);
    drop(tofino);
    for (wrong, options) in [
        ("no certificate", with(&authority, None, "switch.test")),
        ("a stranger's certificate", with(&authority, Some(other.sign("client")), "switch.test")),
        ("another authority", with(&other, Some(authority.sign("client")), "switch.test")),
        ("another name", with(&authority, Some(authority.sign("client")), "other.test")),
        ("in the clear", options(running.address())),
    ] {
        let failed = failure(Tofino::connect(options, settings(6)));
        assert!(failed.is_transient(), "{wrong}: {failed}");
        println!("{wrong}: {failed}");
    }
}
