"""Files that are replaced whole, and whose they are under sudo."""

import errno
import os

import pytest

from testbed.files import give_to_invoker, make_folder, write_json, write_lines, write_text


def test_a_file_is_replaced(tmp_path):
    (tmp_path / "x").write_text("old")
    write_text(tmp_path / "x", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "new")]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "x").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "x", "half" + chr(0xD800))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]


def test_lines_that_break_off_leave_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "x").write_text("old")
    write_lines(tmp_path / "y", iter(["1\n", "2\n"]))
    with pytest.raises(ZeroDivisionError):
        write_lines(tmp_path / "x", (f"{1 // number}\n" for number in (2, 1, 0)))
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [("x", "old"), ("y", "1\n2\n")]


def test_a_full_disk_is_told_with_the_file(tmp_path):
    (tmp_path / "x.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=str(tmp_path / "x")) as caught:
        write_text(tmp_path / "x", "new")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_what_json_does_not_know_is_text(tmp_path):
    write_json(tmp_path / "x", {"path": tmp_path})
    assert str(tmp_path) in (tmp_path / "x").read_text()


@pytest.fixture
def given(monkeypatch):
    """Who was given what, as root under sudo."""
    owners = {}
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1001")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, uid, gid, follow_symlinks: owners.update({path.name: (uid, gid, follow_symlinks)}))
    return owners


def test_new_folders_are_the_invokers_and_old_ones_stay(tmp_path, given):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "c")
    assert given == dict.fromkeys(("a", "b", "c"), (1000, 1001, False))


def test_a_broken_link_is_given_itself_and_what_is_not_there_is_left_out(tmp_path, given):
    (tmp_path / "link").symlink_to("nowhere")
    give_to_invoker(tmp_path / "link", tmp_path / "absent")
    assert list(given) == ["link"]


@pytest.mark.parametrize("uid", ["", "x", "-1"])
def test_an_odd_environment_gives_nothing_away(tmp_path, given, monkeypatch, uid):
    monkeypatch.setenv("SUDO_UID", uid)
    give_to_invoker(tmp_path)
    assert given == {}
