"""Wrong answers as readers gave them: those that reviews of the lessons quote, and others typical of each question.

They were written down before anybody looked what the checks say to them. Answers that a check must tell something
certain are in the lessons' `answers.py`, in WRONG.
"""

# ruff: noqa: E501 - an answer a line

import itertools
import math

STATES = {"sgd": 0, "momentum": 1, "adam": 2}

QUOTED = {
    "operator_seconds": [
        lambda f, t, p, b, launch: launch + max(f / (p * 1e12), t / b),
        lambda f, t, p, b, launch: f / p + t / b,
    ],
    "crossover_batch": [
        lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else round((gf - cf) / (cs - gs)) if cs > gs else 0,
    ],
    "speed_up": [
        lambda c, a, b, d, n, s, r: c / (d - a) + n * s / (r * 1e9),
        lambda c, a, b, d, n, s, r: c / (b - a),
    ],
    "helps_most": [
        lambda f, t, p, b, launch: "launch" if launch > max(f / p, t / b) else "flops" if f / p > t / b else "traffic",
        lambda f, t, p, b, launch: "flops" if f / p > t / b else "traffic",
    ],
    "break_even_weeks": [lambda price, back, power, rent, hours: price / (hours * (rent - power)) if rent > power else 0],
    "cards_that_hold": [
        lambda cards, need, bf: [c["name"] for c in sorted((c for c in cards if c["launch_usd"] and c["memory_gib"] / c["dies"] - 0.5 >= need and (c["bfloat16"] or not bf)), key=lambda c: c["launch_usd"])],
    ],
    "frozen_step_bytes": [
        lambda layers, x, batch, opt: 4 * (
            sum(p * (1 + on * {"sgd": 1, "momentum": 2, "adam": 4}[opt]) for p, _, on in layers) + batch * x
            + batch * sum(o for _, o, _ in layers[max(0, [on for _, _, on in layers].index(True) - 1) : -1])),
        lambda layers, x, batch, opt: 4 * (
            sum(p * (1 + on * (1 + STATES[opt])) for p, _, on in layers) + batch * x
            + batch * sum(o for _, o, _ in layers[max(0, [on for _, _, on in layers].index(True) - 1) :])),
        lambda layers, x, batch, opt: 4 * (
            sum(p * (1 + on * (1 + STATES[opt])) for p, _, on in layers) + batch * x
            + 2 * batch * sum(o for _, o, _ in layers[max(0, [on for _, _, on in layers].index(True) - 1) : -1])),
    ],
    "network_wide": [
        lambda m, i, p, g, n: 4 * (2 * n * (m + i) + 2 * n * g + 2 * p),
        lambda m, i, p, g, n: 4 * (2 * n * (m + i) + 2 * p),
        lambda m, i, p, g, n: 4 * (n * (m + i) + 2 * n * max(g, i) + 2 * p),
    ],
    "largest_batch": [
        lambda events, limit: 0 if any(f > limit for f, _ in events) else min(round((limit - f) / e) for f, e in events if e),
    ],
    "bytes_saved": [
        lambda batch, maps, first, s: 4 * batch * 2 * sum(c * (w**2 - ((w - 1) // s + 1) ** 2) for c, w in maps[first:]),
    ],
    "times_smaller": [
        lambda f, m, first, s: round((f + sum(m)) / (f + sum(m[:first]) + sum(m[first:]) / s**2), 2),
    ],
    "after_squeeze": [
        lambda side, c, m: (str(side**2 * m), str(c * m + m)),
        lambda side, c, m: (side**2 * m, c * m),
    ],
    "bytes_added": [
        lambda n, s, c, m, k: 4 * n * s**2 * (m - k * (c - m)) if k else 0,
        lambda n, s, c, m, k: abs(4 * n * s**2 * (m - k * (c - m))),
        lambda n, s, c, m, k: max(0, 4 * n * s**2 * (m - k * (c - m))),
        lambda n, s, c, m, k: 2 * 4 * n * s**2 * (m - k * (c - m)),
    ],
    "break_even": [
        lambda i, o, k: (k**2 * i * o + o - 1) // (i + k**2 * o + 1),
        lambda i, o, k: (k**2 * i * o - 1) // (k**2 * i + k**2 * o),
    ],
    "pool_keeps": [
        lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t + 1) ** 2 * (v + (8 if kind == "avg" else 0)),
        lambda kind, n, c, s, k, t, v: n * c * (s**2 - ((s - k) // t + 1) ** 2) * (v + (8 if kind == "max" else 0)),
        lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t + 1) ** 2 * (12 if kind == "max" else v),
        lambda kind, n, c, s, k, t, v: n * c * (math.ceil((s - k) / t) + 1) ** 2 * (v + (8 if kind == "max" else 0)),
    ],
    "pool_balance": [
        lambda n, c, s, k, later: n * (4 * sum(later) * (s**2 - (s // k) ** 2) - 8 * c * (s // k) ** 2),
        lambda n, c, s, k, later: n * (4 * sum(later) * (s**2 - (s // k) ** 2) - (4 + 4) * c * (s // k) ** 2),
    ],
    "saved_by_halving": [
        lambda f, s, n: round(s * n / 2 / (f + s * n), 2),
        lambda f, s, n: s * (n // 2) / 2 / (f + s * n),
    ],
    "micro_batch": [
        lambda w, f, a, s, limit: next((w // p for p in range(1, w + 1) if f + a * (p > 1) + s * (w // p) <= limit), 0),
    ],
    "saturated_from": [
        lambda times, tol: list(times)[-1],
        lambda times, tol: min(b for b in times if times[b] * b <= (1 + tol) * min(t * n for n, t in times.items())),
    ],
    "recipe_bytes": [
        lambda p, opt, recipe: 8 * p * ((2 if recipe == "pure" else 4) * (2 + STATES[opt]) + (2 if recipe == "mixed" else 0)),
    ],
    "loss_scale": [
        lambda g, share: next((2**p for p in range(40) if sum(2**-25 < abs(x) * 2**p <= 65504 for x in g if x) >= share * sum(x != 0 for x in g)), 0),
        lambda g, share: next((0 if max(abs(x) for x in g) * 2**p >= 65504 else 2**p for p in range(40) if max(abs(x) for x in g) * 2**p >= 65504 or sum(abs(x) * 2**p > 2**-25 for x in g if x) >= share * sum(x != 0 for x in g)), 0),
    ],
    "next_scales": [
        lambda o, s, n: _scales(o, s, n, lambda x: x // 2),
        lambda o, s, n: _scales(o, s, n, lambda x: max(1, x / 2)),
    ],
    "copy_over_kernel": [
        lambda k, t, r, w, s, n, tf, gb: (4 * r * s**2 / (gb * 1e9)) / (2 * k**2 * r * w * n * (s / t) ** 2 / (tf * 1e12)),
        lambda k, t, r, w, s, n, tf, gb: (4 * n * r * s**2 / (gb * 1e9)) / (2 * k**2 * r * w * (s / t) ** 2 / (tf * 1e12)),
    ],
    "least_link": [lambda layers: int(max(c / s for c, s in layers))],
    "two_streams": [
        lambda f, b, c: sum(f) + sum(b),
        lambda f, b, c: sum(map(max, zip(f, c, strict=True))) + sum(max(x, y) for x, y in zip(b, [0, *c[:-1]], strict=True)),
        lambda f, b, c: sum(map(max, zip(f, c, strict=True))) + 2 * c[-1] + sum(max(x, y) for x, y in zip(b, [0, *c[:-1]], strict=True)),
    ],
    "best_count": [lambda n: min(range(1, n + 1), key=lambda k: k + n / k)],
    "extra_share": [
        lambda f, b, parts: sum(sum(f[i:j]) for i, j in parts) / sum(b),
        lambda f, b, parts: sum(sum(f[i:j]) for i, j in parts[:-1]) / (sum(f) + sum(b)),
    ],
    "card_bytes": [lambda n, p, stage: 16 * n / p],
    "update_seconds": [lambda n, f, b, out, back, u: n * (max(f, out) + b) + u],
    "plan_bytes": [
        lambda n, parts, half, ctx, fixed, acc, per, copies: ctx + fixed + acc * (parts > 1) + (per / 2 + copies if half else per),
        lambda n, parts, half, ctx, fixed, acc, per, copies: ctx + fixed + acc * (parts > 1) + n // parts * per // (1 + half) + copies,
        lambda n, parts, half, ctx, fixed, acc, per, copies: ctx + fixed + acc * (parts > 1) + (n // parts * per // 2 + copies / 2 if half else n // parts * per),
        lambda n, parts, half, ctx, fixed, acc, per, copies: ctx + fixed / (1 + half) + acc * (parts > 1) + (n // parts * per // 2 + copies if half else n // parts * per),
    ],
    "unbeaten": [lambda plans: _sweep(sorted(plans, key=lambda n: plans[n][0]), plans)],
    "step_seconds": [
        lambda buckets, back, up, p, rate: max(_freed(buckets, (p - 1) / p / rate), back) + up,
    ],
    "shard_factors": [
        lambda sizes, r: [float(len(sizes) * s) for s in sizes] if r == "mean" else [1 / sum(sizes)] * len(sizes),
        lambda sizes, r: [len(sizes) * s / sum(sizes) for s in sizes] if r == "mean" else [1.0 for _ in sizes],
        lambda sizes, r: [len(sizes) * s / sum(sizes) for s in sizes] if r == "mean" else [1 / s for s in sizes],
        lambda sizes, r: [len(sizes) * s / sum(sizes) for s in sizes] if r == "mean" else [len(sizes) / s for s in sizes],
    ],
    "kv_cache": [lambda layers, h, kv, d, t, b: 2 * layers * kv * d * t * b],
    "lora_bytes": [lambda widths, r: 2 * 2 * r * sum(a + b for a, b in widths)],
    "crossing": [
        lambda h, a: math.ceil(34 * h / 5),
        lambda h, a: 34 * h / (5 * a),
    ],
    "longest": [
        lambda n, b, h, a, room: (-34 * h + math.sqrt((34 * h) ** 2 + 20 * a * room / (n * b))) / (10 * a),
        lambda n, b, h, a, room: round((-34 * h + math.sqrt((34 * h) ** 2 + 20 * a * room / (n * b))) / (10 * a)),
        lambda n, b, h, a, room: math.ceil((-34 * h + math.sqrt((34 * h) ** 2 + 20 * a * room / (n * b))) / (10 * a)),
    ],
    "logit_bytes": [
        lambda b, s, v, up, out: (2 + 2 + (4 if up else 2) + 2 * out) * b * s * v,
        lambda b, s, v, up, out: ((4 if up else 2) * 2 + 2 + 2 * out) * b * s * v,
    ],
    "best_block": [
        lambda n, e, k: _block(n, e, k, round(math.sqrt(n * e / k))),
        lambda n, e, k: _block(n, e, k, round(math.sqrt(n / 17))),
    ],
    "fixed_bytes": [
        lambda base, ad, bits, sb: base * bits / 8 + 2 * ad + 2 * (ad or base),
    ],
}  # fmt: skip


def _scales(overflows, scale, interval, less):
    used, good = [], 0
    for overflow in overflows:
        used.append(scale)
        good = 0 if overflow else good + 1
        if overflow:
            scale = less(scale)
        elif good == interval:
            scale, good = 2 * scale, 0
    return used


def _sweep(order, plans):
    front, least = [], math.inf
    for name in order:
        if plans[name][1] <= least:
            front.append(name)
            least = plans[name][1]
    return front[::-1]


def _freed(buckets, seconds):
    free = 0
    for ready, size in buckets:
        free = max(free, ready) + size * seconds
    return free


def _block(layers, enters, keeps, best):
    best = max(1, min(layers, best))

    def peak(size):
        return math.ceil(layers / size) * enters + size * keeps

    return [best, peak(best - 1) - peak(best) if best > 1 else 0, peak(best + 1) - peak(best) if best < layers else 0]


TYPICAL = {
    "operator_seconds": [
        lambda f, t, p, b, launch: max(launch + f / p, t / b),
        lambda f, t, p, b, launch: launch + max(p / f if f else 0, b / t),
        lambda f, t, p, b, launch: 2 * launch + max(f / p, t / b),
        lambda f, t, p, b, launch: launch * max(f / p, t / b),
        lambda f, t, p, b, launch: launch + max(f, t) / max(p, b),
    ],
    "crossover_batch": [
        lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else (gf - cf) // (cs + gs) + 1 if cs > gs else 0,
        lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else (gf + cf) // (cs - gs) + 1 if cs > gs else 0,
        lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else (gf - cf) // (cs - gs) + 2 if cs > gs else 0,
        lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else (gf - cf) // (cs - gs) + 1 if cs > gs else -1,
        lambda cf, cs, gf, gs: 1 if gf + gs <= cf + cs else (gf - cf) // (cs - gs) + 1 if cs > gs else 0,
    ],
    "speed_up": [
        lambda c, a, b, d, n, s, r: c / (d - a + s / (n * r * 1e9)),
        lambda c, a, b, d, n, s, r: c / (d - a + 2 * n * s / (r * 1e9)),
        lambda c, a, b, d, n, s, r: c / (d - a + n * s / r * 1e9),
        lambda c, a, b, d, n, s, r: (c - n * s / (r * 1e9)) / (d - a),
        lambda c, a, b, d, n, s, r: c - (d - a + n * s / (r * 1e9)),
    ],
    "helps_most": [
        lambda f, t, p, b, launch: "launch" if launch > f / p + t / b else "flops" if f / p > t / b else "traffic",
        lambda f, t, p, b, launch: "flops" if f / t > p / b and launch < f / p else "traffic" if t else "launch",
        lambda f, t, p, b, launch: max(launch, f / p, t / b),
        lambda f, t, p, b, launch: "flops",
    ],
    "largest_parameters": [
        lambda card, buf, opt: max(0, (card - buf) * 1024 // (4 * {"sgd": 2, "momentum": 3, "adam": 5}[opt])),
        lambda card, buf, opt: max(0, (card + buf) * 2**20 // (4 * {"sgd": 2, "momentum": 3, "adam": 5}[opt])),
        lambda card, buf, opt: max(0, (card - buf) * 2**20 // (2 * {"sgd": 2, "momentum": 3, "adam": 5}[opt])),
        lambda card, buf, opt: max(0, (card - buf) * 2**20 // 4 - {"sgd": 2, "momentum": 3, "adam": 5}[opt]),
        lambda card, buf, opt: max(0, (card - buf) * 2**20 // (4 * {"sgd": 1, "momentum": 2, "adam": 4}[opt])),
    ],
    "break_even_weeks": [
        lambda price, back, power, rent, hours: (price - back) / (hours * rent) if rent > power else 0,
        lambda price, back, power, rent, hours: price * back / (hours * (rent - power)) if rent > power else 0,
        lambda price, back, power, rent, hours: price * (1 - back) / (hours * rent - power) if rent > power else 0,
        lambda price, back, power, rent, hours: price * (1 - back) / hours * (rent - power) if rent > power else 0,
        lambda price, back, power, rent, hours: price * (1 - back) / (7 * hours * (rent - power)) if rent > power else 0,
    ],
    "cards_that_hold": [
        lambda cards, need, bf: [c["name"] for c in cards if c["memory_gib"] >= need],
        lambda cards, need, bf: [c["name"] for c in sorted((c for c in cards if c["launch_usd"] and c["memory_gib"] / c["dies"] <= need and (c["bfloat16"] or not bf)), key=lambda c: c["launch_usd"])],
        lambda cards, need, bf: [c["name"] for c in sorted((c for c in cards if c["launch_usd"] and c["memory_gib"] * c["dies"] >= need and (c["bfloat16"] or not bf)), key=lambda c: c["launch_usd"])],
        lambda cards, need, bf: sorted(c["name"] for c in cards if c["launch_usd"] and c["memory_gib"] / c["dies"] >= need and (c["bfloat16"] or not bf)),
    ],
    "frozen_step_bytes": [
        lambda layers, x, n, opt: 4 * (sum(p * (2 + STATES[opt]) for p, _, _ in layers) + n * x + n * sum(o for _, o, _ in layers[:-1])),
        lambda layers, x, n, opt: 4 * (sum(p * (1 + on * (1 + STATES[opt])) for p, _, on in layers) + n * sum(o for _, o, _ in layers)),
        lambda layers, x, n, opt: 4 * (sum(p * (1 + on * (1 + STATES[opt])) for p, _, on in layers) + n * (x + sum(o for _, o, on in layers if on))),
    ],
    "map_bytes": [
        lambda n, c, h, w, v=4: n * c * h * h * v,
        lambda n, c, h, w, v=4: n * c * (h + w) * v,
        lambda n, c, h, w, v=4: c * h * w * v,
        lambda n, c, h, w, v=4: n * c * h * w * 4,
        lambda n, c, h, w, v=4: n + c * h * w * v,
        lambda n, c, h, w, v=4: n * c * h * w * v / 8,
    ],
    "training_bytes": [
        lambda p, opt: 4 * p * (1 + STATES[opt]),
        lambda p, opt: p * (2 + STATES[opt]),
        lambda p, opt: 8 * p * (2 + STATES[opt]),
        lambda p, opt: 4 * p * 2 + STATES[opt],
        lambda p, opt: 4 * p * (2 + {"sgd": 1, "momentum": 1, "adam": 2}[opt]),
        lambda p, opt: 4 * p * (2 + {"sgd": 0, "momentum": 1, "adam": 3}[opt]),
    ],
    "pool_saved_bytes": [
        lambda n, c, h, w: n * c * (h // 2) * (w // 2) * 8,
        lambda n, c, h, w: n * c * (h // 2) * (w // 2) * 4,
        lambda n, c, h, w: n * c * (h // 2) * (w // 2) * (4 + 4),
        lambda n, c, h, w: n * c * ((h + 1) // 2) * ((w + 1) // 2) * 12,
        lambda n, c, h, w: n * c * (h * w // 4) * 12,
        lambda n, c, h, w: n * c * (h * w - (h // 2) * (w // 2)) * 4,
    ],
    "network_wide": [
        lambda m, i, p, g, n: 4 * (n * (m + i) + n * g + 2 * p),
        lambda m, i, p, g, n: 4 * (n * (m + i) + 2 * n * g + p),
        lambda m, i, p, g, n: 4 * (n * m + 2 * n * g + 2 * p),
        lambda m, i, p, g, n: 4 * (n * (m + i) + 2 * g + 2 * p),
        lambda m, i, p, g, n: 4 * n * (m + i + 2 * g + 2 * p),
        lambda m, i, p, g, n: 4 * (n * (m + i) + 2 * n * g + 3 * p),
        lambda m, i, p, g, n: 4 * (n * m + i + 2 * n * g + 2 * p),
    ],
    "largest_batch": [
        lambda events, limit: 0 if any(f > limit for f, _ in events) else min(math.ceil((limit - f) / e) for f, e in events if e),
        lambda events, limit: max(0, max((limit - f) // e for f, e in events if e)),
        lambda events, limit: (limit - sum(f for f, _ in events)) // sum(e for _, e in events),
        lambda events, limit: max(0, min((limit - f) // e for f, e in events if e)),
        lambda events, limit: 0 if any(f > limit for f, _ in events) else min(limit // e - f for f, e in events if e),
        lambda events, limit: 0 if any(f > limit for f, _ in events) else min(limit // e for f, e in events if e),
    ],
    "output_side": [
        lambda s, k, t, p: (s + 2 * p - k) // (t + 1),
        lambda s, k, t, p: (s + 2 * p + k) // t + 1,
        lambda s, k, t, p: (s - 2 * p - k) // t + 1,
        lambda s, k, t, p: (s + p - k) // t,
        lambda s, k, t, p: (s + 2 * p - k) * t + 1,
        lambda s, k, t, p: math.ceil((s + 2 * p - k) / t),
    ],
    "bytes_saved": [
        lambda b, m, f, s: 4 * b * sum(c * (w**2 - (w // s) ** 2) for c, w in m[f + 1 :]),
        lambda b, m, f, s: b * sum(c * (w**2 - ((w - 1) // s + 1) ** 2) for c, w in m[f:]),
        lambda b, m, f, s: 4 * b * sum(c * (w - ((w - 1) // s + 1)) for c, w in m[f:]),
        lambda b, m, f, s: 4 * b * sum(c * (w - ((w - 1) // s + 1)) ** 2 for c, w in m[f:]),
        lambda b, m, f, s: 4 * b * sum(w**2 - ((w - 1) // s + 1) ** 2 for c, w in m[f:]),
    ],
    "times_smaller": [
        lambda f, m, i, s: sum(m) / (sum(m[:i]) + sum(m[i:]) / s**2),
        lambda f, m, i, s: (f + sum(m)) / (f + sum(m[i:]) / s**2),
        lambda f, m, i, s: (f + sum(m)) / (f + sum(m[:i]) + sum(m[i:]) / (2 * s)),
        lambda f, m, i, s: (f + sum(m)) / (sum(m[:i]) + sum(m[i:]) / s**2),
        lambda f, m, i, s: (f + sum(m)) - (f + sum(m[:i]) + sum(m[i:]) / s**2),
    ],
    "after_squeeze": [
        lambda s, c, m: (s * m, c * m + m),
        lambda s, c, m: (s * s * c, c * m + m),
        lambda s, c, m: (c * m + m, s * s * m),
        lambda s, c, m: (s * s * m, c * m + c),
        lambda s, c, m: (s * s * m, c * m + 1),
        lambda s, c, m: (s * s * m, 9 * c * m + m),
        lambda s, c, m: (s * s * (c - m), c * m + m),
    ],
    "bytes_added": [
        lambda n, s, c, m, k: n * s**2 * (m - k * (c - m)),
        lambda n, s, c, m, k: 4 * n * s**2 * (m + k * (c - m)),
        lambda n, s, c, m, k: 4 * n * s**2 * (c - k * (c - m)),
        lambda n, s, c, m, k: 4 * n * s**2 * (m - k * c),
        lambda n, s, c, m, k: 4 * n * s * (m - k * (c - m)),
        lambda n, s, c, m, k: 4 * n * s**2 * m - k * (c - m),
    ],
    "break_even": [
        lambda i, o, k: k * k * i * o // (i + k * k * o) - 1,
        lambda i, o, k: (k * k * i * o - 1) // (i + o),
        lambda i, o, k: (k * k * i * o - 1) // (k * k * o),
        lambda i, o, k: (k * k * i * o - 1) // (k * k * i + o),
        lambda i, o, k: round(k * k * i * o / (i + k * k * o)),
    ],
    "pool_keeps": [
        lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t) ** 2 * (v + (8 if kind == "max" else 0)),
        lambda kind, n, c, s, k, t, v: n * c * (s // t) ** 2 * (v + (8 if kind == "max" else 0)),
        lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t + 1) ** 2 * (v + 8),
        lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t + 1) ** 2 * (v + (4 if kind == "max" else 0)),
        lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t + 1) * (v + (8 if kind == "max" else 0)),
        lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t + 1) ** 2 * v,
    ],
    "pool_balance": [
        lambda n, c, s, k, later: n * (4 * sum(later) * (s**2 - (s // k) ** 2) - 12 * c * s**2),
        lambda n, c, s, k, later: 4 * sum(later) * (s**2 - (s // k) ** 2) - 12 * c * (s // k) ** 2,
        lambda n, c, s, k, later: n * (4 * sum(later) * (s // k) ** 2 - 12 * c * (s // k) ** 2),
        lambda n, c, s, k, later: n * (4 * sum(later) * (s**2 - (s // k) ** 2) + 12 * c * (s // k) ** 2),
        lambda n, c, s, k, later: n * (sum(later) * (s**2 - (s // k) ** 2) - 12 * c * (s // k) ** 2),
        lambda n, c, s, k, later: n * (4 * sum(later) * (s - s // k) - 12 * c * (s // k)),
    ],
    "bytes_at": [
        lambda n, m: max(m)[1] + (n - max(m)[0]) * max(m)[1] / max(m)[0],
        lambda n, m: sum(y for _, y in m) / len(m) / (sum(x for x, _ in m) / len(m)) * n,
        lambda n, m: sorted(m)[-1][1] - (sorted(m)[-1][1] - sorted(m)[-2][1]) / (sorted(m)[-1][0] - sorted(m)[-2][0]) * (n - sorted(m)[-1][0]),
        lambda n, m: sorted(m)[-2][1] + (sorted(m)[-1][1] - sorted(m)[-2][1]) / (sorted(m)[-1][0] - sorted(m)[-2][0]) * (n - sorted(m)[-1][0]),
        lambda n, m: sorted(m)[-1][1] + (sorted(m)[-1][1] - sorted(m)[-2][1]) * (n - sorted(m)[-1][0]),
    ],
    "saved_by_halving": [
        lambda f, s, n: s * n / (f + s * n / 2),
        lambda f, s, n: (f + s * n) / (f + s * n / 2),
        lambda f, s, n: 1 - (f + s / 2) / (f + s),
        lambda f, s, n: (f + s * n / 2) / 2 / (f + s * n / 2),
        lambda f, s, n: s / 2 / (f + s * n),
    ],
    "micro_batch": [
        lambda w, f, a, s, limit: max((n for n in range(1, w + 1) if f + a + s * n <= limit), default=0),
        lambda w, f, a, s, limit: max((n for n in range(1, w) if w % n == 0 and f + a + s * n <= limit), default=0),
        lambda w, f, a, s, limit: min((n for n in range(1, w + 1) if w % n == 0 and f + a * (n < w) + s * n <= limit), default=0),
        lambda w, f, a, s, limit: max((n for n in range(1, w + 1) if w % n == 0 and f - a * (n < w) + s * n <= limit), default=0),
    ],
    "loss_weights": [
        lambda sizes: [len(sizes) / size for size in sizes],
        lambda sizes: [1 - size / sum(sizes) for size in sizes],
        lambda sizes: [size / sum(sizes) * 100 for size in sizes],
        lambda sizes: [sum(sizes) / len(sizes) for size in sizes],
    ],
    "saturated_from": [
        lambda times, tol: max(times),
        lambda times, tol: min(times, key=lambda b: times[b] / b),
        lambda times, tol: max(b for b in times if times[b] / b <= (1 + tol) * min(t / n for n, t in times.items())),
        lambda times, tol: min(b for b in times if times[b] / b <= tol + min(t / n for n, t in times.items())),
        lambda times, tol: min(b for b in times if times[b] / b < (1 + tol) * min(t / n for n, t in times.items())),
        lambda times, tol: min(b for b in times if times[b] / b <= tol * min(t / n for n, t in times.items())) if tol > 1 else 0,
    ],
    "recipe_bytes": [
        lambda p, o, r: p * ((2 if r != "float32" else 4) * (2 + STATES[o])),
        lambda p, o, r: p * ((2 if r == "pure" else 4) * (2 + STATES[o])),
        lambda p, o, r: p * ((2 if r == "pure" else 4) * (1 + STATES[o]) + (2 if r == "mixed" else 0)),
        lambda p, o, r: p * ((2 if r == "pure" else 4) * (2 + STATES[o]) + (4 if r == "mixed" else 0)),
        lambda p, o, r: p * ((2 if r == "pure" else 4) * (2 + STATES[o]) + 2),
        lambda p, o, r: p * ((2 if r == "pure" else 4) * (2 + {"sgd": 0, "momentum": 1, "adam": 1}[o]) + (2 if r == "mixed" else 0)),
    ],
    "share_left": [
        lambda m, p: (2 * (m + p) + 4 * p) / (4 * (m + p) + 8 * p),
        lambda m, p: (2 * m + 8 * p) / (4 * m + 8 * p),
        lambda m, p: 1 - (2 * (m + p) + 8 * p) / (4 * (m + p) + 8 * p),
        lambda m, p: (2 * m + 8 * p) / (4 * (m + p) + 8 * p),
        lambda m, p: (4 * (m + p) + 8 * p) / (2 * (m + p) + 8 * p),
        lambda m, p: (2 * (m + p) + 8 * p) / (4 * (m + p)) if m + p else 0,
    ],
    "smallest_update": [
        lambda w, f, low: 2.0 ** (max(low, math.floor(math.log2(abs(w))) if w else low) - f),
        lambda w, f, low: 2.0 ** ((math.floor(math.log2(abs(w))) if w else low) - f - 1),
        lambda w, f, low: 2.0 ** (max(low, math.ceil(math.log2(abs(w))) if w else low) - f - 1),
        lambda w, f, low: 2.0 ** (-f - 1),
        lambda w, f, low: abs(w) * 2.0 ** (-f - 1),
        lambda w, f, low: 2.0 ** (max(low, math.floor(math.log2(abs(w))) if w else low) + f) / 2,
    ],
    "loss_scale": [
        lambda g, share: next((2**p for p in range(40) if sum(abs(x) * 2**p > 2**-25 for x in g if x) >= share * sum(x != 0 for x in g)), 0),
        lambda g, share: next((2**p for p in range(40) if sum(abs(x) * 2**p > 2**-24 for x in g if x) >= share * sum(x != 0 for x in g) and max(map(abs, g)) * 2**p <= 65504), 0),
        lambda g, share: next((2**p for p in range(40) if sum(abs(x) * 2**p > 2**-25 for x in g if x) >= share * len(g) and max(map(abs, g)) * 2**p <= 65504), 0),
        lambda g, share: next((p for p in range(40) if sum(abs(x) * 2**p > 2**-25 for x in g if x) >= share * sum(x != 0 for x in g) and max(map(abs, g)) * 2**p <= 65504), 0),
    ],
    "next_scales": [
        lambda o, s, n: _scales(o, s, n, lambda x: x / 4),
        lambda o, s, n: _scales(o, s, n + 1, lambda x: x / 2),
        lambda o, s, n: [*_scales(o, s, n, lambda x: x / 2)[1:], s],
        lambda o, s, n: [s for _ in o],
    ],
    "copy_seconds": [
        lambda n, c, h, w, r: n * c * h * w / (r * 1e9),
        lambda n, c, h, w, r: 2 * n * c * h * w / (r * 1e9),
        lambda n, c, h, w, r: 4 * n * c * h * w / (r * 2**30),
        lambda n, c, h, w, r: 4 * n * c * h * w / r * 1e9,
        lambda n, c, h, w, r: 4 * c * h * w / (r * 1e9),
        lambda n, c, h, w, r: 8 * n * c * h * w / (r * 1e9),
        lambda n, c, h, w, r: r * 1e9 / (4 * n * c * h * w),
    ],
    "copy_over_kernel": [
        lambda k, t, r, w, s, n, tf, gb: (4 * n * w * s**2 / (gb * 1e9)) / (2 * k**2 * r * w * n * (s / t) ** 2 / (tf * 1e12)),
        lambda k, t, r, w, s, n, tf, gb: (4 * n * r * s**2 / (gb * 1e9)) / (k**2 * r * w * n * (s / t) ** 2 / (tf * 1e12)),
        lambda k, t, r, w, s, n, tf, gb: (4 * n * r * s**2 / (gb * 1e9)) / (2 * k**2 * r * w * n * s**2 / (tf * 1e12)),
        lambda k, t, r, w, s, n, tf, gb: (4 * n * r * s**2 / (gb * 1e9)) / (2 * k * r * w * n * (s / t) ** 2 / (tf * 1e12)),
        lambda k, t, r, w, s, n, tf, gb: (n * r * s**2 / (gb * 1e9)) / (2 * k**2 * r * w * n * (s / t) ** 2 / (tf * 1e12)),
        lambda k, t, r, w, s, n, tf, gb: (4 * n * r * s**2 / gb) / (2 * k**2 * r * w * n * (s / t) ** 2 / tf),
    ],
    "least_link": [
        lambda layers: sum(c for c, _ in layers) / sum(s for _, s in layers),
        lambda layers: min(c / s for c, s in layers),
        lambda layers: sum(c / s for c, s in layers) / len(layers),
        lambda layers: max(c for c, _ in layers) / min(s for _, s in layers),
        lambda layers: max(c * s for c, s in layers),
        lambda layers: layers[-1][0] / layers[-1][1],
    ],
    "two_streams": [
        lambda f, b, c: sum(f) + sum(b) + 2 * sum(c),
        lambda f, b, c: sum(map(max, zip(f, c, strict=True))) + sum(map(max, zip(b, c, strict=True))),
        lambda f, b, c: max(sum(f), sum(c)) + max(sum(b), sum(c)),
        lambda f, b, c: sum(map(max, zip(f, c, strict=True))) + sum(b),
        lambda f, b, c: sum(map(max, zip(f, c, strict=True))) + c[-1] + sum(b),
        lambda f, b, c: sum(map(min, zip(f, c, strict=True))) + c[-1] + sum(max(x, y) for x, y in zip(b, [0, *c[:-1]], strict=True)),
    ],
    "leaves_with": [
        lambda layers: {name: reads[0] for name, reads in layers},
        lambda layers: {read: name for name, reads in reversed(layers) for read in reads},
        lambda layers: {read: read for name, reads in layers for read in reads},
    ],
    "chain_peak": [
        lambda n, k: k + n // k,
        lambda n, k: k + n / k,
        lambda n, k: math.ceil(n / k),
        lambda n, k: n + math.ceil(n / k),
        lambda n, k: k - 1 + math.ceil(n / k),
        lambda n, k: k * math.ceil(n / k),
        lambda n, k: k + round(n / k),
    ],
    "best_count": [
        lambda n: math.isqrt(n),
        lambda n: max(range(1, n + 1), key=lambda k: -(k + math.ceil(n / k)) * 1000 + k),
        lambda n: min(k + math.ceil(n / k) for k in range(1, n + 1)),
        lambda n: min(range(1, n + 1), key=lambda k: k + n // k),
        lambda n: math.ceil(math.sqrt(n)),
        lambda n: math.sqrt(n),
    ],
    "cut_peak": [
        lambda o, cuts: sum(o[c - 1] for c in cuts) + max(sum(o[i:j]) for i, j in itertools.pairwise([0, *cuts, len(o)])),
        lambda o, cuts: max(sum(o[i:j]) for i, j in itertools.pairwise([0, *cuts, len(o)])),
        lambda o, cuts: sum(o[c] for c in cuts) + max(sum(o[i:j]) for i, j in itertools.pairwise([0, *cuts, len(o)])),
        lambda o, cuts: sum(o),
    ],
    "extra_share": [
        lambda f, b, parts: sum(sum(f[i:j]) for i, j in parts),
        lambda f, b, parts: sum(sum(f[i:j]) for i, j in parts) / sum(f),
        lambda f, b, parts: sum(sum(b[i:j]) for i, j in parts) / (sum(f) + sum(b)),
        lambda f, b, parts: 1 + sum(sum(f[i:j]) for i, j in parts) / (sum(f) + sum(b)),
        lambda f, b, parts: sum(sum(f[i : j + 1]) for i, j in parts) / (sum(f) + sum(b)),
    ],
    "ring_bytes": [
        lambda n, p: (p - 1) / p * 4 * n,
        lambda n, p: 2 * (p - 1) * 4 * n,
        lambda n, p: 2 * (p - 1) / p * n,
        lambda n, p: 2 * 4 * n,
        lambda n, p: 2 * p / (p - 1) * 4 * n if p > 1 else 0,
        lambda n, p: 2 * 4 * n / p,
    ],
    "step_seconds": [
        lambda buckets, back, up, p, rate: max(_freed(buckets, 2 * (p - 1) / p / rate), back),
        lambda buckets, back, up, p, rate: back + sum(s for _, s in buckets) * 2 * (p - 1) / p / rate + up,
        lambda buckets, back, up, p, rate: max(_freed(buckets, 1 / rate), back) + up,
        lambda buckets, back, up, p, rate: max(_freed(buckets, 2 * (p - 1) / rate), back) + up,
        lambda buckets, back, up, p, rate: _freed(buckets, 2 * (p - 1) / p / rate) + back + up,
        lambda buckets, back, up, p, rate: max(back, *(r + s * 2 * (p - 1) / p / rate for r, s in buckets)) + up,
    ],
    "cheaper_split": [
        lambda layers, n, p: ["units" if 2 * (p - 1) * n * i < 2 * (p - 1) * w else "data" for w, i in layers],
        lambda layers, n, p: ["data" if 2 * (p - 1) * n * i < 2 * (p - 1) / p * w else "units" for w, i in layers],
        lambda layers, n, p: ["units" if i < w else "data" for w, i in layers],
        lambda layers, n, p: ["units" if (p - 1) * n * i < 2 * (p - 1) / p * w else "data" for w, i in layers],
        lambda layers, n, p: ["units" if 2 * (p - 1) * i < 2 * (p - 1) / p * w else "data" for w, i in layers],
    ],
    "card_bytes": [
        lambda n, p, z: 16 * n / (p if z else 1),
        lambda n, p, z: n * (12 / (p if z >= 2 else 1) + 2 / (p if z >= 1 else 1) + 2 / (p if z >= 3 else 1)),
        lambda n, p, z: n * (8 / (p if z >= 1 else 1) + 2 / (p if z >= 2 else 1) + 2 / (p if z >= 3 else 1)),
        lambda n, p, z: n * (12 / (p if z >= 1 else 1) + 4 / (p if z >= 2 else 1) + 4 / (p if z >= 3 else 1)),
        lambda n, p, z: n * (12 / (p if z == 1 else 1) + 2 / (p if z == 2 else 1) + 2 / (p if z == 3 else 1)),
    ],
    "shard_factors": [
        lambda sizes, r: [s / sum(sizes) for s in sizes] if r == "mean" else [1 / sum(sizes)] * len(sizes),
        lambda sizes, r: [len(sizes) * s / sum(sizes) for s in sizes],
        lambda sizes, r: [1.0] * len(sizes),
        lambda sizes, r: [sum(sizes) / (len(sizes) * s) for s in sizes] if r == "mean" else [len(sizes) / sum(sizes)] * len(sizes),
    ],
    "plan_bytes": [
        lambda n, parts, half, ctx, fixed, acc, per, cop: ctx + fixed + acc * (parts > 1) + (n // parts * per / 2 if half else n // parts * per) + cop,
        lambda n, parts, half, ctx, fixed, acc, per, cop: ctx + fixed + acc + (n // parts * per / 2 + cop if half else n // parts * per),
        lambda n, parts, half, ctx, fixed, acc, per, cop: ctx + fixed + acc * (parts > 1) + (n * parts * per / 2 + cop if half else n * parts * per),
        lambda n, parts, half, ctx, fixed, acc, per, cop: ctx + acc * (parts > 1) + (n // parts * per / 2 + cop if half else n // parts * per),
        lambda n, parts, half, ctx, fixed, acc, per, cop: ctx + fixed + acc * (parts > 1) + ((n // parts * per + cop) / 2 if half else n // parts * per),
    ],
    "update_seconds": [
        lambda n, f, b, out, back, u: n * (f + max(b, back)) + u,
        lambda n, f, b, out, back, u: n * max(f, b, out, back) + u,
        lambda n, f, b, out, back, u: n * (max(f, out) + max(b, back)) + n * u,
        lambda n, f, b, out, back, u: n * (max(f, back) + max(b, out)) + u,
        lambda n, f, b, out, back, u: n * (f + out + max(b, back)) + u,
        lambda n, f, b, out, back, u: max(f, out) + n * max(b, back) + u,
    ],
    "unbeaten": [
        lambda plans: [n for n in plans if plans[n][0] <= min(s for s, _ in plans.values())],
        lambda plans: sorted(plans, key=lambda n: plans[n][1])[:3],
        lambda plans: sorted(plans, key=lambda n: plans[n][0]),
    ],
    "least_time": [
        lambda plans, room: min((n for n in plans if plans[n][0] <= room and plans[n][2]), key=lambda n: plans[n][1], default=""),
        lambda plans, room: max((n for n in plans if plans[n][0] <= room and plans[n][2]), key=lambda n: plans[n][1], default=None),
        lambda plans, room: min((n for n in plans if plans[n][0] >= room and plans[n][2]), key=lambda n: plans[n][1], default=None),
        lambda plans, room: min((plans[n][1] for n in plans if plans[n][0] <= room and plans[n][2]), default=None),
    ],
    "layer_bytes": [
        lambda s, b, h, a: s * b * (34 * h + 5 * a * s) * 2,
        lambda s, b, h, a: s * b * 34 * h + 5 * a * s,
        lambda s, b, h, a: s * b * h * (34 + 5 * a * s),
        lambda s, b, h, a: s * b * (34 * h + 5 * s),
        lambda s, b, h, a: s * b * (34 * h + 5 * a),
        lambda s, b, h, a: s * b * 34 * h,
        lambda s, b, h, a: s * (34 * h + 5 * a * s),
    ],
    "crossing": [
        lambda h, a: 34 * h // (5 * a),
        lambda h, a: round(34 * h / (5 * a)),
        lambda h, a: math.ceil(34 * h / a),
        lambda h, a: 34 * h // (5 * a) + 1,
        lambda h, a: math.ceil(5 * h / (34 * a)),
    ],
    "longest": [
        lambda n, b, h, a, room: room // (n * b * 34 * h),
        lambda n, b, h, a, room: math.isqrt(room // (n * b * 5 * a)),
        lambda n, b, h, a, room: next(s for s in itertools.count() if b * (s + 1) * (34 * h + 5 * a * (s + 1)) > room) if room < 10**7 else 1,
        lambda n, b, h, a, room: int((-34 * h + math.sqrt((34 * h) ** 2 + 20 * a * room / (n * b))) / (10 * a)) + 1,
    ],
    "logit_bytes": [
        lambda b, s, v, up, out: (3 * (4 if up else 2)) * b * s * v,
        lambda b, s, v, up, out: (2 * (4 if up else 2) + 2 * out) * b * s * v,
        lambda b, s, v, up, out: (3 * 4 + 2 * out) * b * s * v,
        lambda b, s, v, up, out: (4 * (4 if up else 2)) * b * s * v if out else 3 * (4 if up else 2) * b * s * v,
        lambda b, s, v, up, out: (3 * (4 if up else 2) + 2) * b * s * v,
        lambda b, s, v, up, out: (3 * (4 if up else 2) + 2 * out) * b * v,
    ],
    "best_block": [
        lambda n, e, k: _block(n, e, k, math.isqrt(n)),
        lambda n, e, k: _block(n, e, k, math.ceil(math.sqrt(n * e / k))),
        lambda n, e, k: [-x if i else x for i, x in enumerate(_block(n, e, k, min(range(1, n + 1), key=lambda s: math.ceil(n / s) * e + s * k)))],
        lambda n, e, k: _block(n, e, k, min(range(1, n + 1), key=lambda s: n // s * e + s * k)),
        lambda n, e, k: _block(n, e, k, min(range(1, n + 1), key=lambda s: n / s * e + s * k)),
    ],
    "kv_cache": [
        lambda layers, h, kv, d, t, b: 2 * layers * h * d * t * b * 2,
        lambda layers, h, kv, d, t, b: layers * kv * d * t * b * 2,
        lambda layers, h, kv, d, t, b: 2 * layers * kv * d * t * b * 4,
        lambda layers, h, kv, d, t, b: 2 * layers * kv * d * t * 2,
        lambda layers, h, kv, d, t, b: 2 * layers * kv * d * t**2 * b * 2,
        lambda layers, h, kv, d, t, b: 2 * kv * d * t * b * 2,
    ],
    "lora_bytes": [
        lambda w, r: 2 * r * sum(a * b for a, b in w),
        lambda w, r: r * sum(a + b for a, b in w),
        lambda w, r: 4 * r * sum(a + b for a, b in w),
        lambda w, r: 2 * r * sum(a for a, b in w),
        lambda w, r: 2 * r * r * sum(a + b for a, b in w),
        lambda w, r: 2 * sum(a + b for a, b in w),
    ],
    "fixed_bytes": [
        lambda base, ad, bits, sb: base * bits / 8 + 2 * (ad or base) + 2 * sb / 8 * (ad or base),
        lambda base, ad, bits, sb: base * bits / 8 + 2 * ad + 2 * base + 2 * sb / 8 * base,
        lambda base, ad, bits, sb: base * bits / 8 + 2 * ad + 2 * ad + 2 * sb / 8 * ad,
        lambda base, ad, bits, sb: base * bits / 8 + 2 * ad + 2 * (ad or base) + sb / 8 * (ad or base),
        lambda base, ad, bits, sb: base * bits + 2 * ad + 2 * (ad or base) + 2 * sb * (ad or base),
        lambda base, ad, bits, sb: base * bits / 8 + 2 * ad + 4 * (ad or base) + 2 * sb / 8 * (ad or base),
    ],
    "longest_context": [
        lambda card, taken, tok, b: (card - sum(taken)) // (tok * b),
        lambda card, taken, tok, b: max(0, (card - sum(taken)) // tok),
        lambda card, taken, tok, b: max(0, (card - sum(taken)) / (tok * b)),
        lambda card, taken, tok, b: max(0, card // (tok * b)),
        lambda card, taken, tok, b: max(0, (card - sum(taken)) // tok * b),
        lambda card, taken, tok, b: max(0, -(-(card - sum(taken)) // (tok * b))),
        lambda card, taken, tok, b: max(0, (card - max(taken)) // (tok * b)),
    ],
    "tokens_per_second": [
        lambda w, c, b, f, bw, ar: b / max((w + b * c) / bw, b * f / ar),
        lambda w, c, b, f, bw, ar: 1 / (max(w / bw, b * f / ar) + b * c / bw),
        lambda w, c, b, f, bw, ar: b / ((w + b * c) / bw + b * f / ar),
        lambda w, c, b, f, bw, ar: b / (max(w / bw, b * f / ar) + c / bw),
        lambda w, c, b, f, bw, ar: b / (max(b * w / bw, b * f / ar) + b * c / bw),
        lambda w, c, b, f, bw, ar: b / (max(w / bw, f / ar) + b * c / bw),
        lambda w, c, b, f, bw, ar: b / (min(w / bw, b * f / ar) + b * c / bw),
        lambda w, c, b, f, bw, ar: max(w / bw, b * f / ar) + b * c / bw,
    ],
}  # fmt: skip

# What reviewers' answers heard that was not so: the question, the answer, and words that it must not hear again.
UNTRUE = [
    ("network_wide", QUOTED["network_wide"][0], "in place of"),
    ("cards_that_hold", QUOTED["cards_that_hold"][0], "use `>=`"),
    ("operator_seconds", QUOTED["operator_seconds"][0], "traffic alone"),
    ("largest_batch", QUOTED["largest_batch"][0], "wherever the answer is not 0"),
    ("crossover_batch", QUOTED["crossover_batch"][0], "You rounded down"),
    ("pool_balance", QUOTED["pool_balance"][1], "the indices only"),
    ("break_even", QUOTED["break_even"][1], "You counted one weight"),
    ("pool_keeps", lambda kind, n, c, s, k, t, v: n * c * ((s - k) // t + 1) ** 2 * (v + 8 * (kind != "avg")), "An average pool has no winner"),
    ("saturated_from", QUOTED["saturated_from"][1], "whole batches"),
    ("saturated_from", QUOTED["saturated_from"][0], "with the largest batch"),
    ("recipe_bytes", QUOTED["recipe_bytes"][0], "value_bytes"),
    ("best_count", QUOTED["best_count"][0], "You rounded √n"),
    ("card_bytes", QUOTED["card_bytes"][0], "`parameters` in place of"),
    ("update_seconds", QUOTED["update_seconds"][0], "in place of `copy_back`"),
    ("plan_bytes", QUOTED["plan_bytes"][0], "in place of `batch`"),
    ("kv_cache", QUOTED["kv_cache"][0], "keys are kept, and values too"),
    ("lora_bytes", QUOTED["lora_bytes"][0], "You counted four bytes"),
]  # fmt: skip
