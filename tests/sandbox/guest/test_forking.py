import os

from tests.sandbox.guest.children import in_child
from vtune.sandbox.guest import forking


def test_what_libraries_do_after_a_fork_is_done_once_and_not_in_the_fork() -> None:
    def work() -> str:
        ran: list[str] = []
        with forking.hooks_run_once():
            os.register_at_fork(
                before=lambda: ran.append("before"), after_in_child=lambda: ran.append("held")
            )
            assert ran == []
        assert ran == ["held"]
        os.register_at_fork(after_in_child=lambda: ran.append("later"))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if ran == ["held", "later"] else 1)
        return str(os.waitpid(pid, 0)[1])

    assert in_child(work) == "0"
