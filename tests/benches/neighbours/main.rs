//! How a tenant is affected by another one that attacks the gateway, and by one that exceeds its rate limit. The built
//! program is a black box.

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
/// How often the measurements "alone" and "meanwhile" alternate, so that a disturbance of the machine affects both.
const BLOCKS: usize = 3;
/// Samples per block.
const SAMPLES: usize = 100;
/// The pause between two samples. It is the same with and without attacks, because a longer idle time slows down the
/// next request.
const PAUSE: Duration = Duration::from_millis(20);
/// Concurrent attacks: one at a time, and more than the limit of a tenant.
const IN_FLIGHT: [usize; 2] = [1, 32];
/// The time until all attackers are active.
const RAMP_UP: Duration = Duration::from_secs(3);

/// The latencies of the measured tenant, in seconds.
#[derive(Default)]
struct Latencies {
    /// Of complete requests.
    requests: Vec<f64>,
    /// Of the programs in the sandbox, as reported by the gateway.
    runs: Vec<f64>,
    /// The number of requests without the expected result, which have no latency.
    failed: usize,
}

impl Latencies {
    /// Runs the program repeatedly, one run after the other.
    fn measure(&mut self, client: &HttpMcp, samples: usize) -> Result<(), Box<dyn Error>> {
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

    /// Returns the median and the p99 of the requests, then of the programs.
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

fn table(title: &str, alone: &Latencies, meanwhile: &Latencies) -> String {
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

/// measures while another tenant sends ten times its rate limit.
#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn beside_noise() -> Result<(), Box<dyn Error>> {
    let quota = format!("{QUOTA}/s");
    let server = Installation::new().start_with(&[("PML_RATE_PER_KEY", &quota)]);
    let mut noise = Noise::new(server.tenant(), PROGRAM);
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    Latencies::default().measure(&client, 20)?;
    let (mut alone, mut meanwhile) = (Latencies::default(), Latencies::default());
    for _ in 0..BLOCKS {
        alone.measure(&client, SAMPLES)?;
        noise.drive(|| {
            thread::sleep(RAMP_UP);
            meanwhile.measure(&client, SAMPLES)
        })?;
    }
    println!("### A tenant next to one that sends {TIMES} times its rate limit\n");
    println!(
        "A key may send {quota}. The noisy tenant and the measured one run the same program as above.\n"
    );
    println!("{}", table("with a noisy tenant", &alone, &meanwhile));
    println!("{}", noise.summary());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    let server = Installation::new().start();
    let pid = server.pid();
    let attackers = Attackers::new(server.tenant(), attacks()?);
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    // Warm-up: one-time costs are not measured.
    Latencies::default().measure(&client, 20)?;
    println!("### A tenant next to an attacker\n");
    println!(
        "The measured tenant runs `{PROGRAM}` by `pml_execute`, one after the other. The other one runs the programs of `tests/fixtures/attacks.txt` in turn.\n"
    );
    for in_flight in IN_FLIGHT {
        let (mut alone, mut meanwhile) = (Latencies::default(), Latencies::default());
        for _ in 0..BLOCKS {
            alone.measure(&client, SAMPLES)?;
            attackers.attack(in_flight, || {
                thread::sleep(RAMP_UP);
                meanwhile.measure(&client, SAMPLES)
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
