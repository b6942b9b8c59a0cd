//! What a tenant notices of another one that attacks the gateway, and of one that sends more than it may: the built
//! program as a black box.

mod attackers;
#[path = "../support/attacks.rs"]
mod attacks;
#[allow(dead_code, reason = "nothing is measured in rounds here")]
#[path = "../support/figures.rs"]
mod figures;
mod noise;
#[path = "../support/harness.rs"]
mod support;

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use attackers::Attackers;
use attacks::attacks;
use figures::{quantile, sorted, time};
use noise::{Noise, QUOTA, TIMES};
use support::http::HttpMcp;
use support::mcp_client::Era;
use support::server::Installation;

const PROGRAM: &str = "return await mcp.math.eval({ expression: '1+1' })";
/// Alone and meanwhile take turns so often, so that a noisy moment disturbs both.
const BLOCKS: usize = 3;
/// Samples of a block.
const SAMPLES: usize = 100;
/// Between two samples, with attacks and without: what rests for longer starts more slowly.
const PAUSE: Duration = Duration::from_millis(20);
/// Attacks at the same time: one after the other, and as many as a tenant may have and more.
const IN_FLIGHT: [usize; 2] = [1, 32];
/// After this all attackers are at work.
const RISE: Duration = Duration::from_secs(3);

/// What the measured tenant has seen, in seconds.
#[derive(Default)]
struct Seen {
    /// Of whole requests.
    requests: Vec<f64>,
    /// Of the programs in the sandbox, as the gateway tells it.
    runs: Vec<f64>,
    /// Requests that were not answered with the result. They have no time.
    failed: usize,
}

impl Seen {
    /// Runs the program over and over, one after the other.
    fn look(&mut self, client: &HttpMcp, samples: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..samples {
            let started = Instant::now();
            let envelope = client.execute(PROGRAM);
            let took = started.elapsed();
            if envelope["result"] == 2 {
                let run = envelope["duration_ms"].as_f64().ok_or("a result without a duration")?;
                self.requests.push(took.as_secs_f64());
                self.runs.push(run / 1e3);
            } else {
                self.failed += 1;
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The median and the p99 of the requests, and the same of the programs.
    fn figures(&self) -> [f64; 4] {
        let [requests, runs] = [sorted(&self.requests), sorted(&self.runs)];
        [
            quantile(&requests, 0.5),
            quantile(&requests, 0.99),
            quantile(&runs, 0.5),
            quantile(&runs, 0.99),
        ]
    }
}

fn row(name: &str, counts: [String; 2], figures: [String; 4]) -> String {
    format!("| {name} | {} | {} |\n", counts.join(" | "), figures.join(" | "))
}

fn table(title: &str, alone: &Seen, meanwhile: &Seen) -> String {
    let mut table = format!(
        "| {title} | answers | failures | median | p99 | of it the program, median | p99 |\n|---|---:|---:|---:|---:|---:|---:|\n"
    );
    for (name, seen) in [("alone", alone), ("meanwhile", meanwhile)] {
        let counts = [seen.requests.len(), seen.failed].map(|count| count.to_string());
        table += &row(name, counts, seen.figures().map(time));
    }
    let (before, after) = (alone.figures(), meanwhile.figures());
    let ratios = std::array::from_fn(|i| format!("{:.1}×", after[i] / before[i]));
    table + &row("meanwhile, of alone", Default::default(), ratios)
}

/// beside one that sends ten times what it may.
#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn beside_noise() -> Result<(), Box<dyn Error>> {
    let quota = format!("{QUOTA}/s");
    let server = Installation::new().start_with(&[("PML_RATE_PER_KEY", &quota)]);
    let mut noise = Noise::new(server.tenant(), PROGRAM);
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    Seen::default().look(&client, 20)?;
    let (mut alone, mut meanwhile) = (Seen::default(), Seen::default());
    for _ in 0..BLOCKS {
        alone.look(&client, SAMPLES)?;
        noise.drive(|| {
            thread::sleep(RISE);
            meanwhile.look(&client, SAMPLES)
        })?;
    }
    println!("### A tenant next to one that sends {TIMES} times its rate limit\n");
    println!(
        "A key may send {quota}. The noisy tenant and the measured one run the same program as above.\n"
    );
    println!("{}", table("beside noise", &alone, &meanwhile));
    println!("{}", noise.told());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    let server = Installation::new().start();
    let pid = server.pid();
    let attackers = Attackers::new(server.tenant(), attacks()?);
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    // What happens once is not what is measured.
    Seen::default().look(&client, 20)?;
    println!("### A tenant next to an attacker\n");
    println!(
        "The measured tenant runs `{PROGRAM}` by `pml_execute`, one after the other. The other one runs the programs of `tests/fixtures/attacks.txt` in turn.\n"
    );
    for in_flight in IN_FLIGHT {
        let (mut alone, mut meanwhile) = (Seen::default(), Seen::default());
        for _ in 0..BLOCKS {
            alone.look(&client, SAMPLES)?;
            attackers.attack(in_flight, || {
                thread::sleep(RISE);
                meanwhile.look(&client, SAMPLES)
            })?;
        }
        println!("{}", table(&format!("{in_flight} in flight"), &alone, &meanwhile));
    }
    println!("{}", attackers.table());
    let same = server.pid() == pid && pid.is_alive();
    let verdict = if same { "the same" } else { "**another one or none**" };
    println!("The gateway's process after all of it: {verdict}.\n");
    beside_noise()
}
