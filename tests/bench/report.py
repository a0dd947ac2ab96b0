# SPDX-License-Identifier: Apache-2.0
"""What bench.py measured as lines, Markdown and SVG."""
import html, itertools, math

INK, PALE, HEED, LIMIT = "#333", "#ddd", "#2b6cb0", "#c05621"


def number(x):
    if x == 0: return "0"
    if abs(x) >= 100: return f"{x:,.0f}"
    return f"{x:.3g}"


def cells(row):
    share = f"{100 * row['share_of_limit']:.0f} %" if row["share_of_limit"] else "-"
    if "ratio" not in row: return [row["name"], f"{number(row['value'])} {row['unit']}".strip(), share, "no peer", "-"]
    peer = f"{row['peer']}: {number(row['peer_value'])}"
    return [row["name"], f"{number(row['value'])} {row['unit']}".strip(), share, peer, f"{row['p10']:.2f} / **{row['ratio']:.2f}** / {row['p90']:.2f}"]


def line(row):
    name, value, share, peer, ratio = cells(row)
    return f"{row['section']:9} {name:58} {value:>18} {share:>6}  {peer:32} {ratio.replace('*', '')}".rstrip()


def table(head, rows): return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n"


def roofline(limits, threads):
    counts = sorted({1, threads})
    named = lambda n: "1 thread" if n == 1 else f"{n} threads"
    rows = []
    for when, x in zip(("before", "after"), limits):
        rows += [[f"multiply-adds, {isa}, {when}", *(f"{peak[str(n)]:.1f} GF/s" for n in counts)] for isa, peak in x["peak"].items() if isa not in ("SCALAR", "EMU128")]
        rows += [[f"{level}, read / write, {when}", *(f"{b[str(n)]['read']:.1f} / {b[str(n)]['write']:.1f} GB/s" for n in counts)] for level, b in x["bandwidth"].items()]
        rows += [[f"first touch of {size}, {when}", f"{us:.2f} us", *[""] * (len(counts) - 1)] for size, us in x["first_touch_us"].items()]
        rows += [[f"clock, {when}", f"{x['clock']:.2f} GHz", *[""] * (len(counts) - 1)]]
    return table(["limit of the machine", *map(named, counts)], rows)


def doublings(curves):
    rows = []
    for curve in curves:
        for a, b in itertools.pairwise(curve["points"]):
            work, time = b["flop"] / a["flop"], b["seconds"] / a["seconds"]
            rows.append([curve["axis"], f"{number(a['at'])} to {number(b['at'])}", f"{work:.2f}", f"{time:.2f}", f"{time / work:.2f}"])
    return table(["growth", "from, to", "operations, times", "time, times", "time an operation, times"], rows)


def markdown(results):
    r = results
    peers = ", ".join(f"{k} {v}" for k, v in r["peers"].items()) or "none"
    text = [f"{r['machine']}; Heed: {r['heed']}. Peers: {peers}. {r['threads']} thread{'s' * (r['threads'] > 1)} each, {r['rounds']} rounds of {r['seconds']:g} s, in turns, load before {r['load_before']:.2f}.\n"]
    text += [f"**{n}**\n" if n.startswith("unsteady") else f"{n}\n" for n in r["notes"]]
    text += ["A ratio says how many times better Heed is than the best peer of the same round: p10 / **median** / p90. The limit: of products the larger of "
             "operations at the peak and operands at the bandwidth of what holds them; of ops the same with what must be read and written once; of training "
             "and growth all operations of matrix products at the peak; of decoding the larger of those of a word, its source's word among them, at the peak "
             "and the decoder's weights once a step at the bandwidth of what holds them.\n"]
    for section in dict.fromkeys(x["section"] for x in r["rows"]):
        text.append(table([section, "Heed", "of the limit", "best peer", "ratio"], [cells(x) for x in r["rows"] if x["section"] == section]))
    if r["growth"]: text.append(doublings(r["growth"]))
    text.append(roofline(r["roofline"], r["threads"]))
    return "\n".join(text)


# ---- SVG
def text(x, y, words, anchor="start", size=12, color=INK): return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">{html.escape(str(words))}</text>'


def stroke(x1, y1, x2, y2, color=INK, width=1, dash=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>"


def drawing(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" font-family="sans-serif">'
            f'<rect width="100%" height="100%" fill="white"/>' + "".join(parts) + "</svg>\n")


def bars(results):
    """Median ratios as bars from 1 on a scale of doublings, p10 to p90 as whiskers; None without a peer."""
    rows = [r for r in results["rows"] if "ratio" in r]
    if not rows: return None
    low = math.floor(min(0, *(math.log2(r["p10"]) for r in rows)))
    high = math.ceil(max(1, *(math.log2(r["p90"]) for r in rows)))
    left, wide, step, top = 380, 420, 18, 64
    at = lambda ratio: left + wide * (math.log2(ratio) - low) / (high - low)
    parts, y, section = [text(12, 22, "How many times better Heed is than the best peer of the same round", size=15)], top, None
    parts.append(text(12, 40, f"{results['machine']}, {results['threads']} thread{'s' * (results['threads'] > 1)}; median, p10 to p90 of {results['rounds']} rounds" + ("; unsteady" if results["unsteady"] else ""), color="#666"))
    body = []
    for r in rows:
        if r["section"] != section:
            y += 12 if section else 0
            section = r["section"]
            body.append(text(12, y + 12, section, size=13))
            y += step
        a, b = sorted((at(1), at(r["ratio"])))
        body += [text(left - 8, y + 12, r["name"], "end"), f'<rect x="{a:.1f}" y="{y + 2}" width="{b - a:.1f}" height="{step - 6}" fill="{HEED if r["ratio"] >= 1 else LIMIT}"/>',
                 stroke(at(r["p10"]), y + 8, at(r["p90"]), y + 8), text(left + wide + 10, y + 12, f"{r['ratio']:.2f}  {r['peer']}")]
        y += step
    for power in range(low, high + 1):
        x = left + wide * (power - low) / (high - low)
        parts += [stroke(x, top - 4, x, y + 4, INK if power == 0 else PALE), text(x, y + 20, f"{2.0 ** power:g}", "middle")]
    return drawing(left + wide + 170, y + 34, parts + body)


def growth(curves):
    """A panel an axis: time of a step and its limit against operations, both on scales of tens; None without curves."""
    if not curves: return None
    width, height, gap = 250, 190, 62
    parts = [text(12, 22, "Time of a training step or of a search (small) as one size grows", size=15), text(12, 40, "blue: measured; orange: its operations at the peak of the machine", color="#666")]
    for i, curve in enumerate(curves):
        x0, y0 = gap + (i % 3) * (width + gap), 76 + (i // 3) * (height + gap + 16)
        points = curve["points"]
        by_operations = points[-1]["flop"] > points[0]["flop"]
        xs = [p["flop"] * 1e-9 if by_operations else p["at"] for p in points]
        times = [p["seconds"] * 1e3 for p in points] + [p["limit"] * 1e3 for p in points]
        x_low, x_high, y_low, y_high = math.log10(xs[0]), math.log10(xs[-1]), math.log10(min(times)), math.log10(max(times))
        x = lambda v: x0 + 12 + (width - 24) * (math.log10(v) - x_low) / max(1e-9, x_high - x_low)
        y = lambda v: y0 + height - 12 - (height - 24) * (math.log10(v) - y_low) / max(1e-9, y_high - y_low)
        slope = (math.log(points[-1]["seconds"] / points[0]["seconds"]) / math.log(xs[-1] / xs[0])) if xs[-1] > xs[0] else 0
        parts += [f'<rect x="{x0}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="{PALE}"/>', text(x0, y0 - 6, f"{curve['axis']} ~ {'operations' if by_operations else 'itself'}^{slope:.2f}", size=13)]
        for key, color in (("limit", LIMIT), ("seconds", HEED)):
            ys = [p[key] * 1e3 for p in points]
            parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="' + " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(xs, ys)) + '"/>')
            parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{color}"/>' for a, b in zip(xs, ys)]
        last = -math.inf
        for a, p in zip(xs, points):
            if x(a) - last >= 36:   # room for the numbers
                parts.append(text(x(a), y0 + height + 15, number(p["at"]), "middle", 11))
                last = x(a)
        parts += [text(x0 - 5, y(t) + 4, number(t), "end", 11) for t in (min(times), max(times))] + [text(x0 - 5, y0 - 6, "ms", "end", 11)]
    rows = (len(curves) + 2) // 3
    return drawing(gap + 3 * (width + gap), 76 + rows * (height + gap + 16), parts)
