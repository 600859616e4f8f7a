"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { classes, exemplars, snapshots, pictures, figures } = data;
  const byId = (id) => document.getElementById(id);
  const names = new Map(classes.map((one) => [one.label, one.name]));
  const last = snapshots.length - 1;
  const weighted = snapshots.some((one) => one.weights);
  const present = snapshots.map((one) => new Set(one.members));
  const SVG = "http://www.w3.org/2000/svg";

  // Text from the data only ever becomes a text node or an attribute, never markup.
  function make(tag, options = {}, ...children) {
    const { space, ...attributes } = options;
    const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const number = (value) => {
    if (value === null || value === undefined) return "–";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    if (Math.abs(value) < 0.001) return value.toExponential(1);
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  };
  const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
  const entered = (step) => snapshots[step].members.filter((k) => last > 0 && !(step > 0 && present[step - 1].has(k)));
  const gone = (step) => (step === 0 ? [] : snapshots[step - 1].members.filter((k) => !present[step].has(k)));
  const first = exemplars.map((_, k) => present.findIndex((set) => set.has(k)));
  const final = exemplars.map((_, k) => present.findLastIndex((set) => set.has(k)));
  const weights = snapshots.map((one) => new Map(one.members.map((k, i) => [k, one.weights ? one.weights[i] : null])));
  const weightOf = (k, step) => {
    for (let at = Math.min(step, final[k]); at >= 0; at--) if (weights[at].has(k)) return weights[at].get(k);
    return null;
  };
  const className = (k) => {
    const { label, target } = exemplars[k];
    return label === null ? (target ? `target ${target}` : "exemplar") : names.get(label);
  };

  // Facts about the memory as it is at the end, and about its history.
  function showFacts() {
    const now = snapshots[last];
    const facts = [["Exemplars", number(now.members.length)]];
    if (classes.length) facts.push(["Classes", number(new Set(now.members.map((k) => exemplars[k].label)).size)]);
    if (now.seen !== null) facts.push(["Examples seen", number(now.seen)]);
    if (now.weights) facts.push(["Effective size", number(now.effective)]);
    if (now.residual !== null) facts.push(["Residual", number(now.residual)]);
    if (last > 0) facts.push(["Steps recorded", number(snapshots.length)]);
    byId("facts").append(...facts.map(([what, value]) => make("div", {}, make("dt", {}, what), make("dd", {}, value))));
  }

  const WIDTH = 420, HEIGHT = 190, LEFT = 54, BOTTOM = 26, TOP = 12, RIGHT = 24;
  const across = (step) => LEFT + 16 + (last ? step / last : 0.5) * (WIDTH - LEFT - RIGHT - 16);

  function chart(caption, series, bars = false) {
    const top = Math.max(...series.flatMap((one) => one.values.filter((v) => v !== null)), 0) || 1;
    const up = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    const summary = series.map((one) => {
      const known = one.values.filter((v) => v !== null);
      return `${one.name} from ${number(known[0])} to ${number(known[known.length - 1])}`;
    });
    const label = `Chart over ${snapshots.length} steps: ${summary.join("; ")}. The table below has all values.`;
    const svg = make("svg", { space: SVG, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
    for (const value of [0, top / 2, top]) {
      svg.append(
        make("line", { space: SVG, class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: up(value), y2: up(value) }),
        make("text", { space: SVG, x: LEFT - 6, y: up(value) + 4, "text-anchor": "end" }, number(Number(value.toPrecision(2)))),
      );
    }
    const ticks = last < 8 ? snapshots.map((_, step) => step) : [0, Math.round(last / 2), last];
    for (const step of ticks)
      svg.append(make("text", { space: SVG, x: across(step), y: HEIGHT - 8, "text-anchor": "middle" }, shortName(step)));
    svg.append(make("line", { space: SVG, class: "now", y1: TOP, y2: HEIGHT - BOTTOM }));
    series.forEach((one, index) => {
      const points = one.values.map((v, step) => [step, v]).filter(([, v]) => v !== null);
      if (bars) {
        const width = Math.min(14, (0.4 * (WIDTH - LEFT - RIGHT)) / snapshots.length);
        for (const [s, v] of points)
          svg.append(make("rect", { space: SVG, class: `dot${index}`, x: across(s) - width * (1 - index), y: up(v), width, height: up(0) - up(v) }, make("title", { space: SVG }, `${snapshots[s].name}: ${number(v)} ${one.name}`)));
        return;
      }
      svg.append(make("polyline", { space: SVG, class: `line${index}`, points: points.map(([s, v]) => `${across(s)},${up(v)}`).join(" ") }));
      if (points.length <= 40)
        for (const [s, v] of points)
          svg.append(make("circle", { space: SVG, class: `dot${index}`, cx: across(s), cy: up(v), r: 3 }, make("title", { space: SVG }, `${snapshots[s].name}: ${number(v)}`)));
    });
    const keys = series.flatMap((one, i) => [i ? ", " : "", make("span", { class: `key${i}` }, one.name)]);
    byId("charts").append(make("figure", {}, make("figcaption", {}, ...(series.length > 1 ? keys : [caption])), svg));
  }
  const shortName = (step) => (/^experience \d+$/.test(snapshots[step].name) ? snapshots[step].name.slice(11) : snapshots[step].name);

  function table(element, heads, rows) {
    element.replaceChildren(
      make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, ...rows.map(([head, ...cells]) => make("tr", {}, make("th", { scope: "row" }, head), ...cells))),
    );
  }
  const cell = (text) => make("td", {}, text);

  function showHistory() {
    byId("time").hidden = false;
    const sizes = [{ name: "exemplars", values: snapshots.map((one) => one.members.length) }];
    if (weighted) sizes.push({ name: "effective size", values: snapshots.map((one) => one.effective) });
    chart("exemplars", sizes);
    if (snapshots.some((one) => one.residual !== null))
      chart("residual, relative to the target", [{ name: "residual", values: snapshots.map((one) => one.residual) }]);
    const changes = [entered, gone].map((count) => snapshots.map((_, step) => count(step).length));
    chart("entered and left", [{ name: "entered", values: changes[0] }, { name: "left", values: changes[1] }], snapshots.length <= 40);
    table(byId("history"), ["After", "exemplars", "effective size", "residual", "entered", "left"],
      snapshots.map((one, step) => [one.name, ...[one.members.length, one.effective, one.residual, changes[0][step], changes[1][step]].map((v) => cell(number(v)))]));
  }

  function showCounts() {
    byId("classes").hidden = false;
    const counts = snapshots.map((one) => {
      const found = new Map();
      for (const k of one.members) found.set(exemplars[k].label, (found.get(exemplars[k].label) || 0) + 1);
      return found;
    });
    const most = Math.max(1, ...counts.flatMap((found) => [...found.values()]));
    const numbered = last > 0 && snapshots.every((_, step) => /^\d+$/.test(shortName(step)));
    table(byId("counts"), [numbered ? "After experience" : "Class", ...snapshots.map((_, step) => shortName(step))],
      classes.map(({ label, name }) => [name, ...counts.map((found, step) => {
        const count = found.get(label) || 0;
        const one = cell(String(count));
        one.dataset.step = step;
        if (count) one.style.background = `color-mix(in srgb, var(--accent) ${Math.round(5 + 50 * count / most)}%, transparent)`;
        else one.className = "zero";
        return one;
      })]));
  }

  // A picture is a window onto the one image that holds all of them.
  function picture(k, size) {
    const { tile, values } = exemplars[k];
    if (tile === undefined) return make("span", { class: "words" }, values.join(" ") || "picture not kept");
    const scale = size / Math.max(pictures.width, pictures.height);
    const [width, height] = [pictures.width * scale, pictures.height * scale];
    const place = [tile % pictures.columns, Math.floor(tile / pictures.columns)];
    const span = make("span", { class: Math.max(pictures.width, pictures.height) < 48 ? "pic pixels" : "pic" });
    Object.assign(span.style, {
      width: `${width}px`, height: `${height}px`,
      backgroundSize: `${pictures.columns * width}px ${pictures.rows * height}px`,
      backgroundPosition: `${-place[0] * width}px ${-place[1] * height}px`,
    });
    return span;
  }

  const state = { step: last, show: "memory", class: "all", sort: weighted ? "heavy" : "new", least: null };
  const ORDERS = {
    heavy: ["heaviest first", (a, b) => b.weight - a.weight || a.k - b.k],
    light: ["lightest first", (a, b) => a.weight - b.weight || a.k - b.k],
    old: ["longest in the memory", (a, b) => first[a.k] - first[b.k] || a.k - b.k],
    new: ["latest to enter", (a, b) => first[b.k] - first[a.k] || a.k - b.k],
  };

  function chosen() {
    const { step, show } = state;
    const came = new Set(entered(step)), left = new Set(gone(step));
    const all = show === "entered" ? [...came] : show === "left" ? [...left] : show === "both" ? [...came, ...left] : snapshots[step].members;
    const found = all
      .map((k) => ({ k, weight: weightOf(k, step), change: came.has(k) ? "entered" : left.has(k) ? "left" : "" }))
      .filter((one) => state.class === "all" || String(exemplars[one.k].label) === state.class)
      .filter((one) => state.least === null || (one.weight !== null && one.weight >= state.least));
    return found.sort(ORDERS[state.sort][1]);
  }

  function describe(one) {
    const parts = [className(one.k)];
    if (one.weight !== null) parts.push(`weight ${number(one.weight)}`);
    if (one.change === "entered") parts.push(`entered after ${snapshots[state.step].name}`);
    if (one.change === "left") parts.push(`left after ${snapshots[state.step].name}`);
    return parts.join(", ");
  }
  const badge = (one) => (one.change ? [make("span", { class: "badge", "aria-hidden": "true" }, one.change === "entered" ? "+" : "−")] : []);

  function tile(one, heaviest) {
    const button = make("button", { type: "button", class: `tile ${one.change}`, tabindex: "-1", "aria-label": describe(one) }, picture(one.k, tileSize()), ...badge(one));
    if (one.weight !== null) {
      const bar = make("i");
      bar.style.width = `${Math.round((100 * Math.abs(one.weight)) / heaviest)}%`;
      button.append(make("span", { class: "weight" }, number(Number(one.weight.toPrecision(3)))), make("span", { class: "bar" }, bar));
    }
    button.one = one;
    return make("li", {}, button);
  }
  const tileSize = () => parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--size"));

  function sections(found, heaviest) {
    const groups = classes.length ? classes.map(({ label }) => label) : [];
    if (found.some((one) => exemplars[one.k].label === null)) groups.push(null);
    return groups.flatMap((label) => {
      const members = found.filter((one) => exemplars[one.k].label === label);
      if (!members.length) return [];
      const sum = members.reduce((total, one) => total + (one.weight || 0), 0);
      const text = ` ${plural(members.length, "exemplar")}${weighted ? `, weights sum to ${number(sum)}` : ""}`;
      const title = label === null ? "Exemplars" : names.get(label);
      return [make("h3", {}, title, make("small", {}, text)), make("ul", { class: "tiles" }, ...members.map((one) => tile(one, heaviest)))];
    });
  }

  function rows(found) {
    const width = Math.max(0, ...found.map((one) => exemplars[one.k].values.length));
    const values = width === 1 ? ["content"] : Array.from({ length: width }, (_, i) => `x${i}`);
    const element = make("table", { class: "rows" });
    table(element, ["Exemplar", ...(weighted ? ["weight"] : []), "entered after", ...values], found.map((one) => {
      const button = make("button", { type: "button", class: `tile ${one.change}`, tabindex: "-1", "aria-label": describe(one) }, className(one.k), ...badge(one));
      button.one = one;
      const facts = [...(weighted ? [number(one.weight)] : []), snapshots[first[one.k]].name];
      return [button, ...facts.map(cell), ...Array.from({ length: width }, (_, i) => cell(exemplars[one.k].values[i] ?? ""))];
    }));
    return make("div", { class: "scroll", role: "region", "aria-label": "Exemplars" }, element);
  }

  function render() {
    const found = chosen();
    const { step } = state;
    const heaviest = Math.max(1e-12, ...found.map((one) => Math.abs(one.weight || 0)));
    const content = !found.length ? [] : pictures ? sections(found, heaviest) : [rows(found)];
    byId("shown").replaceChildren(...content);
    const start = document.querySelector("#shown .tile");
    if (start) start.tabIndex = 0;
    const size = plural(snapshots[step].members.length, "exemplar");
    const changes = last > 0 ? `, ${number(entered(step).length)} entered and ${number(gone(step).length)} left` : "";
    byId("status").textContent = `${last > 0 ? `After ${snapshots[step].name}: ` : ""}${size}${changes}. ${found.length ? number(found.length) : "None"} shown.`;
    byId("when").textContent = snapshots[step].name;
    const slider = byId("step");
    slider.value = step;
    slider.setAttribute("aria-valuetext", `${snapshots[step].name}, ${step + 1} of ${snapshots.length}`);
    byId("earlier").disabled = step === 0;
    byId("later").disabled = step === last;
    for (const line of document.querySelectorAll(".now")) for (const end of ["x1", "x2"]) line.setAttribute(end, across(step));
    for (const one of document.querySelectorAll("#counts td")) one.classList.toggle("current", last > 0 && Number(one.dataset.step) === step);
    const column = document.querySelector("#counts .current");
    const region = byId("counts").parentElement;
    if (column) region.scrollLeft = column.offsetLeft - region.clientWidth / 2;
  }

  function detail(one) {
    const { k } = one;
    byId("detail-title").textContent = className(k);
    byId("detail-picture").replaceChildren(picture(k, Math.min(256, window.innerWidth - 110)));
    const facts = [["Weight", number(one.weight)]];
    if (last > 0) facts.push(["Entered after", snapshots[first[k]].name], final[k] < last ? ["Left after", snapshots[final[k] + 1].name] : ["Left", "is still in the memory"]);
    if (exemplars[k].target) facts.push(["Target", exemplars[k].target]);
    facts.push(["Number", String(k)]);
    byId("detail-facts").replaceChildren(...facts.filter(([what]) => weighted || what !== "Weight").flatMap(([what, value]) => [make("dt", {}, what), make("dd", {}, value)]));
    byId("detail").showModal();
  }

  // One stop of the Tab key for all exemplars; arrows move among them.
  function move(event) {
    const tiles = [...document.querySelectorAll("#shown .tile")];
    const at = tiles.indexOf(document.activeElement);
    if (at < 0) return;
    const here = tiles[at].getBoundingClientRect();
    const middle = here.left + here.width / 2;
    const vertical = (list) => {
      const line = list.find((t) => Math.abs(t.getBoundingClientRect().top - here.top) > 4);
      if (!line) return null;
      const top = line.getBoundingClientRect().top;
      const distance = (t) => Math.abs(t.getBoundingClientRect().left + here.width / 2 - middle);
      return list.filter((t) => Math.abs(t.getBoundingClientRect().top - top) < 4).reduce((a, b) => (distance(b) < distance(a) ? b : a));
    };
    const targets = {
      ArrowRight: () => tiles[at + 1], ArrowLeft: () => tiles[at - 1], Home: () => tiles[0], End: () => tiles[tiles.length - 1],
      ArrowDown: () => vertical(tiles.slice(at + 1)), ArrowUp: () => vertical(tiles.slice(0, at).reverse()),
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    const target = targets[event.key]();
    if (!target) return;
    tiles[at].tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  function options(select, entries, value) {
    select.append(...entries.map(([key, text]) => make("option", { value: key }, text)));
    select.value = value;
    select.addEventListener("change", () => { state[select.id] = select.value; render(); });
  }

  function start() {
    showFacts();
    if (last > 0) {
      showHistory();
      byId("slider").hidden = false;
      byId("step").max = last;
      byId("legend").textContent = "+ entered at this step, − left at this step. Move the slider to go through the stream.";
    }
    if (classes.length) showCounts();
    options(byId("show"), [["memory", "the whole memory"], ...(last > 0 ? [["entered", "what entered"], ["left", "what left"], ["both", "what entered or left"]] : [])], "memory");
    options(byId("class"), [["all", "all classes"], ...classes.map((one) => [String(one.label), one.name])], "all");
    options(byId("sort"), Object.entries(ORDERS).filter(([key]) => weighted || !["heavy", "light"].includes(key)).map(([key, [text]]) => [key, text]), state.sort);
    byId("class-choice").hidden = classes.length < 2;
    byId("weight-choice").hidden = !weighted;
    byId("least").addEventListener("input", (event) => { state.least = event.target.value === "" ? null : Number(event.target.value); render(); });
    const go = (step) => { state.step = Math.min(last, Math.max(0, step)); render(); };
    byId("step").addEventListener("input", (event) => go(Number(event.target.value)));
    byId("earlier").addEventListener("click", () => go(state.step - 1));
    byId("later").addEventListener("click", () => go(state.step + 1));
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("shown").addEventListener("click", (event) => { const found = event.target.closest(".tile"); if (found) detail(found.one); });
    byId("shown").addEventListener("keydown", move);
    for (const one of figures) {
      byId("figures").hidden = false;
      byId("figures").append(make("figure", {}, make("figcaption", {}, one.caption), make("img", { src: one.uri, alt: one.caption })));
    }
    render();
  }
  start();
})();
