//! Targets: a backend on a device, as declared in `targets.toml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::axes::Mode;
use crate::toml_error::TomlError;
use crate::word::UnknownWord;

crate::words! {
    /// The software that a worker starts for a target.
    pub enum Backend ("backend") {
        /// Plain PyTorch on the CPU.
        Cpu => "cpu",
        /// TorchTPU over a PJRT plugin.
        TorchTpu => "torchtpu",
    }
}

/// The device slots of a target: how many cases may hold a device at once, and what each of them sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slots {
    /// As many as the host has cores: the device is the CPU itself.
    Cores,
    /// One for each entry; its variables are set in the child before its device client exists.
    Devices(Vec<BTreeMap<String, String>>),
}

impl Slots {
    /// The environment variables of every slot.
    pub fn environments(&self, cores: usize) -> Vec<BTreeMap<String, String>> {
        match self {
            Slots::Cores => vec![BTreeMap::new(); cores.max(1)],
            Slots::Devices(devices) => devices.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Word(String),
            Devices(Vec<BTreeMap<String, String>>),
        }
        let expected = "slots: expected \"cores\" or a list with one table of environment variables for each device, such as [{ TPU_VISIBLE_CHIPS = \"0\" }]";
        match Raw::deserialize(deserializer) {
            Ok(Raw::Word(word)) if word == "cores" => Ok(Slots::Cores),
            Ok(Raw::Devices(devices)) if !devices.is_empty() => Ok(Slots::Devices(devices)),
            _ => Err(serde::de::Error::custom(expected)),
        }
    }
}

/// A backend on a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Its name, the key of its table.
    #[serde(skip)]
    pub name: String,
    /// One line for people.
    pub description: String,
    /// What the worker starts.
    pub backend: Backend,
    /// The environment that its workers run in.
    pub environment: String,
    /// The PyTorch device type.
    pub device: String,
    /// Whether the device is emulated: it may lack what a real one has.
    #[serde(default)]
    pub emulated: bool,
    /// Whether failures here clear the other targets' backends.
    #[serde(default)]
    pub control: bool,
    /// The modes it knows.
    pub modes: Vec<Mode>,
    /// The `torch.compile` backend of mode `compiled`.
    pub compile_backend: String,
    /// The attention implementation where a matrix names none.
    pub attention: String,
    /// The PJRT plugin, relative to the environment's site-packages.
    #[serde(default)]
    pub plugin: Option<String>,
    /// The device memory of an emulated device, in GiB.
    #[serde(default)]
    pub hbm_gib: Option<u64>,
    /// How many cases may hold a device at once.
    pub slots: Slots,
    /// More environment variables of the worker.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// All declared targets, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets(BTreeMap<String, Target>);

impl Targets {
    /// Reads a targets file; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, TomlError> {
        let parsed: BTreeMap<toml::Spanned<String>, Target> =
            toml::from_str(text).map_err(|error| TomlError::from_toml(file, text, &error))?;
        let mut targets = BTreeMap::new();
        for (name, mut target) in parsed {
            let offset = name.span().start;
            let name = name.into_inner();
            let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            if name.is_empty() || !plain {
                let message = format!("`{name}` is not a target name: expected lower-case letters, digits and `-`");
                return Err(TomlError::at(file, text, offset, message));
            }
            target.name = name.clone();
            targets.insert(name, target);
        }
        Ok(Self(targets))
    }

    /// The targets that come with the program.
    ///
    /// # Panics
    /// Never: a test reads the embedded file.
    #[allow(clippy::unwrap_used, reason = "the embedded file is read by a test")]
    pub fn built_in() -> Self {
        Self::parse("matrix/targets.toml", crate::TARGETS_TOML).unwrap()
    }

    /// Replaces targets of the same name and adds new ones.
    pub fn extend(&mut self, others: Targets) {
        self.0.extend(others.0);
    }

    /// The target of this name.
    pub fn get(&self, name: &str) -> Result<&Target, UnknownWord> {
        self.0.get(name).ok_or_else(|| UnknownWord::new("target", name, self.0.keys().map(String::as_str)))
    }

    /// Every target, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Target> {
        self.0.values()
    }

    /// The name of the control target.
    pub fn control(&self) -> Option<&Target> {
        self.0.values().find(|target| target.control)
    }
}

/// The mode in which the control answers the same question as `mode`.
pub fn control_mode(mode: Mode) -> Mode {
    match mode {
        Mode::Compiled => Mode::Compiled,
        Mode::StrictEager | Mode::DeferAndFuse | Mode::DebugEager => Mode::StrictEager,
    }
}

/// A target's identity as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// Its name.
    pub name: String,
    /// Whether it is emulated.
    pub emulated: bool,
    /// Whether it is the control.
    pub control: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_targets_are_sound() {
        let targets = Targets::built_in();
        let emulated = targets.get("tpu-emulated").unwrap();
        let real = targets.get("tpu").unwrap();
        assert!(emulated.emulated && !real.emulated);
        // They differ in data alone.
        assert_eq!(
            (emulated.backend, &emulated.device, &emulated.compile_backend),
            (real.backend, &real.device, &real.compile_backend)
        );
        assert_eq!(targets.control().unwrap().name, "cpu");
        assert!(targets.get("tpu-emulate").unwrap_err().to_string().contains("did you mean `tpu-emulated`"));
    }

    #[test]
    fn a_wrong_target_names_file_and_line() {
        let text = "[x]\ndescription = \"d\"\nbackend = \"torchtp\"\n";
        let error = Targets::parse("t.toml", text).unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.message.contains("did you mean `torchtpu`"));
    }
}
