//! Packets per second that the model counts on one core: flowgauge.p4 with tables installed,
//! generated traffic.
//!
//! `cargo run --release -p flowgauge-p4-model --example rate [PACKETS]`

use flowgauge_bfruntime::server::Write;
use flowgauge_bfruntime::{Data, Match, Pipes};
use flowgauge_core::Settings;
use flowgauge_dataplane::Tables;
use flowgauge_p4_model::{Model, Options};
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
    let mut add = |table: &str, field: &str, matched: Match, data: Data| {
        let key = [(field.to_owned(), matched)].into();
        model.write(table, Pipes::All, &Write::Insert(key, data))
    };
    let width = 32 - Settings::default().cardinality.precision.bits();
    let control = format!("Ingress.flowgauge.cardinality_by_{name}");
    for entry in &tables.rank {
        let value = entry.value.to_be_bytes()[4 - width.div_ceil(8) as usize..].to_vec();
        let prefix = Match::Lpm { value, prefix_length: entry.prefix_length };
        let data = Data::action(&format!("{control}.set_level"), [("level", vec![entry.level])]);
        add(&format!("pipe.{control}.rank"), "rank_bits", prefix, data)?;
    }
    let control = "Ingress.flowgauge.hash.tabulation";
    for (number, words) in tables.tabulation.tables().iter().enumerate() {
        for (byte, word) in (0..=255).zip(words) {
            let values = [("low", word.to_be_bytes().to_vec()), ("high", vec![0; 4])];
            let data = Data::action(&format!("{control}.set_words{number}"), values);
            add(&format!("pipe.{control}.words{number}"), "byte", Match::Exact(vec![byte]), data)?;
        }
    }
    let data = Data::action("Ingress.forward.send", [("port", vec![0, 2])]);
    add("pipe.Ingress.forward.ports", "ingress_port", Match::Exact(vec![0, 1]), data)?;
    Ok(())
}
