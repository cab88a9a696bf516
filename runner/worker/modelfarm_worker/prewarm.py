"""Everything that is slow the first time and the same for all jobs, done once in the zygote.

Nothing here may create a device client or start a thread pool: neither survives a fork.
"""

import ctypes
import importlib
import importlib.metadata
import os

# Modules that models, tokenizers, processors and generation import lazily; each was seen to cost time in a child.
_LAZY_MODULES = (
    "transformers.cache_utils",
    "transformers.configuration_utils",
    "transformers.dynamic_module_utils",
    "transformers.feature_extraction_utils",
    "transformers.generation.utils",
    "transformers.image_processing_utils",
    "transformers.integrations",
    "transformers.masking_utils",
    "transformers.modeling_layers",
    "transformers.modeling_outputs",
    "transformers.modeling_utils",
    "transformers.models.auto",
    "transformers.processing_utils",
    "transformers.tokenization_utils_base",
    "transformers.tokenization_utils_tokenizers",
    "tokenizers",
    "safetensors.torch",
    "sympy",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.optim.sgd",
    "torch.utils._python_dispatch",
    "torchvision",
)


def prewarm(backend: str) -> None:
    """Imports and warms what a child of `backend` (`torchtpu` or `cpu`) needs."""
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
    _prewarm_compiler(torch)


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


def _prewarm_compiler(torch: object) -> None:
    """One trip through Dynamo, which fills its tables of what may be traced."""

    def doubled(value: object) -> object:
        return value + value

    torch.compile(doubled, backend="eager", dynamic=False)(torch.ones(2))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def package_versions() -> dict[str, str]:
    """Name and version of every installed package."""
    return {
        distribution.name: distribution.version
        for distribution in importlib.metadata.distributions()
        if distribution.name
    }
