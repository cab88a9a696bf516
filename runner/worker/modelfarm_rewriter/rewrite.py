"""The rewriting itself."""

from __future__ import annotations

import re

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext as jax_dialects
from jaxlib.mlir.dialects import chlo, stablehlo

# Every composite becomes a call of its decomposition: always correct, and cheaper than deciding which ones are needed.
PIPELINE = "builtin.module(func.func(stablehlo-legalize-composite-to-call))"
_VERSION_IN_HEADER = re.compile(rb"StableHLO_v(\d+\.\d+\.\d+)")
_HEADER_BYTES = 64


class ProgramError(Exception):
    """A program that cannot be rewritten, with the reason."""


class Rewriter:
    """Rewrites programs in one MLIR context, and remembers the ones it has seen."""

    def __init__(self) -> None:
        registry = ir.DialectRegistry()
        jax_dialects.register_dialects(registry)
        self._context = ir.Context()
        # A process that forks must have no threads.
        self._context.enable_multithreading(False)
        self._context.append_dialect_registry(registry)
        self._context.load_all_available_dialects()
        chlo.register_dialect(self._context)
        stablehlo.register_dialect(self._context)
        stablehlo.register_stablehlo_passes()

    def warm_up(self) -> None:
        """Rewrites a small program, so that what MLIR loads lazily is there before the first request."""
        text = """
        func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.composite "chlo.scan" %a {decomposition = @body} : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32>
        }
        func.func private @body(%a: tensor<2xf32>) -> tensor<2xf32> {
          return %a : tensor<2xf32>
        }"""
        with self._context, ir.Location.unknown():
            module = ir.Module.parse(text)
            program = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
        self.rewrite(program)

    def rewrite(self, program: bytes) -> bytes:
        """Returns the program without composites, in a version that its producer's consumer reads.

        Raises ProgramError if MLIR does not accept it.
        """
        with self._context, ir.Location.unknown():
            try:
                module = stablehlo.deserialize_portable_artifact(self._context, program)
            except Exception as error:
                raise ProgramError(f"it is not a StableHLO artifact that this MLIR reads: {_reason(error)}") from error
            try:
                passmanager.PassManager.parse(PIPELINE).run(module.operation)
                return stablehlo.serialize_portable_artifact(module, _target_version(program))
            except Exception as error:
                raise ProgramError(f"replacing its composites failed: {_reason(error)}") from error


def _target_version(program: bytes) -> str:
    """The version to write: the program's own, or the newest that this MLIR knows if that is older."""
    newest = stablehlo.get_current_version()
    found = _VERSION_IN_HEADER.search(program[:_HEADER_BYTES])
    return stablehlo.get_smaller_version(found.group(1).decode(), newest) if found else newest


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:2000] or type(error).__name__
