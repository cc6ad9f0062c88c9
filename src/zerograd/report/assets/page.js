"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
/* New gradients on used ones are stale if a step uses them. If they are cleared first, as in a
   healthy GAN, they are harmless leftovers. */
const STATES = ["unknown", "empty", "live", "spent", "leftover", "stale"];
const LEFTOVER = 4, STALE = 5, ADVICE = 1, ERROR = 2;
const MEANING = {
  empty: "no gradients", live: "not used by a step yet", spent: "used by a step, not cleared",
  leftover: "added to used gradients, no step uses them", stale: "added to used gradients, and a step uses them",
  unknown: "not known",
};
const SIGNS = { zero: "0", backward: "B", clip: "C", step: "S", unscale: "U", update: "↑", assign: "=", sync: "⇄" };
const NAMES = { assign: "assigned", new: "created", unknown: "unknown", more: "more" };
const gutter = () => innerWidth > 720 ? 46 : 0;
const BAND = 34, TOP = 28, AXIS = 24, SIGNS_FROM = 30, SIGN_ROW = 20, FEW = 8, SHARES_BELOW = 6;

/* ---- the look: colours and patterns of the theme that is on ---- */
let look = {};
function restyle() {
  const css = getComputedStyle(document.documentElement);
  for (const name of ["bg", "surface", "sunk", "text", "muted", "line", "accent", "bad", "hint", "ink", ...STATES])
    look[name] = css.getPropertyValue("--" + name).trim();
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
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = look.surface;
  pen.fillStyle = look.muted;
  pen.lineWidth = 1.6;
  const lines = (points) => { pen.beginPath(); for (const [a, b, c, d] of points) { pen.moveTo(a, b); pen.lineTo(c, d); } pen.stroke(); };
  if (state === "spent") lines([[-2, 6, 6, -2], [2, 10, 10, 2]]);
  if (state === "stale") { pen.globalAlpha = .75; pen.lineWidth = 1.2; lines([[0, 0, 8, 8], [0, 8, 8, 0]]); }
  if (state === "leftover") { pen.fillStyle = look.surface; for (const [a, b] of [[1, 1], [5, 5]]) pen.fillRect(a, b, 2, 2); }
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
  const moments = [];
  for (let i = 0; i < flat.length; i += 2) {
    const [lane, kind, site, state, found] = flat[i] < 0 ? [-1, "more", -1, 0, []] : rank.moments[flat[i]];
    moments.push({ lane, kind, site, state, found, times: flat[i + 1] });
  }
  const starts = Array.from({ length: lanes }, (_, lane) => first[lane] || 0);
  const shares = starts.map(() => new Float32Array(STATES.length));
  const steps = new Uint8Array(lanes), found = new Uint8Array(lanes), now = [...starts];
  for (const moment of moments) {
    moment.level = Math.max(0, ...moment.found.map(levelOf));
    if (moment.lane >= 0) found[moment.lane] = Math.max(found[moment.lane], moment.level);
  }
  moments.forEach((moment) => {
    for (let lane = 0; lane < lanes; lane++) shares[lane][drawn(now[lane], found[lane])] += 1 / moments.length;
    if (moment.lane < 0) return;
    now[moment.lane] = moment.state;
    if (moment.kind === "step") steps[moment.lane] = 1;
  });
  return { moments, starts, shares, steps, found };
}
function levelOf(number) { return data.findings[number].level === "error" ? ERROR : ADVICE; }
function drawn(state, found) { return state === LEFTOVER && found === ERROR ? STALE : state; }
const ranks = data.ranks.map(opened);
const total = Math.max(0, ...ranks.map((rank) => rank.ticks));
/* What came after the last step is a tick, too, but no step. */
const isOpen = (rank) => rank.ticks > 0 && !rank.motifs[rank.runs[rank.runs.length - 1]].steps.some(Boolean);
const numbered = Math.max(0, ...ranks.map((rank) => rank.ticks - (rank.each === 1 && isOpen(rank) ? 1 : 0)));
const rows = ranks.flatMap((rank) => rank.lanes.map((lane, at) => ({ rank, lane, at })));
/* Steps have the numbers that their optimizer counts, as in the cards and in the terminal. Where a
   rank has several optimizers that step, each lane has an axis of its own. */
const alone = ranks.every((rank) => rank.lanes.filter((lane) => lane.steps).length <= 1);
const LANE = alone ? 74 : 92;
const titleOf = (row) => (ranks.length > 1 ? row.rank.name + " · " : "") + row.lane.title;
const shortOf = (row) => (ranks.length > 1 ? row.rank.name + " · " : "") + row.lane.name;
const stepping = rows.filter((row) => row.lane.steps).sort((a, b) => alone ? b.lane.steps - a.lane.steps : 0);
let guide = stepping[0] || rows[0];
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

function tickOf({ rank, lane, at }, step) {
  /* The tick at which an optimizer takes a step, the first being 1; asked for any, one gets the nearest. */
  const before = rank.stepsBefore[at], runs = rank.runs.length, all = before[runs];
  if (!all) return 0;
  const wanted = Math.min(Math.max(1, step), lane.steps) * (rank.each > 1 ? all / lane.steps : 1);
  let low = 0, high = runs - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (before[middle + 1] >= wanted) high = middle; else low = middle + 1;
  }
  return Math.max(0, Math.min(rank.ticks - 1, Math.floor(rank.starts[low] + wanted - before[low] - 1 + 1e-6)));
}
function stepIn(rank, tick) {
  /* The row whose step a tick is, if it is one. */
  const motif = motifAt(rank, tick);
  return motif && rows.find((row) => row.rank === rank && motif.steps[row.at]);
}
const stepAt = (row, tick) => Math.floor(stepsBefore(row, tick) + 1e-6) + 1;

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
const worst = Math.max(0, ...data.findings.map((_, number) => levelOf(number)));
function nextFinding(way, wanted = -1, from = view.chosen) {
  /* The nearest tick with a finding, before or after; of the runs only their ends are looked at.
     Advice is passed over where there are errors. */
  let best = -1;
  for (const rank of ranks) {
    const has = (run) => rank.motifs[rank.runs[run]].moments.some((l) => wanted < 0 ? l.level && l.level === worst : l.found.includes(wanted));
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
  const whose = alone ? "" : ` of ${shortOf(guide)}`;
  const say = !numbered ? "no step" : stepsIn(guide, view.from, view.to, ` of ${count(guide.lane.steps)}`) + whose;
  if ($("range").textContent !== say) $("range").textContent = say;
  read(null);
  drawDetail();
}
function stepsIn(row, from, to, more = "") {
  /* Which steps of an optimizer a part of the run has, in words. */
  const first = Math.floor(stepsBefore(row, Math.max(0, Math.floor(from + 1e-9))) + 1e-6) + 1;
  const last = Math.min(row.lane.steps, Math.floor(stepsBefore(row, Math.ceil(to - 1e-9)) + 1e-6));
  if (first > row.lane.steps) return "after the last step";
  if (last < first) return `before step ${count(first)}`;
  return (first === last ? `step ${count(first)}` : `steps ${count(first)}–${count(last)}`) + more;
}
function read(place) {
  /* The numbers behind a column: where the pointer is, or of the chosen step. */
  const box = $("reading"), width = $("lanes").clientWidth - gutter(), per = width / (view.to - view.from);
  let words = "";
  if (total && per < SHARES_BELOW) {
    const tick = place ? place.tick : view.chosen, row = place ? place.row : guide;
    const wide = Math.max(1, Math.ceil(FEW * per)) / per;
    words = "The height of a colour is its share of the events.";
    if (tick >= view.from && tick < view.to && row) {
      const from = view.from + Math.floor((tick - view.from) / wide) * wide, { acc } = columns(row, from, Math.min(total, from + wide), 1);
      const sum = acc.reduce((a, b) => a + b) || 1;
      const shares = ORDER.filter((s) => acc[s] > 0).map((s) => `${STATES[s]} ${percent(acc[s] / sum)}`);
      words += ` ${shortOf(row)}, ${stepsIn(row, from, from + wide)}: ${shares.join(", ")}.`;
    } else words += " Point at a column for its numbers.";
  } else if (!place) words = total ? "Point at the timeline to read what the gradients hold." : "";
  else if (place.row) {
    const { row, tick } = place, motif = motifAt(row.rank, Math.floor(tick));
    if (motif) {
      const at = Math.floor((tick % 1) * motif.moments.length - .5);
      let state = motif.starts[row.at];
      for (let i = 0; i <= at; i++) if (motif.moments[i].lane === row.at) state = motif.moments[i].state;
      state = STATES[drawn(state, motif.found[row.at])];
      words = `${shortOf(row)}, ${stepsIn(row, Math.floor(tick), Math.floor(tick) + 1)}: ${state}, ${MEANING[state]}.`;
    }
  }
  if (box.textContent !== words) box.textContent = words;
}
const percent = (share) => share < .001 ? "under 0.1 %" : `${Number((100 * share).toPrecision(share < .01 ? 1 : 3))} %`;
const count = (n) => Math.round(n).toLocaleString("en-US");

function columns(row, from, to, width) {
  /* What each column of pixels holds: shares of states, and whether anything was found there. */
  const n = STATES.length, acc = new Float32Array(Math.ceil(width) * n), found = new Uint8Array(Math.ceil(width));
  const { rank, at } = row, scale = width / (to - from);
  /* Shares of less than a few ticks would only flicker: then several columns share them. */
  const wide = scale < SHARES_BELOW ? Math.max(1, Math.ceil(FEW * scale)) : 1;
  if (!rank.runs.length) return { acc, found, wide };
  for (let run = runAt(rank, Math.max(0, from)); run < rank.runs.length && rank.starts[run] < to; run++) {
    const motif = rank.motifs[rank.runs[run]], share = motif.shares[at];
    const x0 = Math.max(0, (rank.starts[run] - from) * scale), x1 = Math.min(width, (rank.starts[run + 1] - from) * scale);
    const last = Math.min(found.length - 1, Math.ceil(x1) - 1);
    for (let x = Math.floor(x0); x <= last; x++) {
      const part = Math.min(x1, x + 1) - Math.max(x0, x);
      const bin = Math.floor(x / wide) * n;
      for (let s = 0; s < n; s++) acc[bin + s] += share[s] * part;
      found[x] = Math.max(found[x], motif.found[at]);
    }
  }
  return { acc, found, wide };
}
const ORDER = [5, 4, 2, 3, 1, 0];
function drawColumns(ctx, row, from, to, width, y, band) {
  const { acc, found, wide } = columns(row, from, to, width), n = STATES.length;
  /* One stale step among 100,000 has a third of its column; no state is seen that is not there. */
  const heights = (column) => {
    const x = Math.floor(column / wide);
    let sum = 0;
    for (let s = 0; s < n; s++) sum += acc[x * n + s];
    if (!sum) return null;
    const tall = ORDER.map((s) => Math.round(acc[x * n + s] / sum * band));
    const stale = acc[x * n + STALE] > 0 && tall[0] < band / 3;
    if (stale) tall[0] = Math.ceil(band / 3);
    /* What rounding leaves over, or lacks, is the tallest state's. */
    for (let over = tall.reduce((a, b) => a + b) - band; over;) {
      let most = stale ? 1 : 0;
      for (let i = most + 1; i < n; i++) if (tall[i] > tall[most]) most = i;
      const cut = Math.min(over, tall[most]);
      tall[most] -= cut;
      over -= cut;
    }
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
  /* Columns in which something was found: for advice a thin line, for errors a mark that one cannot miss. */
  ctx.fillStyle = look.hint;
  for (let x = 0; x < found.length; x++) if (found[x] === ADVICE) ctx.fillRect(x, y - 2, 1, 2);
  ctx.fillStyle = look.bad;
  for (let x = 0; x < found.length; x++) {
    if (found[x] !== ERROR) continue;
    const start = x;
    while (found[x + 1] === ERROR) x++;
    const middle = (start + x + 1) / 2, half = Math.max(4, (x + 1 - start) / 2);
    ctx.beginPath();
    ctx.moveTo(middle - half, y - tall); ctx.lineTo(middle + half, y - tall);
    ctx.lineTo(middle + half - 4 + .75, y); ctx.lineTo(middle - half + 4 - .75, y);
    ctx.fill();
  }
}
function drawLanes() {
  const { ctx, width } = pen($("lanes"), Math.max(1, rows.length) * LANE + (alone ? AXIS : 0), gutter());
  const span = view.to - view.from, per = width / span;
  const x = (tick) => (tick - view.from) * per;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, width, rows.length * LANE);
  ctx.clip();
  rows.forEach((row, number) => {
    const y = number * LANE + TOP;
    if (per < SIGNS_FROM) { ctx.fillStyle = look.sunk; ctx.fillRect(0, y, width, BAND); }
    if (per >= SHARES_BELOW) drawTicks(ctx, row, y, x, per, width);
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
  if (alone) axis(ctx, width, rows.length * LANE + 2, guide);
  else rows.forEach((row, number) => axis(ctx, width, number * LANE + TOP + BAND + 4, row));
  const names = $("names");
  if (names.dataset.left !== String(gutter())) {
    names.dataset.left = gutter();
    names.replaceChildren(...rows.map((row, number) => {
      const label = document.createElement("span");
      label.style.top = number * LANE + 2 + "px";
      label.style.left = gutter() + "px";
      label.textContent = titleOf(row) + " ";
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
    const { moments, starts, found } = motifAt(rank, tick), slot = per / moments.length, left = x(tick);
    let state = starts[at], begin = left;
    const until = (end) => { if (end > begin) { ctx.fillStyle = look.fill[drawn(state, found[at])]; ctx.fillRect(begin, top, end - begin, band); } begin = end; };
    moments.forEach((moment, i) => { if (moment.lane === at) { until(left + (i + .5) * slot); state = moment.state; } });
    until(left + per);
    if (per > 14 && tick > view.from) { ctx.fillStyle = look.surface; ctx.fillRect(left - .75, top, 1.5, band); }
    moments.forEach((moment, i) => { if (moment.lane === at) sign(ctx, moment, left + (i + .5) * slot, y, slot, signs); });
  }
}
function sign(ctx, moment, x, y, slot, signs) {
  const mark = SIGNS[moment.kind], step = moment.kind === "step", middle = y + 8.5;
  if (moment.level) badge(ctx, moment.level, x, y - 5.5);
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
  const words = (wide ? moment.kind : mark) + (moment.times > 1 && slot > 26 ? " ×" + moment.times : "");
  const half = Math.max(Math.min(8, slot / 2 - .5), ctx.measureText(words).width / 2 + (wide ? 8 : slot < 22 ? 1.5 : 4));
  ctx.beginPath();
  if (ctx.roundRect) ctx.roundRect(x - half, middle - 9, half * 2, 18, moment.kind === "step" ? 3 : 9);
  else ctx.rect(x - half, middle - 9, half * 2, 18);
  ctx.fillStyle = step ? look.ink : look.surface;
  ctx.fill();
  ctx.strokeStyle = look.ink;
  ctx.stroke();
  ctx.fillStyle = step ? look.surface : look.ink;
  ctx.fillText(words, x, middle + .5);
}
function badge(ctx, level, x, y) {
  /* Errors are triangles, advice is a small ring. */
  ctx.beginPath();
  if (level === ERROR) {
    ctx.fillStyle = look.bad;
    ctx.moveTo(x - 4.5, y - 3.5); ctx.lineTo(x + 4.5, y - 3.5); ctx.lineTo(x, y + 3.5);
    ctx.fill();
  } else {
    ctx.strokeStyle = look.hint;
    ctx.lineWidth = 1.5;
    ctx.arc(x, y + .5, 2, 0, 7);
    ctx.stroke();
    ctx.lineWidth = 1;
  }
}
function nice(span, room) {
  const raw = Math.max(1, span / Math.max(1, room)), power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((k) => k * power).find((gap) => gap >= raw);
}
function axis(ctx, width, y, row) {
  /* The numbers that one optimizer's steps have. */
  const span = view.to - view.from, per = width / span;
  const first = Math.max(1, Math.floor(stepsBefore(row, Math.floor(view.from)))), last = Math.min(row.lane.steps, Math.ceil(stepsBefore(row, Math.ceil(view.to)) + 1));
  if (!row.lane.steps || last < first) return;
  const gap = nice(last - first + 1, width / 90);
  ctx.fillStyle = look.muted;
  ctx.font = `11px ${look.sans}`;
  ctx.textBaseline = "top";
  let free = -99;
  if (first === 1 && gap > 1) put(1);
  for (let step = Math.max(gap, Math.ceil(first / gap) * gap); step <= last; step += gap) put(step);
  function put(step) {
    const x = (tickOf(row, step) + .5 - view.from) * per, words = count(step), half = ctx.measureText(words).width / 2;
    if (x < -.5 || x > width + .5 || x - half < free) return;
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
  caption.textContent = titleOf(row);
  canvas.setAttribute("role", "img");
  figure.append(caption, canvas);
  $("charts").append(figure);
  return { row, canvas, caption, title: caption.textContent };
}) : [];
function drawCharts() {
  const shown = charts.map(drawChart);
  for (const [name, is] of [["range", (one) => one.dense], ["right", (one) => one.differs], ["wrong", (one) => one.differs], ["endless", (one) => one.endless]])
    for (const key of document.querySelectorAll(".k-" + name)) key.hidden = !shown.some(is);
}
function drawChart({ row, canvas, title }) {
  const { ctx, width, tall } = pen(canvas, 0, gutter()), { each, used, right } = row.rank.norms[row.at];
  const left = 0, base = tall - AXIS - 4, room = width - left, first = stepsBefore(row, view.from), last = stepsBefore(row, view.to);
  const from = Math.max(0, Math.floor(first / each) - 1), to = Math.min(used.length - 1, Math.ceil(last / each) + 1);
  const x = tickScale(row, room, left);
  let low = Infinity, high = 0, endless = 0, differs = 0;
  for (let i = from; i <= to; i++) {
    const seen = x((i + .5) * each) >= left && x((i + .5) * each) <= left + room;
    if (used[i] === Infinity && seen) endless++;
    for (const value of right ? [used[i], right[i]] : [used[i]])
      if (value > 0 && value < Infinity) { low = Math.min(low, value); high = Math.max(high, value); }
    if (right && right[i] === right[i]) differs++;
  }
  if (!(high > 0)) { low = .5; high = 1; }
  const log = high / low > 40;
  const bottom = log ? Math.log10(low) - .05 : 0, top = log ? Math.log10(high) + .05 : high * 1.08;
  const y = (value) => base - ((log ? Math.log10(Math.max(value, low)) : value) - bottom) / (top - bottom || 1) * (base - 22);
  ctx.font = `11px ${look.sans}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const grid = marks(bottom, top, log).filter((value) => y(value) > 20);
  for (const value of grid) {
    ctx.fillStyle = look.line;
    ctx.fillRect(left, Math.round(y(value)), room, 1);
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, 0, room, tall);
  ctx.clip();
  const dense = to - from > room * 2;
  if (right) between();
  if (dense) envelope();
  else line(used, look.ink, [], 1.8);
  if (right) line(right, look.live, [5, 4], 2.4);
  if (endless) notFinite();
  ctx.restore();
  axis(ctx, room, base + 4, row);
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  for (const value of grid) {
    const words = short(value), wide = ctx.measureText(words).width;
    const at = [gutter() ? -8 - wide : 2, y(value) + (gutter() ? 6 : -2)];
    /* Without room beside the lines the numbers stand on them, each with an edge of its own. */
    ctx.strokeStyle = look.surface;
    ctx.lineWidth = 4;
    ctx.lineJoin = "round";
    if (!gutter()) ctx.strokeText(words, ...at);
    ctx.fillStyle = look.muted;
    ctx.fillText(words, ...at);
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
  function envelope() {
    /* Where many steps share a pixel: from the smallest to the largest, and their mean as a line. */
    const low = [], high = [], mean = [], columns = [];
    let column = NaN, number = 0;
    for (let i = from; i <= to; i++) {
      if (!(used[i] >= 0) || used[i] === Infinity) continue;
      const here = Math.round(x((i + .5) * each)), py = y(used[i]), last = columns.length - 1;
      if (here !== column) { columns.push(column = here); low.push(py); high.push(py); mean.push(py); number = 1; }
      else { low[last] = Math.max(low[last], py); high[last] = Math.min(high[last], py); number++; mean[last] += (py - mean[last]) / number; }
    }
    ctx.fillStyle = ctx.strokeStyle = look.ink;
    ctx.globalAlpha = .2;
    ctx.beginPath();
    columns.forEach((px, i) => ctx.lineTo(px, high[i] - .5));
    for (let i = columns.length - 1; i >= 0; i--) ctx.lineTo(columns[i], low[i] + .5);
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.lineWidth = 1.4;
    ctx.lineJoin = "round";
    ctx.beginPath();
    /* The mean of a few neighbours: a line that can be followed. */
    columns.forEach((px, i) => { const near = mean.slice(Math.max(0, i - 2), i + 3); ctx.lineTo(px, near.reduce((a, b) => a + b) / near.length); });
    ctx.stroke();
  }
  function notFinite() {
    ctx.fillStyle = look.bad;
    for (let i = from; i <= to; i++) if (used[i] === Infinity) {
      const px = x((i + .5) * each);
      ctx.beginPath();
      ctx.moveTo(px - 4, 24); ctx.lineTo(px + 4, 24); ctx.lineTo(px, 17);
      ctx.fill();
    }
  }
  function line(values, color, dash, thick) {
    ctx.strokeStyle = ctx.fillStyle = color;
    ctx.lineWidth = thick;
    ctx.setLineDash(dense ? [] : dash);
    ctx.lineJoin = "round";
    ctx.beginPath();
    let open = false;
    for (let i = from; i <= to; i++) {
      const value = values[i];
      if (!(value >= 0) || value === Infinity) { open = false; continue; }
      const px = x((i + .5) * each), py = y(value);
      if (open) ctx.lineTo(px, py);
      else { ctx.moveTo(px, py); ctx.lineTo(px + (dense ? 1 : 0), py); open = true; }
    }
    ctx.stroke();
    ctx.setLineDash([]);
    /* A point between gaps has no line to be part of. */
    const shown = (i) => values[i] >= 0 && values[i] < Infinity;
    for (let i = from; i <= to; i++) if (shown(i) && (to - from < 60 || !(shown(i - 1) || shown(i + 1)))) {
      ctx.beginPath();
      ctx.arc(x((i + .5) * each), y(values[i]), 3, 0, 7);
      ctx.fill();
    }
  }
  ctx.fillStyle = look.muted;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  const notes = ["|grad|", ...(log ? ["logarithmic"] : []), ...(each > 1 ? [`each point is the largest of ${each} steps`] : [])];
  ctx.fillText(notes.join(", "), left + 4, 2);
  if (endless) { ctx.fillStyle = look.bad; ctx.textAlign = "right"; ctx.fillText(`${count(endless)} not finite`, width - 4, 2); }
  if (view.chosen >= view.from && view.chosen < view.to) {
    ctx.fillStyle = look.ink;
    ctx.globalAlpha = .35;
    ctx.fillRect(left + (view.chosen + .5 - view.from) / (view.to - view.from) * room - .5, 0, 1, base);
    ctx.globalAlpha = 1;
  }
  const words = high > 0 ? `from ${short(low)} to ${short(high)}` : "none";
  canvas.setAttribute("aria-label", `Gradient norms of ${title} in view: ${words}${differs ? `; at ${count(differs)} points the right value differs` : ""}${endless ? `; ${count(endless)} are not finite` : ""}`);
  return { dense, differs, endless };
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
    const row = stepIn(rank, view.chosen);
    const name = row ? `step ${count(stepAt(row, view.chosen))}` + (alone ? "" : ` of ${row.lane.name}`) : "after the last step";
    title.textContent = (ranks.length > 1 ? rank.name + ", " : "") + name + (rank.each > 1 ? ` (the most important of ${rank.each})` : "");
    if (!alone && row) {
      const others = rows.filter((one) => one.rank === rank && one !== row && one.lane.steps).slice(0, 4);
      const small = document.createElement("small");
      small.textContent = others.map((one) => { const n = stepAt(one, view.chosen) - 1; return n ? ` · after step ${count(n)} of ${one.lane.name}` : ` · before step 1 of ${one.lane.name}`; }).join("");
      title.append(small);
    }
    for (const moment of motif.moments) list.append(item(rank, moment, motif));
    box.append(title, list);
    if (row) {
      const words = normWords(row, stepAt(row, view.chosen) - 1);
      if (words) { const line = document.createElement("p"); line.textContent = words; box.append(line); }
    }
  }
}
function item(rank, moment, motif) {
  const li = document.createElement("li"), name = document.createElement("b");
  name.textContent = (NAMES[moment.kind] || moment.kind) + (moment.times > 1 ? ` ×${moment.times}` : "");
  li.append(name);
  const add = (words, kind) => { const s = document.createElement("small"); s.textContent = words; if (kind) s.className = kind; li.append(s); };
  if (moment.lane < 0) return li;
  if (rank.lanes.length > 1) add(rank.lanes[moment.lane].name);
  if (moment.site >= 0) { const [path, line] = rank.sites[moment.site]; add(`${rank.paths[path]}:${line}`); }
  add("→ " + STATES[drawn(moment.state, motif.found[moment.lane])], "after");
  for (const number of moment.found) { if (moment.level === ERROR) li.className = "found"; else li.className = "hinted"; const f = data.findings[number]; add(`${f.code} ${f.name}`); }
  return li;
}
function normWords(row, step) {
  const norms = row.rank.norms[row.at];
  if (!norms) return "";
  const at = Math.floor(step / norms.each), used = norms.used[at], right = norms.right ? norms.right[at] : NaN;
  if (!(used >= 0)) return "";
  return `Gradient norm used: ${full(used)}` + (right === right ? `; it should have been ${full(right)}` : "");
}
function full(value) {
  /* Six digits, written as in the cards and in the terminal (Python's `.6g`). */
  if (value === Infinity) return "not finite";
  if (value && (value < 1e-4 || value >= 999999.5)) {
    const [digits, power] = value.toExponential(5).split("e");
    return `${digits.replace(/\.?0+$/, "")}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }
  return String(Number(value.toPrecision(6)));
}

/* ---- the address: `#step=6544`, and `&lane=2` where several optimizers step ---- */
function goStep(row, step) {
  if (!row || !row.lane.steps || !(step >= 1)) return;
  const tick = tickOf(row, step);
  if (view.to - view.from > 40) show(tick - 9.5, tick + 10.5);
  choose(tick);
}
function remember() {
  if (view.chosen < 0) return;
  const row = ranks.map((rank) => stepIn(rank, view.chosen)).find(Boolean);
  if (!row) return;
  const lane = alone ? "" : `&lane=${stepping.indexOf(row) + 1}`;
  history.replaceState(null, "", `#step=${stepAt(row, view.chosen)}${lane}`);
}
function fromAddress() {
  const said = new URLSearchParams(location.hash.slice(1)), step = Number(said.get("step"));
  if (!(step >= 1)) return false;
  const row = stepping[Number(said.get("lane") || 0) - 1] || guide;
  if (row !== guide) { guide = row; $("whose").value = stepping.indexOf(row); }
  goStep(row, step);
  return true;
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
    if (!fingers.size) {
      const place = canvas.getBoundingClientRect(), number = Math.floor((event.clientY - place.top) / LANE);
      read(number < rows.length && event.clientX - place.left >= gutter() ? { tick: at(event, canvas), row: rows[number] } : null);
    }
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
    if (!moved && event.type === "pointerup") { choose(Math.floor(at(event, canvas)), false); remember(); }
    grabbed = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => read(null));
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
    next: () => { goFinding(1); remember(); }, prev: () => { goFinding(-1); remember(); },
  };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => acts[button.dataset.do]());
  for (const button of document.querySelectorAll(".finds")) button.disabled = nextFinding(1, -1, -1) < 0;
  for (const button of document.querySelectorAll(".show")) {
    const number = Number(button.dataset.finding);
    button.hidden = nextFinding(1, number, -1) < 0;
    button.addEventListener("click", () => {
      goFinding(1, number, -1);
      remember();
      $("timeline").focus({ preventScroll: true });
      $("timeline").closest("section").scrollIntoView();
    });
  }
  $("of").hidden = alone;
  $("whose").replaceChildren(...stepping.map((row, number) => new Option(shortOf(row), number, row === guide, row === guide)));
  $("whose").addEventListener("change", (event) => { guide = stepping[event.target.value]; go(); changed(); });
  $("goto").addEventListener("change", go);
  function go() {
    /* A number, or what a card says: `6,544`, `step 6,544 of opt_d`. */
    const said = $("goto").value, number = said.match(/\d[\d,]*/);
    if (!number) return;
    const named = stepping.findIndex((row) => said.trim().endsWith(` of ${row.lane.name}`));
    if (named >= 0 && !said.endsWith(` of ${guide.lane.name}`)) { guide = stepping[named]; $("whose").value = named; }
    goStep(guide, Number(number[0].replaceAll(",", "")));
    remember();
  }
  addEventListener("hashchange", fromAddress);
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
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); remember(); }
  });
  window.addEventListener("resize", changed);
}
function legend() {
  const held = new Set(ranks.flatMap((rank) => rank.motifs.flatMap((motif) => motif.shares.flatMap((share) => [...share.keys()].filter((s) => share[s] > 0)))));
  $("legend").replaceChildren(...ORDER.toReversed().filter((s) => held.has(s)).map((s) => {
    const state = STATES[s];
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
    const name = document.createElement("b");
    name.textContent = state;
    item.append(swatch, name, MEANING[state]);
    return item;
  }), Object.assign(document.createElement("span"), { className: "break" }), ...["zero", "backward", "clip", "step"].map((kind) => {
    const item = document.createElement("span"), mark = document.createElement("kbd");
    mark.textContent = SIGNS[kind];
    item.append(mark, kind);
    return item;
  }), ...[[ERROR, "error"], [ADVICE, "advice"]].filter(([level]) => data.findings.some((_, n) => levelOf(n) === level)).map(([level, name]) => {
    const item = document.createElement("span"), mark = document.createElement("canvas"), k = ratio();
    mark.width = mark.height = 14 * k;
    mark.style.cssText = "width:14px;height:14px";
    mark.setAttribute("aria-hidden", "true");
    const ctx = mark.getContext("2d");
    ctx.scale(k, k);
    badge(ctx, level, 7, 7);
    item.append(mark, name);
    return item;
  }));
}

/* ---- the fix, to take along ---- */
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  const said = [...button.childNodes].map((node) => node.cloneNode(true));
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(button.dataset.copy); } catch {
      /* Some browsers give a page from disk no clipboard, but let it copy what is selected. */
      const area = document.body.appendChild(document.createElement("textarea"));
      area.value = button.dataset.copy;
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = "Copied";
    setTimeout(() => button.replaceChildren(...said.map((node) => node.cloneNode(true))), 1500);
  });
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
  view.chosen = nextFinding(1, -1, -1);
  guide = (view.chosen >= 0 && ranks.map((rank) => stepIn(rank, view.chosen)).find((row) => row && !alone)) || guide;
  for (const button of document.querySelectorAll(".finds")) if (worst === ERROR) button.textContent = button.textContent.replace("finding", "error");
  listen();
  fromAddress();
}
draw();
window.zerograd = { view, total, rows: rows.length, stepAt: (lane, tick) => stepAt(stepping[lane], tick) };
})();
