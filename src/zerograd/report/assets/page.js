"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const STATES = ["unknown", "empty", "live", "spent", "stale", "misused"];
/* The last is drawn where stale gradients were used; left alone, they are a healthy GAN's. */
const STALE = 4, MISUSED = 5;
const MEANING = {
  empty: "no gradients", live: "not used by a step yet", spent: "used by a step, not cleared",
  stale: "new gradients added to used ones", misused: "stale, and used by a step", unknown: "unknown",
};
const SIGNS = { zero: "0", backward: "B", clip: "C", step: "S", unscale: "U", update: "↑", assign: "=", sync: "⇄" };
const NAMES = { assign: "assigned", new: "created", unknown: "unknown", more: "more" };
const gutter = () => innerWidth > 720 ? 46 : 0;
const LANE = 74, BAND = 34, TOP = 28, AXIS = 24, SIGNS_FROM = 30, SIGN_ROW = 20, FEW = 8;

/* ---- the look: colours and patterns of the theme that is on ---- */
let look = {};
function restyle() {
  const css = getComputedStyle(document.documentElement);
  for (const name of ["bg", "surface", "sunk", "text", "muted", "line", "accent", "bad", "ink", ...STATES])
    look[name] = css.getPropertyValue("--" + name).trim();
  look.misused = look.stale;
  look.sans = css.getPropertyValue("--sans");
  look.fill = STATES.map(pattern);
}
function pattern(state) {
  /* Each state has a pattern besides its colour: nobody needs to tell colours apart. */
  const tile = document.createElement("canvas"), size = 8, k = ratio();
  tile.width = tile.height = size * k;
  const pen = tile.getContext("2d");
  pen.scale(k, k);
  pen.fillStyle = look[state];
  if (state === "stale") pen.globalAlpha = .2;
  pen.fillRect(0, 0, size, size);
  pen.globalAlpha = 1;
  pen.strokeStyle = state === "stale" ? look.stale : look.surface;
  pen.fillStyle = look.muted;
  pen.lineWidth = 1.6;
  const lines = (points) => { pen.beginPath(); for (const [a, b, c, d] of points) { pen.moveTo(a, b); pen.lineTo(c, d); } pen.stroke(); };
  if (state === "spent") lines([[-2, 6, 6, -2], [2, 10, 10, 2]]);
  if (state === "stale" || state === "misused") { pen.globalAlpha = .75; pen.lineWidth = 1.2; lines([[0, 0, 8, 8], [0, 8, 8, 0]]); }
  if (state === "unknown") { pen.globalAlpha = .55; pen.fillRect(3, 3, 1.6, 1.6); }
  const made = pen.createPattern(tile, "repeat");
  made.setTransform(new DOMMatrix().scale(1 / k));
  return made;
}
const ratio = () => Math.max(1, window.devicePixelRatio || 1);

/* ---- the data: typed arrays, and where in the run each stretch of like ticks begins ---- */
function unpacked(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}
function opened(rank) {
  const runs = unpacked(rank.runs, Uint16Array), counts = unpacked(rank.counts, Uint16Array);
  const starts = new Float64Array(runs.length + 1);
  for (let i = 0; i < runs.length; i++) starts[i + 1] = Math.min(rank.ticks, starts[i] + counts[i] * rank.each);
  const lanes = rank.lanes.length;
  const motifs = rank.motifs.map(([first, flat]) => motif(rank, first, flat, lanes));
  const steps = rank.lanes.map((_, lane) => {
    const before = new Float64Array(runs.length + 1);
    for (let i = 0; i < runs.length; i++) before[i + 1] = before[i] + counts[i] * rank.each * motifs[runs[i]].steps[lane];
    return before;
  });
  const norms = rank.lanes.map((lane) => lane.norms && {
    each: lane.norms.each,
    used: unpacked(lane.norms.used, Float32Array),
    right: lane.norms.right && unpacked(lane.norms.right, Float32Array),
  });
  return { ...rank, runs, counts, starts, motifs, stepsBefore: steps, norms };
}
function motif(rank, first, flat, lanes) {
  const letters = [];
  for (let i = 0; i < flat.length; i += 2) {
    const [lane, kind, site, state, found] = flat[i] < 0 ? [-1, "more", -1, 0, []] : rank.letters[flat[i]];
    letters.push({ lane, kind, site, state, found, times: flat[i + 1] });
  }
  const starts = Array.from({ length: lanes }, (_, lane) => first[lane] || 0);
  const shares = starts.map(() => new Float32Array(STATES.length));
  const steps = new Uint8Array(lanes), found = new Uint8Array(lanes), now = [...starts];
  for (const letter of letters) if (letter.lane >= 0 && letter.found.length) found[letter.lane] = 1;
  letters.forEach((letter) => {
    for (let lane = 0; lane < lanes; lane++) shares[lane][drawn(now[lane], found[lane])] += 1 / letters.length;
    if (letter.lane < 0) return;
    now[letter.lane] = letter.state;
    if (letter.kind === "step") steps[letter.lane] = 1;
  });
  return { letters, starts, shares, steps, found, any: found.some(Boolean) };
}
const drawn = (state, found) => state === STALE && found ? MISUSED : state;
const ranks = data.ranks.map(opened);
const total = Math.max(0, ...ranks.map((rank) => rank.ticks));
/* What came after the last step is a tick, too, but no step. */
const isOpen = (rank) => rank.ticks > 0 && !rank.motifs[rank.runs[rank.runs.length - 1]].steps.some(Boolean);
const numbered = Math.max(0, ...ranks.map((rank) => rank.ticks - (rank.each === 1 && isOpen(rank) ? 1 : 0)));
const nameOf = (tick) => tick < numbered ? `step ${count(tick + 1)}` : "after the last step";
const rows = ranks.flatMap((rank) => rank.lanes.map((lane, at) => ({ rank, lane, at })));
function runAt(rank, tick) {
  let low = 0, high = rank.runs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rank.starts[middle] <= tick) low = middle; else high = middle - 1;
  }
  return low;
}
const motifAt = (rank, tick) => tick < rank.ticks && rank.runs.length ? rank.motifs[rank.runs[runAt(rank, tick)]] : null;
function stepsBefore({ rank, lane, at }, tick) {
  if (!rank.runs.length) return 0;
  if (tick >= rank.ticks) return lane.steps;
  const run = runAt(rank, tick), before = rank.stepsBefore[at];
  const exact = before[run] + (tick - rank.starts[run]) * rank.motifs[rank.runs[run]].steps[at];
  const all = before[rank.runs.length];
  return rank.each > 1 && all ? exact * lane.steps / all : exact;
}

/* ---- the view: which ticks are shown, and which one is looked at ---- */
const view = { from: 0, to: Math.max(1, total), chosen: -1 };
let waiting = false;
function changed() {
  if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); }
}
function show(from, to) {
  const width = Math.min(Math.max(to - from, 1), Math.max(1, total));
  view.from = Math.min(Math.max(0, from), Math.max(1, total) - width);
  view.to = view.from + width;
  changed();
}
function zoom(factor, around = view.chosen >= view.from && view.chosen < view.to ? view.chosen + .5 : (view.from + view.to) / 2) {
  const width = Math.min(Math.max((view.to - view.from) * factor, 1), Math.max(1, total));
  const share = (around - view.from) / (view.to - view.from);
  show(around - share * width, around + (1 - share) * width);
}
function choose(tick, bring = true) {
  view.chosen = Math.min(Math.max(0, tick), total - 1);
  if (bring && (view.chosen < view.from || view.chosen + 1 > view.to)) {
    const width = view.to - view.from;
    show(view.chosen + .5 - width / 2, view.chosen + .5 + width / 2);
  }
  changed();
}
function nextFinding(way, wanted = -1, from = view.chosen) {
  /* The nearest tick with a finding, before or after; of the runs only their ends are looked at. */
  let best = -1;
  for (const rank of ranks) {
    const has = (run) => rank.motifs[rank.runs[run]].letters.some((l) => wanted < 0 ? l.found.length : l.found.includes(wanted));
    const here = Math.max(0, from);
    for (let run = from < 0 ? 0 : runAt(rank, here); run >= 0 && run < rank.runs.length; run += way) {
      if (!has(run)) continue;
      const first = rank.starts[run], last = rank.starts[run + 1] - 1;
      let tick = way > 0 ? Math.max(first, from + 1) : Math.min(last, from - 1);
      if (tick < first || tick > last) continue;
      if (best < 0 || (way > 0 ? tick < best : tick > best)) best = tick;
      break;
    }
  }
  return best;
}
function goFinding(way, wanted = -1, from = view.chosen) {
  const tick = nextFinding(way, wanted, from);
  if (tick < 0) return false;
  if (view.to - view.from > 40) show(tick - 9.5, tick + 10.5);
  choose(tick);
  return true;
}

/* ---- drawing ---- */
function pen(canvas, height, left = 0) {
  /* What is drawn begins so far from the left; the width is that of the rest. */
  const k = ratio(), width = canvas.clientWidth;
  if (height) canvas.style.height = height + "px";
  const tall = height || canvas.clientHeight;
  if (canvas.width !== Math.round(width * k) || canvas.height !== Math.round(tall * k)) {
    canvas.width = Math.round(width * k);
    canvas.height = Math.round(tall * k);
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(k, 0, 0, k, 0, 0);
  ctx.clearRect(0, 0, width, tall);
  ctx.translate(left, 0);
  return { ctx, width: Math.max(1, width - left), tall };
}
function draw() {
  if (!$("lanes")) return;
  drawLanes();
  drawOverview();
  drawCharts();
  const from = Math.floor(view.from) + 1, to = Math.min(numbered, Math.ceil(view.to - 1e-9));
  const say = !numbered ? "no step" : from > to ? "after the last step" : `${from === to ? "step" : "steps"} ${count(from)}${from === to ? "" : "–" + count(to)} of ${count(numbered)}`;
  if ($("range").textContent !== say) $("range").textContent = say;
  drawDetail();
}
const count = (n) => Math.round(n).toLocaleString("en-US");

function columns(row, from, to, width) {
  /* What each column of pixels holds: shares of states, and whether anything was found there. */
  const n = STATES.length, acc = new Float32Array(Math.ceil(width) * n), found = new Uint8Array(Math.ceil(width));
  const { rank, at } = row, scale = width / (to - from);
  /* Shares of less than a few ticks would only flicker: then several columns share them. */
  const wide = scale < 6 ? Math.max(1, Math.ceil(FEW * scale)) : 1;
  if (!rank.runs.length) return { acc, found, wide };
  for (let run = runAt(rank, Math.max(0, from)); run < rank.runs.length && rank.starts[run] < to; run++) {
    const motif = rank.motifs[rank.runs[run]], share = motif.shares[at];
    const x0 = Math.max(0, (rank.starts[run] - from) * scale), x1 = Math.min(width, (rank.starts[run + 1] - from) * scale);
    const last = Math.min(found.length - 1, Math.ceil(x1) - 1);
    for (let x = Math.floor(x0); x <= last; x++) {
      const part = Math.min(x1, x + 1) - Math.max(x0, x);
      const bin = Math.floor(x / wide) * n;
      for (let s = 0; s < n; s++) acc[bin + s] += share[s] * part;
      if (motif.found[at]) found[x] = 1;
    }
  }
  return { acc, found, wide };
}
const ORDER = [5, 4, 2, 3, 1, 0];
function drawColumns(ctx, row, from, to, width, y, band) {
  const { acc, found, wide } = columns(row, from, to, width), n = STATES.length;
  /* A state that is there at all is seen: one misused step among 100,000 has a third of its column. */
  const heights = (column) => {
    const x = Math.floor(column / wide);
    let sum = 0;
    for (let s = 0; s < n; s++) sum += acc[x * n + s];
    if (!sum) return null;
    const tall = ORDER.map((s) => Math.round(acc[x * n + s] / sum * band));
    if (acc[x * n + MISUSED] > 0 && tall[0] < band / 3) tall[0] = Math.ceil(band / 3);
    let over = tall.reduce((a, b) => a + b) - band;
    for (let i = 1; i < n && over; i++) { const cut = Math.max(-band, Math.min(over, tall[i])); tall[i] -= cut; over -= cut; }
    return tall;
  };
  let start = 0, held = heights(0), key = String(held);
  for (let x = 1; x <= found.length; x++) {
    const here = x < found.length ? heights(x) : null, name = x < found.length ? String(here) : "end";
    if (name === key) continue;
    if (held) {
      let top = y;
      held.forEach((tall, i) => { if (tall > 0) { ctx.fillStyle = look.fill[ORDER[i]]; ctx.fillRect(start, top, x - start, tall); top += tall; } });
    }
    start = x; held = here; key = name;
  }
  return found;
}
function flag(ctx, found, y, tall) {
  /* Columns in which something was found: a bar, or a mark that one cannot miss. */
  ctx.fillStyle = look.bad;
  for (let x = 0; x < found.length; x++) {
    if (!found[x]) continue;
    const start = x;
    while (found[x + 1]) x++;
    const middle = (start + x + 1) / 2, half = Math.max(4, (x + 1 - start) / 2);
    ctx.beginPath();
    ctx.moveTo(middle - half, y - tall); ctx.lineTo(middle + half, y - tall);
    ctx.lineTo(middle + half - 4 + .75, y); ctx.lineTo(middle - half + 4 - .75, y);
    ctx.fill();
  }
}
function drawLanes() {
  const several = ranks.length > 1;
  const { ctx, width } = pen($("lanes"), Math.max(1, rows.length) * LANE + AXIS, gutter());
  const span = view.to - view.from, per = width / span;
  const x = (tick) => (tick - view.from) * per;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, width, rows.length * LANE);
  ctx.clip();
  rows.forEach((row, number) => {
    const y = number * LANE + TOP;
    if (per < SIGNS_FROM) { ctx.fillStyle = look.sunk; ctx.fillRect(0, y, width, BAND); }
    if (per >= 6) drawTicks(ctx, row, y, x, per, width);
    else {
      flag(ctx, drawColumns(ctx, row, view.from, view.to, width, y, BAND), y - 2, 7);
    }
    ctx.strokeStyle = look.line;
    const down = per >= SIGNS_FROM ? SIGN_ROW : 0;
    ctx.strokeRect(.5, y + down - .5, width - 1, BAND - down + 1);
  });
  if (view.chosen >= view.from - 1 && view.chosen < view.to) {
    ctx.strokeStyle = ctx.fillStyle = look.ink;
    ctx.lineWidth = 1.5;
    for (let i = 0; i < rows.length; i++) {
      if (per >= 4) ctx.strokeRect(x(view.chosen), i * LANE + TOP - 2, per, BAND + 4);
      else ctx.fillRect(x(view.chosen + .5) - .5, i * LANE + TOP, 1, BAND + 6);
    }
    ctx.lineWidth = 1;
  }
  ctx.restore();
  axis(ctx, width, rows.length * LANE + 2);
  const names = $("names");
  if (names.dataset.left !== String(gutter())) {
    names.dataset.left = gutter();
    names.replaceChildren(...rows.map((row, number) => {
      const label = document.createElement("span");
      label.style.top = number * LANE + 2 + "px";
      label.style.left = gutter() + "px";
      label.textContent = (several ? row.rank.name + " · " : "") + row.lane.title + " ";
      const more = document.createElement("small");
      more.textContent = count(row.lane.steps) + (row.lane.steps === 1 ? " step" : " steps");
      label.append(more);
      return label;
    }));
  }
}
function drawTicks(ctx, { rank, at }, y, x, per, width) {
  const last = Math.min(rank.ticks, Math.ceil(view.to));
  /* With room for them, signs stand above what the gradients hold; else they are lines in it. */
  const signs = per >= SIGNS_FROM, top = signs ? y + SIGN_ROW : y, band = signs ? BAND - SIGN_ROW : BAND;
  for (let tick = Math.max(0, Math.floor(view.from)); tick < last; tick++) {
    const { letters, starts, found } = motifAt(rank, tick), slot = per / letters.length, left = x(tick);
    let state = starts[at], begin = left;
    const until = (end) => { if (end > begin) { ctx.fillStyle = look.fill[drawn(state, found[at])]; ctx.fillRect(begin, top, end - begin, band); } begin = end; };
    letters.forEach((letter, i) => { if (letter.lane === at) { until(left + (i + .5) * slot); state = letter.state; } });
    until(left + per);
    if (per > 14 && tick > view.from) { ctx.fillStyle = look.surface; ctx.fillRect(left - .75, top, 1.5, band); }
    letters.forEach((letter, i) => { if (letter.lane === at) sign(ctx, letter, left + (i + .5) * slot, y, slot, signs); });
  }
}
function sign(ctx, letter, x, y, slot, signs) {
  const mark = SIGNS[letter.kind], step = letter.kind === "step", middle = y + 8.5;
  if (letter.found.length) {
    ctx.fillStyle = look.bad;
    ctx.beginPath();
    ctx.moveTo(x - 4.5, y - 9); ctx.lineTo(x + 4.5, y - 9); ctx.lineTo(x, y - 2);
    ctx.fill();
  }
  if (!mark) return;
  ctx.fillStyle = look.ink;
  if (!signs) {
    if (step) ctx.fillRect(x - .75, y, 1.5, BAND);
    else if (slot > 3) ctx.fillRect(x - .5, y + 11, 1, BAND - 22);
    return;
  }
  ctx.fillRect(x - .75, y + 14, 1.5, step ? BAND - 14 : 8);
  if (slot < 9) return;
  const wide = slot > 74;
  ctx.font = `600 ${wide ? 12 : slot < 15 ? 9 : 10.5}px ${look.sans}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const words = (wide ? letter.kind : mark) + (letter.times > 1 && slot > 26 ? " ×" + letter.times : "");
  const half = Math.max(Math.min(8, slot / 2 - .5), ctx.measureText(words).width / 2 + (wide ? 8 : slot < 22 ? 1.5 : 4));
  ctx.beginPath();
  if (ctx.roundRect) ctx.roundRect(x - half, middle - 9, half * 2, 18, letter.kind === "step" ? 3 : 9);
  else ctx.rect(x - half, middle - 9, half * 2, 18);
  ctx.fillStyle = step ? look.ink : look.surface;
  ctx.fill();
  ctx.strokeStyle = look.ink;
  ctx.stroke();
  ctx.fillStyle = step ? look.surface : look.ink;
  ctx.fillText(words, x, middle + .5);
}
function nice(span, room) {
  const raw = Math.max(1, span / Math.max(1, room)), power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((k) => k * power).find((gap) => gap >= raw);
}
function axis(ctx, width, y) {
  const span = view.to - view.from, gap = nice(span, width / 90), per = width / span;
  ctx.fillStyle = look.muted;
  ctx.font = `11px ${look.sans}`;
  ctx.textBaseline = "top";
  let free = -99;
  for (let step = Math.max(gap, Math.ceil((view.from + .5) / gap) * gap); step <= Math.min(numbered, view.to + .5); step += gap) put(step);
  if (view.from < 1) put(1);
  function put(step) {
    const x = (step - .5 - view.from) * per, words = count(step), half = ctx.measureText(words).width / 2;
    if (x - half < free && step !== 1) return;
    if (step === 1 && gap * per < 60 + half) { if (gap > 1) return; }
    ctx.textAlign = "center";
    const middle = Math.min(Math.max(x, half + 1), width - half - 1);
    ctx.fillRect(x - .5, y - 2, 1, 4);
    ctx.fillText(words, middle, y + 5);
    free = middle + half + 12;
  }
}
function drawOverview() {
  const canvas = $("overview"), { ctx, width, tall } = pen(canvas);
  if (!total) return;
  const band = Math.max(2, Math.min(20, (tall - 8) / Math.max(1, rows.length)));
  rows.forEach((row, number) => {
    const y = 4 + number * (tall - 8) / rows.length;
    const found = drawColumns(ctx, row, 0, total, width, y, Math.max(1, Math.min(band, (tall - 8) / rows.length) - 1));
    flag(ctx, found, y, 4);
  });
  const a = view.from / total * width, b = view.to / total * width;
  ctx.fillStyle = look.sunk;
  ctx.globalAlpha = .72;
  ctx.fillRect(0, 0, a, tall);
  ctx.fillRect(b, 0, width - b, tall);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = look.ink;
  ctx.lineWidth = 1.5;
  ctx.strokeRect(Math.min(a + .75, width - 3), .75, Math.max(2, b - a - 1.5), tall - 1.5);
  ctx.lineWidth = 1;
}

/* ---- gradient norms ---- */
const charts = $("charts") ? rows.filter((row) => row.rank.norms[row.at]).map((row) => {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), canvas = document.createElement("canvas");
  caption.textContent = (ranks.length > 1 ? row.rank.name + " · " : "") + row.lane.title;
  canvas.setAttribute("role", "img");
  figure.append(caption, canvas);
  $("charts").append(figure);
  return { row, canvas, caption, title: caption.textContent };
}) : [];
function drawCharts() {
  for (const chart of charts) drawChart(chart);
}
function drawChart({ row, canvas, title }) {
  const { ctx, width, tall } = pen(canvas, 0, gutter()), { each, used, right } = row.rank.norms[row.at];
  const left = 0, base = tall - 20, room = width - left, first = stepsBefore(row, view.from), last = stepsBefore(row, view.to);
  const from = Math.max(0, Math.floor(first / each) - 1), to = Math.min(used.length - 1, Math.ceil(last / each) + 1);
  const x = tickScale(row, room, left);
  let low = Infinity, high = 0, endless = 0, differs = 0;
  for (let i = from; i <= to; i++) {
    for (const value of right ? [used[i], right[i]] : [used[i]]) {
      if (value === Infinity) endless++;
      else if (value > 0) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    if (right && right[i] === right[i]) differs++;
  }
  if (!(high > 0)) { low = .5; high = 1; }
  const log = high / low > 40;
  const bottom = log ? Math.log10(low) - .05 : 0, top = log ? Math.log10(high) + .05 : high * 1.08;
  const y = (value) => value === Infinity ? 4 : base - ((log ? Math.log10(Math.max(value, low)) : value) - bottom) / (top - bottom || 1) * (base - 8);
  ctx.font = `11px ${look.sans}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const grid = marks(bottom, top, log).filter((value) => y(value) > 12);
  for (const value of grid) {
    ctx.fillStyle = look.line;
    ctx.fillRect(left, Math.round(y(value)), room, 1);
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, 0, room, tall);
  ctx.clip();
  if (right) between();
  line(used, look.ink, [], 1.8);
  if (right) line(right, look.live, [5, 4], 2.4);
  ctx.restore();
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  for (const value of grid) {
    const words = short(value), wide = ctx.measureText(words).width;
    ctx.fillStyle = look.surface;
    ctx.globalAlpha = .8;
    if (!gutter()) ctx.fillRect(0, y(value) - 14, wide + 6, 13);
    ctx.globalAlpha = 1;
    ctx.fillStyle = look.muted;
    ctx.fillText(words, gutter() ? -8 - wide : 2, y(value) + (gutter() ? 6 : -2));
  }
  function between() {
    /* What is wrong stands out: the room between the two lines. */
    ctx.fillStyle = look.stale;
    ctx.globalAlpha = .28;
    const half = Math.max(.6, (x(each) - x(0)) / 2);
    for (let i = from; i <= to; i++) if (right[i] >= 0 && used[i] >= 0) {
      const a = y(used[i]), b = y(right[i]);
      ctx.fillRect(x((i + .5) * each) - half, Math.min(a, b), half * 2, Math.max(1, Math.abs(a - b)));
    }
    ctx.globalAlpha = 1;
  }
  function line(values, color, dash, thick) {
    ctx.strokeStyle = ctx.fillStyle = color;
    ctx.lineWidth = thick;
    ctx.setLineDash(to - from > room ? [] : dash);
    ctx.lineJoin = "round";
    ctx.beginPath();
    let open = false, column = -1, least = 0, most = 0;
    const flush = () => { if (column >= 0) { ctx.moveTo(column, least); ctx.lineTo(column, most + .5); } };
    const dense = to - from > room * 2;
    for (let i = from; i <= to; i++) {
      const value = values[i];
      if (!(value >= 0)) { open = false; continue; }
      const px = x((i + .5) * each), py = y(value);
      if (dense) {
        const here = Math.round(px);
        if (here !== column) { flush(); column = here; least = most = py; } else { least = Math.min(least, py); most = Math.max(most, py); }
      } else if (open) ctx.lineTo(px, py);
      else { ctx.moveTo(px, py); open = true; }
    }
    if (dense) flush();
    ctx.lineWidth = dense ? 1.4 : thick;
    ctx.stroke();
    ctx.setLineDash([]);
    if (to - from < 60) for (let i = from; i <= to; i++) if (values[i] >= 0) {
      ctx.beginPath();
      ctx.arc(x((i + .5) * each), y(values[i]), 3, 0, 7);
      ctx.fill();
    }
  }
  ctx.fillStyle = look.muted;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.fillText(`${log ? "logarithmic" : ""}${each > 1 ? `${log ? ", " : ""}each point is the largest of ${each} steps` : ""}`, left, base + 6);
  if (endless) { ctx.fillStyle = look.bad; ctx.textAlign = "right"; ctx.fillText(`${endless} not finite, at the top`, width, base + 6); }
  if (view.chosen >= view.from && view.chosen < view.to) {
    ctx.fillStyle = look.ink;
    ctx.globalAlpha = .35;
    ctx.fillRect(left + (view.chosen + .5 - view.from) / (view.to - view.from) * room - .5, 0, 1, base);
    ctx.globalAlpha = 1;
  }
  const words = high > 0 ? `from ${short(low)} to ${short(high)}` : "none";
  canvas.setAttribute("aria-label", `Gradient norms of ${title} in view: ${words}${differs ? `; at ${count(differs)} points the right value differs` : ""}`);
}
function tickScale({ rank, lane, at }, room, left) {
  /* Where a step of one optimizer stands among the ticks; asked for one step after the other. */
  const before = rank.stepsBefore[at], all = before[rank.runs.length], per = room / (view.to - view.from);
  const factor = rank.each > 1 && all ? all / lane.steps : 1;
  let run = 0;
  return (step) => {
    const counted = step * factor;
    if (counted < before[run]) run = 0;
    while (run < rank.runs.length - 1 && before[run + 1] <= counted) run++;
    const share = (counted - before[run]) / (before[run + 1] - before[run] || 1);
    return left + (rank.starts[run] + share * (rank.starts[run + 1] - rank.starts[run]) - view.from) * per;
  };
}
function marks(bottom, top, log) {
  const found = [];
  if (log) {
    const gap = Math.max(1, Math.ceil((top - bottom) / 5));
    for (let p = Math.ceil(bottom); p <= top; p += gap) found.push(10 ** p);
    if (found.length < 2) found.push(10 ** bottom, 10 ** top);
  } else {
    const raw = (top - bottom) / 4, power = 10 ** Math.floor(Math.log10(raw)), gap = [1, 2, 5, 10].map((k) => k * power).find((g) => g >= raw);
    for (let value = 0; value <= top; value += gap) found.push(value);
  }
  return found;
}
const short = (value) => value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(1).replace("e+", "e").replace(".0e", "e") : String(Number(value.toPrecision(3)));

/* ---- one step in words ---- */
let told = -2;
function drawDetail() {
  if (told === view.chosen) return;
  told = view.chosen;
  const box = $("detail");
  box.replaceChildren();
  if (view.chosen < 0) return;
  for (const rank of ranks) {
    const motif = motifAt(rank, view.chosen);
    if (!motif) continue;
    const title = document.createElement("h3"), list = document.createElement("ol");
    title.textContent = (ranks.length > 1 ? rank.name + ", " : "") + nameOf(view.chosen) + (rank.each > 1 ? ` (the most important of ${rank.each})` : "");
    for (const letter of motif.letters) list.append(item(rank, letter));
    box.append(title, list);
    for (const row of rows) if (row.rank === rank && motif.steps[row.at]) {
      const words = normWords(row, stepsBefore(row, view.chosen));
      if (words) { const line = document.createElement("p"); line.textContent = words; box.append(line); }
    }
  }
}
function item(rank, letter) {
  const li = document.createElement("li"), name = document.createElement("b");
  name.textContent = (NAMES[letter.kind] || letter.kind) + (letter.times > 1 ? ` ×${letter.times}` : "");
  li.append(name);
  const add = (words, kind) => { const s = document.createElement("small"); s.textContent = words; if (kind) s.className = kind; li.append(s); };
  if (letter.lane < 0) return li;
  if (rank.lanes.length > 1) add(rank.lanes[letter.lane].title);
  if (letter.site >= 0) { const [path, line] = rank.sites[letter.site]; add(`${rank.paths[path]}:${line}`); }
  add("→ " + STATES[letter.state], "after");
  for (const number of letter.found) { li.className = "found"; const f = data.findings[number]; add(`${f.code} ${f.name}`); }
  return li;
}
function normWords(row, step) {
  const norms = row.rank.norms[row.at];
  if (!norms) return "";
  const at = Math.floor(step / norms.each), used = norms.used[at], right = norms.right ? norms.right[at] : NaN;
  if (!(used >= 0)) return "";
  const full = (value) => value === Infinity ? "not finite" : value && value < 1e-4 ? value.toExponential(4) : String(Number(value.toPrecision(6)));
  const whose = row.rank.lanes.length > 1 ? `Step ${count(step + 1)} of ${row.lane.title}: g` : "G";
  return `${whose}radient norm used: ${full(used)}` + (right === right ? `; it should have been ${full(right)}` : "");
}

/* ---- hands: pointer, wheel, keys, buttons ---- */
function listen() {
  const canvas = $("lanes"), room = () => canvas.clientWidth - gutter(), at = (event, box) => {
    const place = box.getBoundingClientRect();
    return view.from + Math.max(0, event.clientX - place.left - gutter()) / room() * (view.to - view.from);
  };
  const fingers = new Map();
  let grabbed = null, moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event.clientX);
    canvas.setPointerCapture(event.pointerId);
    grabbed = { x: event.clientX, from: view.from, to: view.to };
    moved = false;
    if (fingers.size === 2) grabbed = { apart: apart(), from: view.from, to: view.to };
    canvas.classList.add("dragging");
  });
  const apart = () => { const [a, b] = [...fingers.values()]; return Math.max(12, Math.abs(a - b)); };
  canvas.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId) || !grabbed) return;
    fingers.set(event.pointerId, event.clientX);
    const width = grabbed.to - grabbed.from;
    if (grabbed.apart && fingers.size === 2) {
      const wide = width * grabbed.apart / apart(), middle = (grabbed.from + grabbed.to) / 2;
      moved = true;
      show(middle - wide / 2, middle + wide / 2);
    } else if (grabbed.x !== undefined) {
      const by = (grabbed.x - event.clientX) / room() * width;
      if (Math.abs(event.clientX - grabbed.x) > 4) moved = true;
      if (moved) show(grabbed.from + by, grabbed.to + by);
    }
  });
  const release = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    canvas.classList.remove("dragging");
    if (!moved && event.type === "pointerup") choose(Math.floor(at(event, canvas)), false);
    grabbed = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("dblclick", (event) => zoom(.4, at(event, canvas)));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), at(event, canvas)); }
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = event.deltaX / room() * (view.to - view.from);
      show(view.from + by, view.to + by);
    }
  }, { passive: false });

  const overview = $("overview");
  let begun = -1;
  const part = (event) => { const place = overview.getBoundingClientRect(); return Math.min(Math.max((event.clientX - place.left) / place.width, 0), 1) * total; };
  overview.addEventListener("pointerdown", (event) => { begun = part(event); overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", (event) => { if (begun >= 0 && Math.abs(part(event) - begun) > total / 200) show(Math.min(begun, part(event)), Math.max(begun, part(event))); });
  overview.addEventListener("pointerup", (event) => {
    if (begun >= 0 && Math.abs(part(event) - begun) <= total / 200) { const half = (view.to - view.from) / 2; show(begun - half, begun + half); }
    begun = -1;
  });

  const acts = {
    in: () => zoom(.5), out: () => zoom(2), all: () => show(0, total),
    next: () => goFinding(1), prev: () => goFinding(-1),
  };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => acts[button.dataset.do]());
  for (const button of document.querySelectorAll(".finds")) button.disabled = nextFinding(1, -1, -1) < 0;
  for (const button of document.querySelectorAll(".show")) {
    const number = Number(button.dataset.finding);
    button.hidden = nextFinding(1, number, -1) < 0;
    button.addEventListener("click", () => {
      goFinding(1, number, -1);
      $("timeline").focus({ preventScroll: true });
      $("timeline").closest("section").scrollIntoView();
    });
  }
  $("goto").max = numbered;
  $("goto").addEventListener("change", (event) => {
    const step = Number(event.target.value);
    if (step >= 1) { if (view.to - view.from > 40) show(step - 10.5, step + 9.5); choose(step - 1); }
  });
  $("timeline").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const half = (view.to - view.from) / 2;
    const start = view.chosen < 0 ? Math.floor(view.from) : view.chosen;
    const way = event.key === "ArrowLeft" ? -1 : 1;
    const keys = {
      ArrowLeft: arrow, ArrowRight: arrow, Home: () => choose(0), End: () => choose(total - 1),
      "+": acts.in, "=": acts.in, "-": acts.out, "0": acts.all, n: acts.next, p: acts.prev,
      Escape: () => { view.chosen = -1; changed(); },
    };
    function arrow() {
      if (event.shiftKey) show(view.from + way * half, view.to + way * half);
      else choose(view.chosen < 0 ? start : start + way);
    }
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  window.addEventListener("resize", changed);
}
function legend() {
  $("legend").replaceChildren(...["empty", "live", "spent", "stale", "misused"].map((state) => {
    const item = document.createElement("span"), swatch = document.createElement("canvas"), k = ratio();
    swatch.width = 30 * k; swatch.height = 16 * k;
    swatch.style.cssText = "width:30px;height:16px";
    swatch.setAttribute("aria-hidden", "true");
    const ctx = swatch.getContext("2d");
    ctx.scale(k, k);
    ctx.fillStyle = look.fill[STATES.indexOf(state)];
    ctx.fillRect(0, 0, 30, 16);
    ctx.strokeStyle = look.muted;
    ctx.strokeRect(.5, .5, 29, 15);
    item.append(swatch, (state === "misused" ? "" : state + ": ") + MEANING[state]);
    return item;
  }), Object.assign(document.createElement("span"), { className: "break" }), ...["zero", "backward", "clip", "step"].map((kind) => {
    const item = document.createElement("span"), mark = document.createElement("kbd");
    mark.textContent = SIGNS[kind];
    item.append(mark, kind);
    return item;
  }));
}

/* ---- light and dark ---- */
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
function themed() {
  const on = isDark(), button = $("theme");
  button.textContent = on ? "Light" : "Dark";
  button.setAttribute("aria-pressed", String(on));
  button.setAttribute("aria-label", on ? "Switch to the light theme" : "Switch to the dark theme");
  restyle();
  if ($("legend")) legend();
  changed();
}
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  themed();
});
dark.addEventListener("change", themed);
themed();
if ($("lanes")) {
  listen();
  view.chosen = nextFinding(1, -1, -1);
  if (!charts.some(({ row }) => row.rank.norms[row.at].right)) document.querySelectorAll(".k-right").forEach((key) => key.remove());
}
draw();
window.zerograd = { view, total, rows: rows.length };
})();
