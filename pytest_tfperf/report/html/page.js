"use strict";
(() => {
  const FACTORS = JSON.parse(document.getElementById("tests").dataset.factors);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // a quantity such as "12.4 ms", "2…3" or "÷ 4,000" as a number in base units; what is none comes last
  const number = (text) => {
    const found = /^([×÷≤≥<>\s]*)(-?[\d.,]+)\s*([^\s…]*)/.exec(text);
    const size = found ? parseFloat(found[2].replaceAll(",", "")) * (FACTORS[found[3]] ?? 1) : NaN;
    return found?.[1].startsWith("÷") ? 1 / size : size;
  };

  const sort = (table, column, header) => {
    const numeric = table.classList.contains(`n${column + 1}`);
    const sorted = header.getAttribute("aria-sort");
    const down = sorted === "none" ? numeric : sorted === "ascending";
    const key = (row) => {
      const cell = row.cells[column];
      const rank = cell?.querySelector("[data-rank]")?.dataset.rank, text = (rank ?? cell?.textContent ?? "").trim(); // the last cells of a row may be left out
      return numeric || rank ? number(text) : text.toLowerCase();
    };
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
    const empty = (value) => value === "" || Number.isNaN(value);
    const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => empty(a) - empty(b) || (empty(a) ? 0 : order(a, b)));
    all("th", table).forEach((other) => { other.setAttribute("aria-sort", "none"); });
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };

  for (const table of all("table.sort")) {
    all("thead th", table).forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      header.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, column, header));
      button.tabIndex = column ? -1 : 0; // one stop of the Tab key for a table; arrows move between its columns
    });
    table.tHead.addEventListener("keydown", (event) => {
      const buttons = all("button", table.tHead), to = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const next = to && buttons[buttons.indexOf(event.target) + to];
      if (next) {
        event.target.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
        event.preventDefault();
      }
    });
  }

  const labels = new Map(); // regions of one label would be alike for screen readers
  for (const region of all(".scroll")) {
    const test = region.closest(".test")?.querySelector("h2")?.textContent, profile = region.closest("section")?.querySelector("h3")?.textContent;
    const label = [region.querySelector("caption").textContent, test, profile].filter(Boolean).join(", ");
    labels.set(label, (labels.get(label) ?? 0) + 1);
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", labels.get(label) > 1 ? `${label} (${labels.get(label)})` : label);
  }

  const meanings = new Map(all("#glossary dt").map((term) => [term.textContent, term.nextElementSibling.textContent]));
  for (const cell of all(".metrics td:first-child")) {
    if (meanings.has(cell.textContent)) cell.title = meanings.get(cell.textContent);
  }

  // waterfalls: zoom by buttons, Ctrl and wheel; drag to move; the box under the pointer is named below
  const ticksBetween = (low, high, zoomed) => { // round numbers as far apart as the page says
    const found = zoomed.apart.find(([apart]) => apart * zoomed.n >= (high - low) * 0.999) ?? zoomed.apart.at(-1), [apart, digits] = found;
    const texts = [];
    for (let n = Math.ceil(low / apart - 1e-9); n * apart <= high * (1 + 1e-9); n += 1) texts.push([n * apart, `${((n * apart) / zoomed.scale).toFixed(digits)} ${zoomed.unit}`]);
    return texts;
  };
  for (const figure of all(".waterfall")) {
    const zoomed = JSON.parse(figure.dataset.zoom), { seconds } = zoomed, picture = figure.querySelector(".fall"), pointed = figure.querySelector(".pointed");
    const boxes = all("svg:not(.tick)", picture).map((box) => [box, parseFloat(box.getAttribute("x")), parseFloat(box.getAttribute("width"))]);
    const pattern = picture.querySelector(".tick");
    let left = 0, share = 1; // of the step: where the picture begins, and how much it shows
    const label = (box) => { // a box that was too narrow for its name has only a title
      const title = box.querySelector("title"), name = figure.querySelector("foreignObject")?.cloneNode(true);
      if (!title || !name || box.querySelector("foreignObject")) return;
      const whole = title.textContent.slice(0, title.textContent.lastIndexOf(": "));
      const parts = whole.match(zoomed.ends)?.slice(1) ?? [whole];
      name.querySelector("p").replaceChildren(...parts.flatMap((text, n) => text ? Object.assign(document.createElement(zoomed.tags[n]), { textContent: text }) : []));
      box.append(name);
    };
    const draw = () => {
      left = Math.min(Math.max(left, 0), 1 - share);
      for (const [box, x, width] of boxes) {
        const start = (x - 100 * left) / share, wide = width / share;
        box.setAttribute("x", `${start}%`);
        box.setAttribute("width", `${wide}%`);
        if (wide > zoomed.named) label(box);
        const name = box.querySelector("foreignObject"), hidden = Math.min(Math.max(-start, 0), wide), shown = Math.min(wide - hidden, 100);
        name?.setAttribute("x", `${(100 * hidden) / wide}%`); // a name stays within the picture
        name?.setAttribute("width", `${(100 * shown) / wide}%`);
      }
      all(".tick", picture).forEach((tick) => tick.remove());
      const found = ticksBetween(left * seconds, (left + share) * seconds, zoomed);
      picture.prepend(...found.map(([at, text]) => {
        const tick = pattern.cloneNode(true), place = (at / seconds - left) / share, words = tick.querySelector("text");
        tick.setAttribute("x", `${100 * place}%`);
        words.textContent = text;
        words.setAttribute("class", place < 0.04 ? "" : place > 0.96 ? "end" : "middle");
        return tick;
      }));
    };
    const zoom = (factor, around = 0.5) => {
      const middle = left + around * share;
      share = Math.min(1, Math.max(share / factor, zoomed.deepest));
      left = middle - around * share;
      draw();
    };
    const tools = document.createElement("span");
    tools.className = "zoom";
    for (const [text, label, action] of [["+", "Zoom in", () => zoom(2)], ["−", "Zoom out", () => zoom(0.5)], ["←", "Earlier", () => { left -= share / 4; draw(); }],
      ["→", "Later", () => { left += share / 4; draw(); }], ["whole step", "Show the whole step", () => zoom(1e-9)]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", action);
      tools.append(button, " ");
    }
    figure.querySelector("figcaption").append(" ", tools);
    const width = () => picture.getBoundingClientRect().width || 1;
    picture.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.5 : 1 / 1.5, (event.clientX - picture.getBoundingClientRect().left) / width());
    }, { passive: false });
    picture.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) {
        left -= (event.movementX / width()) * share;
        draw();
      }
      const title = event.target.closest("svg:not(.fall)")?.querySelector("title");
      if (title) pointed.textContent = title.textContent;
    });
    pointed.textContent = "Point at a box for its name and times; Ctrl and the wheel zoom, dragging moves.";
    pointed.hidden = false;
  }

  const tests = all(".test");
  const overview = new Map(all("#overview tbody tr").map((row) => [row, row.querySelector("a").hash.slice(1)]));
  const texts = new Map();
  const textOf = (element) => {
    if (!texts.has(element)) {
      const titles = all("[title]", element).map((cell) => cell.title);
      texts.set(element, [element.textContent, element.title ?? "", ...titles].join(" ").toLowerCase());
    }
    return texts.get(element);
  };
  const found = document.getElementById("found");
  const search = document.getElementById("search");
  const opened = new Set();

  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (element) => words.every((word) => textOf(element).includes(word));
    opened.forEach((details) => { details.open = false; });
    opened.clear();
    for (const test of tests) {
      const named = has(test.querySelector("summary"));
      const rows = all(".group tbody tr", test);
      const hits = named ? [] : rows.filter(has);
      test.hidden = !has(test);
      rows.forEach((row) => { row.hidden = hits.length > 0 && !hits.includes(row); });
      if (words.length && !named) {
        const holders = new Set(hits.map((row) => row.closest("details")));
        [test, ...holders].filter((details) => !details.open && !test.hidden).forEach((details) => { details.open = true; opened.add(details); });
      }
    }
    const shown = new Set(tests.filter((test) => !test.hidden).map((test) => test.id));
    overview.forEach((id, row) => { row.hidden = !shown.has(id); });
    found.textContent = words.length ? `${shown.size} of ${tests.length} tests` : "";
  };
  search.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== search) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && event.target === search) {
      search.value = "";
      show();
    }
  });

  const every = document.getElementById("every");
  every.addEventListener("click", () => {
    const open = tests.some((test) => !test.open);
    tests.forEach((test) => { test.open = open; });
    every.textContent = open ? "Close all" : "Open all";
  });
  document.querySelector(".tools").hidden = tests.length === 0; // as on a page of a history

  const arrive = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const around = target?.closest("details");
    if (around) {
      around.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", arrive);
  arrive();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all(".test[open] .group:not([open])");
    closed.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));
})();
