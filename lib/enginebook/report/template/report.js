// The page's behaviour: charts, theme, folded code, tables that sort and filter. No network, no eval.
(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const main = document.getElementById("content");
  const NARROW = 520, DRAWN = 640;

  // ---- buttons
  const theme = window.enginebookTheme, themeButton = document.getElementById("eb-theme");
  const nameTheme = () => {
    themeButton.textContent = themeButton.dataset.label.replace("{name}", themeButton.dataset[theme.choice]);
  };
  themeButton.addEventListener("click", () => {
    const order = ["auto", "light", "dark"];
    theme.set(order[(order.indexOf(theme.choice) + 1) % order.length]);
    nameTheme();
  });
  nameTheme();
  const codeButton = document.getElementById("eb-code");
  codeButton.addEventListener("click", () => {
    const open = codeButton.getAttribute("aria-pressed") !== "true";
    codeButton.setAttribute("aria-pressed", String(open));
    codeButton.textContent = open ? codeButton.dataset.hide : codeButton.dataset.show;
    document.documentElement.toggleAttribute("data-code", open);
    all("details.eb-code").forEach((fold) => { fold.open = open; });
  });
  codeButton.setAttribute("aria-pressed", "false");
  document.getElementById("eb-tools").hidden = false;
  const contents = document.getElementById("eb-contents");
  if (contents && matchMedia("(max-width: 62rem)").matches) contents.open = false;

  // ---- tooltip: text only, never markup
  const tip = document.getElementById("eb-tip");
  const showTip = (_handler, event, _item, value) => {
    if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
    const rows = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
    tip.replaceChildren(...rows.map(([name, text], place) => {
      const row = document.createElement("div"), label = document.createElement("span"), shown = document.createElement("b");
      label.textContent = place === 0 ? "" : name;
      shown.textContent = text;
      row.append(label, shown);
      return row;
    }));
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), gap = 14;
    const left = Math.min(event.clientX + gap, document.documentElement.clientWidth - box.width - 8);
    const above = event.clientY - box.height - gap;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + gap}px`;
  };
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  // ---- charts
  const fit = (source, width) => {
    const spec = structuredClone(source);
    delete spec.title;
    spec.background = "transparent";
    spec.config = { ...spec.config, background: "transparent" };
    if (spec.facet) {
      spec.columns = width < NARROW ? 1 : spec.columns || 2;
      spec.spec.width = Math.max(150, Math.floor(width / spec.columns) - 76);
    } else {
      spec.width = width;
      spec.autosize = { type: "fit-x", contains: "padding" };
    }
    if (width < NARROW) narrowLegends(spec, width / DRAWN);
    return spec;
  };
  const narrowLegends = (node, part) => {
    if (node === null || typeof node !== "object") return;
    if (node.legend && node.legend.columns) node.legend.columns = Math.max(1, Math.floor(node.legend.columns * part));
    Object.entries(node).forEach(([name, value]) => { if (name !== "datasets" && name !== "data") narrowLegends(value, part); });
  };
  const draw = async (figure) => {
    const mount = figure.querySelector(".eb-mount"), width = Math.floor(mount.clientWidth);
    if (!width || Math.abs(width - Number(mount.dataset.width || 0)) < 8) return;
    mount.dataset.width = String(width);
    const source = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    try {
      figure.view?.finalize();
      const { view } = await vegaEmbed(mount, fit(source, width), {
        mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: showTip,
      });
      figure.view = view;
      // the mount carries the description; parts of the drawing need not be announced one by one
      mount.querySelector("svg")?.setAttribute("aria-hidden", "true");
      mount.dataset.drawn = "";
      figure.querySelector(".eb-save").hidden = false;
    } catch (error) {
      mount.textContent = String(error);
      console.error(error);
    }
  };
  const drawAll = async () => { for (const figure of all("figure.eb-chart")) await draw(figure); };
  all("figure.eb-chart").forEach((figure, place) => {
    figure.querySelector(".eb-save").addEventListener("click", async () => {
      const svg = await figure.view.toSVG();
      const link = document.createElement("a");
      link.href = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
      link.download = `chart-${place + 1}.svg`;
      link.click();
    });
  });
  if (window.vegaEmbed) {
    // drawing moves what comes after it: go to the linked section again, unless the reader moved on
    let moved = false;
    ["wheel", "touchmove", "keydown", "pointerdown"].forEach((kind) => addEventListener(kind, () => { moved = true; }, { once: true, passive: true }));
    drawAll().then(() => {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (target && !moved) target.scrollIntoView({ behavior: "instant" });
      document.documentElement.setAttribute("data-ready", "");
    });
    let pending = 0;
    new ResizeObserver(() => { clearTimeout(pending); pending = setTimeout(drawAll, 150); }).observe(main);
  } else {
    document.documentElement.setAttribute("data-ready", "");
  }

  // ---- tables
  const value = (row, column) => {
    const cell = row.cells[column], stored = cell.dataset.sort;
    if (stored !== undefined) return Number(stored);
    const text = cell.textContent.trim(), number = Number(text.replaceAll(",", "").replace("\u2212", "-"));
    return text !== "" && Number.isFinite(number) ? number : text.toLocaleLowerCase();
  };
  const order = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === typeof b) return a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  const sortable = (table, head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "eb-sort";
    button.append(...head.childNodes);
    button.title = main.dataset.sort.replace("{name}", button.textContent);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (down ? -1 : 1) * order(value(a, column), value(b, column)));
      table.tBodies[0].append(...rows);
    });
  };
  const filterable = (table) => {
    const bar = document.createElement("div"), shown = document.createElement("output");
    bar.className = "eb-filters";
    const rows = [...table.tBodies[0].rows], tests = [];
    const update = () => {
      rows.forEach((row) => { row.hidden = !tests.every((test) => test(row)); });
      const left = rows.filter((row) => !row.hidden).length;
      shown.textContent = main.dataset.shown.replace("{shown}", left).replace("{all}", rows.length);
    };
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      if (!head.hasAttribute("data-filter")) return;
      const label = document.createElement("label"), select = document.createElement("select");
      const values = [...new Set(rows.map((row) => row.cells[column].textContent.trim()))].sort((a, b) => a.localeCompare(b));
      select.append(new Option(main.dataset.all, ""), ...values.map((text) => new Option(text, text)));
      label.append(head.textContent.trim(), " ", select);
      select.addEventListener("change", update);
      tests.push((row) => select.value === "" || row.cells[column].textContent.trim() === select.value);
      bar.append(label);
    });
    const search = document.createElement("input");
    search.type = "search";
    search.placeholder = main.dataset.search;
    search.setAttribute("aria-label", main.dataset.search);
    search.addEventListener("input", update);
    tests.push((row) => row.textContent.toLocaleLowerCase().includes(search.value.trim().toLocaleLowerCase()));
    bar.append(search, shown);
    const region = table.closest(".eb-table");
    region.before(bar);
    region.classList.toggle("eb-tall", rows.length > 24);
    update();
    heads.forEach((head, column) => sortable(table, head, column));
  };
  all("table[data-interactive]").forEach(filterable);

  // ---- contents: the section being read
  const links = new Map(all(".eb-contents a").map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "0px 0px -75% 0px" });
  links.forEach((_link, anchor) => { const target = document.getElementById(anchor); if (target) seen.observe(target); });
})();
