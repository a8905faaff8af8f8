"""HLO text that means harm: much of one thing. `FORMS[name](n)` is the text with n of them."""

HEAD = "HloModule m\n"


def entry(*rows, head=HEAD, before=""):
    """A module of one computation; the last row is its result."""
    *rows, last = rows
    body = "".join(f"  {row}\n" for row in rows)
    return f"{head}{before}ENTRY e {{\n{body}  ROOT {last}\n}}\n"


P = "p = f32[4]{0} parameter(0)"


def dimensions(n):
    return entry(f"p = f32[{','.join(['8'] * n)}] parameter(0)")


def ranks_of_63(n):
    """Arrays of as many dimensions as are read, which a transpose turns."""
    sizes = ",".join(["2"] * 63)
    order = ",".join(map(str, reversed(range(63))))
    return entry(
        f"p = f32[{sizes}] parameter(0)",
        *(f"t{k} = f32[{sizes}] transpose(p), dimensions={{{order}}}" for k in range(n)),
    )


def open_string(n):
    return HEAD + '"' + '\\"' * n


def open_strings(n):
    return HEAD + '"\n' * n


def open_comments(n):
    return HEAD + "/* " * n


def comments(n):
    return entry(P) + "/* x */ // y\n" * n


def strings(n):
    return entry(f"{P}, metadata={{op_name=" + '"a" ' * n + "}")


def open_brackets(n):
    return HEAD + "(" * n


def open_bracket_lines(n):
    return HEAD + "{\n" * n


def closed_brackets(n):
    return HEAD + ")" * n


def nested_brackets(n):
    return entry(f"{P}, a={'{' * n}{'}' * n}")


def deep_tuple(n):
    return entry(f"p = {'(' * n}f32[4]{')' * n} parameter(0)")


def wide_tuple(n):
    return entry(f"p = ({', '.join(['f32[4]'] * n)}) parameter(0)")


def tuple_elements(n):
    """Every element of a wide tuple, one after the other."""
    whole = f"({', '.join(['f32[4]'] * n)})"
    return entry(
        f"p = {whole} parameter(0)",
        *(f"g{k} = f32[4] get-tuple-element(p), index={k}" for k in range(n)),
    )


def tuples_of_tuples(n):
    """Each tuple holds the one before it twice: 2^60 arrays in 60 lines, if shapes were made so."""
    return entry(
        P, "t0 = (f32[4]) tuple(p)", *(f"t{k} = (f32[4], f32[4]) tuple(t{k - 1}, t{k - 1})" for k in range(1, n + 1))
    )  # fmt: skip


def wide_operands(n):
    return entry(P, f"t = ({', '.join(['f32[4]'] * n)}) tuple({', '.join(['p'] * n)})")


def many_users(n):
    return entry(P, *(f"a{k} = f32[4]{{0}} add(p, p)" for k in range(n)))


def chain(n):
    return entry(P, *(f"a{k} = f32[4] add({f'a{k - 1}' if k else 'p'}, p)" for k in range(n)))


def doubling_chain(n):
    """Each sum adds the one before it to itself: 2^n paths."""
    return entry(
        P,
        *(f"a{k} = f32[4] add({f'a{k - 1}, a{k - 1}' if k else 'p, p'})" for k in range(n)),
    )


def copies(n):
    return entry(
        "p = f32[4,4] parameter(0)",
        *(f"t{k} = f32[4,4] transpose({f't{k - 1}' if k else 'p'}), dimensions={{1,0}}" for k in range(n)),
    )  # fmt: skip


def reshapes(n):
    return entry(
        "p = f32[4,4] parameter(0)",
        *(f"r{k} = f32[{('16', '4,4')[k % 2]}] reshape({f'r{k - 1}' if k else 'p'})" for k in range(n)),
    )  # fmt: skip


def dots(n):
    one = "f32[256,256] dot({}, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    return entry(
        "p = f32[256,256] parameter(0)",
        *(f"d{k} = {one.format(f'd{k - 1}' if k else 'p')}" for k in range(n)),
    )


def convolutions(n):
    one = "convolution({}, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f"
    return entry(
        "p = bf16[3,8,8,5] parameter(0)",
        "w = bf16[3,3,5,5] parameter(1)",
        *(f"c{k} = bf16[3,8,8,5] {one.format(f'c{k - 1}' if k else 'p')}" for k in range(n)),
    )


def many_computations(n):
    return HEAD + "".join(f"c{k} {{\n  ROOT {P}\n}}\n" for k in range(n)) + entry(P, head="")


def deep_calls(n):
    """A chain of computations, each calls the one before it."""
    return _calls(n, 1)


def doubling_calls(n):
    """A chain of computations, each calls the one before it twice: 2^n calls."""
    return _calls(n, 2)


def _calls(n, times):
    parts = [f"c0 {{\n  ROOT {P}\n}}\n"]
    for k in range(1, n + 1):
        rows = [f"x{j} = f32[4] call({f'x{j - 1}' if j else 'p'}), to_apply=c{k - 1}" for j in range(times)]  # fmt: skip
        rows[-1] = f"ROOT {rows[-1]}"
        parts.append(f"c{k} {{\n  {P}\n  " + "\n  ".join(rows) + "\n}\n")
    return HEAD + "".join(parts) + entry(P, f"y = f32[4] call(p), to_apply=c{n}", head="")


def fusions(n):
    return entry(
        P,
        *(f"f{k} = f32[4] fusion({f'f{k - 1}' if k else 'p'}), kind=kLoop, calls=c" for k in range(n)),
        before=f"c {{\n  {P}\n  ROOT a = f32[4] add(p, p)\n}}\n",
    )  # fmt: skip


def nested_fusions(n):
    parts = [f"c0 {{\n  {P}\n  ROOT a = f32[4] add(p, p)\n}}\n"]
    parts += [
        f"c{k} {{\n  {P}\n  ROOT f = f32[4] fusion(p), kind=kLoop, calls=c{k - 1}\n}}\n"
        for k in range(1, n + 1)
    ]
    return entry(P, f"f = f32[4] fusion(p), kind=kLoop, calls=c{n}", before="".join(parts))


LOOP = """b {{
  c = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  i = s32[] constant(1)
  m = s32[] add(n, i)
  x = f32[4] get-tuple-element(c), index=1
  ROOT o = (s32[], f32[4]) tuple(m, x)
}}
d {{
  c = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  k = s32[] constant({})
  ROOT l = pred[] compare(n, k), direction=LT
}}
"""


def loops(n):
    return entry(
        P,
        "z = s32[] constant(0)",
        "s = (s32[], f32[4]) tuple(z, p)",
        *(f"w{k} = (s32[], f32[4]) while(s), condition=d, body=b" for k in range(n)),
        before=LOOP.format(10**6),
    )


def long_loop_body(n):
    """A loop of 10^9 iterations whose counter is the end of a chain of n additions."""
    adds = "".join(f"  m{k} = s32[] add({f'm{k - 1}' if k else 'n'}, i)\n" for k in range(n))
    text = LOOP.format(10**9).replace("  m = s32[] add(n, i)\n", adds + f"  m = s32[] add(m{n - 1}, i)\n")  # fmt: skip
    return entry(
        P, "z = s32[] constant(-2000000000)", "s = (s32[], f32[4]) tuple(z, p)",
        "w = (s32[], f32[4]) while(s), condition=d, body=b", before=text,
    )  # fmt: skip


def wide_loop(n):
    """A loop that carries n arrays and counts a million."""
    types = ", ".join(["s32[]"] + ["s32[]"] * n)
    elements = "".join(f"  x{k} = s32[] get-tuple-element(c), index={k + 1}\n" for k in range(n))
    kept = ", ".join(f"x{k}" for k in range(n))
    text = (
        f"b {{\n  c = ({types}) parameter(0)\n  n = s32[] get-tuple-element(c), index=0\n  i = s32[] constant(1)\n"
        f"  m = s32[] add(n, i)\n{elements}  ROOT o = ({types}) tuple(m, {kept})\n}}\n"
        f"d {{\n  c = ({types}) parameter(0)\n  n = s32[] get-tuple-element(c), index=0\n  k = s32[] constant(1000000)\n"
        "  ROOT l = pred[] compare(n, k), direction=LT\n}\n"
    )
    return entry(
        "z = s32[] constant(0)", f"s = ({types}) tuple({', '.join(['z'] * (n + 1))})",
        f"w = ({types}) while(s), condition=d, body=b", before=text,
    )  # fmt: skip


def branches(n):
    return entry(
        "i = s32[] parameter(0)",
        P.replace("(0)", "(1)"),
        f"c = f32[4] conditional(i, {', '.join(['p'] * n)}), branch_computations={{{', '.join(['f'] * n)}}}",
        before=f"f {{\n  ROOT {P}\n}}\n",
    )  # fmt: skip


def attributes(n):
    return entry(f"{P}, {', '.join(f'a{k}={k}' for k in range(n))}")


def metadata(n):
    return entry(f'{P}, metadata={{op_name="' + "a/" * n + '" source_file="' + "b" * n + '"}')


def metadata_keys(n):
    return entry(f"{P}, metadata={{{' '.join(f'k{k}=1' for k in range(n))}}}")


def tiles(n):
    return entry(f"p = f32[4]{{0:{'T(128)' * n}}} parameter(0)")


def tile_dimensions(n):
    return entry(f"p = f32[4]{{0:T({','.join(['1'] * n)})}} parameter(0)")


def layout_order(n):
    return entry(f"p = f32[4]{{{','.join(map(str, range(n)))}}} parameter(0)")


def digits(n):
    return entry(f"p = f32[{'9' * n}] parameter(0)")


def constants(n):
    return entry(f"p = f32[{n}] constant({{{', '.join(['1'] * n)}}})")


def scalar_digits(n):
    return entry(f"p = s32[] constant({'9' * n})")


def groups(n):
    return entry(P, f"a = f32[4] all-reduce(p), replica_groups={{{','.join(f'{{{k}}}' for k in range(n))}}}, to_apply=f", before=f"f {{\n  ROOT {P}\n}}\n")  # fmt: skip


def iota_groups(n):
    return entry(
        P, *(f"a{k} = f32[4] all-reduce(p), replica_groups=[1,65536]<=[65536], to_apply=f" for k in range(n)),
        before=f"f {{\n  ROOT {P}\n}}\n",
    )  # fmt: skip


def windows(n):
    size = "x".join(["1"] * n)
    return entry(P, f"r = f32[4] reduce-window(p, p), window={{size={size}}}, to_apply=f", before=f"f {{\n  ROOT {P}\n}}\n")  # fmt: skip


def long_line(n):
    return entry(f"p = f32[4]{' ' * n}parameter(0)")


def long_name(n):
    return entry(f"{'p' * n} = f32[4] parameter(0)")


def blank_lines(n):
    return entry(P) + "\n" * n


def modules(n):
    return entry(P) * n


def commas(n):
    return entry(P + "," * n)


def escapes(n):
    return entry(f'{P}, custom_call_target="' + "\\x41" * n + '"')


def frames(n):
    names = "".join(f'{k} "f"\n' for k in range(1, n))
    return f"{HEAD}FileNames\n{names}\n" + entry(P, head="")


def continued(n):
    """A statement that goes on for n lines."""
    return entry("p = f32[4] parameter(0)," + "\n a=1," * n + "\n b=1")


FORMS = {
    form.__name__.replace("_", " "): form
    for form in (
        *(dimensions, ranks_of_63, open_string, open_strings, open_comments, comments, strings),
        *(open_brackets, open_bracket_lines, closed_brackets, nested_brackets),
        *(deep_tuple, wide_tuple, tuple_elements, tuples_of_tuples, wide_operands, many_users),
        *(chain, doubling_chain, copies, reshapes, dots, convolutions),
        *(many_computations, deep_calls, doubling_calls, fusions, nested_fusions),
        *(loops, long_loop_body, wide_loop, branches),
        *(attributes, metadata, metadata_keys, tiles, tile_dimensions, layout_order),
        *(digits, constants, scalar_digits, groups, iota_groups, windows),
        *(long_line, long_name, blank_lines, modules, commas, escapes, frames, continued),
    )
}  # fmt: skip
