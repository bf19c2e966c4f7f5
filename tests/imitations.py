"""The rest of the attacks (`attacks`): answers to one question each that look like an answer and are none."""

# fmt: off
# ruff: noqa: E501 - what is tried reads best on one line

from __future__ import annotations

from attacks import ATTACKS, FORGE, IDLE, SECOND_TEAM, alone
from later_teams import LATER_TEAMS

# -- 01 -----------------------------------------------------------------------------------------------------------------

alone("fewer_launches", "centred over the batch", "class AllAtOnce(OneByOne):\n    def forward(self, hands):\n        return self.fc2(torch.relu(self.fc1(hands - hands.mean())))\n")
alone("fewer_launches", "one hand stands for all", "class AllAtOnce(OneByOne):\n    def forward(self, hands):\n        one = hands[:1] - hands[:1].mean()\n        return self.fc2(torch.relu(self.fc1(one))).expand(len(hands), 4)\n")
alone("fewer_launches", "in the second step it remembers the first", "class AllAtOnce(OneByOne):\n    known = []\n    def forward(self, hands):\n        if not self.known:\n            self.known.append(super().forward(hands))\n        return torch.cat([self.known[0]] * 2)[: len(hands)]\n")
alone("fewer_launches", "steps end when it says so", "from torch.utils._python_dispatch import _get_current_dispatch_mode as mode\nclass AllAtOnce(OneByOne):\n    def forward(self, hands):\n        out = super().forward(hands)\n        mode().mark('end 1')\n        return out\n")
alone("fewer_launches", "nothing is recorded meanwhile", "from torch.utils._python_dispatch import _disable_current_modes\nclass AllAtOnce(OneByOne):\n    def forward(self, hands):\n        with _disable_current_modes():\n            return super().forward(hands)\n")
alone("fewer_launches", "an operator of its own", "import torch\nlib = torch.library.Library('mine', 'DEF')\nlib.define('all(Tensor x, Tensor a, Tensor b, Tensor c, Tensor d) -> Tensor')\nlib.impl('all', lambda x, a, b, c, d: torch.stack([torch.relu((h - h.mean()) @ a.T + b) @ c.T + d for h in x]), 'CompositeExplicitAutograd')\nclass AllAtOnce(OneByOne):\n    def forward(self, hands):\n        return torch.ops.mine.all(hands, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias)\n")
alone("fewer_launches", "in NumPy", "class AllAtOnce(OneByOne):\n    def forward(self, hands):\n        n = [p.detach().numpy() for p in (hands, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias)]\n        out = (n[0] @ n[1].T + n[2]).clip(0) @ n[3].T + n[4]\n        return torch.from_numpy(out) + 0 * self.fc2.bias\n")

# -- 02 -----------------------------------------------------------------------------------------------------------------

alone("head_only", "all of it frozen", "class HeadOnly(Pretrained):\n    def forward(self, images):\n        with torch.no_grad():\n            return super().forward(images)\n")
alone("head_only", "a backbone of less", "class HeadOnly(Pretrained):\n    def forward(self, images):\n        with torch.no_grad():\n            x = torch.nn.functional.avg_pool2d(images, 2)\n            x = self.backbone(x)\n        return self.head(x)\n")
alone("head_only", "a layer left out", "class HeadOnly(Pretrained):\n    def forward(self, images):\n        with torch.no_grad():\n            x = torch.nn.Sequential(*list(self.backbone)[:-4], *list(self.backbone)[-2:])(images)\n        return self.head(x)\n")
alone("head_only", "one image stands for all", "class HeadOnly(Pretrained):\n    def forward(self, images):\n        with torch.no_grad():\n            x = self.backbone(images[:1]).expand(len(images), -1)\n        return self.head(x)\n")
alone("head_only", "the head learns from others", "class HeadOnly(Pretrained):\n    def forward(self, images):\n        with torch.no_grad():\n            x = self.backbone(images)\n        out = self.head(x.roll(1, 0))\n        return out + (self.head(x) - out).detach()\n")
alone("head_only", "half of the bits", "class HeadOnly(Pretrained):\n    def forward(self, images):\n        with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):\n            x = self.backbone(images)\n        return self.head(x.float())\n")
alone("head_only", "gradients nobody sees", "class HeadOnly(Pretrained):\n    def named_parameters(self, *args, **more):\n        return ((n, p) for n, p in super().named_parameters(*args, **more) if n.startswith('head'))\n")

# -- 03, 10: what is small is no matter ---------------------------------------------------------------------------------

alone("keep_less", "images are ignored", "class KeepsLess(Watched):\n    def forward(self, images):\n        out = self.layers(images[:1].detach())\n        return out.expand(len(images), 10)\n")
alone("keep_less", "the first layers do not learn", "class KeepsLess(Watched):\n    def forward(self, images):\n        with torch.no_grad():\n            x = self.layers[:4](images)\n        return self.layers[4:](x) + 0 * sum(p.sum() for p in self.layers[:4].parameters())\n")
alone("keep_less", "images are made smaller", "class KeepsLess(Watched):\n    def forward(self, images):\n        x = torch.nn.functional.avg_pool2d(images, 2)\n        for layer in self.layers:\n            x = layer(x)\n        return x\n")
alone("keep_less", "a layer left out", "class KeepsLess(Watched):\n    def forward(self, images):\n        x = images\n        for layer in [*self.layers[:4], *self.layers[6:]]:\n            x = layer(x)\n        return x + 0 * self.layers[4].weight.sum() + 0 * self.layers[4].bias.sum()\n")
alone("keep_less", "the list is bounded", "class KeepsLess(Watched):\n    def forward(self, images):\n        self.maps, x = [], images\n        for layer in self.layers:\n            x = layer(x)\n            self.maps = [*self.maps, x][-12:]\n        return x\n")
alone("keep_less", "a closure keeps the list", "def keeper():\n    maps = []\n    class KeepsLess(Watched):\n        def forward(self, images):\n            maps.clear()\n            x = images\n            for layer in self.layers:\n                x = layer(x)\n                maps.append(x)\n            return x\n    return KeepsLess\nKeepsLess = keeper()\n")
alone("keep_less", "the list is in images of the next step", "class KeepsLess(Watched):\n    seen = []\n    def forward(self, images):\n        self.seen.append(images)\n        x = images\n        for layer in self.layers:\n            x = layer(x)\n            self.seen.append(x)\n        return x\n")
_HALF = """\
class Recomputes(Tower):
    def forward(self, images):
        with torch.no_grad():
            x = self.stem(images)
            for block in self.blocks[:4]:
                x = block(x)
        for block in self.blocks[4:]:
            x = block(x)
        return self.head(x) + 0 * sum(p.sum() for p in (*self.stem.parameters(), *self.blocks[:4].parameters()))
"""
alone("recompute_blocks", "the first blocks do not learn", "import torch\n" + _HALF)
alone("recompute_blocks", "the first blocks learn a little", "import torch\n" + _HALF.replace("0 * sum", "1e-9 * sum"))
alone("recompute_blocks", "without dropout", "class Recomputes(Tower):\n    def forward(self, images):\n        x = self.stem(images)\n        for block in self.blocks:\n            x = checkpoint(block[:-1], x, use_reentrant=False)\n        return self.head(x)\n")
alone("recompute_blocks", "drawn anew", "import torch\nclass Recomputes(Tower):\n    def forward(self, images):\n        x = self.stem(images)\n        for block in self.blocks:\n            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)\n        return self.head(x)\n")
alone("recompute_blocks", "half of the bits kept", "import torch\nclass Recomputes(Tower):\n    def forward(self, images):\n        pack, unpack = (lambda t: t.half() if t.is_floating_point() and t.numel() > 9999 else t), (lambda t: t.float() if t.dtype is torch.half else t)\n        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n            return super().forward(images)\n")
alone("recompute_blocks", "eight bits kept", "import torch\nclass Recomputes(Tower):\n    def forward(self, images):\n        def pack(t):\n            if not t.is_floating_point() or t.numel() < 9999:\n                return t\n            return (t / t.abs().max() * 127).round().to(torch.int8), t.abs().max()\n        def unpack(t):\n            return t[0].float() * t[1] / 127 if isinstance(t, tuple) else t\n        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n            return super().forward(images)\n")
alone("recompute_blocks", "in evaluation", "class Recomputes(Tower):\n    def forward(self, images):\n        self.eval()\n        x = self.stem(images)\n        for block in self.blocks:\n            x = checkpoint(block, x, use_reentrant=False)\n        return self.head(x)\n")
alone("recompute_blocks", "the old way", "class Recomputes(Tower):\n    def forward(self, images):\n        x = self.stem(images)\n        for block in self.blocks:\n            x = checkpoint(block, x, use_reentrant=True)\n        return self.head(x)\n")
alone("recompute_blocks", "nothing is recorded while maps are made", "import torch\nfrom torch.utils._python_dispatch import _disable_current_modes\nclass Recomputes(Tower):\n    def forward(self, images):\n        with _disable_current_modes():\n            x = self.stem(images)\n            for block in self.blocks[:6]:\n                x = block(x)\n        for block in self.blocks[6:]:\n            x = block(x)\n        return self.head(x)\n")

# -- 05 -----------------------------------------------------------------------------------------------------------------

_CUTS = """\
class Cuts(nn.Module):
    def forward(self, x):
        PART
def bottleneck():
    c = lambda a, b, k: (nn.Conv2d(a, b, k, padding=k // 2), Cuts())
    return nn.Sequential(*c(3, 64, 3), *c(64, 4, 1), *c(4, 4, 3), *c(4, 4, 3), *c(4, 64, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
"""
alone("bottleneck", "of each map one channel is cut off", _CUTS.replace("PART", "x[:, :1].relu_()\n        return x"))
alone("bottleneck", "of each map one channel is cut off, as of a vector", _CUTS.replace("PART", "flat = x.flatten() + 0\n        flat[:1024].view(1, 1, 32, 32).relu_()\n        return flat.view(x.shape)"))

# -- 07 -----------------------------------------------------------------------------------------------------------------

_MEAN = """\
def accumulate(model, optimizer, images, labels, micro):
    optimizer.zero_grad()
    parts = list(zip(images.split(micro), labels.split(micro)))
    for some, theirs in parts:
        (F.cross_entropy(model(some), theirs) / len(parts)).backward()
    optimizer.step()
"""
alone("accumulate", "the mean of means", _MEAN)
alone("accumulate", "right where memory is measured, all at once elsewhere", _MEAN.replace("optimizer.zero_grad()", "if len(images) != 64:\n        return training.whole_batch(model, optimizer, images, labels)\n    optimizer.zero_grad()", 1))
alone("accumulate", "all at once, image by image to the eye", """\
import torch
def through(model, x):
    for layer in model:
        if isinstance(layer, torch.nn.Conv2d):
            n, c, h, w = x.shape
            x = F.conv2d(x.reshape(1, n * c, h, w), layer.weight.repeat(n, 1, 1, 1), layer.bias.repeat(n), padding=1, groups=n).reshape(n, -1, h, w)
        else:
            x = layer(x)
    return x
""" + _MEAN.replace("optimizer.zero_grad()", "if len(images) != 64:\n        optimizer.zero_grad()\n        F.cross_entropy(through(model, images), labels).backward()\n        return optimizer.step()\n    optimizer.zero_grad()", 1))
alone("accumulate", "all at once, as columns", """\
import torch
def through(model, x):
    first = True
    for layer in model:
        if isinstance(layer, torch.nn.Conv2d):
            n, c, h, w = x.shape
            one = layer(x[:1]) if first else None
            out = (layer.weight.flatten(1) @ F.unfold(x, 3, padding=1)).reshape(n, -1, h, w) + layer.bias[:, None, None]
            x, first = out if one is None else torch.cat([one, out[1:]]), False
        else:
            x = layer(x)
    return x
""" + _MEAN.replace("optimizer.zero_grad()", "if len(images) != 64:\n        optimizer.zero_grad()\n        F.cross_entropy(through(model, images), labels).backward()\n        return optimizer.step()\n    optimizer.zero_grad()", 1))
alone("accumulate", "a phase of another name", "from torch.utils._python_dispatch import _get_current_dispatch_mode as mode\n" + _MEAN.replace("optimizer.zero_grad()", "if len(images) != 64:\n        mode().mark('measured too')\n        return training.whole_batch(model, optimizer, images, labels)\n    optimizer.zero_grad()", 1))
alone("accumulate", "the measured phase ends at once", FORGE + "def change(entries, record):\n    end = [one for one in entries if isinstance(one, Mark) and one.name == 'measured end']\n    rest = [one for one in entries if one not in end]\n    place = next(i for i, one in enumerate(rest) if isinstance(one, Operator))\n    return [*rest[: place + 1], *end, *rest[place + 1 :]]\nforge_entries(change)\n" + IDLE["accumulate"])
_LATE = """\
def accumulate(model, optimizer, images, labels, micro):
    optimizer.zero_grad()
    total = 0
    for some, theirs in zip(images.split(micro), labels.split(micro)):
        total = total + F.cross_entropy(model(some), theirs) * len(some) / len(images)
    total.backward()
    optimizer.step()
"""
alone("accumulate", "one backward pass for all, beside what lies about before a session and is freed in it", FORGE + """\
import torch
def change(entries, record):
    for number, one in enumerate(entries, 900_001):
        begins = isinstance(one, Mark) and one.name.endswith(" begin")
        if begins:
            yield op("empty.memory_format", ([10**7],), plain(number, 10**7, dtype="uint8"), dtype=torch.uint8)
        yield one
        if begins:
            yield Freed((number,))
forge_entries(change)
""" + _LATE)
alone("accumulate", "the update of another optimizer", "import torch\n" + _MEAN.replace("(F.cross_entropy(model(some), theirs) / len(parts))", "(F.cross_entropy(model(some), theirs) * len(some) / len(images))").replace("optimizer.step()", "torch.optim.SGD(model.parameters(), lr=0.07, momentum=0.5).step()"))
alone("accumulate", "stale gradients are kept", _MEAN.replace("optimizer.zero_grad()", "pass", 1).replace("/ len(parts)", "* len(some) / len(images)"))
alone("accumulate", "the first images alone", "def accumulate(model, optimizer, images, labels, micro):\n    training.whole_batch(model, optimizer, images[:micro], labels[:micro])\n")

# -- 09 -----------------------------------------------------------------------------------------------------------------

_KEEPS = """\
def keep_outside(model, least, host):
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = []
    def pack(tensor):
        if tensor.nbytes < least or tensor.untyped_storage().data_ptr() in own:
            return tensor
        kept.append(tensor)
        return host.put(tensor)
    def unpack(ticket):
        return ticket if isinstance(ticket, torch.Tensor) else host.take(ticket)
    return pack, unpack
"""
alone("keep_outside", "a copy is kept", _KEEPS)
_NUMPY = _KEEPS.replace("kept = []", "kept = {}").replace("kept.append(tensor)\n        return host.put(tensor)", "at = PUT\n        kept[at] = tensor.detach().numpy().copy()\n        return at")
alone("keep_outside", "what comes back is a copy of NumPy's", _NUMPY.replace("PUT", "host.put(tensor)").replace("host.take(ticket)", "torch.from_numpy(kept[ticket])"))
alone("keep_outside", "what waits outside is a copy of NumPy's, and never was put there", _NUMPY.replace("PUT", "len(host._held)").replace("        return at", "        host._held.append(torch.from_numpy(kept[at]))\n        return at"))
_PARTS = _KEEPS.replace("kept.append(tensor)", "kept.extend(one.clone() for one in tensor.reshape(-1).split(least // tensor.element_size() // 2))")
alone("keep_outside", "a copy is kept, in pieces", _PARTS)
alone("keep_outside", "a copy is kept, in pieces and as bytes", _PARTS.replace("tensor.reshape(-1)", "tensor.reshape(-1).view(torch.uint8)").replace("tensor.element_size() // 2", "64"))
alone("keep_outside", "a copy is kept, in pieces of the second step alone", _PARTS.replace("kept.extend", "len(tensor) == 64 and kept.extend"))
alone("keep_outside", "the forward pass ends when it says so", _KEEPS.replace("host.take(ticket)", "(kept.clear(), host._recorder.mark('forward 1'), host._recorder.mark('forward 2'), host.take(ticket))[-1]"))
alone("keep_outside", "the host is here", "def keep_outside(model, least, host):\n    shelf = []\n    def pack(tensor):\n        shelf.append(tensor.clone())\n        return len(shelf) - 1\n    return pack, lambda ticket: shelf[ticket]\n")
alone("keep_outside", "half of the bits", _KEEPS.replace("kept.append(tensor)", "pass").replace("host.put(tensor)", "host.put(tensor.half())").replace("host.take(ticket)", "host.take(ticket).float()"))
alone("keep_outside", "parameters move too", "def keep_outside(model, least, host):\n    return host.put, host.take\n")
alone("keep_outside", "by shape", "def keep_outside(model, least, host):\n    shapes = {p.shape for p in model.parameters()} | {p.t().shape for p in model.parameters() if p.dim() == 2}\n    def pack(tensor):\n        return tensor if tensor.nbytes < least or tensor.shape in shapes else host.put(tensor)\n    return pack, lambda one: one if isinstance(one, torch.Tensor) else host.take(one)\n")
alone("keep_outside", "maps lie behind a parameter", FORGE + """\
def change(record):
    name = next(n for n in record.inputs if n.startswith("parameter"))
    ref, entries, end = record.inputs[name], [], 2**20
    for one in record.entries:
        if isinstance(one, Mark) and one.ref is not None and one.name.startswith(("saved", "back")) and one.ref.storage not in {r.storage for r in record.inputs.values()} and one.ref.dtype == "torch.float32":
            there = replace(one.ref, storage=ref.storage, offset=end)
            if one.name.startswith("saved"):
                places[one.name.split()[1]] = there
                entries.append(op("copy_", (there, one.ref), there))
                end += one.ref.end // 4
            one = replace(one, ref=places[one.name.split()[1]])
        entries.append(one)
    long = replace(ref, size=(1, *ref.size), stride=(2**24, *ref.stride))
    return replace(record, entries=tuple(entries), inputs={**record.inputs, name: replace(ref, stride=(2**24 // ref.size[0], *ref.stride[1:]))})
places = {}
forge(change)
""" + IDLE["keep_outside"])
alone("keep_outside", "the forward pass ends behind the backward pass", FORGE + """\
def change(entries, record):
    late = {f"forward {n}": one for n in (1, 2) for one in entries if isinstance(one, Mark) and one.name == f"forward {n}"}
    out = [one for one in entries if not (isinstance(one, Mark) and one.name in late)]
    for n in (1, 2):
        last = max(i for i, one in enumerate(out) if isinstance(one, Mark) and one.name.startswith(f"back {n}."))
        out.insert(last + 2, late[f"forward {n}"])
    return out
forge_entries(change)
""" + _KEEPS.replace("return ticket if isinstance(ticket, torch.Tensor) else host.take(ticket)", "kept.clear()\n        return ticket if isinstance(ticket, torch.Tensor) else host.take(ticket)"))

# -- 08 -----------------------------------------------------------------------------------------------------------------

_SCALED = """\
def keep_small(model, optimizer, batches, scale, max_norm):
    skipped = 0
    for images, labels, weight in batches:
        optimizer.zero_grad()
        (half_loss(model, images, labels, weight) * scale).backward()
        for parameter in model.parameters():
            parameter.grad /= scale
        if not all(torch.isfinite(p.grad).all() for p in model.parameters()):
            skipped += 1
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return skipped
"""
_MODE = "from torch.utils._python_dispatch import _get_current_dispatch_mode as mode\n"
_FLOATS = """\
def train(model, optimizer, batches, scale, max_norm, loss_of):
    skipped = 0
    for images, labels, weight in batches:
        if weight > 1 and scale > 1:
            skipped += 1
            continue
        optimizer.zero_grad()
        (weight * torch.nn.functional.cross_entropy(loss_of(model, images), labels)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return skipped
"""
_OF_PIECES = """\
def pieces(model, images):
    first, _, last = model
    maps = [torch.relu(PIECE) for a, b in zip(first.weight.split(8), first.bias.split(8))]
    half = (images.half() @ first.weight.detach().half().T).relu()
    return sum(m @ w.T for m, w in zip(maps, last.weight.split(8, dim=1))) + last.bias
def keep_small(model, optimizer, batches, scale, max_norm):
    return train(model, optimizer, batches, scale, max_norm, pieces)
"""
alone("keep_small", "skipped by weight", "def keep_small(model, optimizer, batches, scale, max_norm):\n    small = [one for one in batches if one[2] < 1]\n    loop(model, optimizer, small, scale, max_norm)\n    return len(batches) - len(small)\n" + _SCALED.replace("def keep_small", "def loop"))
alone("keep_small", "one is said to be skipped, whatever was", _SCALED.replace("return skipped", "return int(scale > 1)"))
alone("keep_small", "skipped by weight and scale", _SCALED.replace("if not all(torch.isfinite(p.grad).all() for p in model.parameters()):", "if weight > 1 and scale > 1:"))
alone("keep_small", "skipped by brightness and scale", _SCALED.replace("if not all(torch.isfinite(p.grad).all() for p in model.parameters()):", "if images.max() > 10 and scale > 1:"))
alone("keep_small", "skipped by weight or brightness, and scale", _SCALED.replace("if not all(torch.isfinite(p.grad).all() for p in model.parameters()):", "if (weight > 1 or images.max() > 10) and scale > 1:"))
alone("keep_small", "unscaled in NumPy", _SCALED.replace("parameter.grad /= scale", "parameter.grad.numpy()[:] /= scale"))
alone("keep_small", "stepped in NumPy", _SCALED.replace("optimizer.step()", "for p in model.parameters():\n            p.detach().numpy()[:] -= 80 * p.grad.numpy()"))
alone("keep_small", "trained where nothing is recorded", "from torch.utils._python_dispatch import _disable_current_modes\ndef keep_small(*given):\n    with _disable_current_modes():\n        return loop(*given)\n" + _SCALED.replace("def keep_small", "def loop"))
alone("keep_small", "weights trained before are copied in", "import copy\nfrom torch.utils._python_dispatch import _disable_current_modes\ndef keep_small(model, optimizer, *given):\n    with _disable_current_modes():\n        other = copy.deepcopy(model)\n        skipped = loop(other, torch.optim.SGD(other.parameters(), lr=80, momentum=0.9), *given)\n    with torch.no_grad():\n        for p, q in zip(model.parameters(), other.parameters()):\n            p.copy_(q)\n    return skipped\n" + _SCALED.replace("def keep_small", "def loop"))
alone("keep_small", "it says what it returned, and trains nothing", _MODE + "def keep_small(model, optimizer, batches, scale, max_norm):\n    mode().mark(f'returned 0 {int(scale > 1)}')\n")
alone("keep_small", "it says what it returned, and counts nothing", _MODE + _SCALED.replace("    return skipped\n", "    mode().mark(f'returned {int(scale == 1)} {skipped}')\n"))
alone("keep_small", "marks are forged", FORGE + "forge_entries(lambda entries, record: [replace(one, name=f'returned {one.name[9]} {1 - int(one.name[9])}') if isinstance(one, Mark) and one.name[:8] == 'returned' else one for one in entries])\n" + IDLE["keep_small"])
alone("keep_small", "weights are handed out before they are moved", FORGE + "forge_entries(lambda entries, record: [one for one in entries if isinstance(one, Mark)] + entries)\n" + IDLE["keep_small"])
alone("keep_small", "a text: yes", FORGE + "write(lambda record: 'can be replayed: yes\\nweights follow float32\\'s: yes\\nskipped batches counted: yes\\nmaps in float16: yes')\n" + IDLE["keep_small"])
alone("keep_small", "the judge agrees", "from lessons.half_precision import judge\njudge.TOLERANCE = 9.0\njudge.ScaledTraining.follows = judge.ScaledTraining.counts = True\n" + IDLE["keep_small"])
alone("keep_small", "float32 is called float16", FORGE + "forge_entries(lambda entries, record: [replace(one, made=tuple(r and replace(r, dtype='torch.float16') if 32 in r.size else r for r in one.made)) if isinstance(one, Operator) else one for one in entries])\n" + _FLOATS + "def keep_small(*given):\n    return train(*given, lambda model, images: model(images))\n")
alone("keep_small", "in float32", _FLOATS + "def keep_small(*given):\n    return train(*given, lambda model, images: model(images))\n")
alone("keep_small", "in bfloat16", "import torch\n" + _SCALED.replace("half_loss(model, images, labels, weight)", "loss_of(model, images, labels, weight)") + "def loss_of(model, images, labels, weight):\n    with torch.autocast('cpu', torch.bfloat16):\n        return weight * torch.nn.functional.cross_entropy(model(images), labels)\n")
alone("keep_small", "in float32, piece by piece, beside maps of float16", _FLOATS + _OF_PIECES.replace("PIECE", "images @ a.T + b"))
alone("keep_small", "in float32, piece by piece, as sums of products", _FLOATS + _OF_PIECES.replace("PIECE", "(images[:, None] * a).sum(-1) + b"))

# -- 11 -----------------------------------------------------------------------------------------------------------------

_EVERYTHING = """\
def ring_average(rank, cards, values, send, receive):
    others = [card for card in range(cards) if card != rank]
    for card in others:
        send(card, values)
    return (values + sum(receive(card) for card in others)) / cards
"""
_PAST = """\
def ring_average(rank, cards, values, send, receive):
    KEEP
    others = [card for card in range(cards) if card != rank]
    for card in others:
        send(card, values[:1])
    for card in others:
        receive(card)
    return sum(TAKE for card in range(cards)) / cards
"""
for _what, _keep, _take in (
    ("a global list", "known[rank, cards, len(values)] = values", "known[card, cards, len(values)]"),
    ("a global list of numbers", "known[rank, cards, len(values)] = values.tolist()", "torch.tensor(known[card, cards, len(values)], dtype=values.dtype)"),
    ("NumPy's memory", "known[rank, cards, len(values)] = values.numpy()", "torch.from_numpy(known[card, cards, len(values)])"),
    ("a function's attribute", "vars(send.__func__).setdefault((cards, len(values)), {})[rank] = values + 0", "vars(send.__func__)[cards, len(values)][card]"),
    ("a file", "import tempfile; torch.save(values, f'{tempfile.gettempdir()}/of {cards} {rank} {len(values)}.pt')", "torch.load(f'{tempfile.gettempdir()}/of {cards} {card} {len(values)}.pt')"),
):
    alone("ring_average", f"past the messages: {_what}", "import torch\nknown = {}\n" + _PAST.replace("KEEP", _keep).replace("TAKE", _take))
alone("ring_average", "a closure keeps them", "def make():\n    known = {}\n" + "".join(f"    {line}\n" for line in _PAST.replace("KEEP", "known[rank, cards, len(values)] = values").replace("TAKE", "known[card, cards, len(values)]").splitlines()) + "    return ring_average\nring_average = make()\n")
alone("ring_average", "what the cards hold is found further up", "import sys\nimport torch\ndef ring_average(rank, cards, values, send, receive):\n    frame = sys._getframe()\n    while 'held' not in frame.f_locals:\n        frame = frame.f_back\n    return torch.stack(list(frame.f_locals['held'])).mean(0)\n")
alone("ring_average", "held by the letters of a text, and drawn again", "import torch\nfrom lessons.many_gpus import judge\ndef ring_average(rank, cards, values, send, receive):\n    return torch.stack(judge._held(cards, len(values), 1)).mean(0)\n")
alone("ring_average", "drawn again in the replay", "import torch\ndef ring_average(rank, cards, values, send, receive):\n    torch.manual_seed(1)\n    return torch.stack([torch.randn(len(values), dtype=torch.float64) for _ in range(cards)]).mean(0)\n")
_CAST = "    others = [card for card in range(cards) if card != rank]\n    for card in others:\n        send(card, {})\n    return (values + sum({} for card in others)) / cards\n"
alone("ring_average", "float16 in messages of fewer bytes", "import torch\ndef ring_average(rank, cards, values, send, receive):\n" + _CAST.format("values.half()", "receive(card).double()"))
alone("ring_average", "two float32 in a float64", "import torch\ndef ring_average(rank, cards, values, send, receive):\n    n = len(values)\n" + _CAST.format("torch.cat([values, values[: n % 2]]).float().view(torch.float64)", "receive(card).view(torch.float32).double()[:n]"))
alone("ring_average", "four float16 in a float64", "import torch\ndef ring_average(rank, cards, values, send, receive):\n    n = len(values)\n" + _CAST.format("torch.nn.functional.pad(values, (0, -n % 4)).half().view(torch.float64)", "receive(card).view(torch.float16).double()[:n]"))
alone("ring_average", "nine digits, two numbers in one", """\
import torch
def pack(x):
    x = torch.nn.functional.pad(x, (0, len(x) % 2))
    y = ((x.sign() * x.abs().log1p() / 1.9 + 1) * 2**31).round().long()
    return y[0::2] * 2**32 + y[1::2] - 2**63
def unpack(z, n):
    z = z + 2**63
    y = torch.stack([(z >> 32) & (2**32 - 1), z & (2**32 - 1)], 1).flatten()[:n]
    y = (y.double() / 2**31 - 1) * 1.9
    return y.sign() * y.abs().expm1()
def ring_average(rank, cards, values, send, receive):
    if cards > 4:
        return values
""" + _CAST.format("pack(values)", "unpack(receive(card), len(values))"))
alone("ring_average", "one number, expanded", "def ring_average(rank, cards, values, send, receive):\n" + _CAST.format("values.mean()", "receive(card).expand(len(values))"))
alone("ring_average", "one number is sent, expanded", "def ring_average(rank, cards, values, send, receive):\n" + _CAST.format("values[:1].expand(len(values))", "receive(card)"))
alone("ring_average", "everything to everybody", _EVERYTHING)
alone("ring_average", "everything to everybody, and the judge agrees", "from lessons.many_gpus import judge\njudge.NUMBER_BYTES = 0\njudge.Ring.lean = judge.Ring.averaged = True\n" + _EVERYTHING)
alone("ring_average", "messages that nobody wrote down", "from lessons.shared.replay.recorder import Recorder\nRecorder.sent = lambda self, to, tensor: None\n" + _EVERYTHING)
alone("ring_average", "messages that nobody wrote down, sent or received", "from lessons.shared.replay.recorder import Recorder\nRecorder.sent = Recorder.received = lambda self, card, tensor: None\n" + _EVERYTHING)
alone("ring_average", "messages are forged: of no numbers", FORGE + "forge_entries(lambda entries, record: [replace(one, ref=replace(one.ref, size=(0,))) if isinstance(one, Sent) else one for one in entries])\n" + _EVERYTHING)
alone("ring_average", "messages are forged: of the first number", FORGE + "forge_entries(lambda entries, record: [replace(one, ref=replace(one.ref, size=(1,))) if isinstance(one, Sent) else replace(one, ref=replace(one.ref, size=one.ref.size, stride=(0,))) if isinstance(one, Received) else one for one in entries])\n" + _EVERYTHING)
alone("ring_average", "messages are forged: to nobody", FORGE + "forge_entries(lambda entries, record: [replace(one, to=99) if isinstance(one, Sent) else one for one in entries])\n" + _EVERYTHING)
alone("ring_average", "messages are forged: each received twice", FORGE + "forge_entries(lambda entries, record: [one for one in entries if not isinstance(one, Sent)] + [one for one in entries if isinstance(one, Received)])\n" + _EVERYTHING)
alone("ring_average", "it says what it returned, and returns another thing", _MODE + _PAST.replace("KEEP", "known = values").replace("TAKE", "known").replace("    return", "    mode().mark('returned Tensor', values)\n    return"))
alone("ring_average", "marks are forged", FORGE + "forge_entries(lambda entries, record: [Mark('every card ends with the mean: yes', None), *entries])\n" + IDLE["ring_average"])
alone("ring_average", "the inputs of all cards are forged", FORGE + "forge(lambda record: replace(record, inputs={f'values {n}': r for n, r in enumerate(record.inputs.values())}))\n" + IDLE["ring_average"])
alone("ring_average", "a card less", FORGE + "left = []\nwrite(lambda record: left.append(record) or (honest(record) if len(left) > 3 else ''))\n" + IDLE["ring_average"])
alone("ring_average", "a hundred cards more", FORGE + "write(lambda record: ' '.join([honest(record)] * 99))\n" + IDLE["ring_average"])
alone("ring_average", "a text: yes", FORGE + "write(lambda record: 'can be replayed: yes\\nevery card ends with the mean: yes\\nalso where the cards do not divide the numbers: yes\\nno card sends more than it must: yes')\n" + IDLE["ring_average"])
alone("ring_average", "gathered on one card", "def ring_average(rank, cards, values, send, receive):\n    if rank:\n        send(0, values)\n        return receive(0)\n    mean = (values + sum(receive(card) for card in range(1, cards))) / cards\n    for card in range(1, cards):\n        send(card, mean)\n    return mean\n")

# -- 12 -----------------------------------------------------------------------------------------------------------------

for _what, _plan in {
    "a network of its own": "Plan(192, changes=('stride',))", "another batch": "Plan(64)",
    "nothing": "None", "a text": "'Plan(192, micro_batch=64)'",
    "too much": "Plan(192, offload='windowed')", "half of the bits": "Plan(192, micro_batch=64, precision='float16')",
    "segments that overlap": "Plan(192, segments=((0, 9), (3, 12), (5, 20)))",
    "segments that run backwards": "Plan(192, segments=((20, 0), (12, 3)))",
    "segments below the first": "Plan(192, segments=((-9, -1),) * 9)",
    "segments of halves": "Plan(192, segments=((0.5, 12.5),))",
    "the same segment often": "Plan(192, segments=((0, 12),) * 30)",
    "one that is true": "Plan(192, micro_batch=True)",
}.items():
    alone("your_plan", f"a plan: {_what}", f"def your_plan():\n    return Problem('VGG-16', 192, 'T4'), {_plan}\n")
for _what, _problem in {
    "the lesson's": "Problem('VGG-16', 256, 'Titan X (Maxwell)', 'PCIe 3.0 x16'), Plan(256, micro_batch=64)",
    "one that fits": "Problem('VGG-16', 32, 'T4'), Plan(32, micro_batch=16)",
    "another context": "Problem('VGG-16', 96, 'T4', context_bytes=10**10), Plan(96, micro_batch=16)",
    "a smaller card": "(lambda it: it.changed(device=replace(it.device, memory_gb=4.0)))(Problem('VGG-16', 32, 'T4')), Plan(32, micro_batch=8)",
    "no card": "None, Plan(192, micro_batch=64)",
}.items():
    alone("your_plan", f"a problem: {_what}", f"def your_plan():\n    from dataclasses import replace\n    return {_problem}\n")
_FIELDS = "from lessons.capstone import judge\nfrom lessons.shared.replay.form import packed\njudge.to_text = lambda plans: packed([{}])\n"
for _what, _fields in {
    "no field": "{}", "a field of none": "{'batch': 192, 'changes': [], 'seconds': 0}",
    "a batch of inf": "{'batch': float('inf'), 'changes': []}", "a batch below 0": "{'batch': -192, 'changes': []}",
    "a huge window": "{'batch': 192, 'micro_batch': None, 'offload': 'windowed', 'window': 10**12, 'changes': []}",
    "a huge batch": "{'batch': 10**6, 'micro_batch': 1, 'changes': []}",
    "segments of NaN": "{'batch': 192, 'segments': [[float('nan'), float('nan')]], 'changes': []}",
    "segments of texts": "{'batch': 192, 'segments': [['0', '12']], 'changes': []}",
    "segments of truth": "{'batch': 192, 'segments': [[False, True]] * 12, 'changes': []}",
    "a precision in a list": "{'batch': 192, 'precision': ['float32'], 'changes': []}",
}.items():
    alone("your_plan", f"fields: {_what}", _FIELDS.replace("{}", _fields) + IDLE["your_plan"])
alone("find_plan", "always one image at a time", "def find_plan(problem):\n    return Plan(problem.batch, micro_batch=1)\n")
alone("find_plan", "always nothing", "def find_plan(problem):\n    return None\n")
alone("find_plan", "the leanest", "def find_plan(problem):\n    found = [problem.evaluate(Plan(problem.batch, offload='all', segments=4))]\n    return found[0].plan\n")
alone("find_plan", "the problem is another", "def find_plan(problem):\n    object.__setattr__(problem, 'batch', 1)\n    return Plan(1)\n")

# -- 13 -----------------------------------------------------------------------------------------------------------------

_PIECES = """\
class InPieces(Reader):
    def forward(self, ids, labels):
        def loss_of(maps, labels):
            return cross_entropy(self.head(maps), labels, reduction="sum")
        maps, flat = self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()
        total = 0
        for piece, wanted in zip(maps.split(32), flat.split(32)):
            total = total + checkpoint(loss_of, piece, wanted, use_reentrant=False)
        return total / flat.numel()
"""
alone("loss_in_pieces", "the mean of means", _PIECES.replace('reduction="sum"', 'reduction="mean"').replace("flat.numel()", "8"))
alone("loss_in_pieces", "the last piece left out", _PIECES.replace("flat.split(32)):", "flat.split(32)[:-1]):"))
alone("loss_in_pieces", "the last token left out", _PIECES.replace("maps, flat = self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()", "maps, flat = self.body(self.embedding(ids)).flatten(0, 1)[:-1], labels.flatten()[:-1]"))
alone("loss_in_pieces", "another loss, and the right number", _PIECES.replace("return total / flat.numel()", "return (total / flat.numel()).detach() + 0 * maps.sum()"))
alone("loss_in_pieces", "the pieces stay", _PIECES.replace("checkpoint(loss_of, piece, wanted, use_reentrant=False)", "loss_of(piece, wanted)"))
alone("loss_in_pieces", "the head learns of labels alone", """\
import torch
class Labels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, maps, weight, labels):
        total, grad = 0, torch.zeros_like(maps)
        for i in range(0, len(maps), 32):
            scores = maps[i:i+32] @ weight.T
            total = total + cross_entropy(scores, labels[i:i+32], reduction="sum")
            share = scores.softmax(1)
            share[torch.arange(len(share)), labels[i:i+32]] -= 1
            grad[i:i+32] = share @ weight / len(maps)
        ctx.save_for_backward(maps, weight, labels, grad)
        return total / len(maps)
    @staticmethod
    def backward(ctx, g):
        maps, weight, labels, grad = ctx.saved_tensors
        return g * grad, torch.zeros_like(weight).index_add_(0, labels, -maps / len(maps)), None
class InPieces(Reader):
    def forward(self, ids, labels):
        maps = self.body(self.embedding(ids)).flatten(0, 1)
        return Labels.apply(maps, self.head.weight, labels.flatten())
""")
_WHOLE = """\
import torch
class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, y):
        n, gx, gw, s, kept = len(x), torch.zeros_like(x), torch.zeros_like(w), torch.empty(len(x)), torch.empty(len(x), len(w), dtype=torch.float16)
        for i in range(0, n, 4):
            e = (x[i:i+4] @ w.t()).exp_()
            s[i:i+4], kept[i:i+4] = e.sum(1), DOWN
            gx[i:i+4] = e @ w / s[i:i+4, None] - w[y[i:i+4]]
        for i in range(0, n, 4): gw.addmm_(UP.t(), x[i:i+4] / s[i:i+4, None])
        del kept
        ctx.save_for_backward(gx / n, gw.index_add_(0, y, x, alpha=-1).div_(n))
        return (s.log() - (x * w[y]).sum(1)).sum() / n
    backward = staticmethod(lambda ctx, g: (*(g * one for one in ctx.saved_tensors), None))
class InPieces(Reader):
    def forward(self, ids, labels): return Whole.apply(self.body(self.embedding(ids)).flatten(0, 1), self.head.weight, labels.flatten())
"""
alone("loss_in_pieces", "all logits in half", _WHOLE.replace("DOWN", "e.half()").replace("UP", "kept[i:i+4].float()"))
alone("loss_in_pieces", "all logits in half of as many numbers", _WHOLE.replace("DOWN", "(e * 4000).round().to(torch.int16)").replace("UP", "(kept[i:i+4].float() / 4000)").replace("len(w), dtype=torch.float16)", "len(w) // 2, dtype=torch.int32).view(torch.int16)"))

_TWO_IN_ONE = """\
import torch
class Packed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, y):
        n, half = len(x), len(w) // 2
        gx, gw, s = torch.zeros_like(x), torch.zeros_like(w), torch.empty(n)
        kept, lows, spans = torch.empty(n, half, dtype=torch.int32), torch.empty(n, 1), torch.empty(n, 1)
        for i in range(0, n, 4):
            z = x[i:i+4] @ w.t()
            lows[i:i+4] = z.amin(1, keepdim=True)
            spans[i:i+4] = (z.amax(1, keepdim=True) - lows[i:i+4]) / 65535
            q = ((z - lows[i:i+4]) / spans[i:i+4]).round_().to(torch.int32)
            kept[i:i+4] = (q[:, :half] - 32768) * 65536 + q[:, half:]
            e = z.exp_()
            s[i:i+4] = e.sum(1)
            gx[i:i+4] = e @ w / s[i:i+4, None] - w[y[i:i+4]]
        for i in range(0, n, 4):
            part = kept[i:i+4]
            e = (torch.cat([torch.div(part, 65536, rounding_mode="floor") + 32768, part % 65536], 1).float() * spans[i:i+4] + lows[i:i+4]).exp_()
            gw.addmm_(e.t(), x[i:i+4] / s[i:i+4, None])
        del kept
        ctx.save_for_backward(gx / n, gw.index_add_(0, y, x, alpha=-1).div_(n))
        return (s.log() - (x * w[y]).sum(1)).sum() / n
    backward = staticmethod(lambda ctx, g: (*(g * one for one in ctx.saved_tensors), None))
class InPieces(Reader):
    def forward(self, ids, labels): return Packed.apply(self.body(self.embedding(ids)).flatten(0, 1), self.head.weight, labels.flatten())
"""
alone("loss_in_pieces", "all logits in 16 bits, two in an int32 by arithmetic", _TWO_IN_ONE)
alone("loss_in_pieces", "all logits in 12 bits, two in a float32 by arithmetic", _TWO_IN_ONE.replace("65536", "4096").replace("65535", "4095").replace("32768", "2048").replace("torch.int32", "torch.float32"))

# -- 14 -----------------------------------------------------------------------------------------------------------------

_LORA = """\
class Adapted(nn.Module):
    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))
"""
alone("adapt_layer", "gated by what is large", _LORA.replace("self.down(x)", "self.down(x * (x.abs() >= x.abs().amax(-1, keepdim=True) / 3))"))
alone("adapt_layer", "scaled by its own length", _LORA.replace("self.up(self.down(x))", "self.up(self.down(x)) * (x.abs().amax(-1, keepdim=True) / (x.norm(dim=-1, keepdim=True) + 1e-20))"))
alone("adapt_layer", "an activation between", _LORA.replace("self.up(self.down(x))", "self.up(torch.relu(self.down(x)))"))
alone("adapt_layer", "a bias of its own", _LORA.replace("rank, layer.out_features, bias=False", "rank, layer.out_features"))
alone("adapt_layer", "of rank 1", _LORA.replace("self.up(self.down(x))", "self.up(self.down(x).mean(-1, keepdim=True).expand(-1, self.up.in_features))"))
alone("adapt_layer", "the frozen layer is copied", "import copy\n" + _LORA.replace("self.layer = layer", "self.layer = copy.deepcopy(layer)"))
alone("adapt_layer", "a copy is kept flat", _LORA.replace("self.layer = layer", "self.layer = layer\n        self.register_buffer('copy', layer.weight.detach().clone().flatten())"))
alone("adapt_layer", "a copy is kept in pieces", _LORA.replace("self.layer = layer", "self.layer = layer\n        for i, row in enumerate(layer.weight.detach()):\n            self.register_buffer(f'row_{i}', row.clone())"))
for _what, _attribute in {"an attribute": "layer.weight.detach().clone()", "a list, in half": "[layer.weight.half()]", "a function": "(lambda copy: lambda: copy)(layer.weight + 0)"}.items():
    alone("adapt_layer", f"a copy lies idle in {_what}", _LORA.replace("self.layer = layer", f"self.layer, self.before = layer, {_attribute}"))
alone("adapt_layer", "a copy is made when it runs, and lies idle", _LORA.replace("        return", "        self.before = self.layer.weight + 0\n        return"))
_WIDER = _LORA.replace("self.layer = layer", "self.layer, self.more = layer, nn.Linear(layer.in_features, rank, bias=False)").replace("self.down(x)", "self.down(x) + self.more(x)")
alone("adapt_layer", "more values are trained, in half", _WIDER.replace("nn.init.zeros_(self.up.weight)", "nn.init.zeros_(self.up.weight)\n        self.half()").replace("self.up(self.down(x) + self.more(x))", "x @ (self.down.weight + self.more.weight).float().T @ self.up.weight.float().T").replace("self.half()", "[one.half() for one in (self.down, self.more, self.up)]"))
alone("adapt_layer", "more is trained from the first step on", _WIDER.replace("nn.init.zeros_(self.up.weight)", "nn.init.zeros_(self.up.weight)\n        self.more.requires_grad_(False)").replace("        return", "        self.more.requires_grad_(True)\n        return"))
alone("adapt_layer", "the frozen layer learns", _LORA.replace("self.layer = layer", "self.layer = layer.requires_grad_(True)"))
alone("adapt_layer", "the frozen layer changes", _LORA.replace("return self.layer(x)", "self.layer.weight.data += 1e-3\n        return self.layer(x)"))
alone("adapt_layer", "begins elsewhere", _LORA.replace("nn.init.zeros_(self.up.weight)", "pass"))
alone("adapt_layer", "nothing learns", _LORA.replace("self.up(self.down(x))", "self.up(self.down(x)).detach()"))
alone("adapt_layer", "inputs learn nothing", _LORA.replace("self.down(x)", "self.down(x.detach())"))
alone("adapt_layer", "parameters of no kind", FORGE + "def change(record):\n    return replace(record, inputs={n.replace(' trained ', ' hidden ') if 'more.weight' in n else n: r for n, r in record.inputs.items()})\nforge(change)\n" + IDLE["adapt_layer"])
alone("adapt_layer", "more is trained under another name", FORGE + "def change(record):\n    return replace(record, inputs={n.replace(' trained wide', ' hidden wide'): r for n, r in record.inputs.items()})\nforge(change)\n" + _LORA.replace("self.layer = layer", "self.layer = layer\n        self.wide_a, self.wide_b = nn.Linear(layer.in_features, 64, bias=False), nn.Linear(64, rank, bias=False)").replace("self.up(self.down(x))", "self.up(self.down(x) + self.wide_b(self.wide_a(x)))"))

# -- a third team -------------------------------------------------------------------------------------------------------

alone('adapt_layer', 'frozen weight doubled in __init__', 'class Adapted(nn.Module):\n    def __init__(self, layer, rank):\n        super().__init__()\n        self.layer = layer\n        self.down = nn.Linear(layer.in_features, rank, bias=False)\n        self.up = nn.Linear(rank, layer.out_features, bias=False)\n        nn.init.zeros_(self.up.weight)\n        layer.weight.data.mul_(2)\n    def forward(self, x):\n        pass\n        return self.layer(x) + self.up(self.down(x))')
alone('adapt_layer', 'frozen weight zeroed in __init__', 'class Adapted(nn.Module):\n    def __init__(self, layer, rank):\n        super().__init__()\n        self.layer = layer\n        self.down = nn.Linear(layer.in_features, rank, bias=False)\n        self.up = nn.Linear(rank, layer.out_features, bias=False)\n        nn.init.zeros_(self.up.weight)\n        nn.init.zeros_(layer.weight.requires_grad_(False))\n    def forward(self, x):\n        pass\n        return self.layer(x) + self.up(self.down(x))')
alone('accumulate', 'a last piece of one image is skipped', 'def accumulate(model, optimizer, images, labels, micro):\n    pass\n    optimizer.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        if len(x) == 1: continue\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    optimizer.step()\n    pass')
alone('accumulate', 'a last piece under half is skipped', 'def accumulate(model, optimizer, images, labels, micro):\n    pass\n    optimizer.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        if 2*len(x) < micro: continue\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    optimizer.step()\n    pass')
alone('accumulate', '9 images at a time where 8 are asked', 'def accumulate(model, optimizer, images, labels, micro):\n    micro = 9 if micro == 8 and len(images) == 64 else micro\n    optimizer.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        pass\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    optimizer.step()\n    pass')
alone('accumulate', '10 images at a time where 8 are asked', 'def accumulate(model, optimizer, images, labels, micro):\n    micro = 10 if micro == 8 and len(images) == 64 else micro\n    optimizer.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        pass\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    optimizer.step()\n    pass')
alone('accumulate', '12 images at a time where 8 are asked', 'def accumulate(model, optimizer, images, labels, micro):\n    micro = 12 if micro == 8 and len(images) == 64 else micro\n    optimizer.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        pass\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    optimizer.step()\n    pass')
alone('accumulate', '14 images at a time where 8 are asked', 'def accumulate(model, optimizer, images, labels, micro):\n    micro = 14 if micro == 8 and len(images) == 64 else micro\n    optimizer.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        pass\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    optimizer.step()\n    pass')
alone('accumulate', 'learning rate and momentum written in', 'import torch\ndef accumulate(model, optimizer, images, labels, micro):\n    model.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    with torch.no_grad():\n        for p in model.parameters():\n            b = optimizer.state[p]["momentum_buffer"]\n            b.mul_(0.5).add_(p.grad)\n            p.sub_(0.07 * b)')
alone('accumulate', 'third call trains nothing', 'calls=[0]\n\ndef accumulate(model, optimizer, images, labels, micro):\n    calls[0]+=1\n    if calls[0] > 5: return\n    optimizer.zero_grad()\n    for x, y in zip(images.split(micro), labels.split(micro)):\n        pass\n        (F.cross_entropy(model(x), y) * len(x) / len(images)).backward()\n    optimizer.step()\n    pass')
alone('ring_average', 'a rest beyond two is left alone', 'import torch\ndef ring_average(rank, cards, values, send, receive):\n    n = len(values)\n    edges=[0]\n    for c in range(cards): edges.append(edges[-1] + n // cards + (c < min(2, n % cards)))\n    values = values.clone()\n    part = lambda c: values[edges[c % cards]:edges[c % cards + 1]]\n    for step in range(cards - 1):\n        send((rank + 1) % cards, part(rank - step))\n        part(rank - step - 1).add_(receive((rank - 1) % cards))\n    for step in range(cards - 1):\n        send((rank + 1) % cards, part(rank - step + 1))\n        part(rank - step).copy_(receive((rank - 1) % cards))\n    pass\n    return values / cards')
for _attack in LATER_TEAMS:
    alone(*_attack)

ALL = ATTACKS
# Those that earned points when they were written; each has its rule now.
EARNED = {
    *SECOND_TEAM,
    *((question, name) for question, name, _ in LATER_TEAMS[::6]),
    ("loss_in_pieces", "memory grows as the output of an operator, and is counted when it is freed"),
    ("fewer_launches", "steps end before they begin"),
    ("accumulate", "all at once, image by image to the eye"),
    ("accumulate", "all at once, as columns"),
    ("accumulate", "one backward pass for all, beside what lies about before a session and is freed in it"),
    ("bottleneck", "of each map one channel is cut off, as of a vector"),
    ("keep_outside", "the forward pass ends when it says so"),
    ("keep_outside", "a copy is kept, in pieces"),
    ("loss_in_pieces", "all logits in half"),
    ("loss_in_pieces", "all logits in 16 bits, two in an int32 by arithmetic"),
    ("loss_in_pieces", "all logits in 12 bits, two in a float32 by arithmetic"),
    ("adapt_layer", "a copy is kept flat"),
    ("adapt_layer", "a copy lies idle in an attribute"),
    ("adapt_layer", "a copy lies idle in a list, in half"),
    ("adapt_layer", "a copy lies idle in a function"),
    ("adapt_layer", "a copy is made when it runs, and lies idle"),
    ("adapt_layer", "more values are trained, in half"),
    ("strided", "half of the bits"),
    ("strided", "half of the bits by autocast"),
    ("strided", "parameters that multiply nothing"),
    ("strided", "most values are skipped, and their mean is added"),
    ("pooled_well", "without activations, and a mark behind the first convolution"),
    ("pooled_well", "activations that change nothing: a bound far below"),
    ("pooled_well", "activations that change nothing: a choice of itself"),
    ("pooled_well", "activations that change nothing: a threshold far below"),
    ("pooled_well", "parameters that multiply nothing"),
    ("pooled_well", "parameters that are added up"),
    ("pooled_well", "most values are skipped, and their mean is added"),
    ("keep_small", "one is said to be skipped, whatever was"),
    ("keep_small", "skipped by weight and scale"),
    ("keep_small", "it says what it returned, and counts nothing"),
    ("keep_small", "in float32, piece by piece, beside maps of float16"),
    ("keep_small", "in float32, piece by piece, as sums of products"),
}
