"use strict";

// Light and dark: the system's, or what the reader has chosen on any of the pages.
{
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const kept = (way) => { try { return way(localStorage); } catch { return null; } };
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
  };
  const before = kept((store) => store.getItem("zerograd-theme"));
  if (before) root.dataset.theme = before;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    kept((store) => store.setItem("zerograd-theme", root.dataset.theme));
    label();
  });
  system.addEventListener("change", label);
  button.hidden = false;
  label();
}

// The bucket: the buttons do what torch's SGD does; the states come from zerograd's state machine.
for (const lab of document.querySelectorAll(".lab")) {
  const given = JSON.parse(lab.querySelector("script").textContent);
  const water = lab.querySelector(".water");
  const pail = lab.querySelector(".bucket");
  const show = (name) => lab.querySelector(`[data-show=${name}]`);
  const round = (value) => String(Number(value.toPrecision(4)));
  let now;

  const draw = (said) => {
    const full = given.gradients.reduce((sum, one) => sum + one, 0);
    water.style.height = `${Math.min(100, (100 * (now.gradient ?? 0)) / full)}%`;
    pail.className = `bucket ${now.state}`;
    show("gradient").textContent = now.gradient === null ? "None" : round(now.gradient);
    show("state").textContent = now.state;
    show("weight").textContent = round(now.weight);
    show("said").textContent = said;
  };

  const press = {
    backward() {
      const slope = given.gradients[now.batches % given.gradients.length];
      now.gradient = (now.gradient ?? 0) + slope;
      now.batches += 1;
      return `backward() added ${round(slope)}.`;
    },
    step() {
      if (now.gradient === null) return "step() found no gradient.";
      now.weight -= given.rate * now.gradient;
      return `step() used ${round(now.gradient)}.`;
    },
    zero() {
      now.gradient = null;
      return "zero_grad() emptied the bucket.";
    },
  };

  const reset = () => {
    now = { gradient: null, weight: given.weight, state: given.start, batches: 0 };
    draw("The bucket is empty.");
  };

  lab.hidden = false;
  lab.addEventListener("click", (event) => {
    const call = event.target.closest("button")?.dataset.call;
    if (call === "again") reset();
    else if (call) {
      const said = press[call]();
      now.state = given.table[now.state][call];
      draw(said);
    }
  });
  reset();
}

// Questions: the reader answers yes or no before the answer opens.
for (const question of document.querySelectorAll(".question")) {
  const said = question.querySelector(".said");
  const details = question.querySelector("details");
  const buttons = question.querySelector(".buttons");
  buttons.hidden = false;
  buttons.addEventListener("click", (event) => {
    const given = event.target.closest("button")?.dataset.answer;
    if (!given || details.open) return;
    const right = given === question.dataset.truth;
    said.className = `said ${right ? "right" : "wrong"}`;
    said.textContent = `${right ? "Right" : "Wrong"}: the answer is ${question.dataset.truth}.`;
    details.open = true;
  });
}
