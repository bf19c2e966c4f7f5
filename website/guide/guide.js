// The field guide: a model, a way to train it and a card are chosen, and the answer is shown. Each answer has an
// address of its own, which is written behind the # and read when the page opens. Answers of a model come with it.
"use strict";
(() => {
  const root = document.querySelector(".field-guide");
  const given = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const control = Object.fromEntries([...root.querySelectorAll("select")].map((one) => [one.name, one]));
  const parts = new Map(); // of each model its answers, once they are there
  const waiting = new Map();

  window.fieldGuide = (key, part) => {
    parts.set(key, part);
    (waiting.get(key) || []).forEach((then) => then());
    waiting.delete(key);
  };

  function load(key, then) {
    if (parts.has(key)) return then();
    if (waiting.has(key)) return void waiting.get(key).push(then);
    waiting.set(key, [then]);
    const script = document.createElement("script");
    script.src = `${given.parts}${key}.js`;
    script.onerror = () => say(["The answers of this model could not be loaded."]);
    document.head.append(script);
  }

  const wanted = { card: given.card }; // what was chosen last, also where a model lacks it

  function offer(name, values, named = String) {
    control[name].replaceChildren(...values.map((value) => new Option(named(value), value)));
    control[name].value = values.map(String).includes(wanted[name]) ? wanted[name] : values[0];
  }

  const model = () => given.models[control.model.value];

  function offerWays() {
    const now = model();
    offer("method", Object.keys(now.methods));
    offer("optimizer", now.methods[control.method.value]);
    offer("length", now.lengths, (length) => `${Number(length).toLocaleString("en")} ${now.unit}`);
    offer("card", given.cards.map((card) => card.name));
    offer("checkpoint", now.blocks ? ["1", "0"] : ["0"], (value) => (value === "1" ? "each block" : "nothing"));
  }

  const chosen = () => [control.method, control.optimizer, control.checkpoint, control.length].map((one) => one.value);

  function say(lines) {
    root.querySelector(".answer").replaceChildren(
      ...lines.map((line) => Object.assign(document.createElement("p"), { textContent: line })),
    );
  }

  function address(settings) {
    return `#${new URLSearchParams(settings)}`;
  }

  function settings() {
    return Object.fromEntries(Object.entries(control).map(([name, one]) => [name, one.value]));
  }

  function show() {
    const key = control.model.value;
    load(key, () => {
      if (key !== control.model.value) return; // another was chosen meanwhile
      const place = given.cards.findIndex((card) => card.name === control.card.value);
      const way = parts.get(key).ways[chosen().join("/")];
      const [batch, text, other, words] = way.cards[place];
      const card = given.cards[place];
      say([text, ...(card.note ? [card.note] : [])]);
      if (other) root.querySelector(".answer").append(out(key, other, words));
      root.querySelector("code").textContent = way.command.replace("{batch}", Math.max(1, batch))
        .replace("{card}", card.name);
      draw(way.sketch, Math.max(1, batch), card, text);
      history.replaceState(null, "", address(settings()));
    });
  }

  function out(key, other, words) {
    const [method, optimizer, checkpoint, length] = other.split("/");
    const link = document.createElement("a");
    link.href = address({ ...settings(), model: key, method, optimizer, checkpoint, length });
    link.textContent = words;
    const line = document.createElement("p");
    line.append("The gentlest change of the guide with which a sample fits: ", link, ".");
    return line;
  }

  function draw([fixed, perSample], batch, card, text) {
    const gib = fixed.map((size, at) => (size + perSample[at] * batch) / 1024);
    const most = 1.08 * Math.max(card.gib, ...gib);
    const x = (at) => 40 + (560 * at) / gib.length;
    const y = (size) => 170 - (150 * size) / most;
    const points = gib.flatMap((size, at) => [`${x(at)},${y(size)}`, `${x(at + 1)},${y(size)}`]).join(" ");
    const svg = root.querySelector("svg");
    svg.setAttribute("aria-label", `Sketch of the memory of one step. ${text}`);
    svg.innerHTML = `<polygon points="40,170 ${points} 600,170" class="area"/>
      <line x1="40" x2="600" y1="${y(card.gib)}" y2="${y(card.gib)}" class="limit"/>
      <text x="40" y="14"></text><text x="40" y="188"></text>`;
    const [limit, axis] = svg.querySelectorAll("text");
    limit.textContent = `dashed: ${card.name}, ${card.gib} GiB`;
    axis.textContent = "16 moments of a step: forward, backward, update";
  }

  function open() {
    Object.assign(wanted, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
    if (given.models[wanted.model]) control.model.value = wanted.model;
    offerWays();
    show();
  }

  const words = (text) => text.toLowerCase().replaceAll(",", "").split(/[^a-z0-9.]+/).filter(Boolean);

  // The option of a control that shares the most letters with what is typed; a model's name may be typed in part.
  // Returns the words that say something of it.
  function nearest(name, typed) {
    const letters = (word, one) => (word.includes(one) ? one : name === "model" && one.includes(word) ? word : "").length;
    let [most, found] = [name === "model" ? 2 : 1, []]; // fewer letters say nothing
    for (const option of control[name].options) {
      const known = words(option.text);
      const shared = typed.map((word) => Math.max(...known.map((one) => letters(word, one))));
      const score = shared.reduce((sum, one) => sum + one, 0);
      if (score <= most) continue;
      [most, found] = [score, typed.filter((word, at) => shared[at] > 1)];
      control[name].value = wanted[name] = option.value;
    }
    return found;
  }

  root.querySelector("input").addEventListener("input", ({ target }) => {
    const typed = words(target.value);
    const understood = ["model", "method", "optimizer", "checkpoint", "length", "card"].flatMap((name) => {
      const found = nearest(name, typed);
      offerWays(); // what there is to choose depends on what was chosen before
      return found;
    });
    const rest = typed.filter((word) => word.length > 3 && !understood.includes(word));
    root.querySelector("output").textContent = rest.length ? `Not in this guide: ${rest.join(", ")}.` : "";
    show();
  });

  for (const one of Object.values(control)) {
    one.addEventListener("input", () => {
      wanted[one.name] = one.value;
      offerWays();
      show();
    });
  }
  window.addEventListener("hashchange", open);
  open();
})();
