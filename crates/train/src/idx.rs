//! Files in the format of MNIST: a magic number, sizes, and a byte for every value.
//!
//! The reader takes bytes that somebody else has read. It believes no size before it has compared
//! it with the bytes that are there, and allocates no more than those.

use thiserror::Error;

use crate::examples::Examples;

/// An image may have this many points: the parameters of a network grow with them.
pub const POINTS_MAX: u64 = 1 << 16;

/// A mistake in files in the format of MNIST, and what to change. Bytes are counted from 0.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct IdxError(pub(crate) String);

/// The examples in the contents of two files.
///
/// # Errors
///
/// If a file is not in this format, or if they are not of one set.
pub fn read(images: &[u8], labels: &[u8]) -> Result<Examples, IdxError> {
    let ([count, rows, columns], points) = sizes("images", images)?;
    let ([label_count], labels) = sizes("labels", labels)?;
    let width = u64::from(rows) * u64::from(columns);
    if width > POINTS_MAX {
        return Err(IdxError(format!(
            "bytes 8 to 15 say {width} points an image: take at most {POINTS_MAX}"
        )));
    }
    if count != label_count {
        return Err(IdxError(format!(
            "byte 4 says {count} images and {label_count} labels: take two files of one set"
        )));
    }
    let classes = labels.iter().max().map_or(0, |&label| usize::from(label) + 1);
    Ok(Examples::new(width as usize, classes, points.to_vec(), labels.to_vec()))
}

/// The sizes, none of them 0, and the values: as many as the sizes say.
fn sizes<'a, const N: usize>(
    file: &str,
    bytes: &'a [u8],
) -> Result<([u32; N], &'a [u8]), IdxError> {
    let wrong = |what: String| IdxError(format!("the file of {file} {what}"));
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let what = "begins as a gzip file at byte 0: gz is not supported, unpack it";
        return Err(wrong(what.to_owned()));
    }
    let header_bytes = 4 + 4 * N;
    let end = |wanted: u128| {
        let found = bytes.len();
        wrong(format!("ends at byte {found} and has to end at byte {wanted}: take a whole file"))
    };
    let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk().copied());
    let word = |at| word(at).map(u32::from_be_bytes).ok_or_else(|| end(header_bytes as u128));
    // Unsigned bytes, in this many dimensions.
    let wanted = 0x0800 + N as u32;
    match word(0)? {
        found if found == wanted => {}
        found => {
            let what = format!("has {found:#010x} at byte 0: take one that begins {wanted:#010x}");
            return Err(wrong(what));
        }
    }
    let mut sizes = [0; N];
    for (index, size) in sizes.iter_mut().enumerate() {
        let at = 4 + 4 * index;
        *size = word(at)?;
        if *size == 0 {
            return Err(wrong(format!("has 0 at byte {at}: take one with something in it")));
        }
    }
    // Three sizes of 32 bits fit into 128.
    let values: u128 = sizes.iter().map(|&size| u128::from(size)).product();
    let wanted = values + header_bytes as u128;
    if bytes.len() as u128 != wanted {
        return Err(end(wanted));
    }
    Ok((sizes, &bytes[header_bytes..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IMAGES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60];
    const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 7, 1];

    /// The same bytes with others from some place on.
    fn with(bytes: &[u8], at: usize, others: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[at..at + others.len()].copy_from_slice(others);
        bytes
    }

    fn message(images: &[u8], labels: &[u8]) -> String {
        read(images, labels).expect_err("the files are wrong").to_string()
    }

    #[test]
    fn good_files_are_read() {
        let examples = read(IMAGES, LABELS).expect("the files are right");
        assert_eq!((examples.len(), examples.width(), examples.classes()), (2, 3, 8));
        assert_eq!(examples.labels(), [7, 1]);
        assert_eq!(
            (examples.values(0), examples.values(1)),
            (&[10, 20, 30][..], &[40, 50, 60][..])
        );
    }

    #[test]
    fn cut_files_name_the_byte() {
        for length in 0..IMAGES.len() {
            let wanted = if length < 16 { 16 } else { 22 };
            assert_eq!(
                message(&IMAGES[..length], LABELS),
                format!(
                    "the file of images ends at byte {length} and has to end at byte {wanted}: take a \
                     whole file"
                )
            );
        }
        assert_eq!(
            message(IMAGES, &LABELS[..9]),
            "the file of labels ends at byte 9 and has to end at byte 10: take a whole file"
        );
        let longer = [IMAGES, &[0]].concat();
        assert!(message(&longer, LABELS).contains("ends at byte 23 and has to end at byte 22"));
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(
            message(LABELS, LABELS),
            "the file of images has 0x00000801 at byte 0: take one that begins 0x00000803"
        );
        assert!(message(IMAGES, IMAGES).contains("file of labels has 0x00000803 at byte 0"));
        let zipped = message(&[0x1f, 0x8b, 8, 0], LABELS);
        assert_eq!(
            zipped,
            "the file of images begins as a gzip file at byte 0: gz is not supported, unpack it"
        );
    }

    #[test]
    fn sizes_that_lie_are_not_believed() {
        let ends = |images: &[u8], wanted: u128| {
            let text = message(images, LABELS);
            assert!(
                text.contains(&format!("at byte 22 and has to end at byte {wanted}:")),
                "{text}"
            );
        };
        ends(&with(IMAGES, 7, &[3]), 25);
        ends(&with(IMAGES, 4, &[0xff; 4]), 0xffff_ffff * 3 + 16);
        ends(&with(IMAGES, 4, &[0xff; 12]), 0xffff_ffff * 0xffff_ffff * 0xffff_ffff + 16);
        for (at, last) in [(4, 7), (8, 11), (12, 15)] {
            let text = message(&with(IMAGES, last, &[0]), LABELS);
            assert!(text.starts_with(&format!("the file of images has 0 at byte {at}:")), "{text}");
        }
        let large = [&[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 1][..], &[0; 65_792]].concat();
        assert_eq!(
            message(&large, LABELS),
            "bytes 8 to 15 say 65792 points an image: take at most 65536"
        );
    }

    #[test]
    fn images_and_labels_are_equally_many() {
        let labels = [0, 0, 8, 1, 0, 0, 0, 3, 7, 1, 0];
        assert_eq!(
            message(IMAGES, &labels),
            "byte 4 says 2 images and 3 labels: take two files of one set"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            images in prop::collection::vec(any::<u8>(), 0..40),
            sizes in prop::collection::vec(0_u8..4, 0..12),
        ) {
            let _ = read(&images, LABELS);
            let _ = read(IMAGES, &images);
            let mut header = vec![0, 0, 8, 3];
            header.extend(sizes);
            header.extend(images);
            let _ = read(&header, LABELS);
        }
    }
}
