"""The messages between a run and its child processes, each with its kind."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from pytest_tfperf.results import Check, Profile
from pytest_tfperf.turn import Ready, Turn
from pytest_tfperf.turns.worktree import Version
from pytest_tfperf.values import Json


class Message(Struct, kw_only=True, tag_field="kind", tag=str.lower):
    """A message; its kind is the name of its class."""


class Answer(Message):
    """What a call of a test has returned."""

    profiles: Mapping[str, Profile]
    """Its profiles, by variant; of workers, by the names of the profiles."""
    turns: Mapping[str, tuple[float, ...]] = {}
    """Of variants, the seconds of a step in each round."""
    notes: tuple[str, ...] = ()
    """Remarks on how they were measured."""
    found: Any = None


class Failed(Message):
    """How a call of a test has failed."""

    message: str
    is_assertion: bool
    """True if the outputs of variants differ, so that it raised an AssertionError."""


class Part(Struct, kw_only=True):
    """What a process runs the test for, where it is for one call in it."""

    call: str
    """Name of the call: `compare`, `workers` or `try_remedies`."""
    name: str
    """The variant; of a worker, the name of its profile."""
    profile: str | None = None
    """Name of the profile that takes turns; None for workers, which run at the same time."""
    earlier: tuple[Answer | Failed, ...] = ()
    """How the earlier calls of that name ended."""


class Task(Message):
    """What a process that starts is to collect, and how."""

    root: str
    """Folder that node keys and `files` start from."""
    files: Sequence[str]
    """Test files to collect; those that do not exist are left out."""
    argv: Sequence[str]
    """The `sys.argv` of this run."""
    options: Mapping[str, Any] = {}
    """Options that override those of the arguments, by their names in `config.option`."""
    basetemp: str | None = None
    """Base folder of `tmp_path`; None for pytest's own."""
    workerinput: Json | None = None
    """The `workerinput` of xdist, if this run is one of its workers."""
    is_coordinated: bool = True
    """True if profiles take turns and are judged by the parent."""
    version: Version | None = None
    """The version that the process is in a paired run; None in others."""
    scratch: str = ""
    """A folder that is removed even if the process crashes."""
    frees_threads: bool = False
    """True if code of the test that sets thread pools of TensorFlow has no effect."""


class Run(Message):
    """Run a test."""

    test: str
    following: str | None
    """Node key of the test that runs next; fixtures which it uses stay set up."""
    part: Part | None = None


class Play(Message):
    """Run a turn of the profile that waits; None ends its turns."""

    turn: Turn | None


class Judged(Message):
    """The checks of the test that waits for them; None where it is not judged in that process."""

    checks: tuple[Check, ...] | None


class Done(Message):
    """End the test."""


class Try(Message):
    """Try remedies of the step that waits for what to do."""

    profile: Profile
    """The profile of the step, as another process has measured it."""
    framework: str
    seconds: float
    """Time for all of it."""
    limit_s: float
    """Seconds that one remedy may take."""
    without: tuple[str, ...] = ()
    is_unchanged: bool = False
    """True to run the unchanged step only."""
    environment: Mapping[str, str] = {}
    """Environment variables that must still be as the process was started with."""


class Collected(Message):
    """The process has collected."""

    tests: Sequence[str]
    profiled: Sequence[str]
    errors: Mapping[str, str]
    """Collection errors by node."""


class Reported(Message):
    """A report of the running test, as pytest serialises it."""

    report: Json


class Warned(Message):
    """A warning of the running test."""

    message: str
    module: str
    category: str
    filename: str
    lineno: int
    location: tuple[str, int, str] | None


class AtProfile(Message):
    """A profile waits for its first turn."""

    profile: str
    ready: Ready
    tolerance: float | None
    """The slow-down that its test allows; None if it names none."""


class Ran(Message):
    """A turn has ended."""

    step_s: float
    """Seconds of a step in it."""
    cpu_s: float | None = None
    """Processor time of a step in it, with child processes; None if it is not known."""


class Profiled(Message):
    """The test has made its profiles and waits for its checks."""

    profiles: tuple[Profile, ...]
    tolerance: float | None
    """The slow-down that the test allows; None if it names none."""
    setting: Json
    """Setting of the environment, as `description.describe` has it."""
    void: Sequence[str] = ()


class Measured(Message):
    """The profile that the process is for is complete."""

    profile: Profile
    outputs: Any = None
    """The outputs of its first step, where they are compared."""


class AtCall(Message):
    """The test has come to the call that the process is for, and waits for what to do."""


class Doing(Message):
    """What runs now. It wants no answer."""

    remedy: str = ""
    text: str = ""
    seconds: float = 0.0
    """Time that it may take until the next message."""
    found: Any = None
    """What remedies gave so far, which stays if this one ends the process."""


class Found(Message):
    """What remedies gave; the unchanged step waits for turns."""

    remedies: Any
    outputs: Any
    """The outputs of its first steps."""
    is_random: bool
    """True if they are others the second time."""
    spread: dict[str, float]
    """How far they are apart where random generators of its state begin elsewhere, by output."""
    turn_s: float
    """Seconds of a turn."""


class Ended(Message):
    """The test has ended."""


class Stopped(Message):
    """The test stopped the run."""

    why: str


ToChild = Task | Run | Play | Judged | Done | Try
FromChild = (
    Collected
    | Reported
    | Warned
    | AtProfile
    | Ran
    | Profiled
    | Measured
    | AtCall
    | Doing
    | Found
    | Ended
    | Stopped
)


Received = TypeVar("Received")


class Channel(Generic[Received]):
    """
    One end of the pair. Nobody else can connect to it, and it leaves nothing behind.

    It receives messages of the type `receives`; the other end takes one within `patience_s`.
    """

    def __init__(self, end: socket.socket, receives: Any, patience_s: float | None = None) -> None:
        if patience_s is not None:
            limit = struct.pack("ll", int(patience_s), int(patience_s % 1 * 1e6))
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._connection = Connection(end.detach())
        # of the types that MessagePack has not, paths alone are received
        self._decoder = msgspec.msgpack.Decoder(receives, dec_hook=lambda kind, text: kind(text))
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_plain)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Raises: EOFError if the other end closed, TimeoutError if none reads."""
        try:
            self._connection.send_bytes(self._encoded(message))
        except BlockingIOError as error:
            raise TimeoutError(str(error)) from error
        except OSError as error:
            raise EOFError(str(error)) from error

    def _encoded(self, message: msgspec.Struct) -> bytes:
        try:
            return self._encoder.encode(message)
        except (ValueError, OverflowError):  # a report may hold what MessagePack has not
            return self._encoder.encode(_packable(msgspec.to_builtins(message, enc_hook=_plain)))

    def receive(self, seconds: float | None = None) -> Received:
        """Receive a message. Raises: EOFError, TimeoutError if none begins within `seconds`."""
        try:
            if not self._connection.poll(seconds):
                raise TimeoutError(f"no answer within {seconds:g} s")
            message: Received = self._decoder.decode(self._connection.recv_bytes())
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError(str(error)) from error
        return message

    def close(self) -> None:
        """Close this end, which tells the other one that nothing more comes."""
        self._connection.close()


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and what else MessagePack has not as text."""
    if isinstance(value, Mapping):  # findings of a profile that wait
        return dict(value)
    return value.item() if getattr(value, "size", None) == 1 else str(value)


def _packable(value: Any) -> Any:
    """Return texts that are no UTF-8, and numbers of more than 64 bits, as texts that are."""
    if isinstance(value, dict):
        return {_packable(key): _packable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packable(one) for one in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    is_large = isinstance(value, int) and not -(2**63) <= value < 2**64
    return str(value) if is_large else value
