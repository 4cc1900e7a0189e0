//! Tokens that are read, verified and refused.
// spec: E-04 machine

use proptest::prelude::*;

use super::*;

const SECRET: Secret = Secret([7; 16]);
const OTHER: Secret = Secret([8; 16]);

fn token(jobs: &str) -> Token {
    Token {
        id: 0x1234_5678_9abc_def0,
        role: Role::Tenant,
        jobs: Pattern::new(jobs).unwrap(),
        ranks_max: 64,
        expires: 1_000,
    }
}

#[test]
fn a_token_says_what_was_signed() {
    for jobs in ["resnet", "größe-*", &"x".repeat(PATTERN_BYTES_MAX)] {
        for role in [Role::Tenant, Role::Operator] {
            let token = Token { role, ..token(jobs) };
            let text = token.sign(&SECRET);
            assert!(text.len() <= TOKEN_BYTES_MAX && crate::text::is_sendable(&text), "{text}");
            assert!(!text.contains(' ') && Token::is_signed(&text));
            assert_eq!(Token::read(&text), Ok(token.clone()));
            assert_eq!(TokenVerifier::new(&[SECRET]).verify(&text, 999), Ok(token));
        }
    }
}

#[test]
fn a_secret_that_is_changed_leaves_both_valid_for_a_while() {
    let (old, new) = (token("a").sign(&SECRET), token("a").sign(&OTHER));
    let both = TokenVerifier::new(&[OTHER, SECRET]);
    assert!(both.verify(&old, 0).is_ok() && both.verify(&new, 0).is_ok());
    assert_eq!(TokenVerifier::new(&[OTHER]).verify(&old, 0), Err(TokenError::Seal));
    assert_eq!(TokenVerifier::new(&[]).verify(&new, 0), Err(TokenError::Seal));
}

#[test]
fn a_token_expires() {
    let text = token("a").sign(&SECRET);
    let verify = |now| TokenVerifier::new(&[SECRET]).verify(&text, now).map(drop);
    assert_eq!(verify(999), Ok(()));
    assert_eq!(verify(1_000), Err(TokenError::Expired { ago_s: 0 }));
    assert_eq!(verify(u64::MAX), Err(TokenError::Expired { ago_s: u64::MAX - 1_000 }));
}

#[test]
fn every_altered_character_is_noticed() {
    let text = token("resnet-*").sign(&SECRET);
    let verifier = TokenVerifier::new(&[SECRET]);
    for at in 0..text.len() {
        for other in [b'A', b'B', b'z', b'0', b'.', b'-'] {
            let mut altered = text.clone().into_bytes();
            if altered[at] == other {
                continue;
            }
            altered[at] = other;
            let altered = String::from_utf8(altered).unwrap();
            assert!(verifier.verify(&altered, 0).is_err(), "{altered}");
        }
        assert!(verifier.verify(&text[..at], 0).is_err());
    }
    for more in ["A", ".", "=", " ", "\n"] {
        assert!(verifier.verify(&format!("{text}{more}"), 0).is_err(), "{more:?}");
    }
}

#[test]
fn claims_of_one_token_do_not_fit_the_seal_of_another() {
    let (narrow, wide) = (token("mine").sign(&SECRET), token("*").sign(&OTHER));
    let (_, seal) = narrow.rsplit_once('.').unwrap();
    let (claims, _) = wide.rsplit_once('.').unwrap();
    let forged = format!("{claims}.{seal}");
    assert_eq!(TokenVerifier::new(&[SECRET]).verify(&forged, 0), Err(TokenError::Seal));
}

#[test]
fn other_texts_are_no_tokens() {
    let long = format!("tw1.{}.AA", "A".repeat(TOKEN_BYTES_MAX));
    for text in ["", "sesame", "tw1.", "tw1..", "tw1.AA", "tw1.AA.AA.AA", "tw2.AA.AA", &long] {
        assert_eq!(TokenVerifier::new(&[SECRET]).verify(text, 0), Err(TokenError::Form), "{text}");
        assert_eq!(Token::read(text), Err(TokenError::Form), "{text}");
    }
}

/// A seal over claims that we never write.
#[test]
fn claims_are_checked_though_they_are_signed() {
    let sealed = |claims: &[u8]| {
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(claims));
        let seal = hmac::sign(&derive(&SECRET, PURPOSE), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(seal))
    };
    let right = token("a").claims();
    assert!(TokenVerifier::new(&[SECRET]).verify(&sealed(&right), 0).is_ok());
    let role = [&[2], &right[1..]].concat();
    let (short, hidden) = (&right[..FIXED_BYTES], [&right[..], "\u{202e}".as_bytes()].concat());
    let invalid = [&right[..], &[0xff]].concat();
    for claims in [&role[..], short, &hidden, &invalid, &[]] {
        assert_eq!(TokenVerifier::new(&[SECRET]).verify(&sealed(claims), 0), Err(TokenError::Form));
    }
}

#[test]
fn patterns_cover_names_and_what_is_derived_from_them() {
    let covers = |pattern: &str, name: &str| Pattern::new(pattern).unwrap().covers(name);
    for (pattern, name) in [
        ("resnet", "resnet"),
        ("resnet", "resnet/1"),
        ("resnet", "resnet/0/2#1"),
        ("resnet-*", "resnet-50"),
        ("resnet-*", "resnet-"),
        ("a*z", "a-z-z/9"),
        ("a*b*c", "aXbYbZc"),
        ("*", ""),
        ("*", "any/thing#1"),
        ("resnet*", "resnet#1"),
        ("a/b", "a/b"),
        ("a*", "a*"),
        ("*aab", "aaaab/7"),
    ] {
        assert!(covers(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [
        ("resnet", "resnet50"),
        ("resnet", "resnet#1"),
        ("resnet", "resne"),
        ("resnet", "Resnet"),
        ("resnet-*", "resnet"),
        ("a*z", "a-y/y"),
        ("a/b", "a"),
        ("a/b", "a/c"),
        ("*x", "y/z"),
    ] {
        assert!(!covers(pattern, name), "{pattern} {name}");
    }
    assert!(Pattern::new("").is_err() && Pattern::new("a\u{200b}").is_err());
    assert!(Pattern::new(&"x".repeat(PATTERN_BYTES_MAX + 1)).is_err());
}

/// A pattern by the book: some cut of the name before a `/` is made of the literals in order.
fn covers_slowly(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty() || name[0] == b'/',
        Some((b'*', rest)) => (0..=name.len()).any(|taken| covers_slowly(rest, &name[taken..])),
        Some((first, rest)) => name.first() == Some(first) && covers_slowly(rest, &name[1..]),
    }
}

proptest! {
    #[test]
    fn patterns_mean_what_the_book_says(pattern in "[ab/#*]{1,7}", name in "[ab/#]{0,10}") {
        let expected = covers_slowly(pattern.as_bytes(), name.as_bytes());
        prop_assert_eq!(Pattern::new(&pattern).unwrap().covers(&name), expected);
    }

    #[test]
    fn no_text_harms_a_verifier(text in ".{0,600}", tail in "[-_A-Za-z0-9.]{0,600}") {
        let verifier = TokenVerifier::new(&[SECRET]);
        prop_assert!(verifier.verify(&text, 0).is_err());
        let signed = format!("tw1.{tail}");
        prop_assert!(verifier.verify(&signed, 0).is_err());
    }
}
