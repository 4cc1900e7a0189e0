use super::*;

fn read(text: &str) -> Records {
    Records::from_csv(text).unwrap()
}

fn complaint(text: &str) -> String {
    Records::from_csv(text).unwrap_err().to_string()
}

#[test]
fn columns_come_in_any_order_and_others_are_left_alone() {
    let text = "bytes, note ,dst,src,start_us,protocol,dst_port,src_port,end_us\r\n\
                70,x,10.0.0.2,10.0.0.1,2.5,TCP,443,1024,3\r\n\r\n\
                80,y,7,8,1,17,53,9,1\n";
    let records = read(text);
    assert_eq!(records.unfinished, 0);
    let [first, second] = records.flows[..] else { panic!("two flows") };
    assert_eq!(first.tuple, FiveTuple { src: 8, dst: 7, src_port: 9, dst_port: 53, protocol: 17 });
    assert_eq!((first.bytes, first.start), (Bytes::new(80), Time::from_ps(1_000_000)));
    assert_eq!(second.tuple.src, 0x0a00_0001);
    assert_eq!((second.tuple.dst_port, second.tuple.protocol), (443, 6));
    assert_eq!((second.start.as_ps(), second.end.as_ps()), (2_500_000, 3_000_000));
}

#[test]
fn what_a_simulation_writes_is_read() {
    let text = "id,src,dst,bytes,start_us,fct_us,ideal_us,retransmissions\n\
                0,1,2,500,10,5.5,5,0\n1,2,1,600,11,,6,0\n";
    let records = read(text);
    assert_eq!(records.unfinished, 1);
    assert_eq!(records.flows.len(), 1);
    assert_eq!(records.flows[0].end.as_ps(), 15_500_000);
    assert_eq!(records.flows[0].tuple.protocol, 0);
}

#[test]
fn a_flow_counts_when_it_has_ended() {
    let text = "start_us,src,dst,bytes,end_us\n\
                0,1,9,100,10\n1,1,9,200,3\n2,2,9,300,2\n5,1,9,400,6\n10,1,9,500,11\n";
    let last = |(flow, _): &(NewFlow, Bytes)| {
        (flow.gap.map(|gap| gap.as_us_f64()), flow.last_bytes.map(Bytes::as_u64))
    };
    let described: Vec<_> = read(text).describe().iter().map(last).collect();
    assert_eq!(described[0], (None, [0; 5]));
    assert_eq!(described[1], (None, [0; 5]), "the first goes on");
    assert_eq!(described[2], (None, [0; 5]), "another sender");
    assert_eq!(described[3], (Some(2.0), [200, 0, 0, 0, 0]));
    // In the order of their ends; one that ends just now has ended.
    assert_eq!(described[4], (Some(0.0), [100, 400, 200, 0, 0]));
}

#[test]
fn without_ends_the_order_of_starts_counts() {
    let text = "start_us,src,dst,bytes\n3,1,9,300\n1,1,9,100\n2,1,9,200\n2,1,9,250\n";
    let described = read(text).describe();
    let last: Vec<u64> = described.iter().map(|(flow, _)| flow.last_bytes[0].as_u64()).collect();
    assert_eq!(last, [0, 100, 100, 250], "flows that start together do not know of each other");
}

#[test]
fn complaints_name_the_line_and_the_column() {
    let cases = [
        ("", "line 1: the table is empty: start it with a header such as `start_us,src,dst,bytes`"),
        (
            "src,dst,bytes",
            "line 1: there is no column start_us: the header needs start_us,src,dst,bytes",
        ),
        ("start_us,src,dst,bytes,src", "line 1: column src stands there twice: drop one of them"),
        ("start_us,src,dst,bytes\n1,2,3", "line 2: 3 columns, but the header has 4"),
        (
            "start_us,src,dst,bytes\n1,2,3,4\n\nx,2,3,4",
            "line 4: column start_us: `x` is not a number of microseconds from 0 to 9e12",
        ),
        (
            "start_us,src,dst,bytes\n-1,2,3,4",
            "line 2: column start_us: `-1` is not a number of microseconds from 0 to 9e12",
        ),
        (
            "start_us,src,dst,bytes\n1,fe80::1,3,4",
            "line 2: column src: `fe80::1` is not an IPv4 address or the number of a host",
        ),
        (
            "start_us,src,dst,bytes\n1,2,3,4.5",
            "line 2: column bytes: `4.5` is not a whole number from 0 to 2^53",
        ),
        (
            "start_us,src,dst,bytes,dst_port\n1,2,3,4,99999",
            "line 2: column dst_port: `99999` is not a port from 0 to 65535",
        ),
        (
            "start_us,src,dst,bytes,protocol\n1,2,3,4,icmpish",
            "line 2: column protocol: `icmpish` is not tcp, udp or a number from 0 to 255",
        ),
        (
            "start_us,src,dst,bytes,end_us\n5,2,3,4,4",
            "line 2: column end_us: the flow ends before it starts",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(complaint(text), expected);
    }
}

// spec: Q-13 machine
#[test]
fn what_an_agent_notes_is_read_as_it_was_written() {
    let tuple = FiveTuple { src: 0x0a00_0001, dst: 7, src_port: 0, dst_port: 80, protocol: 6 };
    let flow = |ms: u64, gap| NewFlow {
        tuple,
        start: Time::ZERO + Span::from_ms(ms),
        gap,
        last_bytes: [5, 4, 3, 2, ms].map(Bytes::new),
    };
    let flows = [
        (flow(1, None), Bytes::new(70)),
        (flow(2, Some(Span::from_ms(64))), Bytes::new(80)),
        (flow(900, Some(Span::from_ms(1))), Bytes::new(1 << 40)),
    ];
    let text = to_csv(&flows);
    assert_eq!(read(&text).describe(), flows);
    assert_eq!(read(&to_csv(&[])).flows, []);
    let cut = text.replace(",last_5", "");
    assert!(complaint(&cut).contains("some of the columns gap_us"), "{}", complaint(&cut));
    assert!(complaint(&text.replace(",64000,", ",x,")).contains("column gap_us"));
}
