"""Programs that close our descriptors and get the numbers: their files stay theirs, and nothing is lost."""

from __future__ import annotations

import textwrap

import pytest

from tests.journal_lines import steps_in
from trainhooks.protocol import rundir

from .conftest import Told, Trainings, wait_for

TAKING = """
def kept(ending):
    'The numbers under which files with this ending are open.'
    links = {int(name): os.path.join('/proc/self/fd', name) for name in os.listdir('/proc/self/fd')}
    return [number for number, link in links.items() if os.path.islink(link) and os.readlink(link).endswith(ending)]

def own_file(name):
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

def take(ending):
    'Give the number of each of our files to one of the program.'
    taken = kept(ending)
    for number in taken:
        mine = own_file(f'mine{number}')
        os.dup2(mine, number)
        os.close(mine)
    return taken
"""


def script(source: str, **words: object) -> str:
    source = textwrap.dedent(source)
    for word, value in words.items():
        source = source.replace(f"#{word}", str(value))
    return TAKING + source


@pytest.mark.parametrize("last", [256, 70_000])
@pytest.mark.parametrize("limit", [64, 4096])
def test_a_program_that_closes_what_is_open_keeps_its_files_to_itself(train: Trainings, last: int, limit: int) -> None:
    told = train(
        script(
            """
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (#limit, #limit))
            for i in th.steps(range(60)):
                th.log(i=i)
                if i == 20:
                    written()
                    os.closerange(3, #last)
                    files = [own_file(f'mine{number}') for number in range(20)]
                sleep(0.01)
            th.note('after it')
            in_journal('after it')
            print({os.fstat(file).st_size for file in files})
            """,
            limit=limit,
            last=last,
        )
    )
    assert told.out == "{0}\n"
    assert told.indices == list(range(1, 61))
    assert told.kind("bye")[0].get("dropped", 0) == 0


def test_numbers_that_are_the_program_s_now_are_neither_written_nor_closed(train: Trainings) -> None:
    """Twice while it runs, and once more at the end, where nothing is opened again."""
    told = train(
        script(
            """
            import atexit
            @atexit.register
            def last():  # after trainmon's own handler
                print({os.fstat(number).st_size for number in taken})
            taken = []
            for i in th.steps(range(60)):
                th.log(i=i)
                if i in (20, 40):
                    th.note(f'at {i}')
                    in_journal(f'at {i}')
                    taken += take('.jsonl') + take('.lock')
                sleep(0.01)
            th.note('after it')
            in_journal('after it')
            print(len(taken))
            """
        )
    )
    assert told.out == "4\n{0}\n"
    assert told.indices == list(range(1, 61))
    assert told.kind("bye")


def test_the_last_descriptor_is_not_closed_at_the_end_if_it_is_the_program_s(train: Trainings) -> None:
    told = train(
        script(
            """
            import atexit
            from trainhooks.protocol import journal
            @atexit.register
            def last():
                print([os.fstat(number).st_size for number in taken])
            taken = []
            close = journal.Journal.close
            def taken_before(self):
                taken.extend(take('.jsonl'))
                close(self)
            journal.Journal.close = taken_before
            for _ in th.steps(range(3)): pass
            """
        )
    )
    assert told.out == "[0]\n"
    assert told.indices == [1, 2, 3]


def test_a_half_line_that_stands_in_the_journal_is_ended_when_it_is_opened_again(train: Trainings) -> None:
    told = train(
        script(
            """
            for i in th.steps(range(30)):
                if i == 10:
                    written()
                    (path,) = [os.readlink(f'/proc/self/fd/{number}') for number in kept('.jsonl')]
                    for number in kept('.jsonl'): os.close(number)
                    with open(path, 'a') as half: half.write('{"kind":"no')
                sleep(0.01)
            """
        )
    )
    lines = told.journals[0].read_bytes().splitlines()
    assert lines.count(b'{"kind":"no') == 1
    assert steps_in(told.journals[0]) == 30
    assert lines[-1].endswith(b"}")


def test_the_lock_is_taken_again(train: Trainings) -> None:
    """Closing a descriptor of its file releases it, and the run would count as over."""
    process = train.start(
        script(
            """
            for i in th.steps(range(100_000)):
                if i == 10:
                    written()
                    os.closerange(3, 4096)
                    th.note('closed')
                if os.path.exists('enough'): break
                sleep(0.01)
            """
        )
    )
    told = Told(train.state)
    wait_for(lambda: told.journals and b'"closed"' in told.journals[0].read_bytes())
    wait_for(lambda: rundir.ranks_alive(told.run))
    assert process.poll() is None
    (train.work / "enough").touch()
    assert process.wait(timeout=60) == 0
    assert not rundir.ranks_alive(told.run)


def test_the_program_s_descriptors_have_the_numbers_that_they_have_without_trainmon(train: Trainings) -> None:
    told = train(
        script(
            """
            before = own_file('a')
            for _ in th.steps(range(3)): pass
            written()
            print(own_file('b') - before)
            os.close(0); os.close(1)
            for number in kept('.jsonl'): os.close(number)
            th.note('opened again')
            in_journal('opened again')
            print(kept('.jsonl') > [2], file=sys.stderr)
            os.dup2(2, 1)
            """
        ),
        quiet=False,
    )
    assert told.out == "1\n" and told.err == "True\n"
    assert told.kind("bye")
