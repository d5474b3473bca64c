"""Odd values: nothing raises, numbers stay numbers, and texts arrive printable."""

from __future__ import annotations

from .conftest import Trainings

HOSTILE = """
class Bad:
    def __float__(self): raise RuntimeError('float')
    def __str__(self): raise RuntimeError('str')
    __repr__ = __int__ = __index__ = __str__
class Worse(Bad):
    def __float__(self): raise OverflowError
    def __getattr__(self, name): raise RuntimeError(name)
class Boundless:
    def __float__(self): return float('-inf')
"""


def test_numbers_of_every_sort(train: Trainings) -> None:
    told = train(
        """
        from decimal import Decimal
        from fractions import Fraction
        import numpy as np
        nan, inf = float('nan'), float('inf')
        with th.step():
            th.log(big=2**53, bigger=2**60, huge=10**400, least=-10**400, true=True, decimal=Decimal('0.5'),
                   fraction=Fraction(1, 4), nan=nan, inf=inf, minus=-inf, f32=np.float32(0.5), i64=np.int64(7),
                   array=np.array([[2.5]]), npnan=np.float16(nan), flag=np.bool_(True))
            th.log(none=None, text='3', many=np.zeros(3), complex=1j, list=[1], nothing=object())
        """
    )
    assert told.steps[0]["metrics"] == {
        "big": 2**53, "bigger": float(2**60), "huge": "inf", "least": "-inf", "true": 1, "decimal": 0.5,
        "fraction": 0.25, "nan": "nan", "inf": "inf", "minus": "-inf", "f32": 0.5, "i64": 7,
        "array": 2.5, "npnan": "nan", "flag": 1,
    }  # fmt: skip


def test_objects_that_raise_cost_only_themselves(train: Trainings) -> None:
    told = train(
        HOSTILE
        + """
th.init(name=Bad(), total_steps=Bad(), start_step='x', config={'a': Bad(), Bad(): 1, 'w': Worse(), 'ok': 2})
th.init(name='fine', config=Bad())
th.note(Bad()); th.note(None)
for i in th.steps(range(2), role=Bad(), stage=7, epoch=Boundless(), total='many'):
    with th.phase(Bad()), th.phase(None), th.phase([]), th.span({}): pass
    th.log(a=Bad(), b=Worse(), c=Boundless(), d=4)
    th.count(tokens=Bad(), samples=-1, padded_tokens=2.0)
    th.count(tokens='9', samples=True, padded_tokens=10**30)
    th.skip(Bad())
"""
    )
    assert told.report.run.name == "fine"
    assert told.report.run.facts.table["config"]["ok"] == 2
    for step in told.steps:
        assert step["metrics"] == {"c": "-inf", "d": 4}
        assert (step["samples"], step["padded_tokens"], step["stage"], step["epoch"]) == (1, 2, "7", "-inf")
        assert "tokens" not in step
        assert [name for name, _, _, _ in step["phases"]] == ["data", "<Bad>", "None", "[]", "{}"]
    assert told.kind("bye")[0].get("dropped", 0) == 0


def test_texts_arrive_printable_and_cut(train: Trainings) -> None:
    told = train(
        r"""
        ugly = 'a\x1b[31m\x00\n\u202e\ud800b'
        th.init(name=ugly); th.note(ugly + 'n' * 10000)
        with th.span(ugly): pass
        with th.step(role=ugly, stage='s' * 10000):
            with th.phase('p' * 10000): pass
            th.log(**{ugly: 1, 'm' * 10000: 2, '': 3})
            th.skip('r' * 10000)
        """
    )
    (step,) = told.steps
    assert step["metrics"] == {"a [31m b": 1, "m" * 128: 2, "unnamed": 3}
    assert (step["role"], step["stage"], step["phases"][0][0]) == ("a [31m b", "s" * 128, "p" * 128)
    assert len(step["reason"]) == 4096 and len(told.kind("note")[0]["text"]) == 4096
    assert "a [31m b" in told.spans
    assert told.report.run.name == "a [31m b"


def test_five_thousand_metric_names_share_a_bucket_in_the_end(train: Trainings) -> None:
    told = train("for i in range(5000):\n    with th.step(): th.log(**{f'm{i}': i})\nwith th.step(): th.log(m7=-1)")
    names = [next(iter(step["metrics"])) for step in told.steps]
    assert names[:2000] == [f"m{i}" for i in range(2000)]
    assert set(names[2000:5000]) == {"overflow"}
    assert names[5000] == "m7"


def test_an_event_too_large_for_a_line_is_cut_and_still_counts(train: Trainings) -> None:
    told = train(
        """
        with th.step():
            for i in range(1900): th.log(**{f'{i}' + 'x' * 100: i})
        with th.step():
            for i in range(1900): th.phase(f'{i}' + 'y' * 100)(int)()
        th.init(config={f'{i}' + 'k' * 100: 'v' * 250 for i in range(200)})
        th.note('after')
        """
    )
    assert told.indices == [1, 2]
    assert max(map(len, told.journals[0].read_bytes().splitlines())) < 64 * 1024
    assert told.kind("note")[-1]["text"] == "after"
    assert told.report.dropped.lines == 0


def test_secrets_in_the_configuration_are_masked(train: Trainings) -> None:
    secrets = {
        "api_key": "abc", "hf_token": "abc", "password": "abc", "wandb-key": "abc", "x": {"secret": "abc"},
        "url": "https://me:abc@host/", "note": "use hf_" + "Ab1" * 10, "n": ["sk-" + "abc" * 8],
    }  # fmt: skip
    told = train(f"th.init(config={{**{secrets!r}, 'max_tokens': 5, 'lr': 0.1, 'empty_token': None}})")
    config = told.report.run.facts.table["config"]
    text = repr(config)
    assert "abc" not in text and "Ab1" not in text
    assert (config["max_tokens"], config["lr"], config["empty_token"]) == (5, 0.1, None)


def test_a_configuration_that_is_a_tensor_s_home(train: Trainings) -> None:
    """To print a tensor on a device is to wait for the device."""
    told = train(
        """
        class Tensor:
            def detach(self): raise RuntimeError
            def __str__(self): print('waited'); return ''
        class Circle(dict): pass
        circle = Circle(); circle['itself'] = circle
        th.init(config={'weights': Tensor(), 'circle': circle, 'list': [[[[[1]]]]]})
        """
    )
    assert told.out == ""
    assert told.report.run.facts.table["config"]["weights"] == "<Tensor>"


def test_counts_are_read_where_they_are_at_hand(train: Trainings) -> None:
    told = train(
        """
        import numpy as np, torch
        for i in th.steps(range(2)):
            mask = torch.ones(4, 10)
            th.count(tokens=mask.sum(), samples=np.int64(4), padded_tokens=mask.numel())
            th.count(tokens=torch.empty((), device='meta'))
            th.count(tokens=torch.ones(2))
        """
    )
    assert [(step["tokens"], step["samples"], step["padded_tokens"]) for step in told.steps] == [(40, 4, 40)] * 2
    (note,) = [event["text"] for event in told.events if event["kind"] == "note"]
    assert "count()" in note


def test_metrics_whose_names_are_no_keywords(train: Trainings) -> None:
    told = train(
        """
        with th.step():
            th.log({'loss/total': 0.5, 7: 1.0}, lr=0.25)
            th.log([1, 2]); th.log(3, b=2); th.log({}, values=4)
        """
    )
    assert told.steps[0]["metrics"] == {"loss/total": 0.5, "7": 1.0, "lr": 0.25, "b": 2, "values": 4}
    assert [event["text"] for event in told.events if event["kind"] == "note"] == [
        "log() takes names with numbers, not a list",
        "log() takes names with numbers, not a int",
    ]
