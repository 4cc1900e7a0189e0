//! Flows as text: one line a flow, in microseconds and bytes.

use thalweg_core::{Bytes, Rate, Span, Time};

use crate::arrivals::{ArrivalError, FlowSpec, check_load};
use crate::csv::{self, Row, TableError};

const HEADER: &str = "start_us,src,dst,bytes";
const HEADER_WITH_PATH: &str = "start_us,src,dst,bytes,path";

/// Reads lines of `start_us,src,dst,bytes` under that header, for hosts 0 to `hosts` − 1. Lines may
/// come in any order; the flows are in order of time, and in the text's order where times are equal.
///
/// The header may have `path` as a fifth column: a number up to 65535 that picks the flow's path, or
/// nothing.
pub fn from_csv(text: &str, hosts: usize) -> Result<Vec<FlowSpec>, TableError> {
    let mut flows = Vec::new();
    if csv::has_header(text, HEADER_WITH_PATH) {
        for row in csv::rows::<5>(text, HEADER_WITH_PATH)? {
            flows.push(FlowSpec { path: path(&row)?, ..flow(&row, hosts)? });
        }
    } else {
        for row in csv::rows::<4>(text, HEADER)? {
            flows.push(flow(&row, hosts)?);
        }
    }
    flows.sort_by_key(|flow| flow.start);
    Ok(flows)
}

/// Multiplies all starts by one factor, so that the flows make that load.
///
/// **Load** is what it is for [`PoissonArrivals`](crate::PoissonArrivals): with T the time from the
/// first start to the last,
///
/// Σ bytes · `wire_factor` · 8 / T = `load` · Σ rates.
pub fn rescale(
    flows: &mut [FlowSpec],
    host_rates: &[Rate],
    load: f64,
    wire_factor: f64,
) -> Result<(), ArrivalError> {
    check_load(load)?;
    let starts = || flows.iter().map(|flow| flow.start);
    let (first, last) = (starts().min(), starts().max());
    let (Some(first), Some(last)) = (first, last) else { return Err(ArrivalError::NoSpan) };
    if first == last {
        return Err(ArrivalError::NoSpan);
    }
    let bytes: f64 = flows.iter().map(|flow| flow.bytes.as_u64() as f64).sum();
    let bits_per_s: f64 = host_rates.iter().map(|rate| rate.as_bps() as f64).sum();
    let span_ps = bytes * wire_factor * 8.0 / (load * bits_per_s) * 1e12;
    let factor = span_ps / last.since(first).as_ps() as f64;
    let rescaled = |start: Time| libm::rint(start.as_ps() as f64 * factor);
    if rescaled(last) >= Time::NEVER.as_ps() as f64 {
        return Err(ArrivalError::TooSparse(load));
    }
    for flow in flows {
        flow.start = Time::from_ps(rescaled(flow.start) as u64);
    }
    Ok(())
}

fn flow<const N: usize>(row: &Row<'_, N>, hosts: usize) -> Result<FlowSpec, TableError> {
    let wrong = |message: String| Err(row.wrong(message));
    let host = |cell, column| match row.whole(cell)? {
        host if host < hosts as u64 => Ok(host as usize),
        host => Err(row
            .wrong(format!("{column} is {host}, but there are {hosts} hosts: number them from 0"))),
    };
    let start = Time::ZERO + Span::from_us_f64(row.number(0)?);
    let (src, dst) = (host(1, "src")?, host(2, "dst")?);
    let bytes = Bytes::new(row.whole(3)?);
    if start == Time::NEVER {
        return wrong("the flow starts after 213 days: count start_us from the first".to_owned());
    }
    if src == dst {
        return wrong(format!("host {src} sends to itself: give src and dst different hosts"));
    }
    if bytes == Bytes::ZERO {
        return wrong("a flow of 0 bytes carries nothing: give at least 1, or drop it".to_owned());
    }
    Ok(FlowSpec { start, src, dst, bytes, path: None, layer: None, kind: None })
}

fn path(row: &Row<'_, 5>) -> Result<Option<u16>, TableError> {
    match row.text(4) {
        "" => Ok(None),
        cell => cell.parse().map(Some).map_err(|_| {
            row.wrong(format!("path is `{cell}`: write a whole number up to 65535, or nothing"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn flow(ps: u64, src: usize, dst: usize, bytes: u64) -> FlowSpec {
        let (start, bytes) = (Time::from_ps(ps), Bytes::new(bytes));
        FlowSpec { start, src, dst, bytes, path: None, layer: None, kind: None }
    }

    fn complaint(lines: &str) -> String {
        from_csv(&format!("{HEADER}\n{lines}"), 4).expect_err("a broken trace").to_string()
    }

    #[test]
    fn flows_are_sorted_by_time_and_ties_stay() {
        let text =
            "start_us,src,dst,bytes\n2.5,0,1,10\n1,2,3,20\n2.500000,3,0,30\n0.125120,1,2,40\n";
        let expected = [
            flow(125_120, 1, 2, 40),
            flow(1_000_000, 2, 3, 20),
            flow(2_500_000, 0, 1, 10),
            flow(2_500_000, 3, 0, 30),
        ];
        assert_eq!(from_csv(text, 4).unwrap(), expected);
        assert_eq!(from_csv(HEADER, 4).unwrap(), []);
    }

    const PS_PER_US: u64 = 1_000_000;

    /// Writes what [`from_csv`] reads, in the given order. Starts are written in full, to the picosecond;
    /// the column `path` only if some flow has one.
    fn to_csv(flows: impl IntoIterator<Item = FlowSpec>) -> String {
        let flows: Vec<FlowSpec> = flows.into_iter().collect();
        let has_paths = flows.iter().any(|flow| flow.path.is_some());
        let mut text = format!("{}\n", if has_paths { HEADER_WITH_PATH } else { HEADER });
        for flow in flows {
            let (us, ps) = (flow.start.as_ps() / PS_PER_US, flow.start.as_ps() % PS_PER_US);
            let path = match flow.path {
                _ if !has_paths => String::new(),
                None => ",".to_owned(),
                Some(path) => format!(",{path}"),
            };
            let bytes = flow.bytes.as_u64();
            writeln!(text, "{us}.{ps:06},{},{},{bytes}{path}", flow.src, flow.dst)
                .expect("strings take whatever is written");
        }
        text
    }

    #[test]
    fn text_is_exact() {
        let text = to_csv([flow(125_120, 1, 2, 40), flow(3_000_000, 0, 1, 5)]);
        assert_eq!(text, "start_us,src,dst,bytes\n0.125120,1,2,40\n3.000000,0,1,5\n");
    }

    #[test]
    fn a_fifth_column_picks_paths() {
        let text = "start_us,src,dst,bytes,path\n0.125120,1,2,40,65535\n3.000000,0,1,5,\n";
        let flows =
            [FlowSpec { path: Some(65_535), ..flow(125_120, 1, 2, 40) }, flow(3_000_000, 0, 1, 5)];
        assert_eq!(from_csv(text, 4).unwrap(), flows);
        assert_eq!(to_csv(flows), text);
        for (cells, expected) in [
            (
                "0,1,2,5,65536",
                "line 2: path is `65536`: write a whole number up to 65535, or nothing",
            ),
            ("0,1,2,5,-1", "line 2: path is `-1`: write a whole number up to 65535, or nothing"),
            (
                "0,1,2,5",
                "line 2: 4 columns are not those of the header `start_us,src,dst,bytes,path`: give these",
            ),
        ] {
            let error = from_csv(&format!("{HEADER_WITH_PATH}\n{cells}"), 4).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn rescaling_meets_the_load() {
        let rates = [Rate::from_gbps(10); 2];
        let mut flows = vec![flow(0, 0, 1, 500), flow(100, 1, 0, 1_000), flow(400, 0, 1, 1_000)];
        // 2,500 B · 8 / (0.5 · 20 Gbps) = 2 µs from the first to the last.
        rescale(&mut flows, &rates, 0.5, 1.0).unwrap();
        let starts = |flows: &[FlowSpec]| flows.iter().map(|f| f.start.as_ps()).collect::<Vec<_>>();
        assert_eq!(starts(&flows), [0, 500_000, 2_000_000]);
        // Half the load and a quarter more bytes on the wire: two and a half times as long.
        rescale(&mut flows, &rates, 0.25, 1.25).unwrap();
        assert_eq!(starts(&flows), [0, 1_250_000, 5_000_000]);
        // Time before the first start is stretched too.
        let mut late = vec![flow(1_000, 0, 1, 1_250), flow(3_000, 0, 1, 1_250)];
        rescale(&mut late, &rates, 1.0, 1.0).unwrap();
        assert_eq!(starts(&late), [500_000, 1_500_000]);
    }

    #[test]
    fn what_cannot_be_rescaled_stays_as_it_is() {
        let rates = [Rate::from_gbps(10); 2];
        let apart = [flow(0, 0, 1, 500), flow(100, 1, 0, 500)];
        let together = [flow(7, 0, 1, 500), flow(7, 1, 0, 500)];
        for (flows, load, expected) in [
            (&apart[..], 0.0, ArrivalError::Load(0.0)),
            (&apart[..], 101.0, ArrivalError::Load(101.0)),
            (&apart[..], 1e-20, ArrivalError::TooSparse(1e-20)),
            (&together[..], 0.5, ArrivalError::NoSpan),
            (&[], 0.5, ArrivalError::NoSpan),
        ] {
            let mut rescaled = flows.to_vec();
            assert_eq!(rescale(&mut rescaled, &rates, load, 1.0), Err(expected));
            assert_eq!(rescaled, flows);
        }
    }

    #[test]
    fn complaints_name_the_line_and_the_change() {
        assert_eq!(
            complaint("0,0,1,10\n1,0,4,10"),
            "line 3: dst is 4, but there are 4 hosts: number them from 0"
        );
        assert_eq!(
            complaint("0,9,1,10"),
            "line 2: src is 9, but there are 4 hosts: number them from 0"
        );
        assert_eq!(
            complaint("0,2,2,10"),
            "line 2: host 2 sends to itself: give src and dst different hosts"
        );
        assert_eq!(
            complaint("0,1,2,0"),
            "line 2: a flow of 0 bytes carries nothing: give at least 1, or drop it"
        );
        assert_eq!(
            complaint("soon,1,2,5"),
            "line 2: start_us is `soon`: write a number from 0 to 2^53"
        );
        assert_eq!(
            complaint("1e14,1,2,5"),
            "line 2: the flow starts after 213 days: count start_us from the first"
        );
        let header = from_csv("src,dst,bytes,start_us\n", 4).unwrap_err();
        assert!(header.to_string().starts_with("line 1: `src,dst,bytes,start_us`"), "{header}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            mut flows in prop::collection::vec((0..1u64 << 51, 0..8usize, 1..8usize, 1..1u64 << 53, any::<Option<u16>>()), 0..20),
        ) {
            flows.sort_by_key(|flow| flow.0);
            let flows: Vec<FlowSpec> = flows
                .into_iter()
                .map(|(ps, src, step, bytes, path)| {
                    FlowSpec { path, ..flow(ps, src, (src + step) % 8, bytes) }
                })
                .collect();
            prop_assert_eq!(from_csv(&to_csv(flows.clone()), 8), Ok(flows));
        }

        #[test]
        fn text_never_panics(text in "(start_us,src,dst,bytes(,path)?\n)?([0-9.,e\n-]|nan){0,60}") {
            let _ = from_csv(&text, 3);
        }
    }
}
