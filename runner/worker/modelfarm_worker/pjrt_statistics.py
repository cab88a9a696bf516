"""Counters of the PJRT plugin, where the one in use keeps any."""

import ctypes
import json
import os
from typing import Any

_BUFFER_BYTES = 1 << 20


def read_pjrt_statistics() -> dict[str, Any] | None:
    """The counters so far, or None where the plugin does not count."""
    path = os.environ.get("TPU_LIBRARY_PATH")
    if not path:
        return None
    try:
        function = ctypes.CDLL(path).modelfarm_pjrt_statistics_json
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    function.restype = ctypes.c_size_t
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    length = function(buffer, _BUFFER_BYTES)
    if not 0 < length < _BUFFER_BYTES:  # the length of the whole, also where it did not fit
        return None
    statistics = json.loads(buffer.raw[:length])
    return statistics if isinstance(statistics, dict) else None
