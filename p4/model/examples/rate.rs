//! Packets per second that the model counts on one core: flowgauge.p4 with tables installed,
//! generated traffic.
//!
//! `cargo run --release -p flowgauge-p4-model --example rate [PACKETS]`

use flowgauge_core::Settings;
use flowgauge_dataplane::Tables;
use flowgauge_p4_model::{ActionCall, Entry, Match, Model, Options};
use flowgauge_traffic::{Generator, Profile, Sources};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let packets: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    for (key, name) in [(0, "src"), (3, "five_tuple")] {
        let mut model = Model::flowgauge(&Options::default().define("FLOWGAUGE_KEY", key))?;
        install(&mut model, name)?;
        let generator = Generator::new(Profile::new(Sources::Zipf { flows: 100_000, alpha: 1.0 }));
        let mut frame = generator.template().to_vec();
        let start = Instant::now();
        let mut sent = 0;
        for index in 0..packets {
            generator.fill(index, &mut frame);
            sent += model.inject(1, &frame)?.len();
        }
        let elapsed = start.elapsed().as_secs_f64();
        println!(
            "{name}: {packets} packets, {sent} forwarded, {:.0} packets/s",
            packets as f64 / elapsed
        );
    }
    Ok(())
}

fn install(model: &mut Model, name: &str) -> Result<(), Box<dyn Error>> {
    let tables = Tables::new(&Settings::default(), 1);
    let width = 32 - Settings::default().cardinality.precision.bits();
    for entry in &tables.rank {
        let value = entry.value.to_be_bytes()[4 - width.div_ceil(8) as usize..].to_vec();
        let key = vec![("rank_bits".to_owned(), Match::Lpm { value, length: entry.prefix_length })];
        let call = ActionCall {
            action: format!("Ingress.flowgauge.cardinality_by_{name}.set_level"),
            data: vec![("level".to_owned(), vec![entry.level])],
        };
        model.add_entry(
            &format!("pipe.Ingress.flowgauge.cardinality_by_{name}.rank"),
            &Entry { key, priority: 0, call },
        )?;
    }
    for (number, words) in tables.tabulation.tables().iter().enumerate() {
        for (byte, word) in (0..=255).zip(words) {
            let call = ActionCall {
                action: format!("Ingress.flowgauge.hash.tabulation.set_words{number}"),
                data: vec![
                    ("low".to_owned(), word.to_be_bytes().to_vec()),
                    ("high".to_owned(), vec![0; 4]),
                ],
            };
            let key = vec![("byte".to_owned(), Match::Exact(vec![byte]))];
            model.add_entry(
                &format!("pipe.Ingress.flowgauge.hash.tabulation.words{number}"),
                &Entry { key, priority: 0, call },
            )?;
        }
    }
    let call = ActionCall {
        action: "Ingress.forward.send".to_owned(),
        data: vec![("port".to_owned(), vec![0, 2])],
    };
    let key = vec![("ingress_port".to_owned(), Match::Exact(vec![0, 1]))];
    model.add_entry("pipe.Ingress.forward.ports", &Entry { key, priority: 0, call })?;
    Ok(())
}
