//! Stored elements as numbers.

use half::{bf16, f16};
use safetensors::Dtype;

/// Whether a dtype holds floating numbers.
pub(crate) fn is_floating(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F8_E4M3 | Dtype::F8_E5M2)
}

/// Whether the judge can compare a dtype. Complex leaves travel as pairs of real numbers.
pub(crate) fn is_supported(dtype: Dtype) -> bool {
    use Dtype::*;
    is_floating(dtype) || matches!(dtype, BOOL | U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
}

/// The distance from 1 to the next larger number of a floating dtype.
pub(crate) fn epsilon(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(f32::EPSILON),
        Dtype::F16 => 2f64.powi(-10),
        Dtype::BF16 => 2f64.powi(-7),
        Dtype::F8_E4M3 => 2f64.powi(-3),
        Dtype::F8_E5M2 => 2f64.powi(-2),
        _ => f64::EPSILON,
    }
}

/// The largest finite number of a floating dtype.
pub(crate) fn largest(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(f32::MAX),
        Dtype::F16 => f16::MAX.to_f64(),
        Dtype::BF16 => bf16::MAX.to_f64(),
        Dtype::F8_E4M3 => 448.0,
        Dtype::F8_E5M2 => 57344.0,
        _ => f64::MAX,
    }
}

/// Floating elements, exactly.
pub(crate) fn floats(dtype: Dtype, bytes: &[u8], into: &mut Vec<f64>) {
    into.clear();
    match dtype {
        Dtype::F64 => into.extend(words(bytes).map(f64::from_le_bytes)),
        Dtype::F32 => into.extend(words(bytes).map(|b| f64::from(f32::from_le_bytes(b)))),
        Dtype::F16 => into.extend(words(bytes).map(|b| f16::from_le_bytes(b).to_f64())),
        // A bfloat16 is the upper half of a float32.
        Dtype::BF16 => {
            into.extend(words(bytes).map(|b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))));
        }
        Dtype::F8_E4M3 => into.extend(bytes.iter().map(|&b| float8_e4m3(b))),
        // A float8 with five bits of exponent is the upper half of a float16.
        Dtype::F8_E5M2 => into.extend(bytes.iter().map(|&b| f16::from_bits(u16::from(b) << 8).to_f64())),
        _ => {}
    }
}

/// Integers and booleans, exactly.
pub(crate) fn integers(dtype: Dtype, bytes: &[u8], into: &mut Vec<i128>) {
    into.clear();
    match dtype {
        Dtype::BOOL | Dtype::U8 => into.extend(bytes.iter().map(|&b| i128::from(b))),
        Dtype::I8 => into.extend(bytes.iter().map(|&b| i128::from(b as i8))),
        Dtype::U16 => into.extend(words(bytes).map(|b| i128::from(u16::from_le_bytes(b)))),
        Dtype::I16 => into.extend(words(bytes).map(|b| i128::from(i16::from_le_bytes(b)))),
        Dtype::U32 => into.extend(words(bytes).map(|b| i128::from(u32::from_le_bytes(b)))),
        Dtype::I32 => into.extend(words(bytes).map(|b| i128::from(i32::from_le_bytes(b)))),
        Dtype::U64 => into.extend(words(bytes).map(|b| i128::from(u64::from_le_bytes(b)))),
        Dtype::I64 => into.extend(words(bytes).map(|b| i128::from(i64::from_le_bytes(b)))),
        _ => {}
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// OCP float8 with four bits of exponent: no infinities, and NaN where all bits but the sign are set.
fn float8_e4m3(byte: u8) -> f64 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(byte >> 3 & 0xf), f64::from(byte & 0x7));
    match (exponent, byte & 0x7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * fraction * 2f64.powi(-9),
        _ => sign * (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(dtype: Dtype, bytes: &[u8]) -> f64 {
        let mut values = Vec::new();
        floats(dtype, bytes, &mut values);
        assert_eq!(values.len(), 1);
        values[0]
    }

    #[test]
    fn every_floating_dtype_decodes_known_values() {
        assert_eq!(one(Dtype::F64, &(-0.1f64).to_le_bytes()), -0.1);
        assert_eq!(one(Dtype::F32, &0.1f32.to_le_bytes()), f64::from(0.1f32));
        assert_eq!(one(Dtype::F16, &f16::from_f32(0.333).to_le_bytes()), f16::from_f32(0.333).to_f64());
        assert_eq!(one(Dtype::BF16, &bf16::from_f32(-3.3).to_le_bytes()), bf16::from_f32(-3.3).to_f64());
        assert!(one(Dtype::BF16, &bf16::NAN.to_le_bytes()).is_nan());
        assert_eq!(one(Dtype::F8_E4M3, &[0x7e]), 448.0);
        assert_eq!(one(Dtype::F8_E4M3, &[0x38]), 1.0);
        assert_eq!(one(Dtype::F8_E4M3, &[0x81]), -(2f64.powi(-9)));
        assert!(one(Dtype::F8_E4M3, &[0xff]).is_nan());
        assert_eq!(one(Dtype::F8_E5M2, &[0x7b]), 57344.0);
        assert_eq!(one(Dtype::F8_E5M2, &[0xfc]), f64::NEG_INFINITY);
    }

    #[test]
    fn every_integer_dtype_decodes_its_extremes() {
        let one = |dtype, bytes: &[u8]| {
            let mut values = Vec::new();
            integers(dtype, bytes, &mut values);
            assert_eq!(values.len(), 1);
            values[0]
        };
        assert_eq!(one(Dtype::BOOL, &[1]), 1);
        assert_eq!(one(Dtype::U8, &[255]), 255);
        assert_eq!(one(Dtype::I8, &[255]), -1);
        assert_eq!(one(Dtype::U16, &u16::MAX.to_le_bytes()), 65535);
        assert_eq!(one(Dtype::I16, &i16::MIN.to_le_bytes()), -32768);
        assert_eq!(one(Dtype::U32, &u32::MAX.to_le_bytes()), 4_294_967_295);
        assert_eq!(one(Dtype::I32, &i32::MIN.to_le_bytes()), -2_147_483_648);
        assert_eq!(one(Dtype::U64, &u64::MAX.to_le_bytes()), i128::from(u64::MAX));
        assert_eq!(one(Dtype::I64, &i64::MIN.to_le_bytes()), i128::from(i64::MIN));
    }
}
