"""Floating point operations of one call of torch: of its matrix products and convolutions, from shapes alone.

A multiplication and an addition count as two operations. All other functions are bound by memory, not by arithmetic,
and count as zero. Causal attention counts in full, as in torch's own FlopCounterMode.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

Shape = Tuple[int, ...]
Call = Tuple[Tuple[Any, ...], Dict[str, Any], Any]  # arguments, keywords, result


class Product(NamedTuple):
    """One product. It holds its tensors, so it is dropped once the call is counted.

    Attributes:
        flops: of the forward pass.
        backward: products of the backward pass; each is computed if one of its tensors needs a gradient.
        shape: m, n and k of a matrix product; None for other products.
        attends: whether it is attention, which grows with the square of the length.
        scores: whether it is a batched product, whose result may be attention scores.
    """

    flops: int
    backward: Tuple[Tuple[int, Tuple[Any, ...]], ...]
    shape: Optional[Tuple[int, int, int]] = None
    attends: bool = False
    scores: bool = False


class Unknown(Exception):
    """A product whose operations do not follow from shapes; the text says why."""


def products(name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> List[Product]:
    """Return the products of the call; empty if it has none.

    Raises:
        Unknown: the operations do not follow from shapes.
    """
    formula = _FORMULAS.get(name)
    return [] if formula is None else [product for product in formula((args, kwargs, result)) if product.flops]


def product_of(sizes: Sequence[int]) -> int:
    out = 1
    for size in sizes:
        out *= int(size)
    return out


def shape_of(tensor: Any) -> Shape:
    return tuple(tensor.shape)


def argument(call: Call, index: int, *names: str) -> Any:
    """Return an argument by its position or one of its names; None if it is not given."""
    args, kwargs, _ = call
    if len(args) > index:
        return args[index]
    for name in names:
        if name in kwargs:
            return kwargs[name]
    return None


def _product(a: Any, b: Any) -> Product:
    """Return `a @ b`, broadcast."""
    left, right = shape_of(a), shape_of(b)
    m = left[-2] if len(left) > 1 else 1
    k = left[-1]
    n = right[-1] if len(right) > 1 else 1
    batch = product_of(_broadcast(left[:-2], right[:-2]))
    flops = 2 * batch * m * n * k
    if len(right) == 2:  # torch folds the batch into the rows
        m, batch = m * batch, 1
    return Product(flops, ((flops, (a,)), (flops, (b,))), (m, n, k), scores=len(left) > 2 and len(right) > 2)


def _broadcast(left: Shape, right: Shape) -> List[int]:
    longest = max(len(left), len(right))
    ones = (1,) * longest
    pairs = zip((ones + left)[-longest:] if longest else (), (ones + right)[-longest:] if longest else ())
    return [max(one, other) if one and other else 0 for one, other in pairs]


_LEFT = ("self", "mat1", "mat", "batch1", "mat_a")
_RIGHT = ("other", "mat2", "vec", "batch2", "mat_b")


def _two_operands(call: Call) -> List[Product]:
    return [_product(argument(call, 0, "input", *_LEFT), argument(call, 1, *_RIGHT))]


def _plus_term(call: Call) -> List[Product]:
    """Return the product of functions whose first argument is an added term."""
    return [_product(argument(call, 1, *_LEFT), argument(call, 2, *_RIGHT))]


def _reversed(call: Call) -> List[Product]:
    return [_product(call[0][1], call[0][0])]


def _linear(call: Call) -> List[Product]:
    given, weight = argument(call, 0, "input"), argument(call, 1, "weight")
    sizes = shape_of(weight)
    n, k = (1, sizes[0]) if len(sizes) == 1 else sizes
    m = product_of(shape_of(given)) // max(1, k)
    flops = 2 * m * n * k
    return [Product(flops, ((flops, (given,)), (flops, (weight,))), (m, n, k))]


def _convolution(transposed: bool) -> Callable[[Call], List[Product]]:
    def formula(call: Call) -> List[Product]:
        given, weight, result = argument(call, 0, "input"), argument(call, 1, "weight"), call[2]
        sizes = shape_of(weight)  # groups are in it: [out, in / groups, ...], transposed [in, out / groups, ...]
        flops = 2 * product_of(shape_of(given if transposed else result)) * product_of(sizes[1:])
        return [Product(flops, ((flops, (given,)), (flops, (weight,))))]

    return formula


def attention(batch: int, queries: int, keys: int, width: int, values: int, factors: Tuple[Any, ...]) -> Product:
    """Return scores and their sum over values; `batch` includes the heads. `factors`: queries, keys, values."""
    q, k, v = factors
    scores, mixed = 2 * batch * queries * keys * width, 2 * batch * queries * keys * values
    backward = ((scores, (q,)), (scores, (k,)), (mixed, (v,)), (mixed, (q, k)))
    return Product(scores + mixed, backward, attends=True)


def _sdpa(call: Call) -> List[Product]:
    q, k, v = (argument(call, index, name) for index, name in enumerate(("query", "key", "value")))
    queries, keys, values = shape_of(q), shape_of(k), shape_of(v)
    batch = product_of(_broadcast(queries[:-2], keys[:-2])) if len(queries) == len(keys) else product_of(queries[:-2])
    return [attention(batch, queries[-2], keys[-2], queries[-1], values[-1], (q, k, v))]


def _flash(call: Call) -> List[Product]:
    """Return the attention of flash_attn's functions, whose heads come after the length."""
    q, k, v = (argument(call, index, name) for index, name in enumerate(("q", "k", "v")))
    if len(shape_of(q)) != 4:
        raise Unknown("flash attention over sequences of several lengths")
    batch, length, heads, width = shape_of(q)
    return [attention(batch * heads, length, shape_of(k)[1], width, shape_of(v)[-1], (q, k, v))]


def _multi_head(call: Call) -> List[Product]:
    """Return the products of nn.MultiheadAttention: four projections and the attention between them."""
    kwargs = call[1]
    q, k, v = (argument(call, index, name) for index, name in enumerate(("query", "key", "value")))
    out = argument(call, 11, "out_proj_weight")
    heads = int(argument(call, 4, "num_heads"))
    together = argument(call, 5, "in_proj_weight")
    apart = [kwargs.get(f"{name}_proj_weight") for name in "qkv"]
    width = shape_of(out)[0]
    found = []
    for index, given in enumerate((q, k, v)):
        weight = together if together is not None else apart[index]
        sizes = shape_of(given)
        flops = 2 * product_of(sizes) * width
        shape = (product_of(sizes[:-1]), width, sizes[-1])
        found.append(Product(flops, ((flops, (given,)), (flops, (weight,))), shape))
    batch = shape_of(q)[1] if len(shape_of(q)) == 3 else 1
    queries, keys = shape_of(q)[0], shape_of(k)[0]
    head_width = width // max(1, heads)
    trained = together if together is not None else apart[0]
    # A projection needs a gradient where its weights do, whatever the input needs.
    mixed = attention(batch * heads, queries, keys, head_width, head_width, (q, k, v))
    mixed = mixed._replace(backward=tuple((flops, (*factors, trained)) for flops, factors in mixed.backward))
    flops = 2 * queries * batch * width * width
    found.append(mixed)
    found.append(Product(flops, ((flops, (q, k, v, trained)), (flops, (out,))), (queries * batch, width, width)))
    return found


def _bilinear(call: Call) -> List[Product]:
    left, right, weight = argument(call, 0, "input1"), argument(call, 1, "input2"), argument(call, 2, "weight")
    flops = 2 * product_of(shape_of(left)[:-1]) * product_of(shape_of(weight))
    return [Product(flops, tuple((flops, (tensor,)) for tensor in (left, right, weight)))]


def _recurrent(call: Call) -> List[Product]:
    """Return the products of LSTM, GRU and plain RNN: each weight matrix is multiplied at each position."""
    args = call[0]
    packed = isinstance(args[3], (list, tuple))  # then the sizes of the batches come before the states
    weights, (_, layers, _, _, both_ways) = args[2 + packed], args[3 + packed : 8 + packed]
    matrices = [weight for weight in weights if weight.dim() == 2]
    directions = 2 if both_ways else 1
    per_layer = max(1, len(matrices) // max(1, layers * directions))
    positions = product_of(shape_of(args[0])[: 1 if packed else 2])
    return _by_positions(args[0], matrices, positions, range(0, per_layer * directions, per_layer))


def _cell(call: Call) -> List[Product]:
    args = call[0]
    return _by_positions(args[0], args[2:4], product_of(shape_of(args[0])[:-1]), (0,))


def _by_positions(given: Any, matrices: Sequence[Any], positions: int, first: Sequence[int]) -> List[Product]:
    """Return products of weights at so many positions; those with the indices `first` multiply the input itself."""
    found = []
    for index, weight in enumerate(matrices):
        rows, columns = shape_of(weight)
        flops = 2 * positions * rows * columns
        factors = (given,) if index in first else (given, *matrices)  # the others' are states between trained weights
        found.append(Product(flops, ((flops, factors), (flops, (weight,))), (positions, rows, columns)))
    return found


def _grouped(call: Call) -> List[Product]:
    """Return the product of groups, as for experts: all rows together are multiplied once."""
    a, b = argument(call, 0, "input", "self", "mat_a"), argument(call, 1, "mat2", "mat_b")
    left, right = shape_of(a), shape_of(b)
    if len(left) == 2 and len(right) == 3:
        flops = 2 * left[0] * left[1] * right[-1]
        return [Product(flops, ((flops, (a,)), (flops, (b,))), (left[0], right[-1], left[1]))]
    return [_product(a, b)]


def _contracted(call: Call) -> List[Product]:
    """Return the product of two tensors without a common batch, from their sizes."""
    a, b = call[0][0], call[0][1]
    flops = 2 * isqrt(product_of(shape_of(a)) * product_of(shape_of(b)) * product_of(shape_of(call[2])))
    return [Product(flops, ((flops, (a,)), (flops, (b,))))]


def _einsum(call: Call) -> List[Product]:
    """Return the products of a contraction from left to right, two operands at a time, as torch computes it."""
    args = call[0]
    if not args or not isinstance(args[0], str):
        raise Unknown("einsum without an equation")
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else list(args[1:])
    inputs, out = _indices(args[0].replace(" ", ""), [len(shape_of(operand)) for operand in operands])
    sizes: Dict[str, int] = {}
    for letters, operand in zip(inputs, operands):
        for letter, size in zip(letters, shape_of(operand)):
            sizes[letter] = max(int(size), sizes.get(letter, 1))
    found = []
    left = inputs[0]
    factors: Tuple[Any, ...] = (operands[0],)
    for index in range(1, len(operands)):
        right = inputs[index]
        later = set(out).union(*inputs[index + 1 :])
        product, left = _pair(left, right, later, sizes, factors, operands[index])
        found += product
        factors = (*factors, operands[index])
    return found


def _pair(
    left: str, right: str, later: Any, sizes: Dict[str, int], factors: Tuple[Any, ...], other: Any
) -> Tuple[List[Product], str]:
    """Return the product of two operands by their indices, and the indices of the result."""
    one, two = (set(letters) for letters in (left, right))
    kept = "".join(letter for letter in dict.fromkeys(left + right) if letter in later)
    k = (one & two) - later
    if not k:  # multiplied number by number, or an outer product
        return [], kept
    m, n = ((mine - theirs) & later for mine, theirs in ((one, two), (two, one)))
    extents = [product_of([sizes[letter] for letter in letters]) for letters in (m, n, k)]
    batch = one & two & later
    flops = 2 * product_of(extents) * product_of([sizes[letter] for letter in batch])
    shape = (extents[0], extents[1], extents[2])
    return [Product(flops, ((flops, factors), (flops, (other,))), shape, scores=bool(batch))], kept


def _indices(equation: str, dims: Sequence[int]) -> Tuple[List[str], str]:
    """Return one letter a dimension; those of an ellipsis are digits, counted from the last."""
    inputs, arrow, out = equation.partition("->")
    terms = inputs.split(",")
    longest = 0
    for index, (term, dim) in enumerate(zip(terms, dims)):
        if "..." in term:
            covered = dim - len(term) + 3
            longest = max(longest, covered)
            terms[index] = term.replace("...", "".join(chr(48 + place) for place in reversed(range(covered))))
    ellipsis = "".join(chr(48 + place) for place in reversed(range(longest)))
    if not arrow:
        letters = "".join(terms)
        out = ellipsis + "".join(
            sorted(letter for letter in set(letters) if letters.count(letter) == 1 and letter.isalpha())
        )
    return terms, out.replace("...", ellipsis)


_FORMULAS: Dict[str, Callable[[Call], List[Product]]] = {
    **dict.fromkeys(("matmul", "__matmul__", "__imatmul__", "mm", "_scaled_mm", "bmm", "mv"), _two_operands),
    **dict.fromkeys(("addmm", "addmm_", "addmv", "addmv_", "baddbmm", "baddbmm_", "addbmm", "addbmm_"), _plus_term),
    "__rmatmul__": _reversed,
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution(False)),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution(True)),
    "scaled_dot_product_attention": _sdpa,
    "_flash_attn_forward": _flash,
    "_flash_attn_varlen_forward": _flash,
    "multi_head_attention_forward": _multi_head,
    "einsum": _einsum,
    **dict.fromkeys(("tensordot", "inner"), _contracted),
    "bilinear": _bilinear,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _cell),
    **dict.fromkeys(("_grouped_mm", "grouped_mm"), _grouped),
}
KNOWN_FUNCTIONS = frozenset(_FORMULAS)
CONVOLUTIONS = frozenset(name for name in KNOWN_FUNCTIONS if name.startswith("conv"))
FUSED_ATTENTION = frozenset(("scaled_dot_product_attention", "_flash_attn_forward", "_flash_attn_varlen_forward"))
