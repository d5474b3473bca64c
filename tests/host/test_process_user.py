"""Whose a process is."""

import os
import pwd

from monitor.sources.process_tree import process_user


def test_the_user_of_a_process_is_named_and_of_one_that_ended_it_is_unknown() -> None:
    assert process_user(os.getpid()) == pwd.getpwuid(os.getuid()).pw_name
    assert process_user(2**31 - 1) == ""
