//! Which files of a repository a harness needs: its configuration, tokenizer and code, and one set of weights.

use std::collections::BTreeMap;

/// What a harness reads besides weights, by the end of the name.
const READ: [&str; 13] =
    ["json", "txt", "py", "model", "jinja", "tiktoken", "vocab", "bpe", "spm", "codes", "yaml", "yml", "merges"];
/// Text that harnesses do not read, however it ends.
const UNREAD: [&str; 8] =
    ["readme", "license", "licence", "notice", "changelog", "trainer_state", "training_args", "use_policy"];
/// Folders with other formats of the same weights, or with what training left behind.
const OTHER_FOLDERS: [&str; 12] =
    ["onnx", "openvino", "coreml", "tflite", "flax", "tf", "original", "runs", "logs", "metal", "gguf", ".git"];

/// The paths that a harness needs, in their order. Names are not checked here.
#[must_use]
pub fn needed_files<'a>(paths: &[(&'a str, u64)]) -> Vec<&'a str> {
    let mut folders: BTreeMap<&str, Vec<(&'a str, u64)>> = BTreeMap::new();
    for &(path, size) in paths.iter().filter(|(path, _)| !is_in_other_folder(path)) {
        folders.entry(folder(path)).or_default().push((path, size));
    }
    let mut needed = Vec::new();
    for files in folders.values() {
        let weights = weights(files);
        let safe = weights.iter().any(|path| path.ends_with(".safetensors"));
        needed.extend(files.iter().map(|(path, _)| *path).filter(|path| is_read(path, safe)));
        needed.extend(weights);
    }
    if !needed.iter().any(|path| path.ends_with(".safetensors") || path.ends_with(".bin")) {
        needed.extend(smallest_gguf(folders.values().flatten()));
    }
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// One set of weights of one folder: safetensors, else PyTorch's own format, which the farm's policy decides on later.
fn weights<'a>(files: &[(&'a str, u64)]) -> Vec<&'a str> {
    let all = |matches: &dyn Fn(&str) -> bool| -> Vec<&'a str> {
        files.iter().map(|(path, _)| *path).filter(|path| matches(file_name(path))).collect()
    };
    let mut safe = all(&|name| name.ends_with(".safetensors"));
    // `consolidated` holds the same again in its publisher's own layout.
    drop_unless_alone(&mut safe, &|name| name.starts_with("consolidated"));
    drop_unless_alone(&mut safe, &is_variant);
    // One file and its shards hold the same.
    for whole in ["model.safetensors", "diffusion_pytorch_model.safetensors"] {
        if safe.iter().any(|path| file_name(path) == whole) {
            let stem = whole.trim_end_matches(".safetensors");
            safe.retain(|path| !is_shard_of(file_name(path), stem));
        }
    }
    if !safe.is_empty() {
        return safe;
    }
    let mut pickled = all(&|name| {
        (name.starts_with("pytorch_model") || name.starts_with("diffusion_pytorch_model") || name == "adapter_model.bin")
            && name.ends_with(".bin")
    });
    drop_unless_alone(&mut pickled, &is_variant);
    for stem in ["pytorch_model", "diffusion_pytorch_model"] {
        if pickled.iter().any(|path| file_name(path).strip_suffix(".bin") == Some(stem)) {
            pickled.retain(|path| !is_shard_of(file_name(path), stem));
        }
    }
    pickled
}

fn drop_unless_alone(paths: &mut Vec<&str>, unwanted: &dyn Fn(&str) -> bool) {
    if paths.iter().any(|path| !unwanted(file_name(path))) {
        paths.retain(|path| !unwanted(file_name(path)));
    }
}

/// `model.fp16.safetensors`, `model.fp16-00001-of-00002.safetensors`, `pytorch_model.non_ema.bin`.
fn is_variant(name: &str) -> bool {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let variant = stem.rsplit_once('.').map(|(_, variant)| variant.split('-').next().unwrap_or_default());
    variant.is_some_and(|variant| ["fp16", "bf16", "fp32", "fp8", "non_ema", "ema"].contains(&variant))
}

fn is_shard_of(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-') && rest.contains("-of-"))
}

fn smallest_gguf<'a, 'b: 'a>(files: impl Iterator<Item = &'a (&'b str, u64)>) -> Option<&'b str> {
    let smallest = files.filter(|(path, _)| path.ends_with(".gguf")).min_by_key(|(path, size)| (*size, *path));
    smallest.map(|(path, _)| *path)
}

fn is_read(path: &str, safe: bool) -> bool {
    let name = file_name(path).to_ascii_lowercase();
    let Some((_, extension)) = name.rsplit_once('.') else { return false };
    // An index of weights that stay behind would send a loader after them.
    let other_index = [".msgpack.index.json", ".h5.index.json"].iter().any(|end| name.ends_with(end))
        || (safe && name.ends_with(".bin.index.json"));
    READ.contains(&extension)
        && !UNREAD.iter().any(|unread| name.starts_with(unread))
        && !name.ends_with("_results.json")
        && !other_index
}

fn is_in_other_folder(path: &str) -> bool {
    let lower = folder(path).to_ascii_lowercase();
    lower.split('/').any(|part| OTHER_FOLDERS.contains(&part) || part.starts_with("checkpoint-"))
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(paths: &[&'static str]) -> Vec<&'static str> {
        let sized: Vec<(&str, u64)> = paths.iter().map(|path| (*path, path.len() as u64)).collect();
        needed_files(&sized)
    }

    #[test]
    fn one_format_of_six() {
        let all = [
            "README.md",
            "LICENSE.txt",
            ".gitattributes",
            "config.json",
            "tokenizer.json",
            "vocab.txt",
            "model.safetensors",
            "pytorch_model.bin",
            "tf_model.h5",
            "flax_model.msgpack",
            "rust_model.ot",
            "onnx/model.onnx",
            "onnx/config.json",
            "coreml/fill-mask/model.mlmodel",
            "training_args.bin",
            "trainer_state.json",
            "eval_results.json",
            "modeling_x.py",
            "spiece.model",
            "checkpoint-500/config.json",
        ];
        let expected = ["config.json", "model.safetensors", "modeling_x.py", "spiece.model", "tokenizer.json", "vocab.txt"];
        assert_eq!(needed(&all), expected);
    }

    #[test]
    fn pickle_only_where_there_is_nothing_safe() {
        assert_eq!(needed(&["config.json", "pytorch_model.bin", "optimizer.bin"]), ["config.json", "pytorch_model.bin"]);
        let sharded = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"];
        assert_eq!(needed(&sharded), sharded);
        let both = ["model.safetensors", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"];
        assert_eq!(needed(&both), ["model.safetensors"]);
    }

    #[test]
    fn one_set_of_each_folder() {
        let pipeline = [
            "model_index.json",
            "unet/config.json",
            "unet/diffusion_pytorch_model.safetensors",
            "unet/diffusion_pytorch_model.fp16.safetensors",
            "unet/diffusion_pytorch_model.bin",
            "text_encoder/model.fp16.safetensors",
            "scheduler/scheduler_config.json",
            "tokenizer/merges.txt",
        ];
        let expected = [
            "model_index.json",
            "scheduler/scheduler_config.json",
            "text_encoder/model.fp16.safetensors",
            "tokenizer/merges.txt",
            "unet/config.json",
            "unet/diffusion_pytorch_model.safetensors",
        ];
        assert_eq!(needed(&pipeline), expected);
        let shards = ["consolidated.safetensors", "model-00001-of-00001.safetensors", "model.safetensors.index.json"];
        assert_eq!(needed(&shards), shards[1..]);
        assert_eq!(needed(&["model.safetensors", "model-00001-of-00001.safetensors"]), ["model.safetensors"]);
        assert_eq!(needed(&["consolidated.safetensors"]), ["consolidated.safetensors"]);
    }

    #[test]
    fn gguf_comes_last_and_alone() {
        assert_eq!(needed(&["x-q4.gguf", "x-q8-0.gguf", "config.json"]), ["config.json", "x-q4.gguf"]);
        assert_eq!(needed(&["x-q4.gguf", "model.safetensors"]), ["model.safetensors"]);
    }
}
