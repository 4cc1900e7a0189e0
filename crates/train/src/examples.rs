//! Labelled examples, and batches of them.

/// A set of examples with a label each. A value is a byte, as in an image, and 255 means 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Examples {
    width: usize,
    classes: usize,
    values: Vec<u8>,
    labels: Vec<u8>,
}

impl Examples {
    /// Examples of `width` values, one after the other.
    ///
    /// # Panics
    ///
    /// If the values are not `width` for every label, if there is no label, or if a label is not
    /// below `classes`.
    pub fn new(width: usize, classes: usize, values: Vec<u8>, labels: Vec<u8>) -> Examples {
        assert!(width > 0 && !labels.is_empty(), "a set has examples, and they have values");
        assert_eq!(values.len(), width * labels.len(), "every label has its values");
        assert!(labels.iter().all(|&label| usize::from(label) < classes), "labels name classes");
        Examples { width, classes, values, labels }
    }

    /// Number of examples. Never 0.
    #[allow(clippy::len_without_is_empty, reason = "there is always an example")]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Number of values of an example.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of classes. Labels are below it.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The same examples, of more classes than occur among them.
    pub(crate) fn with_classes(self, classes: usize) -> Examples {
        Examples { classes: self.classes.max(classes), ..self }
    }

    /// Labels of the examples, in order.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The values of one example.
    ///
    /// # Panics
    ///
    /// If there is no such example.
    pub fn values(&self, index: usize) -> &[u8] {
        &self.values[index * self.width..][..self.width]
    }

    /// The examples of these indices, in this order.
    ///
    /// # Panics
    ///
    /// If there is no such example.
    pub fn batch(&self, indices: impl IntoIterator<Item = usize>) -> Batch {
        let mut batch = Batch { width: self.width, inputs: Vec::new(), labels: Vec::new() };
        for index in indices {
            batch.inputs.extend(self.values(index).iter().map(|&value| f32::from(value) / 255.0));
            batch.labels.push(self.labels[index]);
        }
        batch
    }
}

/// Examples as a network takes them in.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    pub(crate) width: usize,
    pub(crate) inputs: Vec<f32>,
    pub(crate) labels: Vec<u8>,
}

impl Batch {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True if there is no example.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_keeps_the_order_of_its_indices() {
        let examples = Examples::new(2, 3, vec![0, 255, 51, 102, 153, 204], vec![2, 0, 1]);
        let batch = examples.batch([2, 0]);
        assert_eq!(batch.inputs, [0.6, 0.8, 0.0, 1.0]);
        assert_eq!(batch.labels, [1, 2]);
        assert!(examples.batch([]).is_empty());
    }

    #[test]
    #[should_panic(expected = "labels name classes")]
    fn labels_are_below_the_number_of_classes() {
        Examples::new(1, 2, vec![0, 0], vec![1, 2]);
    }
}
