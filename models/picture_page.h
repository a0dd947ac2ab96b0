// SPDX-License-Identifier: Apache-2.0
// Style and script of the page that attention_html makes. FONT stands for drawing::kFont.
// The script reads JSON from #data:
//   unit (weights are integers in 1 / unit), full (weight of the darkest colour), two_sided,
//   colours [positive, negative][0..100], words [lists of them], sure and possible [[s, t]], first (the map shown first),
//   maps [{kind, layer, head, heads, label, rows and columns (which list), row_title, column_title,
//          weights [rows x columns] (null: not a number), windows [[first, last, first, last, ..]]}]
#pragma once
#include <string_view>

namespace heed::picture {

inline constexpr std::string_view kPageStyle = R"css(
:root { color-scheme: light; --ink: #1f2933; --muted: #5f6b7a; --rule: #dfe4ea; --pick: #1d4ed8; --gold: #f08c00 }
* { box-sizing: border-box }
body { margin: 0; padding: 28px 32px 40px; background: #fff; color: var(--ink); font: 15px/1.5 FONT }
h1 { font-size: 20px; line-height: 1.3; margin: 0 0 2px }
h2 { font-size: 13px; font-weight: 600; margin: 0 0 8px }
p { margin: 0; color: var(--muted); font-size: 13px; max-width: 80ch }
button, select { font: inherit; font-size: 13px; color: inherit; background: #fff; cursor: pointer;
  border: 1px solid var(--rule); border-radius: 7px; padding: 4px 11px }
button:hover, select:hover { border-color: #9aa5b1 }
button[aria-pressed=true] { background: var(--pick); border-color: var(--pick); color: #fff }
:focus-visible { outline: 2px solid var(--pick); outline-offset: 1px }
#controls { display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: center; margin: 18px 0 16px }
#controls > span { display: flex; gap: 6px; align-items: center; color: var(--muted); font-size: 13px }
#main { display: flex; flex-wrap: wrap; gap: 24px 44px; align-items: flex-start }
#view { min-width: 0; max-width: 100% }
#label { font-size: 14px; font-weight: 600; margin: 0 0 8px; color: var(--ink) }
#scroll { overflow: auto; max-width: 100%; max-height: 78vh; padding: 0 2px 2px 0 }
#grid { display: grid; width: max-content; font-size: 13px }
#grid bdi { display: block; white-space: pre; overflow: hidden; text-overflow: ellipsis }
.column, .row, .cell { display: flex; align-items: center; justify-content: center }
.corner, .column, .row { position: sticky; z-index: 1; background: #fff }
.corner { left: 0; top: 0; z-index: 2 }
.column { top: 0; align-items: flex-end; padding: 0 0 6px; cursor: default }
.column.turned bdi { writing-mode: vertical-rl; text-orientation: sideways; transform: rotate(180deg); max-height: 190px }
.row { left: 0; justify-content: flex-end; padding: 0 9px 0 0; cursor: pointer }
.row bdi { max-width: 190px }
.row.on, .column.on { font-weight: 600; color: var(--pick) }
.cell { width: calc(var(--cell) - 1px); height: calc(var(--cell) - 1px); margin: 0 1px 1px 0;
  color: transparent; cursor: pointer; font-size: 10px; font-variant-numeric: tabular-nums }
.small .cell { font-size: 8px }
.cell.lit { color: var(--ink) }
.cell.lit.dark { color: #fff }
.cell.dim { opacity: .38 }
.sure, .possible { outline: 2px solid var(--gold); outline-offset: -3px; box-shadow: inset 0 0 0 4px #fffc }
.possible { outline-style: dashed }
.window { border: 1px solid #475569; border-width: 1px 0 }
.window.first { border-left-width: 1px }
.window.last { border-right-width: 1px }
#legend { display: flex; flex-wrap: wrap; gap: 6px 18px; align-items: center; margin: 14px 0 0;
  color: var(--muted); font-size: 12px }
#bar { display: inline-block; width: 160px; height: 12px; border: 1px solid var(--rule); vertical-align: middle; margin: 0 7px }
.key { display: inline-block; width: 14px; height: 14px; vertical-align: -2px; margin-right: 6px }
.key.sure, .key.possible { outline-offset: -1px; box-shadow: none }
.key.window { border-width: 1px }
#side { flex: 1 1 320px; min-width: 280px; max-width: 640px }
#overview { display: grid; gap: 6px 8px; justify-content: start; align-items: center; margin: 0 0 26px; padding: 0 0 3px;
  overflow: auto; font-size: 12px; color: var(--muted) }
#overview button { padding: 2px; line-height: 0; border-radius: 5px }
#overview button[aria-pressed=true] { background: #fff; box-shadow: 0 0 0 1px var(--pick) }
#overview canvas { width: 46px; height: 46px; image-rendering: pixelated; border-radius: 2px }
#overview .head { text-align: center }
#reading .target { margin: 0 0 12px; font-size: 14px }
#reading b { color: var(--ink) }
#reading .words { display: flex; flex-wrap: wrap; gap: 5px 4px; line-height: 1 }
#reading .words span { display: inline-flex; flex-direction: column; align-items: center; border-radius: 5px;
  padding: 6px 7px 5px; font-size: 14px }
#reading small { font-size: 10.5px; margin-top: 5px; font-variant-numeric: tabular-nums; opacity: .85 }
#hint { margin-top: 22px; font-size: 12px }
)css";

inline constexpr std::string_view kPageScript = R"js(
"use strict";
const data = JSON.parse(document.getElementById("data").textContent), $ = id => document.getElementById(id);
const make = (tag, parent, text, name) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (name) e.className = name;
  if (parent) parent.append(e);
  return e;
};
const shade = x => x === null ? "#c4c4c4" : data.colours[x < 0 ? 1 : 0][Math.min(100, Math.round(Math.abs(x) * 100))];
const dark = x => x !== null && Math.abs(x) > .45;
const number = w => w === null ? "?" : (w / data.unit).toFixed(3);
const unique = list => [...new Set(list)];
const kinds = unique(data.maps.map(m => m.kind));
let map = data.maps[data.first], row = -1, column = -1, fit = false, top_ = 1;

const of = kind => data.maps.filter(m => m.kind === kind);
const value = i => map.weights[i] === null ? null : map.weights[i] / data.unit / top_;
const nearest = (kind, layer, head) => {
  const maps = of(kind), same = maps.filter(m => m.layer === layer);
  return same.find(m => m.head === head) || same[0] || maps.find(m => m.head === head) || maps[0];
};
function pick(next) {
  map = next;
  if (row >= data.words[map.rows].length || column >= data.words[map.columns].length) row = column = -1;
  draw();
}

function controls() {
  const bar = $("controls");
  bar.replaceChildren();
  const group = name => { const g = make("span", bar); make("span", g, name); return g; };
  if (kinds.length > 1) {
    const g = group("");
    for (const k of kinds) {
      const b = make("button", g, k);
      b.setAttribute("aria-pressed", k === map.kind);
      b.onclick = () => pick(nearest(k, map.layer, map.head));
    }
  }
  const choose = (name, values, current, text, then) => {
    if (values.length < 2) return;
    const s = make("select", group(name));
    s.setAttribute("aria-label", name);
    values.forEach((v, i) => { const o = make("option", s, text(v)); o.value = i; o.selected = v === current; });
    s.onchange = () => then(values[s.value]);
  };
  const maps = of(map.kind), layers = unique(maps.map(m => m.layer));
  choose("layer", layers, map.layer, v => v || "none", v => pick(nearest(map.kind, v, map.head)));
  const name = m => m.head ? m.head : m.heads > 1 ? "mean of " + m.heads : m.label;
  choose("head", maps.filter(m => m.layer === map.layer), map, name, pick);
  const g = group("darkest at"), b = [["weight " + +data.full.toPrecision(3), false], ["largest weight", true]];
  for (const [text, is] of b) {
    const e = make("button", g, text);
    e.setAttribute("aria-pressed", fit === is);
    e.onclick = () => { fit = is; draw(); };
  }
}

function overview() {
  const maps = of(map.kind), box = $("overview"), layers = unique(maps.map(m => m.layer));
  $("all").hidden = maps.length < 2;
  box.replaceChildren();
  if (maps.length < 2) return;
  const per = layers.map(l => maps.filter(m => m.layer === l)), most = Math.min(Math.max(...per.map(p => p.length)), 12);
  box.style.gridTemplateColumns = "max-content repeat(" + most + ",max-content)";
  if (per[0].length <= most) {   // numbers of the heads above the columns
    make("span", box, layers[0] && per[0].some(m => m.head) ? "head" : "");
    for (let i = 0; i < most; i++) {
      const m = per[0][i];
      make("span", box, m && m.head ? m.head : m && m.heads > 1 ? "mean" : "", "head");
    }
  }
  layers.forEach((l, k) => {
    const name = make("span", box, l ? "layer " + l : "");
    name.style.gridColumn = "1";
    per[k].forEach((m, i) => {
      const b = make("button", box);
      if (i && i % most === 0) b.style.gridColumn = "2";
      b.title = m.label;
      b.setAttribute("aria-label", m.label);
      b.setAttribute("aria-pressed", m === map);
      b.onclick = () => pick(m);
      const R = data.words[m.rows].length, C = data.words[m.columns].length, c = make("canvas", b);
      c.width = C || 1; c.height = R || 1;
      const pen = c.getContext("2d"), peak = scaleOf(m);
      m.weights.forEach((w, j) => {
        pen.fillStyle = shade(w === null ? null : w / data.unit / peak);
        pen.fillRect(j % C, Math.floor(j / C), 1, 1);
      });
    });
  });
}

const scaleOf = m => fit ? m.weights.reduce((a, w) => Math.max(a, Math.abs(w || 0)), 0) / data.unit || 1 : data.full;

function draw() {
  top_ = scaleOf(map);
  controls(); overview();
  const rows = data.words[map.rows], columns = data.words[map.columns], C = columns.length, grid = $("grid");
  const side = C > 36 ? 22 : C > 16 ? 28 : 34;
  $("label").textContent = map.label;
  grid.style.setProperty("--cell", side + "px");
  grid.classList.toggle("small", side < 28);
  grid.style.gridTemplateColumns = "max-content" + (C ? " repeat(" + C + ",var(--cell))" : "");
  grid.replaceChildren();
  make("div", grid, undefined, "corner");
  columns.forEach((w, s) => {
    const e = make("div", grid, undefined, "column"), word = make("bdi", e, w);
    word.title = w;
    if (columns.some(v => [...v].length > 2)) e.classList.add("turned");
    e.onmouseenter = () => point(-1, s);
  });
  rows.forEach((w, t) => {
    const e = make("div", grid, undefined, "row"), word = make("bdi", e, w);
    word.title = w;
    e.onmouseenter = () => point(t, -1);
    for (let s = 0; s < C; s++) {
      const i = t * C + s, x = value(i), c = make("div", grid, number(map.weights[i]).replace(/^(-?)0\./, "$1."), "cell");
      c.style.background = shade(x);
      c.title = w + " \u200e\u2190\u200e " + columns[s] + ": " + number(map.weights[i]);
      if (dark(x)) c.classList.add("dark");
      for (let k = 0; map.windows && k < map.windows[t].length; k += 2) {
        const [first, last] = map.windows[t].slice(k);
        if (s < first || s > last) continue;
        c.classList.add("window");
        c.classList.toggle("first", s === Math.max(first, 0));
        c.classList.toggle("last", s === Math.min(last, C - 1));
      }
      c.onmouseenter = () => point(t, s);
    }
  });
  if (map.kind === "cross-attention")
    for (const name of ["possible", "sure"])
      for (const [s, t] of data[name]) { const c = cell(t, s); c.classList.remove("possible"); c.classList.add(name); }
  if (!C) make("p", grid, "no columns: nothing to look at");
  legend(); point(row, column);
}
const cell = (t, s) => $("grid").children[(t + 1) * (data.words[map.columns].length + 1) + s + 1];

function legend() {
  const box = $("legend"), bar = make("span"), low = data.two_sided ? -1 : 0, text = v => String(+v.toPrecision(3));
  box.replaceChildren();
  bar.id = "bar";
  const stops = [...Array(21).keys()].map(i => shade(low + (1 - low) * i / 20));
  bar.style.background = "linear-gradient(to right," + stops.join() + ")";
  make("span", box).append("weight\u2002" + text(low * top_), bar, text(top_));
  if (map.kind === "cross-attention")
    for (const name of ["sure", "possible"])
      if (data[name].length) { const k = make("span", box); make("i", k, "", "key " + name); k.append("gold link, " + name); }
  if (map.windows) { const k = make("span", box); make("i", k, "", "key window"); k.append("window of the attention"); }
}

// Row t alone: what it looks at. Column s alone: who looks at it.
function point(t, s) {
  row = t; column = s;
  const rows = data.words[map.rows], columns = data.words[map.columns], C = columns.length, grid = $("grid").children;
  const whole = t < 0 && s >= 0;
  for (let r = 0; r <= rows.length; r++)
    for (let c = 0; c <= C; c++) {
      const e = grid[r * (C + 1) + c];
      if (!e) continue;
      if (r && c) {
        const on = whole ? c - 1 === s : r - 1 === t;
        e.classList.toggle("lit", on);
        e.classList.toggle("dim", !on && (t >= 0 || s >= 0));
      } else if (r + c) e.classList.toggle("on", r ? r - 1 === t : c - 1 === s);
    }
  const box = $("reading");
  box.replaceChildren();
  $("about").textContent = whole ? "This word, and who looks at it" : t >= 0 ? "This word, and where it looks" : "";
  if (t < 0 && s < 0) return;
  const head = make("p", box, undefined, "target");
  make("bdi", make("b", head), whole ? columns[s] : rows[t]);
  head.append(whole ? " \u2192 " + map.row_title : " \u2190 " + map.column_title);
  const words = make("div", box, undefined, "words");
  (whole ? rows : columns).forEach((w, k) => {
    const i = whole ? k * C + s : t * C + k, x = value(i), e = make("span", words);
    e.style.background = shade(x);
    if (dark(x)) e.style.color = "#fff";
    make("bdi", e, w);
    make("small", e, number(map.weights[i]));
  });
}

document.onkeydown = e => {
  if (e.target.tagName === "SELECT" || e.altKey || e.ctrlKey || e.metaKey) return;
  const R = data.words[map.rows].length, same = of(map.kind).filter(m => m.layer === map.layer), at = same.indexOf(map);
  if (e.key === "ArrowDown") point(Math.min(R - 1, row + 1), -1);
  else if (e.key === "ArrowUp") point(Math.max(0, row - 1), -1);
  else if (e.key === "ArrowRight") pick(same[(at + 1) % same.length]);
  else if (e.key === "ArrowLeft") pick(same[(at + same.length - 1) % same.length]);
  else if (e.key === "Escape") point(-1, -1);
  else return;
  e.preventDefault();
  if (row >= 0) cell(row, -1).scrollIntoView({block: "nearest", inline: "nearest"});
};
$("app").hidden = false;
draw();
)js";

}  // namespace heed::picture
