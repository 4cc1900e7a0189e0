//! Matrix products in blocks.
//!
//! Every element of a product is one sum, taken in the order of the inner dimension, whatever block
//! it lies in. So blocking, vector width and the other rows of a batch change no bit of it.

use multiversion::multiversion;

// A block of this shape keeps both units of a core busy with vectors of 512 bits, and still fits
// into the registers that there are with 256 bits.
const BLOCK_ROWS: usize = 4;
const BLOCK_COLUMNS: usize = 16;

/// A matrix, seen through strides: transposing it moves nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Values that lie row by row.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Matrix<'a> {
        assert_eq!(values.len(), rows * columns, "a matrix has rows × columns values");
        Matrix { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// Rows become columns.
    pub(crate) fn transposed(self) -> Matrix<'a> {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// Multiplies matrices. Keeps the memory that it copies their blocks to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Multiplier {
    left: Vec<[f32; BLOCK_ROWS]>,
    right: Vec<[f32; BLOCK_COLUMNS]>,
}

impl Multiplier {
    /// Writes `left` × `right` to `product`, row by row.
    pub(crate) fn multiply(&mut self, left: Matrix<'_>, right: Matrix<'_>, product: &mut [f32]) {
        assert_eq!(left.columns, right.rows, "the inner dimensions of a product are one");
        assert_eq!(product.len(), left.rows * right.columns, "a product has the outer dimensions");
        pack(left, &mut self.left);
        pack(right.transposed(), &mut self.right);
        multiply_packed(&self.left, &self.right, left.columns, right.columns, product);
    }
}

/// Lays a matrix out in bands of `N` rows, column by column, the last band filled up with zeros:
/// the order in which [`sum_block`] reads.
fn pack<const N: usize>(matrix: Matrix<'_>, packed: &mut Vec<[f32; N]>) {
    packed.clear();
    for first in (0..matrix.rows).step_by(N) {
        let rows = N.min(matrix.rows - first);
        for column in 0..matrix.columns {
            let start = first * matrix.row_stride + column * matrix.column_stride;
            let mut values = [0.0; N];
            if matrix.row_stride == 1 {
                values[..rows].copy_from_slice(&matrix.values[start..start + rows]);
            } else {
                let from = matrix.values[start..].iter().step_by(matrix.row_stride);
                values[..rows].iter_mut().zip(from).for_each(|(value, from)| *value = *from);
            }
            packed.push(values);
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn multiply_packed(
    left: &[[f32; BLOCK_ROWS]],
    right: &[[f32; BLOCK_COLUMNS]],
    inner: usize,
    columns: usize,
    product: &mut [f32],
) {
    // A band of columns outside: it is the larger one, and stays in the cache for all rows.
    for (band, first_column) in (0..columns).step_by(BLOCK_COLUMNS).enumerate() {
        let right = &right[band * inner..][..inner];
        let width = BLOCK_COLUMNS.min(columns - first_column);
        for (band, rows) in product.chunks_mut(BLOCK_ROWS * columns).enumerate() {
            let sums = sum_block(&left[band * inner..][..inner], right);
            for (row, sums) in rows.chunks_exact_mut(columns).zip(&sums) {
                row[first_column..][..width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

/// Inlined into every version of [`multiply_packed`], so that it has that version's vectors.
#[inline(always)]
fn sum_block(
    left: &[[f32; BLOCK_ROWS]],
    right: &[[f32; BLOCK_COLUMNS]],
) -> [[f32; BLOCK_COLUMNS]; BLOCK_ROWS] {
    // A variable for every row: as one array the sums would live in memory.
    let [mut first, mut second, mut third, mut fourth] = [[0.0; BLOCK_COLUMNS]; BLOCK_ROWS];
    for (left, right) in left.iter().zip(right) {
        add_scaled(&mut first, left[0], right);
        add_scaled(&mut second, left[1], right);
        add_scaled(&mut third, left[2], right);
        add_scaled(&mut fourth, left[3], right);
    }
    [first, second, third, fourth]
}

#[inline(always)]
fn add_scaled(sums: &mut [f32; BLOCK_COLUMNS], factor: f32, values: &[f32; BLOCK_COLUMNS]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn multiply(left: Matrix<'_>, right: Matrix<'_>) -> Vec<f32> {
        // Not zeros: every element has to be written.
        let mut product = vec![f32::NAN; left.rows * right.columns];
        Multiplier::default().multiply(left, right, &mut product);
        product
    }

    #[test]
    fn products_of_small_matrices() {
        let left = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let right = [1.0, 0.0, -1.0, 2.0, 0.5, 1.0];
        let (tall, wide) = (Matrix::new(&right, 3, 2), Matrix::new(&left, 2, 3));
        assert_eq!(multiply(wide, tall), [0.5, 7.0, 2.0, 16.0]);
        assert_eq!(multiply(tall.transposed(), wide.transposed()), [0.5, 2.0, 7.0, 16.0]);
        assert_eq!(multiply(Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 2)), [0.0; 4]);
        assert_eq!(multiply(Matrix::new(&[], 0, 3), tall), []);
    }

    proptest! {
        /// The same bits as the plain sum in order: this is what makes runs comparable.
        #[test]
        fn blocks_change_no_bit(
            (rows, inner, columns) in (1_usize..20, 1_usize..40, 1_usize..50), seed in any::<u64>()
        ) {
            let mut rng = thalweg_core::Rng::new(seed);
            let mut draw = |count| -> Vec<f32> {
                (0..count).map(|_| rng.uniform() as f32 - 0.5).collect()
            };
            let (left, right) = (draw(rows * inner), draw(inner * columns));
            let mut plain = vec![0.0_f32; rows * columns];
            for row in 0..rows {
                for column in 0..columns {
                    for at in 0..inner {
                        plain[row * columns + column] +=
                            left[row * inner + at] * right[at * columns + column];
                    }
                }
            }
            let product =
                multiply(Matrix::new(&left, rows, inner), Matrix::new(&right, inner, columns));
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            prop_assert_eq!(bits(product), bits(plain));
        }
    }
}
