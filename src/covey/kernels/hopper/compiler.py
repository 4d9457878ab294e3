"""Machine code from CUDA sources that lie in this folder, compiled once and kept.

NVRTC comes with torch and takes about a second; no compiler need be installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.errors import ModelError
from covey.hardware.paths import cache_folder, write_whole

_ARCHITECTURE = "sm_90a"


def machine_code(name: str, headers: Sequence[str], constants: Mapping[str, int]) -> bytes:
    """A source's code for Hopper, from the cache folder where it was compiled before.

    Args:
        name: of the file.
        headers: files that it includes.
        constants: macros to define.

    Raises:
        ModelError: it does not compile; with the compiler's first error.
    """
    files = {part: Path(__file__).with_name(part).read_bytes() for part in (name, *headers)}
    options = [f"--gpu-architecture={_ARCHITECTURE}", "--std=c++17"]
    options += [f"-D{key}={value}" for key, value in sorted(constants.items())]
    mark = hashlib.sha256(b"\0".join([*files.values(), *map(str.encode, options)]))
    file = f"{Path(name).stem}-{_ARCHITECTURE}-{mark.hexdigest()[:20]}.cubin"
    path = cache_folder() / "kernels" / file
    try:
        return path.read_bytes()
    except OSError:
        code = _compile(name, files, options)
        write_whole(path, code)
        return code


def _compile(name: str, files: dict[str, bytes], options: list[str]) -> bytes:
    from cuda.bindings import nvrtc

    def checked(answer: tuple[Any, ...]) -> Any:
        if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise ModelError(f"NVRTC could not compile {name}: {answer[0].name}.")
        return answer[1] if len(answer) > 1 else None

    headers = [part for part in files if part != name]
    program = checked(
        nvrtc.nvrtcCreateProgram(
            files[name],
            name.encode(),
            len(headers),
            [files[part] for part in headers],
            [part.encode() for part in headers],
        )
    )
    try:
        arguments = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise ModelError(f"NVRTC could not compile {name}: {_first_error(log)}")
        code: bytes = b" " * int(checked(nvrtc.nvrtcGetCUBINSize(program)))
        checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _first_error(log: bytes) -> str:
    lines = log.rstrip(b"\0 \n").decode(errors="replace").splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no reason")
