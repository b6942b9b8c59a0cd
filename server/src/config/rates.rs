//! The rate limit settings.

use std::net::IpAddr;

use clap::Args;
use ipnet::IpNet;
use registry::Rate;

/// Settings of rate limits. The defaults are above what a well-behaved client needs.
#[derive(Debug, Clone, Args)]
pub(crate) struct RateSettings {
    /// Requests per API key: `N/s`, `N/min`, `N/h`, or `off`.
    #[arg(
        long,
        env = "PML_RATE_PER_KEY",
        default_value = "120000/min",
        value_name = "N/min",
        value_parser = parse_limit
    )]
    pub rate_per_key: RateLimit,

    /// Requests of all API keys of one organisation.
    #[arg(
        long,
        env = "PML_RATE_PER_ORG",
        default_value = "240000/min",
        value_name = "N/min",
        value_parser = parse_limit
    )]
    pub rate_per_org: RateLimit,

    /// Requests from one address, with or without an API key; for IPv6, from one /64 network.
    #[arg(
        long,
        env = "PML_RATE_PER_ADDRESS",
        default_value = "240000/min",
        value_name = "N/min",
        value_parser = parse_limit
    )]
    pub rate_per_address: RateLimit,

    /// Proxies whose `X-Forwarded-For` is trusted: addresses and networks.
    #[arg(
        long,
        env = "PML_TRUSTED_PROXIES",
        value_delimiter = ',',
        value_name = "ADDR[/BITS]",
        value_parser = parse_network
    )]
    pub trusted_proxies: Vec<IpNet>,
}

/// A limit, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RateLimit {
    /// Unlimited.
    Off,
    /// Limited to this rate.
    At(Rate),
}

fn parse_limit(text: &str) -> Result<RateLimit, String> {
    if text == "off" {
        return Ok(RateLimit::Off);
    }
    let wrong = || "expected a number with `/s`, `/min` or `/h`, or `off`".to_owned();
    let (count, window) = text.split_once('/').ok_or_else(wrong)?;
    let seconds = match window {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    // Zero is refused: it would block every request, although it may be meant as `off`.
    match count.parse::<u32>() {
        Ok(count @ 1..) => {
            // A bucket that holds the requests of one whole window: all of them may arrive at once.
            let capacity = f64::from(count);
            Ok(RateLimit::At(Rate { per_second: capacity / seconds, capacity }))
        }
        _ => Err(wrong()),
    }
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address.or_else(|_| text.parse()).map_err(|_| "expected an address or ADDR/BITS".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_limits_and_networks() {
        let at = |per_second, capacity| Ok(RateLimit::At(Rate { per_second, capacity }));
        assert_eq!(parse_limit("off"), Ok(RateLimit::Off));
        assert_eq!(parse_limit("10/s"), at(10.0, 10.0));
        assert_eq!(parse_limit("60/min"), at(1.0, 60.0));
        assert_eq!(parse_limit("7200/h"), at(2.0, 7_200.0));
        for wrong in ["", "10", "0/s", "-1/s", "10/day", "1.5/s", "10/", "/s", "OFF"] {
            parse_limit(wrong).expect_err(wrong);
        }
        parse_network("10.0.0.1").unwrap();
        parse_network("fd00::/8").unwrap();
        for wrong in ["", "10.0.0.1/33", "localhost", "*"] {
            parse_network(wrong).expect_err(wrong);
        }
    }
}
