"""The queue runs the newest job of each key, and interrupts one that has become stale."""

from __future__ import annotations

import threading
import time

from zerograd.server.job_queue import JobQueue


def finish(queue: JobQueue) -> list[str]:
    """Run a queue to its end; a mark for every job that was interrupted."""
    interrupted: list[str] = []
    queue.run(lambda: interrupted.append("interrupted"))
    return interrupted


def test_of_two_jobs_with_one_key_only_the_newer_runs() -> None:
    queue, done = JobQueue(), list[str]()
    queue.put("a", lambda: done.append("old"))
    queue.put("b", lambda: done.append("other"))
    queue.put("a", lambda: done.append("new"))
    queue.put("end", queue.end)
    assert finish(queue) == []
    assert done == ["other", "new"]


def test_a_dropped_job_does_not_run() -> None:
    queue, done = JobQueue(), list[str]()
    queue.put("a", lambda: done.append("dropped"))
    queue.drop("a")
    queue.put("end", queue.end)
    assert finish(queue) == []
    assert done == []


def test_a_running_job_is_interrupted_by_a_newer_one_of_its_key() -> None:
    queue, done = JobQueue(), list[str]()
    begun = threading.Event()

    def endless() -> None:
        begun.set()
        stop = time.monotonic() + 30
        while time.monotonic() < stop:
            pass
        done.append("endless")

    def newer() -> None:
        done.append("newer")
        queue.end()

    def type_on() -> None:
        begun.wait(10)
        queue.put("a", newer)

    queue.put("a", endless)
    other = threading.Thread(target=type_on)
    other.start()
    assert finish(queue) == ["interrupted"]
    other.join()
    assert done == ["newer"]


def test_interrupts_at_any_moment_lose_no_newest_job() -> None:
    queue, done = JobQueue(), list[int]()

    def type_on() -> None:
        for number in range(300):
            queue.put("a", lambda number=number: done.append(number))  # type: ignore[misc]
            if number % 7 == 0:
                time.sleep(0.0005)
        queue.put("z", queue.end)

    other = threading.Thread(target=type_on)
    other.start()
    finish(queue)
    other.join()
    assert done[-1] == 299
    assert done == sorted(set(done))


def test_what_takes_long_waits_until_there_is_nothing_to_do() -> None:
    done: list[str] = []

    def tidy() -> None:
        done.append("tidy")
        queue.end()

    queue = JobQueue(tidy)
    queue.put("a", lambda: done.append("a"))
    queue.put("b", lambda: done.append("b"))
    assert finish(queue) == []
    assert done == ["a", "b", "tidy"]
