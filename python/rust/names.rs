//! Names that Python uses for values of the library.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use thalweg::internal::{Combine, Intent, Reduction};
use thalweg::{Collective, Element, Error, Numeric, Reduce};

/// The collective of this name.
pub(crate) fn collective(name: &str) -> PyResult<Collective> {
    name.parse().map_err(|error: Error| PyValueError::new_err(error.to_string()))
}

/// The reduction of this name.
pub(crate) fn reduce(name: &str) -> PyResult<Reduce> {
    Ok(match name {
        "sum" => Reduce::Sum,
        "mean" => Reduce::Mean,
        "min" => Reduce::Min,
        "max" => Reduce::Max,
        "product" => Reduce::Product,
        _ => {
            let text = format!("no reduction \"{name}\": sum, mean, min, max or product");
            return Err(PyValueError::new_err(text));
        }
    })
}

/// The intent of a caller. A reduction of `None` is that of the call.
pub(crate) fn intent(reduction: Option<&str>) -> PyResult<Intent> {
    let by_name = |name: &str| {
        let found = Reduction::ALL.into_iter().find(|reduction| reduction.name() == name);
        found.ok_or_else(|| {
            let names = Reduction::ALL.map(Reduction::name).join(", ");
            PyValueError::new_err(format!("no reduction \"{name}\": one of {names}"))
        })
    };
    Ok(Intent { reduction: reduction.map(by_name).transpose()?, ..Intent::default() })
}

/// Reductions in which the layer above divides for a mean, and whether it does.
pub(crate) fn combine(name: &str) -> PyResult<(Combine, bool)> {
    let how = reduce(name)?;
    Ok((how.combine(), how == Reduce::Mean))
}

/// The type of values of this name.
pub(crate) fn element_of(name: &str) -> PyResult<Element> {
    Element::ALL.into_iter().find(|element| element.name() == name).ok_or_else(|| {
        let names = Element::ALL.map(Element::name).join(", ");
        PyValueError::new_err(format!("no element \"{name}\": one of {names}"))
    })
}

/// Numbers that switches add: "auto", "float", "fixed:SCALE" or "dynamic:SCALE".
pub(crate) fn numeric(name: &str) -> PyResult<Numeric> {
    let (kind, scale) = name.split_once(':').unwrap_or((name, ""));
    let scale = scale.parse().ok().filter(|scale: &f32| scale.is_finite() && *scale > 0.0);
    Ok(match (kind, scale) {
        ("auto", _) if name == kind => Numeric::Auto,
        ("float", _) if name == kind => Numeric::Float,
        ("fixed", Some(scale)) => Numeric::Fixed { scale, dynamic: false },
        ("dynamic", Some(scale)) => Numeric::Fixed { scale, dynamic: true },
        _ => {
            let text = format!(
                "no numeric \"{name}\": auto, float, fixed:SCALE or dynamic:SCALE, with a positive scale"
            );
            return Err(PyValueError::new_err(text));
        }
    })
}
