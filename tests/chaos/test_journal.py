"""What the journal tells about the steps, on planted faults."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.journal import Journal, Line, append, violations

RAN = Line("ran", "run_a", 1, "s0", 11)
PASSED = Line("passed", "run_a", 1, "s0", 11)
REPLAYED = Line("passed", "run_a", 2, "s0", 11)


def test_a_step_that_ran_once_and_was_replayed_elsewhere_is_right() -> None:
    assert list(violations([RAN, PASSED, REPLAYED])) == []


def test_a_step_whose_first_execution_was_not_recorded_may_run_again() -> None:
    again = Line("ran", "run_a", 2, "s0", 22)
    assert list(violations([RAN, again, Line("passed", "run_a", 2, "s0", 22)])) == []


def test_a_step_that_was_called_before_it_was_recorded_elsewhere_may_end_at_any_time() -> None:
    assert not list(violations([Line("calls", "run_a", 2, "s0", 22), RAN, PASSED, Line("ran", "run_a", 2, "s0", 22)]))


def test_a_step_that_ran_again_after_it_was_recorded_is_reported() -> None:
    (found,) = violations([RAN, PASSED, Line("calls", "run_a", 2, "s0", 22), Line("ran", "run_a", 2, "s0", 22)])
    assert found == "step s0 of run_a ran again in process 2 after it was recorded"


def test_a_step_with_two_values_is_reported() -> None:
    late = Line("ran", "run_a", 2, "s0", 22)
    (found,) = violations([RAN, late, PASSED, Line("passed", "run_a", 2, "s0", 22)])
    assert found == "step s0 of run_a has another value in process 2 than before"


def test_a_value_that_no_execution_gave_is_reported() -> None:
    (found,) = violations([RAN, Line("passed", "run_a", 1, "s0", 99)])
    assert found == "step s0 of run_a has the value of no execution of it in process 1"


def test_a_wait_that_has_ended_in_two_ways_is_reported_and_one_that_was_seen_twice_is_not() -> None:
    saw = Line("saw", "run_a", 1, "race", 5)
    assert list(violations([saw, Line("saw", "run_a", 2, "race", 5), Line("saw", "run_b", 2, "race", 6)])) == []
    (found,) = violations([saw, Line("saw", "run_a", 2, "race", 6)])
    assert found == "step race of run_a has ended in another way in process 2 than before"


def test_what_ran_in_other_runs_and_steps_is_not_mixed_in() -> None:
    others = [Line("ran", "run_b", 2, "s0", 22), Line("ran", "run_a", 2, "s1", 33)]
    assert list(violations([RAN, PASSED, *others])) == []


def test_handlers_at_work_and_runs_that_moved_are_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    append(str(journal.path), Line("began", "run_a", 1))
    append(str(journal.path), Line("began", "run_b", 1))
    assert journal.in_hand(1) == 2
    append(str(journal.path), Line("ended", "run_b", 1))
    append(str(journal.path), Line("began", "run_a", 2))
    assert (journal.in_hand(1), journal.in_hand(2)) == (1, 1)
    assert journal.moved_runs() == 1


def test_steps_that_ran_more_than_once_are_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for line in (RAN, PASSED, Line("ran", "run_b", 1, "s0", 33), Line("ran", "run_b", 2, "s0", 44)):
        append(str(journal.path), line)
    assert journal.lines() == [RAN, PASSED, *journal.lines()[2:]]
    assert journal.repeated_steps() == 1


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with journal.path.open("a") as file:
        file.write("began run_a 1 - ")
        file.flush()
        assert journal.lines() == []
        file.write("0\n")
        file.flush()
        assert journal.lines() == [Line("began", "run_a", 1)]
