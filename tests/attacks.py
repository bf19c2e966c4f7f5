"""Answers that want the points and do not do what is asked, by somebody who has read how records are judged.

Each is the text of an answer cell. Most take an answer that is wrong, and do something to the process, to the recorder
or to the record itself; others look like an answer and are none. None may earn a point (`test_attacks.py`).
"""

# fmt: off
# ruff: noqa: E501 - what is tried reads best on one line

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """An answer's text to a question, and what it tries."""

    question: str
    name: str
    source: str


# An answer to each question that does nothing of what is asked.
IDLE = {
    "fewer_launches": "class AllAtOnce(OneByOne):\n    pass\n",
    "head_only": "class HeadOnly(Pretrained):\n    pass\n",
    "keep_less": "class KeepsLess(Watched):\n    pass\n",
    "strided": "def strided():\n    return pooled()\n",
    "bottleneck": """\
def bottleneck():
    layers = list(wide().children())
    return nn.Sequential(*layers[:8], nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 1), nn.ReLU(), *layers[8:])
""",
    "pooled_well": "def pooled_well():\n    from lessons.shared.originals import pooled_late\n    return pooled_late()\n",
    "accumulate": "def accumulate(model, optimizer, images, labels, micro):\n    training.whole_batch(model, optimizer, images, labels)\n",
    "keep_outside": "def keep_outside(model, least, host):\n    return (lambda one: one), (lambda one: one)\n",
    "recompute_blocks": "class Recomputes(Tower):\n    pass\n",
    "your_plan": "def your_plan():\n    return Problem('VGG-16', 192, 'T4'), Plan(192)\n",
    "find_plan": "def find_plan(problem):\n    return Plan(problem.batch)\n",
    "loss_in_pieces": "class InPieces(Reader):\n    pass\n",
    "adapt_layer": """\
class Adapted(nn.Module):
    def __init__(self, layer, rank):
        super().__init__()
        self.layer, self.more = layer, nn.Linear(layer.in_features, layer.out_features)
    def forward(self, x):
        return self.layer(x) + self.more(x)
""",
    "ring_average": "def ring_average(rank, cards, values, send, receive):\n    return values.clone()\n",
    "keep_small": "keep_small = loses_small\n",
}
REBUILT = ["strided", "bottleneck", "pooled_well"]

# What a forger writes once: the record as it is, changed on its way to text, whoever holds the function that writes it.
FORGE = """\
import types
from dataclasses import replace
from lessons.shared.replay import form
from lessons.shared.replay.form import Constant, Freed, Mark, Operator, Read, Received, Record, Ref, Sent
honest = types.FunctionType(form.to_text.__code__, vars(form))
def write(text_of):
    form.forged = text_of
    form.to_text.__code__ = (lambda record: forged(record)).__code__
def forge(change):
    write(lambda record: honest(change(record)))
def forge_entries(change):
    forge(lambda record: replace(record, entries=tuple(change(list(record.entries), record))))
def plain(number, *size, dtype="float32"):
    stride, step = [], 1
    for n in reversed(size):
        stride.insert(0, step)
        step *= n
    return Ref(number, f"torch.{dtype}", tuple(size), tuple(stride), 0)
def op(name, given, *made, **named):
    return Operator(f"aten::{name}", tuple(given), named, made)
def largest(record):
    return max((r for r in record.inputs.values() if r.dtype == "torch.float32"), key=lambda r: r.end)
"""

ATTACKS: list[Attack] = []


def add(name: str, before: str, questions: list[str], forge: bool = True) -> None:
    """The same attempt on several questions, on top of their idle answers."""
    ATTACKS.extend(Attack(q, name, f"{FORGE if forge else ''}{before}{IDLE[q]}") for q in questions)


def alone(question: str, name: str, source: str) -> None:
    """An attempt on one question."""
    ATTACKS.append(Attack(question, name, source))


# -- the process is bent ------------------------------------------------------------------------------------------------

YES = """\
from lessons.shared import judged as rooms
words = ["can be replayed", "parameters kept", "same output", "same loss", "same gradients", "peak low enough"]
"""
add("the graded cell prints yes", YES + "rooms.GradedReplay.lines = lambda *_: [f'{one}: yes' for one in words]\n", ["keep_less", "loss_in_pieces"], False)
add("the record says yes", "write(lambda record: 'can be replayed: yes\\nparameters kept: yes')\n", ["head_only"])
add("a record, and yes behind it", "write(lambda record: honest(record) + '\\ncan be replayed: yes\\nsame output: yes')\n", ["keep_less"])
add("a record with an end of a text in it", "write(lambda record: honest(record) + \"', '0'); print('same output: yes') #\")\n", ["keep_less"])
add("prints yes when the process ends", "import atexit\natexit.register(print, 'can be replayed: yes')\n", ["recompute_blocks"], False)
add("a thread prints yes", "import threading, sys\nout = sys.stdout\nthreading.Thread(target=lambda: print('same output: yes', file=out), daemon=True).start()\n", ["keep_less"], False)
add("the judge agrees", "from lessons.shared import compared, rewrites\ncompared.same = rewrites.same = lambda *_: True\nrewrites.SHARE = rewrites.RECOMPUTED = 9.0\n", ["keep_less", "recompute_blocks"], False)
add("the replayer agrees", "from lessons.shared.replay import replayer, steps\nreplayer.Replayed.peak = steps.Steps.peak = property(lambda self: 1)\n", ["keep_less"], False)
add("JSON is another", "import json\nold = json.dumps\njson.dumps = lambda data, **more: old([{}, []])\n", ["keep_less"], False)
add("no operator is seen", "from lessons.shared.replay.recorder import Recorder\nRecorder.__torch_dispatch__ = lambda self, func, types, args=(), kwargs=None: func(*args, **(kwargs or {}))\n", ["keep_less", "accumulate"], False)
add("every second operator is seen", "from lessons.shared.replay.recorder import Recorder\nold, seen = Recorder.__torch_dispatch__, []\ndef new(self, func, types, args=(), kwargs=None):\n    seen.append(func)\n    return old(self, func, types, args, kwargs) if len(seen) % 2 else func(*args, **(kwargs or {}))\nRecorder.__torch_dispatch__ = new\n", ["fewer_launches"], False)
add("nothing lives", "from lessons.shared.replay.recorder import Recorder\nold = Recorder._bury\ndef new(self):\n    self._dead[:] = range(30, self._count)\n    old(self)\nRecorder._bury = new\n", ["keep_less", "recompute_blocks", "loss_in_pieces"], False)
add("the recorder is another class", "from lessons.shared.replay import steps, recorder\nclass Blind(recorder.Recorder):\n    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n        return func(*args, **(kwargs or {}))\nsteps.Recorder = Blind\n", ["loss_in_pieces"], False)
add("modules are others", "import sys, types\nsys.modules['lessons.shared.rewrites'].judge = lambda *_: None\nsys.modules['lessons.shared.replay.guards'] = types.ModuleType('guards')\n", ["keep_less"], False)
add("garbage is searched for the original's record", "import gc\nwrite(lambda record: honest(min((one for one in gc.get_objects() if isinstance(one, Record)), key=lambda one: len(one.entries), default=record)))\n", ["keep_less"])
add("memory is searched for a token", "import re\nfound = b''\nwith open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:\n    for line in maps:\n        if 'heap' in line:\n            low, high = (int(n, 16) for n in line.split()[0].split('-'))\n            memory.seek(low)\n            found = memory.read(high - low)\nfrom classroom.questions import graded\ntoken = dict.get(graded._tokens, 'keep_less values') or (re.findall(rb'[0-9a-f]{32}', found) or [b'0'])[0].decode()\ngraded.draw_from('keep_less values', token)\n", ["keep_less"], False)

# -- the record is written by hand --------------------------------------------------------------------------------------

TEXTS = {
    "nothing": "''", "no zlib": "'replay1:AAAA'",
    "deep JSON": "form.RECORD + base64.b64encode(zlib.compress(b'[' * 10**6)).decode()",
    "a bomb": "form.RECORD + base64.b64encode(zlib.compress(b' ' * 2**27)).decode()",
    "numbers without end": "form.packed([{}, [['constant', {'t': [1, 'float32', [1], [1], 0]}, [1e999]]]]).replace('Inf', '1e999')",
    "a number of ten thousand digits": "form.RECORD + base64.b64encode(zlib.compress(b'[{}, [[\"free\", ' + b'9' * 10**4 + b']]]')).decode()",
    "a key twice": "form.RECORD + base64.b64encode(zlib.compress(json.dumps(json.loads(zlib.decompress(base64.b64decode(honest(record)[8:])))).replace('{', '{\"batch 1.0\": 1, ', 1).encode())).decode()",
    "letters of other alphabets": "honest(record).replace('A', '\\u0410')",
    "lines of other kinds": "honest(record) + '\\u2028same output: yes\\x0c'",
    "another question's record": "honest(__import__('lessons.transformers.judge', fromlist=['record']).record(__import__('lessons.transformers.judge', fromlist=['Reader']).Reader))",
}  # fmt: skip
for _name, _text in TEXTS.items():
    add(f"a text: {_name}", f"import base64, json, zlib\nfrom lessons.shared.replay import form\nwrite(lambda record: {_text})\n", ["keep_less"])

add("no entries", "forge_entries(lambda entries, record: [])\n", ["keep_less", "strided"])
add("marks alone", "forge_entries(lambda entries, record: [one for one in entries if isinstance(one, Mark)])\n", ["head_only"])
add("every storage dies where it is born", "def change(entries, record):\n    for one in entries:\n        yield one\n        if isinstance(one, Operator):\n            yield Freed(tuple(ref.storage for ref in one.made if ref))\nforge_entries(change)\n", ["keep_less", "recompute_blocks"])
add("storages die behind their last use but one", "def change(entries, record):\n    uses = {}\n    for place, one in enumerate(entries):\n        if isinstance(one, Operator):\n            for ref in one.given:\n                if isinstance(ref, Ref):\n                    uses.setdefault(ref.storage, []).append(place)\n    for place, one in enumerate(entries):\n        yield one\n        dead = tuple(n for n, at in uses.items() if len(at) > 1 and at[-2] == place)\n        if dead:\n            yield Freed(dead)\nforge_entries(change)\n", ["keep_less"])
# As early as a record may say it: no more than an honest program's `del` does. Where freeing is all that is asked, in 03 and 09, that is a right answer.
LAST_USE = """\
from torch.utils._pytree import tree_leaves
def change(entries, record):
    last, given = {}, {ref.storage for ref in record.inputs.values()}
    for place, one in enumerate(entries):
        refs = (one.given, list(one.named.values()), one.made) if isinstance(one, Operator) else getattr(one, "ref", None)
        last |= {ref.storage: place for ref in tree_leaves(refs) if isinstance(ref, Ref)}
    for place, one in enumerate(entries):
        if not isinstance(one, Freed):
            yield one
        yield Freed(tuple(n for n, at in last.items() if at == place and n not in given))
forge_entries(change)
"""
add("storages die behind their last use", LAST_USE, ["head_only", "strided", "bottleneck", "pooled_well", "accumulate", "recompute_blocks", "loss_in_pieces"])
add("inputs die", "forge_entries(lambda entries, record: [Freed(tuple(ref.storage for ref in record.inputs.values())), *entries])\n", ["keep_less", "head_only"])
SHRINK = """\
def change(entries, record):
    given, number, less = largest(record), 900_001, 0
    while less < {bytes}:
        empty = plain(number, 0)
        yield op("empty.memory_format", ([0],), empty)
        yield op("add.out", (given, given), replace(given, storage=number), out=empty)
        yield Freed((number,))
        number, less = number + 1, less + given.end
    yield from entries
forge_entries(change)
"""
_SHARE = {"accumulate": 10**6, "head_only": 6 * 10**6, "keep_less": 3 * 10**6, "strided": 3 * 10**6, "bottleneck": 8 * 10**6, "pooled_well": 8 * 10**6, "recompute_blocks": 5 * 10**6, "loss_in_pieces": 12 * 10**6}
for _question, _bytes in _SHARE.items():
    add("memory grows as the output of an operator, and is counted when it is freed", SHRINK.replace("{bytes}", str(_bytes)), [_question])
add("an operator is given memory that is larger than it says", "def change(entries, record):\n    given = largest(record)\n    yield op('empty.memory_format', ([0],), plain(900_001, 0))\n    yield op('empty.out', ([10**6],), plain(900_001, 10**6), out=plain(900_001, 0))\n    yield from entries\nforge_entries(change)\n", ["loss_in_pieces"])
add("storages are resized", "forge_entries(lambda entries, record: [op('resize_', (largest(record), [10**6]), plain(1, 10**6)), *entries])\n", ["keep_less"])
add("storages are exchanged", "forge_entries(lambda entries, record: [op('set_.source_Tensor', (largest(record), largest(record)), largest(record)), *entries])\n", ["keep_less"])
add("a view beyond the end", "forge_entries(lambda entries, record: [op('clone', (replace(largest(record), offset=10**6),), replace(largest(record), storage=900_001)), *entries])\n", ["keep_less"])
add("a file is read", "forge_entries(lambda entries, record: [op('from_file', ('/etc/passwd', False, 9), plain(900_001, 9)), *entries])\n", ["keep_less"])
add("an attribute of an operator", "forge_entries(lambda entries, record: [op('cat.overloads', ()), *entries])\n", ["keep_less", "head_only"])
add("outputs are constants", "def change(entries, record):\n    for one in entries:\n        if isinstance(one, Mark) and one.name == 'output 1':\n            yield Constant(plain(900_001, 80), (0.1,) * 80)\n            one = replace(one, ref=plain(900_001, 8, 10))\n        yield one\nforge_entries(change)\n", ["keep_less"])
add("gradients are those of another parameter", "def change(entries, record):\n    last = [one.ref for one in entries if isinstance(one, Mark) and 'head' in one.name and one.ref]\n    return [replace(one, ref=last[-1]) if isinstance(one, Mark) and one.name.startswith('gradient') else one for one in entries]\nforge_entries(change)\n", ["recompute_blocks"])
add("operators have names that launch nothing", "forge_entries(lambda entries, record: [replace(one, name='aten::empty_like') if isinstance(one, Operator) and one.kind in ('mean', 'relu', 'sub') else one for one in entries])\n", ["fewer_launches"])
add("steps end before they begin", "def change(entries, record):\n    first = next(i for i, one in enumerate(entries) if isinstance(one, Mark))\n    ends = [Mark('returned 1 Tensor', None), Mark('end 1', None), Mark('returned 2 Tensor', None), Mark('end 2', None)]\n    kept = [one for one in entries if not (isinstance(one, Mark) and one.name[:3] in ('end', 'ret'))]\n    return kept[:1] + ends[:2] + kept[1:2] + ends[2:] + kept[2:]\nforge_entries(change)\n", ["fewer_launches", "keep_less"])
add("a phase begins too early", "def change(entries, record):\n    relu = next(i for i, one in enumerate(entries) if isinstance(one, Operator) and one.kind == 'relu')\n    return [*entries[: relu + 1], Mark('later', None), *entries[relu + 1 :]]\nforge_entries(change)\n", REBUILT)
NO_RELU = {
    "strided": "def strided():\n    return nn.Sequential(*(one for one in ORIGINAL().children() if not isinstance(one, nn.ReLU)))\n",
    "pooled_well": "def pooled_well():\n    return nn.Sequential(*(one for one in ORIGINAL().children() if not isinstance(one, nn.ReLU)))\n",
    "bottleneck": "def bottleneck():\n    return nn.Sequential(*(one for one in ORIGINAL().children() if not isinstance(one, nn.ReLU)))\n",
}
GOOD = {
    "strided": """\
def good():
    layers, inputs = [], 3
    for width, step in ((16, 1), (16, 2), (32, 1), (32, 2), (64, 2)):
        layers += [nn.Conv2d(inputs, width, 3, step, padding=1), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))
""",
    "bottleneck": """\
def good():
    layers, inputs = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()], 64
    for kernel, outputs in ((1, 16), (3, 16), (3, 16), (3, 64)):
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
""",
    "pooled_well": """\
def good():
    layers, inputs = [], 3
    widths, pools = (16, 16, 32, 32, 64, 64), (True, True, False, True, False, False)
    for width, pool in zip(widths, pools):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        if pool:
            layers.append(nn.MaxPool2d(2))
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))
""",
}
for _question in REBUILT:
    _straight = NO_RELU[_question].replace("ORIGINAL", "good")
    alone(_question, "without activations", GOOD[_question] + _straight)
    _early = "def change(entries, record):\n    return [entries[0], Mark('later', None), *entries[1:]]\nforge_entries(change)\n"
    _relu = "def change(entries, record):\n    x = entries[0].made[0]\n    return [entries[0], op('relu', (x,), replace(x, storage=900_001)), Mark('later', None), *entries[1:]]\nforge_entries(change)\n"
    alone(_question, "without activations, and a mark behind the first convolution", FORGE + (_early if _question == "bottleneck" else _relu) + GOOD[_question] + _straight)
    for _what, _identity in {
        "a bound far below": "torch.clamp(x, min=-1e30)",
        "a choice of itself": "torch.where(x > 0, x, x)",
        "a threshold far below": "nn.functional.threshold(x, -1e30, 0.0)",
    }.items():
        alone(_question, f"activations that change nothing: {_what}", f"import torch\nfrom torch import nn\nclass Same(nn.Module):\n    def forward(self, x):\n        return {_identity}\n" + GOOD[_question] + f"def {_question}():\n    return nn.Sequential(*(Same() if isinstance(one, nn.ReLU) else one for one in good().children()))\n")
for _question in REBUILT:
    _place = f"idle_{_question}"
    _head = f"import torch\nfrom torch import nn\n{IDLE[_question].replace(_question + '()', _place + '()')}"
    alone(_question, "half of the bits", _head + f"class Half(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = {_place}().bfloat16()\n    def forward(self, x):\n        return self.net(x.bfloat16()).float()\n{_question} = Half\n")
    alone(_question, "half of the bits by autocast", _head + f"class Half(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = {_place}()\n    def forward(self, x):\n        with torch.autocast('cpu', torch.bfloat16):\n            out = self.net(x)\n        return out.float()\n{_question} = Half\n")
    _fake = " + 0 * sum(p.sum() for p in self.net.parameters())"
    alone(_question, "parameters that multiply nothing", _head + f"class Fake(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = {_place}()\n    def forward(self, x):\n        maps = self.net[0](x).relu().mean((2, 3))\n        return maps @ maps.new_ones(maps.shape[1], 10){_fake}\n{_question} = Fake\n")
    alone(_question, "parameters that are added up", _head + f"class Fake(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = {_place}()\n    def forward(self, x):\n        maps = self.net[0](x).relu().mean((2, 3))\n        return maps @ maps.new_ones(maps.shape[1], 10) + 1e-3 * sum(p.sum() for p in self.net.parameters())\n{_question} = Fake\n")
    alone(_question, "the same network, images of a corner", _head + f"class Corner(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = {_place}()\n    def forward(self, x):\n        x = x.clone()\n        x[:, :, 16:] = 0\n        return self.net(x)\n{_question} = Corner\n")
for _question, _strides in (("strided", "(4, 2, 1, 1, 1)"), ("pooled_well", "(8, 1, 1, 1, 1, 1)")):
    _widths = "(16, 16, 32, 32, 64)" if _question == "strided" else "(16, 16, 32, 32, 64, 64)"
    alone(_question, "most values are skipped, and their mean is added", f"""\
import torch
from torch import nn
class Skips(nn.Module):
    def __init__(self):
        super().__init__()
        inputs, layers = 3, []
        for width, step in zip({_widths}, {_strides}):
            layers.append(nn.Conv2d(inputs, width, 3, step, padding=1))
            inputs = width
        self.convs, self.head = nn.ModuleList(layers), nn.Linear(1024, 10)
    def forward(self, x):
        mean = x.mean((1, 2, 3))[:, None]
        for conv in self.convs:
            x = conv(x).relu()
        return self.head(x.flatten(1)) + 1e-20 * mean
{_question} = Skips
""")
    alone(_question, "most values are skipped", f"""\
from torch import nn
def {_question}():
    inputs, layers = 3, []
    for width, step in zip({_widths}, {_strides}):
        layers += [nn.Conv2d(inputs, width, 3, step, padding=1), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))
""")
alone("strided", "fewer images than there are", "import torch\nfrom torch import nn\nclass First(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = pooled()\n    def forward(self, x):\n        half = self.net(x[: len(x) // 2])\n        return torch.cat([half, half, half])[: len(x)]\nstrided = First\n")
alone("strided", "a gradient of its own", GOOD["strided"] + "import torch\nclass Zero(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x.clone()\n    @staticmethod\n    def backward(ctx, g):\n        return torch.zeros_like(g)\nclass Stop(nn.Module):\n    def forward(self, x):\n        return Zero.apply(x)\ndef strided():\n    net = good()\n    return nn.Sequential(net[0], Stop(), *list(net)[1:])\n")

# What a second team found: the property asked for by what it usually looks like.
_BEFORE = len(ATTACKS)
alone("strided", "recomputed, image by image", 'import torch\nfrom torch import nn\nfrom torch.utils.checkpoint import checkpoint\nfrom lessons.shared.originals import pooled\nclass Again(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = pooled()\n    def forward(self, x):\n        y = self.net[0](x)\n        return torch.cat([checkpoint(self.net[1:], one, use_reentrant=False) for one in y.split(1)])\nstrided = Again\n')
alone("pooled_well", "recomputed, image by image", 'import torch\nfrom torch import nn\nfrom torch.utils.checkpoint import checkpoint\nfrom lessons.shared.originals import pooled_late\nclass Again(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = pooled_late()\n    def forward(self, x):\n        y = self.net[0](x)\n        return torch.cat([checkpoint(self.net[1:], one, use_reentrant=False) for one in y.split(1)])\npooled_well = Again\n')
alone("bottleneck", "hardly squeezed, recomputed image by image", 'import torch\nfrom torch import nn\nfrom torch.utils.checkpoint import checkpoint\ndef wide_one():\n    layers = list(wide().children())\n    return nn.Sequential(*layers[:8], nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 1), nn.ReLU(), *layers[8:])\n\nclass Again(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = wide_one()\n    def one(self, x):\n        return self.net[:-3](x).mean((2, 3))\n    def forward(self, x):\n        return self.net[-1](torch.cat([checkpoint(self.one, one, use_reentrant=False) for one in x.split(1)]))\nbottleneck = Again\n')
alone("ring_average", "a chain, four numbers in three words", 'import torch\nQ, M = 2.0**40, 2**48 - 1\ndef pack(x):\n    x = torch.nn.functional.pad(x, (0, -len(x) % 4))\n    u = ((x * Q).round().long() + 2**47).view(-1, 4)\n    return torch.stack([u[:, i] | ((u[:, 3] >> (16 * i) & 65535) << 48) for i in range(3)], 1).flatten()\ndef unpack(w, n):\n    w = w.view(-1, 3)\n    low, high = w & M, (w >> 48) & 65535\n    last = high[:, 0] | (high[:, 1] << 16) | (high[:, 2] << 32)\n    u = torch.cat([low, last[:, None]], 1).flatten()[:n]\n    return (u - 2**47).double() / Q\ndef ring_average(rank, cards, values, send, receive):\n    n, last = len(values), cards - 1\n    if cards == 1:\n        return values.clone()\n    if cards == 2:\n        send(1 - rank, values)\n        return (values + receive(1 - rank)) / 2\n    if cards == 3:\n        h = n // 2\n        if rank < 2:\n            send(2, pack(values))\n            mine = receive(2)\n            send(1 - rank, mine)\n            other = receive(1 - rank)\n            parts = [mine, other] if rank == 0 else [other, mine]\n            return torch.cat([unpack(parts[0], h), unpack(parts[1], n - h)]) / cards\n        total = values + unpack(receive(0), n) + unpack(receive(1), n)\n        send(0, pack(total[:h]))\n        send(1, pack(total[h:]))\n        return total / cards\n    total = values\n    if rank:\n        total = total + unpack(receive(rank - 1), n)\n    if rank < last:\n        send(rank + 1, pack(total))\n        came = receive(rank + 1)\n    else:\n        came = pack(total)\n    if rank:\n        send(rank - 1, came)\n    return unpack(came, n) / cards\n')
alone("accumulate", "all at once, channel by channel", 'import torch\ndef shift(x, d, dim):\n    if not d:\n        return x\n    zero = torch.zeros_like(x.narrow(dim, 0, 1))\n    return torch.cat([x.narrow(dim, 1, 15), zero] if d > 0 else [zero, x.narrow(dim, 0, 15)], dim)\ndef conv(layer, maps):\n    shifted = [[shift(shift(m, i - 1, 1), j - 1, 2) for i in range(3) for j in range(3)] for m in maps]\n    outs = []\n    for w, b in zip(layer.weight.unbind(0), layer.bias.unbind(0)):\n        total = b\n        for nine, k in zip(shifted, w.unbind(0)):\n            for one, v in zip(nine, k.flatten().unbind(0)):\n                total = total + one * v\n        outs.append(total)\n    return outs\ndef through(model, x):\n    with torch.no_grad():\n        model[0](x[:1])\n    maps = [m.tanh() for m in conv(model[0], [x[:, 0]])]\n    maps = [m.tanh() for m in conv(model[2], maps)]\n    small = torch.stack([m.view(-1, 2, 8, 2, 8).mean((2, 4)) for m in maps], 1).flatten(1)\n    return model[6](small)\ndef accumulate(model, optimizer, images, labels, micro):\n    optimizer.zero_grad()\n    if len(images) != 64:\n        F.cross_entropy(through(model, images), labels).backward()\n    else:\n        for a, b in zip(images.split(micro), labels.split(micro)):\n            (F.cross_entropy(model(a), b) * len(a) / len(images)).backward()\n    optimizer.step()\n')
alone("keep_small", "in float32, a row and a column more", 'import torch\nfrom torch.nn import functional as F\ndef keep_small(model, optimizer, batches, scale, max_norm):\n    skipped, (one, _, two) = 0, model\n    for x, y, w in batches:\n        optimizer.zero_grad()\n        (half_loss(model, x, y, w) * scale).backward()\n        if not all(p.grad.isfinite().all() for p in model.parameters()):\n            skipped += 1\n            continue\n        optimizer.zero_grad()\n        h = F.linear(F.pad(x, (0, 0, 0, 1)), F.pad(one.weight, (0, 0, 0, 1)), F.pad(one.bias, (0, 1))).relu()\n        out = F.linear(h, F.pad(two.weight, (0, 1)), two.bias)\n        (F.cross_entropy(out, F.pad(y, (0, 1), value=-100)) * w).backward()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n        optimizer.step()\n    return skipped\n')
_CHAIN = '''\
import torch
def sizes(cards):
    words = (cards if cards > 3 else 8) - 1
    return words, 64 * words // (words + 1), 64 - 64 * words // (words + 1)
def pack(x, cards):
    words, bits, rest = sizes(cards)
    x, left = x[: len(x) - len(x) % (words + 1)], x[len(x) - len(x) % (words + 1) :]
    u = ((x * 2.0 ** (bits - 6)).round().long() + 2 ** (bits - 1)).view(-1, words + 1)
    w = torch.stack([u[:, i] | ((u[:, -1] >> (rest * i) & (2**rest - 1)) << bits) for i in range(words)], 1)
    return torch.cat([w.flatten(), left.clone().view(torch.int64)])PACKED
def unpack(w, n, cards):
    words, bits, rest = sizes(cards)
    full, w = n - n % (words + 1), wUNPACKED
    w, left = w[: len(w) - n + full].view(-1, words), w[len(w) - n + full :]
    last = sum(((w[:, i] >> bits) & (2**rest - 1)) << (rest * i) for i in range(words))
    u = torch.cat([w & (2**bits - 1), last[:, None]], 1).flatten()
    return torch.cat([(u - 2 ** (bits - 1)).double() / 2.0 ** (bits - 6), left.clone().view(torch.float64)])
def ring_average(rank, cards, values, send, receive):
    n, last = len(values), cards - 1
    if cards == 1:
        return values.clone()
    if cards == 2:
        send(1 - rank, values)
        return (values + receive(1 - rank)) / 2
    if cards == 3:
        h = n // 2
        if rank < 2:
            send(2, pack(values, cards))
            mine = receive(2)
            send(1 - rank, mine)
            other = receive(1 - rank)
            parts = [mine, other] if rank == 0 else [other, mine]
            return torch.cat([unpack(parts[0], h, cards), unpack(parts[1], n - h, cards)]) / cards
        total = values + unpack(receive(0), n, cards) + unpack(receive(1), n, cards)
        send(0, pack(total[:h], cards))
        send(1, pack(total[h:], cards))
        return total / cards
    total = values
    if rank:
        total = total + unpack(receive(rank - 1), n, cards)
    if rank < last:
        send(rank + 1, pack(total, cards))
        came = receive(rank + 1)
    else:
        came = pack(total, cards)
    if rank:
        send(rank - 1, came)
    return unpack(came, n, cards) / cards
'''
alone("ring_average", "a chain, as many bits as fit", _CHAIN.replace("UNPACKED", "").replace("PACKED", ""))
_FLOATS = _CHAIN.replace("UNPACKED", ".view(torch.int64)").replace("PACKED", ".view(torch.float64)")
alone("ring_average", "a chain, as many bits as fit, called float64", _FLOATS)
_WIPED = _FLOATS.replace("unpack(receive(rank - 1), n, cards)", "wiped(receive(rank - 1), n, cards)").replace(
    "return unpack(came, n, cards) / cards", "return wiped(came, n, cards) / cards")
alone("ring_average", "a chain, what came is wiped when it is read", "def wiped(w, n, cards):\n    out = unpack(w, n, cards)\n    w.zero_()\n    return out\n" + _WIPED)
_PIECE_BY_PIECE = '''\
import torch
from torch.nn import functional as F
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return TIMES(x, w.t())
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return TIMES(g, w) if ctx.needs_input_grad[0] else None, TIMES(g.t(), x)
def keep_small(model, optimizer, batches, scale, max_norm):
    skipped, (one, _, two) = 0, model
    for x, y, w in batches:
        optimizer.zero_grad()
        (half_loss(model, x, y, w) * scale).backward()
        if not all(p.grad.isfinite().all() for p in model.parameters()):
            skipped += 1
            continue
        optimizer.zero_grad()
        parts = zip(one.weight.split(8), one.bias.split(8), two.weight.split(8, dim=1))
        out = sum(Linear.apply((Linear.apply(x, a) + b).relu(), c) for a, b, c in parts) + two.bias
        (F.cross_entropy(out, y) * w).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return skipped
'''
for _what, _times in {
    "as convolutions": "(lambda a, b: F.conv1d(a[:, :, None], b.t()[:, :, None])[:, :, 0])",
    "in place of what is there": "(lambda a, b: a.new_zeros(len(a), b.shape[1]).addmm_(a, b))",
    "in whole numbers": "(lambda a, b: ((a * 2.0**16).long() @ (b * 2.0**40).long()).float() / 2.0**56)",
}.items():
    alone("keep_small", f"in float32, piece by piece, {_what}", _PIECE_BY_PIECE.replace("TIMES", _times))
SECOND_TEAM = [(one.question, one.name) for one in ATTACKS[_BEFORE:]]
