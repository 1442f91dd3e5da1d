"""What `torch.nn.LSTM` is used with, tried with it and with `las.LSTM`; the table in docs/library.md is this one."""

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from kernel_cases import CELLS, compiles
from places import REPOSITORY
from tiers import rest_slow
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import las
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.kernels import choice, operator
from las.runtime.errors import ConfigError

Make = Callable[..., Any]
INPUT, HIDDEN = 4, 5
FRAMES = torch.randn(3, 6, INPUT, generator=torch.Generator().manual_seed(1))


class Row(NamedTuple):
    """A use; what `torch.nn.LSTM` and `las.LSTM` do, "yes" or "no" at first; and the use itself."""

    use: str
    theirs: str
    ours: str
    call: Callable[[Make], Any]


def stack(make: Make, **options: Any) -> Any:
    torch.manual_seed(2)
    return make(INPUT, HIDDEN, num_layers=2, batch_first=True, bidirectional=True, **options)


def gradients(lstm: Any, outputs: Tensor, frames: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(outputs.sin().sum(), [frames, *lstm.parameters()]))


def near(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def checkpointed(make: Make, reentrant: bool) -> None:
    lstm, frames = stack(make), FRAMES.clone().requires_grad_()
    expected = gradients(lstm, lstm(frames)[0], frames)
    outputs: Any = checkpoint(lambda part: lstm(part)[0], frames, use_reentrant=reentrant)
    outputs.sin().sum().backward()
    near([part.grad for part in (frames, *lstm.parameters())], expected)


def hooked(make: Make, unpack: Callable[[Tensor], Tensor] = torch.clone) -> None:
    lstm, frames = stack(make), FRAMES.clone().requires_grad_()
    expected = gradients(lstm, lstm(frames)[0], frames)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, unpack):
        outputs, _ = lstm(frames)
    near(gradients(lstm, outputs, frames), expected)


def differentiated_twice(make: Make) -> None:
    lstm, frames = stack(make).double(), FRAMES.double().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.autograd.gradgradcheck(lambda part: lstm(part)[0], (frames[:1, :3],), fast_mode=True)


def compiled(make: Make) -> None:
    torch.compiler.reset()
    lstm, frames = stack(make), FRAMES.clone().requires_grad_()
    outputs, _ = torch.compile(lstm, fullgraph=True, backend="aot_eager")(frames)
    near(gradients(lstm, outputs, frames), gradients(lstm, lstm(frames)[0], frames))


def exported(make: Make) -> None:
    lstm, any_size = stack(make).eval(), {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    file = io.BytesIO()
    torch.export.save(torch.export.export(lstm, (FRAMES,), dynamic_shapes=(any_size,)), file)
    file.seek(0)
    found, _ = torch.export.load(file).module()(FRAMES[:2, :5])
    near([found], [lstm(FRAMES[:2, :5])[0]])


def called_with(make: Make) -> None:
    lstm = stack(make)
    doubled = {name: 2 * value.detach() for name, value in lstm.named_parameters()}
    found = functional_call(lstm, doubled, (FRAMES,))[0]
    other = copy.deepcopy(lstm)
    other.load_state_dict(doubled)
    near([found], [other(FRAMES)[0]])


def by_sample(make: Make) -> None:
    lstm = stack(make)
    parameters = {name: value.detach() for name, value in lstm.named_parameters()}

    def loss(parameters: dict[str, Tensor], frames: Tensor) -> Tensor:
        return functional_call(lstm, parameters, (frames,))[0].sin().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, FRAMES)
    alone = torch.autograd.grad(lstm(FRAMES[1])[0].sin().sum(), lstm.parameters())
    near([part[1] for part in found.values()], list(alone))


def forward_mode(make: Make) -> None:
    lstm = stack(make).double()
    frames, step = FRAMES.double(), 1e-6
    _, slope = torch.func.jvp(lambda part: lstm(part)[0], (frames,), (torch.ones_like(frames),))
    near([slope], [(lstm(frames + step)[0] - lstm(frames - step)[0]) / (2 * step)], 1e-4)


def converted(make: Make) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        frames = FRAMES.to(dtype).requires_grad_()
        lstm = stack(make).to(dtype)
        outputs, (h, c) = lstm(frames)
        assert outputs.dtype == h.dtype == c.dtype == dtype
        assert all(part.dtype == dtype and part.isfinite().all() for part in gradients(lstm, outputs, frames))


def made_elsewhere(make: Make) -> None:
    lstm = stack(make, device="meta", dtype=torch.float64)
    assert all(part.is_meta and part.dtype == torch.float64 for part in lstm.parameters())


def maintained(make: Make) -> None:
    lstm = stack(make)
    lstm.flatten_parameters()
    before = [part.clone() for part in lstm.parameters()]
    assert lstm.all_weights[0][0] is next(lstm.parameters())
    lstm.reset_parameters()
    assert any(not torch.equal(one, other) for one, other in zip(before, lstm.parameters(), strict=True))


def kept(make: Make) -> None:
    lstm, other, file = stack(make), stack(make), io.BytesIO()
    other.reset_parameters()
    torch.save(lstm.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))  # noqa: TID251 - as users of torch do
    near([other(FRAMES)[0]], [lstm(FRAMES)[0]])
    near([copy.deepcopy(lstm)(FRAMES)[0]], [lstm(FRAMES)[0]])


def changed_in_place(make: Make) -> None:
    lstm, frames = stack(make), FRAMES.clone().requires_grad_()
    expected = gradients(lstm, lstm(frames)[0] * 2, frames)
    near(gradients(lstm, lstm(frames)[0].mul_(2), frames), expected)


ROWS = [
    Row("`torch.utils.checkpoint`, `use_reentrant=False`", "yes", "yes", lambda make: checkpointed(make, False)),
    Row("`torch.utils.checkpoint`, `use_reentrant=True`", "yes", "yes", lambda make: checkpointed(make, True)),
    Row("hooks on saved tensors", "yes", "yes", hooked),
    Row(
        "a second derivative (`create_graph=True`)",
        "yes",
        "yes: by the plain equations, frame by frame, with a warning that says so",
        differentiated_twice,
    ),
    Row(
        "`torch.compile(fullgraph=True)`",
        "no: Dynamo leaves it out",
        "yes: one operator for each layer; the backward pass computes the forward pass once more",
        compiled,
    ),
    Row(
        "`torch.export`, any batch and length", "no: one length", "yes: needs `import las` where it is loaded", exported
    ),
    Row("`torch.func.functional_call`", "yes", "yes", called_with),
    Row("`torch.func`: `vmap` of `grad`, a gradient for each sample", "yes", "yes: plain equations", by_sample),
    Row("`torch.func.jvp`, forward mode", "yes", "yes: plain equations", forward_mode),
    Row("`half()`, `bfloat16()`, `double()`", "yes", "yes", converted),
    Row("`device=`, `dtype=`", "yes", "yes", made_elsewhere),
    Row("`bias=False`", "yes", "no: the cell decides which biases there are", lambda make: stack(make, bias=False)),
    Row("`proj_size=2`", "yes", 'no: `cell="projected_lstm"` takes it', lambda make: stack(make, proj_size=2)),
    Row(
        "arguments after `num_layers` without names",
        "yes",
        "no: the message says what to write",
        lambda make: make(INPUT, HIDDEN, 2, True, True),
    ),
    Row("`flatten_parameters()`, `reset_parameters()`, `all_weights`", "yes", "yes", maintained),
    Row("`state_dict()`, `torch.load(weights_only=True)`, `copy.deepcopy`", "yes", "yes", kept),
    Row("outputs that are changed in place", "yes", "yes", changed_in_place),
    Row("`torch.jit.script`", "yes", "no: `torch.export` in its place", lambda make: torch.jit.script(stack(make))),
]


def table() -> str:
    """The table of the page."""
    lines = ["| used with | `torch.nn.LSTM` | `las.LSTM` |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.use} | {row.theirs} | {row.ours} |" for row in ROWS)])


USES = [(which, row) for which in ("theirs", "ours") for row in ROWS]


def slowly(which: str, row: Row) -> Any:
    """Theirs are traced for long before they are refused."""
    marks = [pytest.mark.slow] if which == "theirs" and row.theirs.startswith("no") else []
    marks += [pytest.mark.unchecked] if "torch.compile" in row.use or "torch.export" in row.use else []
    return pytest.param(which, row, id=f"{which}: {row.use}", marks=marks)


@compiles
@pytest.mark.parametrize("which, row", [slowly(*use) for use in USES])
def test_what_the_table_says_is_so(which: str, row: Row) -> None:
    make = {"theirs": nn.LSTM, "ours": las.LSTM}[which]
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")  # torch itself uses it, for forward mode
    if which == "theirs":
        warnings.simplefilter("ignore")  # pytest makes an error of any warning of ours
    if getattr(row, which).startswith("yes"):
        row.call(make)
    else:
        with pytest.raises(Exception, match=r"named|bias=False|proj_size=2|RNN|LSTM|Constraints violated"):
            row.call(make)


def test_the_page_has_the_table() -> None:
    page = (REPOSITORY / "docs" / "library.md").read_text(encoding="utf-8")
    assert table() in page, f"docs/library.md should have\n{table()}"


@compiles
@pytest.mark.parametrize("name", CELLS)
def test_saved_tensors_may_come_back_in_another_layout(name: str) -> None:
    def relaid(part: Tensor) -> Tensor:
        return part.movedim(0, -1).contiguous().movedim(-1, 0) if part.is_floating_point() else part

    with choice.use_kernel("cpu"):
        hooked(lambda *sizes, **options: las.LSTM(*sizes, cell=CELLS[name], **options), relaid)


@pytest.mark.parametrize("name", CELLS)
def test_second_derivatives_are_those_of_the_plain_equations(name: str) -> None:
    """Also where a state depends on a parameter that the layer reads as well, and there is padding of NaN."""
    found = []
    for kernel in ("auto", "plain"):
        lstm = stack(las.LSTM, cell=CELLS[name]).double()
        frames = FRAMES.double()
        frames[1, 2:] = float("nan")
        frames.requires_grad_()
        bias = lstm.all_weights[0][-1].flatten()[:HIDDEN]
        state = bias.tanh().expand(4, 3, -1), bias.sin().expand(4, 3, -1)
        with choice.use_kernel(kernel):
            outputs, last = lstm(frames, state, lengths=[6, 2, 4])
            total = outputs.sin().sum() + last[1].square().sum()
            wanted = [frames, *lstm.parameters()]
            if kernel == "plain":
                first = torch.autograd.grad(total, wanted, create_graph=True)
            else:
                with pytest.warns(UserWarning, match="plain equations"):
                    first = torch.autograd.grad(total, wanted, create_graph=True)
            squares = sum(part.square().sum() for part in first)
        found.append([*first, *torch.autograd.grad(squares, wanted)])
    near(*found, tolerance=1e-8)


def arguments(name: str, frames: Tensor) -> tuple[Any, ...]:
    cells = [CELLS[name](INPUT, HIDDEN, cell_norm="both", forget_bias=1.0) for _ in range(2)]
    states = [part.requires_grad_() for part in torch.randn(4, 3, HIDDEN)]
    parameters = [parameter for cell in cells for parameter in cell.parameters()]
    return frames, torch.tensor([6, 2, 4]), states, parameters, operator._described(cells)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", rest_slow(["ln_global_input", *(name for name in CELLS if name != "ln_global_input")]))
def test_the_operator_keeps_the_rules_of_torch(name: str) -> None:
    """Its schema, its shapes without values, its derivative, also when it is traced."""
    torch.library.opcheck(torch.ops.las.layer.default, arguments(name, FRAMES.clone().requires_grad_()))


@pytest.mark.unchecked
def test_the_operator_is_the_layer_and_compares_lengths_when_it_runs() -> None:
    lstm = las.LSTM(INPUT, HIDDEN, batch_first=True)
    program = torch.export.export(lstm, (FRAMES,), {"lengths": torch.tensor([6, 2, 4])}).module()
    assert torch.equal(program(FRAMES, lengths=torch.tensor([1, 2, 6]))[0], lstm(FRAMES, lengths=[1, 2, 6])[0])
    with pytest.raises(ConfigError, match=r"lengths .*0 to 6"):
        program(FRAMES, lengths=torch.tensor([7, 2, 6]))
    given = [part.detach() for part in lstm.parameters()]
    with choice.use_kernel("plain"):
        plain = program(FRAMES, lengths=torch.tensor([6, 2, 4]))[0]
        assert torch.equal(plain, lstm(FRAMES, lengths=[6, 2, 4])[0]) and len(given) == 7


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["ln_global", "zoneout"])
def test_compiled_by_inductor_for_batches_of_any_size(cell: str) -> None:
    """Cells without an operator are traced frame by frame."""
    warnings.filterwarnings("ignore", "`torch.jit.script_method` is deprecated")  # inductor itself uses it
    lstm = las.LSTM(INPUT, HIDDEN, batch_first=True, cell=cell).eval()
    fast, state = torch.compile(lstm, fullgraph=True), torch.randn(2, 1, 3, HIDDEN)
    for rows in (3, 2):
        hx = state[0, :, :rows].contiguous(), state[1, :, :rows].contiguous()
        near([fast(FRAMES[:rows], hx)[0]], [lstm(FRAMES[:rows], hx)[0]])


@pytest.mark.parametrize("options", [{}, {"num_layers": 3, "bidirectional": True, "batch_first": True, "dropout": 0.5}])
def test_back_to_torch(options: dict[str, Any]) -> None:
    lstm = las.LSTM(INPUT, HIDDEN, cell="lstm", forget_bias=1.0, dtype=torch.float64, **options).eval()
    theirs = lstm.to_torch()
    assert theirs.dropout == lstm.dropout and not theirs.training
    near([theirs(FRAMES.double())[0]], [lstm(FRAMES.double())[0]], 1e-12)
    again = las.LSTM.from_torch(theirs)
    near([again(FRAMES.double())[0]], [lstm(FRAMES.double())[0]], 1e-12)
    for other in ({"cell": "ln_global"}, {"cell": "lstm", "cell_norm": "output"}):
        with pytest.raises(ConfigError, match=r"torch.nn.LSTM .*cell='lstm'"):
            las.LSTM(INPUT, HIDDEN, **other).to_torch()


def test_a_reset_stack_is_as_a_new_one() -> None:
    torch.manual_seed(3)
    new = las.LSTM(INPUT, HIDDEN, 2, cell="weight_norm")
    old = copy.deepcopy(new)
    with torch.no_grad():
        for parameter in old.parameters():
            parameter.fill_(7)
    torch.manual_seed(3)
    old.reset_parameters()
    assert all(map(torch.equal, old.parameters(), new.parameters()))


def test_a_cell_may_have_an_option_that_torch_has() -> None:
    class Biased(LNGlobalLSTMCell):
        def __init__(self, *sizes: int, bias: bool = True, **options: Any) -> None:
            super().__init__(*sizes, biases="all" if bias else "input", **options)

    assert las.LSTM(INPUT, HIDDEN, cell=Biased, bias=False).layers[0].cell.bias is None
    assert las.LSTM(INPUT, HIDDEN, cell=lambda *sizes: Biased(*sizes), bias=True).layers[0].cell.bias is not None
