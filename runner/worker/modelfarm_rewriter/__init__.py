"""Makes StableHLO programs fit for XLA:CPU: composites that it cannot compile become calls of their decompositions.

A process of its own, because it needs MLIR and a broken program may crash MLIR: that must cost one compilation and
never the process that runs the model. See docs/pjrt.md.
"""
