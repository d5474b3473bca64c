"""All probes with torch, and the page that their table stands on."""

from __future__ import annotations

from tests.harmless.compare import Program
from tests.harmless.torch_probes import (
    autograd,
    compiling,
    elsewhere,
    frameworks,
    loading,
    modules,
    optimizers,
    places,
    processes,
    surroundings,
    tensors,
)

FILES = (
    autograd,
    modules,
    optimizers,
    loading,
    tensors,
    compiling,
    processes,
    surroundings,
    places,
    frameworks,
    elsewhere,
)
PROBES: tuple[Program, ...] = tuple(probe for file in FILES for probe in file.PROBES)

PAGE = """# Probes with torch

`python -m tests.harmless --probes torch` runs small programs bare and under `trainmon run`, and compares exit code,
stdout, stderr and files as `make harmless` does. Each asks one question of what a program can see of torch after some
training, and must come to its end when it runs bare. `make probes` writes this page.

## What a program can see

Known, and left out:

- What [Bare and under trainmon](harmless.md) lists.
- Our functions are on the stack: `sys._getframe`, `inspect.stack` and the limit of recursion count them. Tracebacks and
  the places of warnings do not; on Python 3.10 a traceback that a program prints does.
- The line of torch's `_wrapped_call_impl` that calls a model, also as the place of a warning with `stacklevel=3`.
- A data set is asked for its length once more, at the first pass over its loader: the total of steps follows from it.
- A warning that torch first gives in a model's second call names our file.
- Wrapped functions (`torch.autograd.backward`, `torch.save`...) keep name, signature and source, but not `__code__`,
  `__defaults__` and `inspect.getsourcefile`.
- Attributes of models and optimizers are read (`training`, `param_groups`...): a `__getattribute__` of theirs sees it.
- A function mode that is open at the first steps sees attributes of the parameters read.
- dynamo's count of frames looked at may be one less where an optimizer's step is compiled. Graphs and breaks are equal.
- A finder that a program puts first on `sys.meta_path` is asked for `trainhooks`. A spec that `find_spec` returns for
  torch before its import has a loader that is not equal to that of the module.
- `transformers` has one callback more.

## Results

"""
