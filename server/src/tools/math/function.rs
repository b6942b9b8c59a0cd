//! The functions of arithmetic expressions.

/// Applies a function to its arguments.
pub(super) fn apply(name: &str, arguments: &[f64]) -> Result<f64, String> {
    let one = |function: fn(f64) -> f64| match arguments {
        [x] => Ok(function(*x)),
        _ => Err(wrong_count(name, "one argument", arguments.len())),
    };
    let two = |function: fn(f64, f64) -> f64| match arguments {
        [x, y] => Ok(function(*x, *y)),
        _ => Err(wrong_count(name, "two arguments", arguments.len())),
    };
    let some = || match arguments {
        [] => Err(wrong_count(name, "at least one argument", 0)),
        some => Ok(some.iter().copied()),
    };
    match name {
        "abs" => one(f64::abs),
        // In Rust, the `signum` of 0 is 1.
        "sign" => one(|x| if x == 0.0 { 0.0 } else { x.signum() }),
        "sqrt" => one(f64::sqrt),
        "cbrt" => one(f64::cbrt),
        "exp" => one(f64::exp),
        "ln" => one(f64::ln),
        "log2" => one(f64::log2),
        "log10" => one(f64::log10),
        "log" => match arguments {
            [x] => Ok(x.log10()),
            [x, base] => Ok(x.log(*base)),
            _ => Err(wrong_count(name, "a number and optionally a base", arguments.len())),
        },
        "sin" => one(f64::sin),
        "cos" => one(f64::cos),
        "tan" => one(f64::tan),
        "asin" => one(f64::asin),
        "acos" => one(f64::acos),
        "atan" => one(f64::atan),
        "sinh" => one(f64::sinh),
        "cosh" => one(f64::cosh),
        "tanh" => one(f64::tanh),
        "deg" => one(f64::to_degrees),
        "rad" => one(f64::to_radians),
        "floor" => one(f64::floor),
        "ceil" => one(f64::ceil),
        "trunc" => one(f64::trunc),
        "round" => one(f64::round),
        "factorial" => one(factorial),
        "pow" => two(f64::powf),
        "atan2" => two(f64::atan2),
        // With the sign of the divisor, as in mathematics; `%` has the sign of the dividend.
        "mod" => two(|x, y| x - y * (x / y).floor()),
        "gcd" => two(gcd),
        // Divided before it is multiplied, so that no intermediate value is larger than the result.
        "lcm" => two(|x, y| if x == 0.0 || y == 0.0 { 0.0 } else { (x / gcd(x, y) * y).abs() }),
        "min" => Ok(some()?.fold(f64::INFINITY, f64::min)),
        "max" => Ok(some()?.fold(f64::NEG_INFINITY, f64::max)),
        "sum" => Ok(super::sum(some()?)),
        #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
        "mean" | "avg" => Ok(super::sum(some()?) / arguments.len() as f64),
        // `f64::hypot` does not square its arguments, which would overflow for large ones.
        "hypot" => Ok(some()?.fold(0.0, f64::hypot)),
        "clamp" => match arguments {
            [x, low, high] if low <= high => Ok(x.clamp(*low, *high)),
            [_, low, high] => Err(format!("`clamp` from {low} to {high} is empty")),
            _ => Err(wrong_count(name, "three arguments", arguments.len())),
        },
        _ => Err(format!("the function `{name}` is unknown")),
    }
}

fn wrong_count(name: &str, wanted: &str, found: usize) -> String {
    format!("`{name}` takes {wanted}, not {found}")
}

fn factorial(x: f64) -> f64 {
    if x < 0.0 || x.fract() != 0.0 {
        return f64::NAN;
    }
    // 171! is larger than the largest double.
    if x > 170.0 {
        return f64::INFINITY;
    }
    let mut product = 1.0;
    let mut factor = 2.0;
    while factor <= x {
        product *= factor;
        factor += 1.0;
    }
    product
}

fn gcd(x: f64, y: f64) -> f64 {
    let (mut x, mut y) = (x.abs(), y.abs());
    // With infinity, the loop below would not end: the remainder becomes NaN, which never equals 0.
    if x.fract() != 0.0 || y.fract() != 0.0 || !x.is_finite() || !y.is_finite() {
        return f64::NAN;
    }
    while y != 0.0 {
        (x, y) = (y, x % y);
    }
    x
}
