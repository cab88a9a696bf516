//! Leaves in memory, and the safetensors files that they are written to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Leaves(pub(super) BTreeMap<String, Stored>);

impl Leaves {
    pub(super) fn with(mut self, name: &str, dtype: Dtype, shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len());
        self.0.insert(name.to_owned(), Stored { dtype, shape: shape.to_vec(), values });
        self
    }

    pub(super) fn get(&mut self, name: &str) -> &mut Stored {
        self.0.get_mut(name).unwrap()
    }

    pub(super) fn map(&mut self, change: impl Fn(f64) -> f64) {
        for leaf in self.0.values_mut() {
            leaf.values.iter_mut().for_each(|value| *value = change(*value));
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let stored: Vec<(&String, &Stored, Vec<u8>)> =
            self.0.iter().map(|(name, leaf)| (name, leaf, encode(leaf.dtype, &leaf.values))).collect();
        let views =
            stored.iter().map(|(name, leaf, bytes)| (*name, TensorView::new(leaf.dtype, leaf.shape.clone(), bytes).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    pub(super) fn write(&self, folder: &Path, role: &str) -> PathBuf {
        let path = folder.join(format!("{role}.safetensors"));
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

fn encode(dtype: Dtype, values: &[f64]) -> Vec<u8> {
    let each = |value: &f64| match dtype {
        Dtype::F64 => value.to_le_bytes().to_vec(),
        Dtype::F32 => (*value as f32).to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f64(*value).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f64(*value).to_le_bytes().to_vec(),
        Dtype::I64 => (*value as i64).to_le_bytes().to_vec(),
        Dtype::I32 => (*value as i32).to_le_bytes().to_vec(),
        Dtype::BOOL => vec![u8::from(*value != 0.0)],
        other => panic!("no test writes {other}"),
    };
    values.iter().flat_map(each).collect()
}
