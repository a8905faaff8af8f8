"""
Write a large CPU trace by repeating some steps of a real one.

    python benchmarks/large_trace.py OUT.xplane.pb --events 3000000
    python benchmarks/large_trace.py LOGDIR --events 1000000 --hosts 8

Records a few dozen steps of a small Keras model behind a parallel input pipeline, with TensorFlow's profiler.
It repeats the steps in the middle with later times, later step numbers, and new ids of function runs and
elements. Lines, names, stats and nesting are the recorded ones. Memory does not grow with the number of events.
Field numbers are those of xplane.proto (openxla/xla, xla/tsl/profiler/protobuf).
"""

import argparse
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

WARM_UP, RECORDED, EDGE = (
    20,
    48,
    8,
)  # steps; so many at both edges are left out, where the buffers fill and the session starts
CLOCK_NS = 37 * 10**6  # many steps: who aligns by time alone compares different steps
HOST = "/host:CPU"
RUNS = ("_p", "_c", "id")  # stats that name one run of a function, or one task of a thread pool
_SMALL = 1 << 40  # ids below count up, those above are hashes
_ALL_BITS = (1 << 64) - 1


def record(folder):
    """Record a short run and return its XSpace."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            *[keras.layers.Dense(64, activation="relu") for _ in range(4)],
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def load(seed):
        x = tf.tanh(2 * tf.random.stateless_uniform((64,), tf.stack([seed, 0])))
        return x, tf.reduce_sum(x, keepdims=True)

    data = iter(tf.data.Dataset.range(10**9).map(load, num_parallel_calls=2).batch(16).prefetch(2))
    for _ in range(WARM_UP):
        train_step(*next(data))
    tf.profiler.experimental.start(str(folder))
    for number in range(RECORDED):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            train_step(*next(data))
    tf.profiler.experimental.stop()
    (path,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
    return xplane_pb2.XSpace.FromString(path.read_bytes())


@dataclass(frozen=True, slots=True)
class Window:
    """The repeated part of a recording: whole steps, in picoseconds of the line clocks."""

    begin: int
    end: int
    first_step: int
    n_steps: int
    n_tasks: int

    @classmethod
    def of(cls, plane):
        """The steps of a host plane without those at the edges."""
        marks = sorted(
            (start_of(line, event), number)
            for line in plane.lines
            for event in line.events
            for name, number in integers(plane, event)
            if name == "step_num"
        )[EDGE:-EDGE]
        tasks = [
            value
            for line in plane.lines
            for event in line.events
            for name, value in integers(plane, event)
            if name == "_p"
        ]
        small = [value for value in tasks if 0 <= value < _SMALL]
        return cls(
            marks[0][0], marks[-1][0], marks[0][1], len(marks) - 1, max(small, default=0) + 1
        )

    def moved(self, plane, event, stat, turn):
        """A stat's integer in a later repetition of the window, as 64 bits."""
        name, value = (
            plane.stat_metadata[stat.metadata_id].name,
            getattr(stat, stat.WhichOneof("value")),
        )
        if name == "step_num":
            return value - self.first_step + turn * self.n_steps
        if name == "element_id":  # nanoseconds
            return value + turn * (self.end - self.begin) // 1000
        return (
            value + turn * self.n_tasks
            if 0 <= value < _SMALL
            else (value ^ turn * 0x9E3779B97F4A7C15) & _ALL_BITS
        )

    def moves(self, plane, event, stat):
        """Return whether a stat differs between repetitions; the ids of iterators stay."""
        name = plane.stat_metadata[stat.metadata_id].name
        iterator = plane.event_metadata[event.metadata_id].name.startswith("Iterator::")
        return name in ("step_num", "element_id") or (name in RUNS and not iterator)


def start_of(line, event):
    return line.timestamp_ns * 1000 + event.offset_ps


def integers(plane, event):
    kinds = ("int64_value", "uint64_value")
    for stat in event.stats:
        if stat.WhichOneof("value") in kinds:
            yield (
                plane.stat_metadata[stat.metadata_id].name,
                getattr(stat, stat.WhichOneof("value")),
            )


def varint(value):
    value &= _ALL_BITS
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def sized(number, content):
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


@dataclass(frozen=True, slots=True)
class Template:
    """An event of the window: constant bytes, its start in the first repetition, and the stats that change."""

    head: bytes
    offset: int
    tail: bytes
    moving: tuple

    @classmethod
    def of(cls, plane, line, event, window):
        """XEvent: metadata_id = 1, offset_ps = 2, duration_ps = 3, stats = 4. An event ends with its repetition."""
        duration = min(event.duration_ps, window.end - start_of(line, event))
        moves = [window.moves(plane, event, stat) for stat in event.stats]
        fixed = b"".join(
            sized(4, stat.SerializeToString())
            for stat, moving in zip(event.stats, moves, strict=True)
            if not moving
        )
        tail = b"\x18" + varint(duration) + fixed
        moving = tuple(stat for stat, moving in zip(event.stats, moves, strict=True) if moving)
        return cls(
            b"\x08" + varint(event.metadata_id) + b"\x10",
            event.offset_ps - (window.begin - line.timestamp_ns * 1000),
            tail,
            moving,
        )


def encode_line(file, plane, line, window, n_turns):
    """Write the events of a line, and return their number."""
    events = [event for event in line.events if window.begin <= start_of(line, event) < window.end]
    templates = [(Template.of(plane, line, event, window), event) for event in events]
    heads = {3: b"\x18", 4: b"\x20"}  # XStat: uint64_value = 3, int64_value = 4
    for turn in range(n_turns):
        shift, out = turn * (window.end - window.begin), bytearray()
        for template, event in templates:
            body = template.head + varint(template.offset + shift) + template.tail
            for stat in template.moving:
                head = heads[3 if stat.WhichOneof("value") == "uint64_value" else 4]
                body += sized(
                    4,
                    b"\x08"
                    + varint(stat.metadata_id)
                    + head
                    + varint(window.moved(plane, event, stat, turn)),
                )
            out += b"\x22" + varint(len(body)) + body
        file.write(out)
    return len(events) * n_turns


def count(plane, window):
    return sum(
        window.begin <= start_of(line, event) < window.end
        for line in plane.lines
        for event in line.events
    )


def without(message, *fields):
    """A protobuf message's bytes without some of its fields."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field in fields:
        copy.ClearField(field)
    return copy.SerializeToString()


def assemble(out, recording, host, bodies, clock_ns, hostname):
    """
    One XSpace file of the encoded lines, with a clock offset in nanoseconds.

    XSpace: planes = 1, hostnames = 4; XPlane: lines = 3.
    """
    heads = []
    for line, body in zip(host.lines, bodies, strict=True):
        line.timestamp_ns += clock_ns
        head = without(line, "events")
        line.timestamp_ns -= clock_ns
        size = len(head) + body.stat().st_size
        heads.append(varint(3 << 3 | 2) + varint(size) + head)
    first, rest = sized(2, host.name.encode()), without(host, "lines", "name")
    size = (
        len(first)
        + len(rest)
        + sum(len(head) for head in heads)
        + sum(body.stat().st_size for body in bodies)
    )
    with out.open("wb") as file:
        file.write(varint(1 << 3 | 2) + varint(size) + first)
        for head, body in zip(heads, bodies, strict=True):
            file.write(head)
            with body.open("rb") as content:
                shutil.copyfileobj(content, file, 1 << 20)
        file.write(rest)
        for plane in recording.planes:
            if plane.name != HOST:
                file.write(sized(1, plane.SerializeToString()))
        file.write(sized(4, hostname.encode()))


def write_traces(outs, n_events):
    """
    Write the traces of one job's hosts, with clocks that are 37 ms apart.

    Returns the number of events and steps of each.
    """
    with tempfile.TemporaryDirectory(dir=outs[0].parent) as name:
        folder = Path(name)
        recording = record(folder / "recorded")
        host = next(plane for plane in recording.planes if plane.name == HOST)
        window = Window.of(host)
        n_turns = -(-n_events // count(host, window))
        bodies, total = [], 0
        for number, line in enumerate(host.lines):
            bodies.append(folder / f"line{number}")
            with bodies[-1].open("wb") as file:
                total += encode_line(file, host, line, window, n_turns)
        for number, out in enumerate(outs):
            assemble(
                out, recording, host, bodies, number * CLOCK_NS, out.name.removesuffix(".xplane.pb")
            )
    return total, n_turns * window.n_steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("out", type=Path, help="the file; with --hosts a logdir")
    parser.add_argument("--events", type=int, default=3_000_000, help="of each host")
    parser.add_argument("--hosts", type=int, help="traces of so many hosts of one job")
    arguments = parser.parse_args()
    outs = [arguments.out]
    if arguments.hosts:
        run = arguments.out / "plugins" / "profile" / "large"
        run.mkdir(parents=True)
        outs = [run / f"host_{number}.xplane.pb" for number in range(arguments.hosts)]
    total, n_steps = write_traces(outs, arguments.events)
    print(f"{total:,} events, {n_steps:,} steps, {outs[0].stat().st_size / 1e6:.0f} MB a host")


if __name__ == "__main__":
    main()
