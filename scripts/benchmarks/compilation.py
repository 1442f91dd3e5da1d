"""suite=compile: the kernel in Triton compiled for GPUs that need not be there, and what each of its phases takes.

Registers are those of a thread, of at most 255; what does not fit into them is spilled to memory far away. Shared
memory is that of a program.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from benchmarks.records import Group, TableColumn, number, text
from benchmarks.settings import Settings
from las.nn.kernels.triton.division import Device, divisions
from las.nn.kernels.triton.plan import TritonEquations, TritonPlan, rows_for
from las.runtime import progress
from las.runtime.errors import ConfigError

SHARED_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227}
"""Shared memory that one program can have, in KiB, by compute capability (CUDA C++ programming guide, table of
technical specifications)."""
SIZES = (256, 512, 1024, 1280)
BATCH, DIRECTIONS = 32, 2
PHASES = ("product", "forward_row", "backward_row", "product", "norm_sums")
PERSISTENT_PHASES = ("forward", "backward")
TYPES = {
    "fp32": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bf16": (torch.bfloat16, "ieee"),
    "fp16": (torch.float16, "ieee"),
}
"""Type of the operands of products, and how those of fp32 are multiplied."""

COLUMNS = (
    TableColumn("kernel", text("implementation")),
    TableColumn("H", text("hidden_size")),
    TableColumn("products", text("products")),
    TableColumn(f"registers: {', '.join(PHASES)}; persistent: {', '.join(PERSISTENT_PHASES)}", text("registers")),
    TableColumn("spilled bytes", text("spilled")),
    TableColumn("shared KiB", number("shared_kib", 1)),
    TableColumn("of KiB", text("shared_limit_kib")),
)


class Phase(NamedTuple):
    """A compiled phase of a step."""

    name: str
    registers: int
    """Registers of a thread."""
    spilled: int
    """Bytes of a thread in local memory."""
    shared: int
    """Bytes of shared memory of a program."""


def title(name: str) -> str:
    """The title of an architecture: `sm_90, ln_joined with cell norm, 32 utterances, two directions`."""
    return f"{name}, ln_joined with cell norm, {BATCH} utterances, two directions"


def measure(settings: Settings) -> Iterator[Group]:
    """Compile all phases for every architecture, size and type; one group for each architecture."""
    if find_spec("triton") is None:
        raise ConfigError("suite=compile needs Triton: pip install triton")
    for capability, limit in SHARED_KIB.items():
        name, rows = f"sm_{capability}", []
        for size in progress.counted(SIZES, len(SIZES), f"{name}: sizes compiled"):
            for products, (operand, precision) in TYPES.items():
                plan = TritonPlan("joined", "both", "layer", 1e-5, operand, operand, precision, True)
                given = plan, size, BATCH, DIRECTIONS, capability
                for kernel, found in (("triton", phases(*given)), ("persistent", persistent_phases(*given))):
                    if found:
                        rows.append(
                            settings.row(kernel, "ln_joined", name)
                            | {"hidden_size": size, "products": products, "shared_limit_kib": limit}
                            | {"registers": ", ".join(str(phase.registers) for phase in found)}
                            | {"spilled": ", ".join(str(phase.spilled) for phase in found)}
                            | {"shared_kib": max(phase.shared for phase in found) / 1024}
                        )
        yield Group(title(name), rows)


def phases(plan: TritonPlan, hidden_size: int, batch: int, directions: int, capability: int = 90) -> list[Phase]:
    """Compile what the steps of both passes and the sums launch, for a compute capability (90: 9.0).

    Nothing is run. Raises triton.CompilationError where a phase does not compile.
    """
    from las.nn.kernels.triton import loops

    with _compile_only(capability) as compiled:
        for loop in (loops.Forward, loops.Backward):
            rows = rows_for(batch)
            loop(TritonEquations(plan, hidden_size, directions, rows, plan.operand, torch.device("cpu"), 0)).step()
        grads = torch.zeros(batch, 2, 4 * hidden_size, dtype=plan.operand)
        loops.sums(grads, grads, torch.zeros(batch, 2, 10), plan.groups, 4, plan.kind)
    return [
        Phase(kernel.metadata.name, *_registers(kernel.asm["cubin"]), kernel.metadata.shared) for kernel in compiled
    ]


def persistent_phases(
    plan: TritonPlan, hidden_size: int, batch: int, directions: int, capability: int = 90
) -> list[Phase]:
    """Compile both passes of a persistent layer; what does not fit is not there."""
    from las.nn.kernels.triton import persistent

    limits = Device(132, 1024 * SHARED_KIB[capability])
    if not all(divisions(hidden_size, directions, batch, plan.operand.itemsize, limits)):
        return []
    recipe = TritonEquations(plan, hidden_size, directions, batch, plan.operand, torch.device("cpu"), 0)
    wide = torch.zeros(directions, batch, 2, 4 * hidden_size, dtype=plan.operand)
    lengths, first = torch.full((batch,), 2), torch.zeros(2, directions, batch, hidden_size)
    weight = torch.zeros(directions, 4 * hidden_size, hidden_size, dtype=plan.operand)
    given = lengths, first, weight, torch.zeros(directions, 10 * hidden_size)
    with mock.patch.object(Device, "of", lambda _: limits), _compile_only(capability) as compiled:
        outputs, _, trace = persistent.forward(recipe, *given, list(wide))
        persistent.backward(recipe, *given, trace, wide, outputs, first)
    names = {kernel.metadata.name: kernel for kernel in compiled if kernel.metadata.name in PERSISTENT_PHASES}
    return [Phase(name, *_registers(kernel.asm["cubin"]), kernel.metadata.shared) for name, kernel in names.items()]


@contextlib.contextmanager
def _compile_only(capability: int) -> Iterator[list[Any]]:
    """Let launches compile for a GPU that is not there, and do no more; yields the compiled kernels."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    class Absent:
        """Parts of a driver that the compiler asks for."""

        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", capability, 32))

    compiled: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        self.device_caches.clear()  # they are by device, and the device is another one for each capability
        compiled.append(run(self, *args, grid=grid, warmup=True, **options))

    before = driver.active if torch.cuda.is_available() else None
    driver.set_active(Absent())
    try:
        with mock.patch.object(JITFunction, "run", compile_only):
            yield compiled
    finally:
        if before is not None:
            driver.set_active(before)


def _registers(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory of a thread, as NVIDIA's cuobjdump, which comes with Triton, prints them."""
    import triton

    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        printed = subprocess.run([program, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    usage = dict(part.split(":", 1) for part in printed.split() if part.startswith(("REG:", "STACK:", "LOCAL:")))
    return int(usage["REG"]), max(int(usage["STACK"]), int(usage["LOCAL"]))
