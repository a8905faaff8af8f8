"""
Traces of the devices of a job whose times are known: a TPU pod by its op line, GPUs by NCCL's kernels.

Times are milliseconds. In a step of the pod each device starts late by `late`, works, and enters an all-reduce that all
leave together; then all update for 1 ms.
"""

from helpers.xspace import MS, Ref, event, field, line, plane, space, varint

TRANSFER, UPDATE = 2, 1
BYTES = 4096 * 1024 * 4
_LAYER = "%fusion.{} = f32[8,128]{{1,0}} fusion(f32[8,128]{{1,0}} %p)"
_UPDATE = "%update.2 = f32[8,128]{1,0} fusion(f32[8,128]{1,0} %p)"


def all_reduce(groups):
    """The text of the pod's collective, as the profiler writes it."""
    return (
        "%all-reduce.3 = f32[4096,1024]{1,0:T(8,128)} all-reduce(f32[4096,1024]{1,0:T(8,128)} %fusion.1), channel_id=1, "
        f"replica_groups={groups}, use_global_device_ids=true, to_apply=%add"
    )


def pod_host(
    work, late=0, slowest=None, n_steps=3, groups="{}", clock_s=0, first_step=0, n_layers=1
):
    """
    The trace of a host: `work` of each of its TPU cores, and the work and delay of the slowest device of all hosts.

    Work is spread over `n_layers` ops. Each core has a clock of its own, and so has the host.
    """
    slowest = max(work) + late if slowest is None else slowest
    stamp = 10**18 + round(clock_s * 10**9)
    planes = [
        _core(
            core,
            busy,
            late,
            slowest,
            range(first_step, first_step + n_steps),
            groups,
            stamp,
            n_layers,
        )
        for core, busy in enumerate(work)
    ]
    return space(plane("/host:CPU"), *planes)


def _core(number, work, late, slowest, steps, groups, stamp, n_layers):
    period = slowest + TRANSFER + UPDATE
    collective = all_reduce(groups)
    layers = [_LAYER.format(n) for n in range(n_layers)]
    ops, marks, modules = [], [], []
    for n, step in enumerate(steps):
        begin = n * period
        enter, leave = begin + late + work, begin + slowest + TRANSFER
        edges = [begin + late + work * n / n_layers for n in range(n_layers)] + [enter]
        spans = list(zip(layers, edges, edges[1:], strict=False))
        for name, start, end in (
            *spans,
            (collective, enter, leave),
            (_UPDATE, leave, leave + UPDATE),
        ):
            duration = round(end * MS) - round(start * MS)
            own = {
                "device_offset_ps": round((start + 1000 * number) * MS),
                "device_duration_ps": duration,
            }
            ops.append(event(name, round(start * MS), duration, own))
        marks.append(event(str(step), round(begin * MS), round(period * MS)))
        modules.append(event("jit_step(7)", round(begin * MS), round(period * MS)))
    kinds = {
        **dict.fromkeys(layers, "loop fusion"),
        _UPDATE: "loop fusion",
        collective: "all-reduce",
    }
    return plane(
        f"/device:TPU:{number}",
        line("Steps", *marks, id=1, timestamp_ns=stamp),
        line("XLA Modules", *modules, id=2, timestamp_ns=stamp),
        line("XLA Ops", *ops, id=3, timestamp_ns=stamp),
        metadata={name: {"hlo_category": kind, "program_id": 7} for name, kind in kinds.items()},
    )


def write_pod(folder, n_hosts, n_cores, work, late, n_steps, clock_s=lambda host: 0.037 * host):
    """
    Write the traces of a job's hosts, and return their folder.

    `work(host, core)` and `late(host)` are in milliseconds.
    """
    run = folder / "plugins" / "profile" / "run"
    run.mkdir(parents=True)
    slowest = max(
        late(host) + work(host, core) for host in range(n_hosts) for core in range(n_cores)
    )
    groups = f"[1,{n_hosts * n_cores}]<=[{n_hosts * n_cores}]"
    for host in range(n_hosts):
        (run / f"host_{host}.xplane.pb").write_bytes(
            pod_host(
                [work(host, core) for core in range(n_cores)],
                late(host),
                slowest,
                n_steps,
                groups,
                clock_s(host),
            )
        )
    return folder


def hlo_proto(name, *instructions, assignment=()):
    """An HloProto of these instructions behind a parameter: (name, opcode, shape as bytes, further fields as bytes)."""
    ops = [("p", "parameter", array(4), b""), *instructions]
    body = b"".join(
        field(2, field(1, title) + field(2, opcode) + field(3, shape) + field(35, key) + more)
        for key, (title, opcode, shape, more) in enumerate(ops)
    )
    devices = b"".join(field(3, field(1, b"".join(map(varint, row)))) for row in assignment)
    module = (
        field(1, name)
        + field(3, field(1, "main") + body)
        + (field(15, devices) if assignment else b"")
    )
    return field(1, module)


def array(*sizes, dtype=11):
    """A ShapeProto of float32 numbers."""
    return field(2, dtype) + field(3, b"".join(map(varint, sizes)))


def replica_groups(*groups):
    """The groups of a collective, as its fields."""
    return b"".join(field(49, field(1, b"".join(map(varint, group)))) for group in groups)


def gpu_host(kernels, hlo=None, n_steps=1, step_ms=10):
    """
    The trace of a host's GPUs; `kernels` has for each a list of (name, begin, end, instruction) a step.

    Kernels of an instruction are of the program `jit_step`, whose HLO is `hlo`.
    """
    planes = []
    for gpu, own in enumerate(kernels):
        events = [
            event(
                name,
                round((n * step_ms + begin) * MS),
                round((end - begin) * MS),
                {"hlo_op": Ref(op), "hlo_module": Ref("jit_step")} if op else {},
            )
            for n in range(n_steps)
            for name, begin, end, op in own
        ]
        planes.append(plane(f"/device:GPU:{gpu}", line("Stream #1(Compute)", *events, id=1)))
    marks = [
        event("train", n * step_ms * MS, step_ms * MS, step_num=n, _r=1) for n in range(n_steps)
    ]
    metadata = {"jit_step(4)": {"Hlo Proto": hlo}} if hlo else {}
    return space(
        plane("/host:CPU", line("python", *marks)),
        plane("/host:metadata", metadata=metadata),
        *planes,
    )
