"""Everything that is slow the first time and the same for all jobs, done once in the zygote.

Nothing here may create a device client or start a thread pool: neither survives a fork.
"""

import ctypes
import importlib
import importlib.metadata
import os
import sys
import tempfile

# Modules that models, tokenizers, processors and generation import lazily; each was seen to cost time in a child.
_LAZY_MODULES = (
    "transformers.cache_utils",
    "transformers.configuration_utils",
    "transformers.dynamic_module_utils",
    "transformers.feature_extraction_utils",
    "transformers.generation.utils",
    "transformers.image_processing_backends",
    "transformers.image_processing_utils",
    "transformers.integrations",
    "transformers.masking_utils",
    "transformers.modeling_layers",
    "transformers.modeling_outputs",
    "transformers.modeling_utils",
    "transformers.models.auto.feature_extraction_auto",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.processing_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.auto.video_processing_auto",
    "transformers.models.encoder_decoder",
    "transformers.processing_utils",
    "transformers.tokenization_utils_base",
    "transformers.tokenization_utils_tokenizers",
    "transformers.video_processing_utils",
    "tokenizers",
    "safetensors.torch",
    "sympy",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.optim.sgd",
    "torch.utils._python_dispatch",
    "torchvision",
)


# What the other harnesses' libraries leave for later, and every job of theirs needs.
_HARNESS_MODULES = {
    "diffusers": ("diffusers.models.modeling_utils", "diffusers.models.transformers", "diffusers.models.unets"),
    "timm": ("timm",),
    "sentence-transformers": ("sentence_transformers",),
}


def prewarm(backend: str, architectures: list[str], harnesses: list[str]) -> None:
    """Imports and warms what a child of `backend` (`torchtpu` or `cpu`) needs, the code of some architectures, and the
    libraries of the harnesses besides transformers that will be asked for."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    # numpy's BLAS starts its threads at import, and they do not survive the fork.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    import torch

    torch.set_num_threads(1)
    if backend == "torchtpu":
        _prewarm_torchtpu()
    for name in _LAZY_MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # an environment without the optional library still runs the models that do without it
    _prewarm_model()
    for name in ("modelfarm_worker.reference", "modelfarm_worker.execute"):
        importlib.import_module(name)
    for architecture in architectures:
        _import_architecture(architecture)
    for harness in harnesses:
        _import_harness(harness)


def _prewarm_torchtpu() -> None:
    import torch_tpu

    torch_tpu._loader._init_device("tpu")
    importlib.import_module("torch_tpu._internal.compile")
    library = os.environ.get("TPU_LIBRARY_PATH")
    if library:
        # The plugin's own static initialisation; no client is created by it.
        plugin = ctypes.CDLL(library)
        plugin.GetPjrtApi.restype = ctypes.c_void_p
        plugin.GetPjrtApi()


def _prewarm_model() -> None:
    """A whole trip of a tiny model made here: saved, loaded, called and compiled. What models share is lazy in many
    places (checkpoint conversions, attention masks, Dynamo's and AOTAutograd's tables), and all of it is warm then."""
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM

    # After each graph Dynamo empties the processor's caches, those of other jobs too, to log how long its guards take.
    torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        attn_implementation="eager",
    )
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(config).save_pretrained(folder)
        model = LlamaForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    ids = torch.ones((1, 4), dtype=torch.int64)
    with torch.no_grad():
        model(input_ids=ids, attention_mask=ids, use_cache=False)
        compiled = torch.compile(model, backend="aot_eager", dynamic=False)
        compiled(input_ids=ids, attention_mask=ids, use_cache=False)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def _import_architecture(architecture: str) -> None:
    """The library's own code for an architecture. The name comes from a model, so it may be of any kind."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

    if architecture not in CONFIG_MAPPING_NAMES:
        return
    module = model_type_to_module_name(architecture)
    for part in ("configuration", "modeling"):
        try:
            importlib.import_module(f"transformers.models.{module}.{part}_{module}")
        except Exception as error:
            # The job that needs it will say so; here it only costs the time that would have been saved.
            print(f"modelfarm_worker: {architecture} not preloaded: {type(error).__name__}: {error}", file=sys.stderr)


def _import_harness(harness: str) -> None:
    for name in _HARNESS_MODULES.get(harness, ()):
        try:
            importlib.import_module(name)
        except Exception as error:
            # As with architectures: the job that needs it will say so.
            print(f"modelfarm_worker: {name} not preloaded: {type(error).__name__}: {error}", file=sys.stderr)


def package_versions() -> dict[str, str]:
    """Name and version of every installed package."""
    return {
        distribution.name: distribution.version
        for distribution in importlib.metadata.distributions()
        if distribution.name
    }
