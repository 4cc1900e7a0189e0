use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Option<FromJob>, LineError> {
    Lines::new(text.as_bytes()).next_line()
}

#[test]
fn words_are_what_the_page_says() {
    let flow = r#"{"say":"flow","flow":1,"to":"10.77.0.2","volume":9,"relation":{"ring":{"own_chunk":3}},"others":[["10.77.0.1","10.77.0.2"]]}"#;
    let host = |last| Ipv4Addr::new(10, 77, 0, last);
    let expected = FromJob::Flow(Announced {
        flow: 1,
        to: host(2),
        volume: Some(9),
        is_exact: false,
        relation: Dependence::Ring { own_chunk: 3 },
        others: vec![(host(1), host(2))],
    });
    assert_eq!(read(flow).unwrap(), Some(expected));
    let short = read(r#"{"say":"flow","flow":1,"to":"10.77.0.2"}"#).unwrap().unwrap();
    assert!(matches!(
        short,
        FromJob::Flow(Announced { volume: None, relation: Dependence::Alone, .. })
    ));
    let mut line = Vec::new();
    write_line(&mut line, &ToJob::Rate { flow: 1, bps: 5, bytes: None, within_us: Some(7) })
        .unwrap();
    let text = r#"{"say":"rate","flow":1,"bps":5,"bytes":null,"within_us":7}"#;
    assert_eq!(String::from_utf8(line).unwrap(), format!("{text}\n"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert!(read("").unwrap().is_none());
    for wrong in [
        "\n",
        "join\n",
        r#"{"say":"join"}"#,
        r#"{"say":"join","version":1,"job":"a","more":1}"#,
        r#"{"say":"report","flow":-1,"ready":1,"sent":1}"#,
        r#"{"say":"report","flow":1,"ready":1e99,"sent":1}"#,
        r#"{"say":"flow","flow":1,"to":"::1"}"#,
        "\u{fffd}\n",
    ] {
        assert!(matches!(read(wrong), Err(LineError::Nonsense(_))), "{wrong}");
    }
    assert!(matches!(read(&"x".repeat(LINE_BYTES + 1)), Err(LineError::Long)));
    let deep = "[".repeat(LINE_BYTES);
    assert!(read(&deep).is_err(), "nesting has an end");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let join = |version, job: &str| {
        FromJob::Join { version, job: job.to_owned(), classes: false, leaf: false }.check()
    };
    assert_eq!(join(1, "vgg"), Ok(()));
    assert!(join(2, "vgg").unwrap_err().contains("version 2"));
    for name in ["", "a\nb", &"x".repeat(129)] {
        assert!(join(1, name).unwrap_err().contains("a job's name"), "{name:?}");
    }
    let report = FromJob::report(1, 1, 2);
    assert!(report.check().unwrap_err().contains("only 1 were handed over"));
    let huge = FromJob::report(1, COUNT_MAX + 1, 2);
    assert!(huge.check().unwrap_err().contains("nothing sends"));
    let local = Ipv4Addr::LOCALHOST;
    let huge = FromJob::Flow(Announced {
        flow: 1,
        to: local,
        volume: Some(u64::MAX),
        is_exact: true,
        relation: Dependence::Alone,
        others: Vec::new(),
    });
    assert!(huge.check().unwrap_err().contains("nothing sends"));
    let flow = FromJob::Flow(Announced {
        flow: 1,
        to: local,
        volume: None,
        is_exact: false,
        relation: Dependence::Alone,
        others: vec![(local, local); 65],
    });
    assert!(flow.check().is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut lines = Lines::new(&bytes[..]);
        while let Ok(Some(words)) = lines.next_line::<FromJob>() {
            let _ = words.check();
        }
    }
}
