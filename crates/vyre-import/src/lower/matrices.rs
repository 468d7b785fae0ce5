//! Products, determinants and inverses of matrices, which are lists of columns.

use super::scalar_type::ScalarType;
use naga::TypeInner;
use vyre_foundation::ir::Expr;

/// Shape of a matrix product: rows of the left operand, the shared dimension, and columns of the
/// right operand.
#[derive(Clone, Copy)]
pub(super) struct ProductShape {
    rows: usize,
    inner: usize,
    columns: usize,
}

/// Shape of a product with a matrix; a vector is a column on the right and a row on the left.
pub(super) fn product_shape(left: &TypeInner, right: &TypeInner) -> Option<ProductShape> {
    let (rows, inner, columns) = match (left, right) {
        (TypeInner::Matrix { columns, rows, .. }, TypeInner::Vector { .. }) => (*rows, *columns as usize, 1),
        (TypeInner::Vector { .. }, TypeInner::Matrix { columns, rows, .. }) => {
            return Some(ProductShape { rows: 1, inner: *rows as usize, columns: *columns as usize });
        }
        (TypeInner::Matrix { columns, rows, .. }, TypeInner::Matrix { columns: others, .. }) => {
            (*rows, *columns as usize, *others as usize)
        }
        _ => return None,
    };
    Some(ProductShape { rows: rows as usize, inner, columns })
}

/// The product, column by column.
pub(super) fn product(kind: ScalarType, shape: ProductShape, a: &[Expr], b: &[Expr]) -> Vec<Expr> {
    let mut leaves = Vec::new();
    for column in 0..shape.columns {
        for row in 0..shape.rows {
            let terms = (0..shape.inner)
                .map(|k| (a[k * shape.rows + row].clone(), b[column * shape.inner + k].clone()));
            leaves.extend(dot(kind, terms));
        }
    }
    leaves
}

/// Sum of products, in order.
pub(super) fn dot(kind: ScalarType, terms: impl Iterator<Item = (Expr, Expr)>) -> Option<Expr> {
    let products = terms.map(|(x, y)| kind.rounded(x * y));
    products.reduce(|sum, term| kind.rounded(sum + term))
}

/// A square matrix without one row and one column.
fn minor(m: &[Expr], n: usize, without: (usize, usize)) -> Vec<Expr> {
    let (column, row) = without;
    let kept = (0..n * n).filter(|leaf| leaf / n != column && leaf % n != row);
    kept.map(|leaf| m[leaf].clone()).collect()
}

/// Determinant of a square matrix of side `n`, expanded along its first column.
pub(super) fn determinant(kind: ScalarType, m: &[Expr], n: usize) -> Expr {
    if n == 1 {
        return m[0].clone();
    }
    let terms = (0..n).map(|row| {
        let product = kind.rounded(m[row].clone() * determinant(kind, &minor(m, n, (0, row)), n - 1));
        if row % 2 == 0 { product } else { -product }
    });
    terms.reduce(|sum, term| kind.rounded(sum + term)).unwrap_or_else(|| kind.zero())
}

/// Adjugate of a square matrix: the inverse times the determinant.
pub(super) fn adjugate(kind: ScalarType, m: &[Expr], n: usize) -> Vec<Expr> {
    let mut leaves = Vec::new();
    for column in 0..n {
        for row in 0..n {
            let cofactor = determinant(kind, &minor(m, n, (row, column)), n - 1);
            leaves.push(if (row + column) % 2 == 0 { cofactor } else { -cofactor });
        }
    }
    leaves
}
