// The decision guide: the same sums as report/guide_page.py, over the points embedded in the page.
(() => {
  "use strict";
  const NONE = "\u2013", MINUS = "\u2212", DIGITS = 1e9;
  const figure = (value) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
    if (value === 0) return "0";
    const digits = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
    const [whole, part] = value.toFixed(digits).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return (part ? `${grouped}.${part}` : grouped).replace("-", MINUS);
  };
  const fill = (text, fields) => text.replace(/\{(\w+)\}/g, (_all, name) => String(fields[name]));

  const nearest = (points, wanted) => {
    const far = (p) => [[p.input_tokens, wanted.input_tokens], [p.output_tokens, wanted.output_tokens]]
      .map(([a, b]) => Math.log(Math.max(a, b) / Math.min(a, b)) ** 2).reduce((a, b) => a + b);
    const keys = points.map((p) => [Math.round(far(p) * DIGITS), p.input_tokens, p.output_tokens]);
    return keys.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2])[0].slice(1);
  };
  const meets = (p, wanted) => [[p.ttft_p95_ms ?? p.ttft_p50_ms, wanted.ttft_ms], [p.tpot_p50_ms, wanted.tpot_ms]]
    .every(([value, limit]) => limit === null || (value !== null && value <= limit));
  const above = (one, other) => !one.open && !other.open && one.low !== null && other.high !== null && one.low > other.high;
  const choice = (engine, points, wanted) => {
    const [input_tokens, output_tokens] = nearest(points, wanted);
    const fitting = points.filter((p) => p.input_tokens === input_tokens && p.output_tokens === output_tokens && meets(p, wanted));
    const found = { engine, input_tokens, output_tokens, point: null, rank: null, undecided: false };
    if (!fitting.length) return found;
    const point = fitting.reduce((a, b) => (b.concurrency > a.concurrency ? b : a));
    const tokens = wanted.rate_per_s * wanted.output_tokens, replicas = Math.ceil(tokens / point.value);
    const most = point.low !== null && point.low > 0 ? Math.ceil(tokens / point.low) : null;
    const per_hour = wanted.price === null ? null : replicas * wanted.price;
    const per_million = per_hour === null ? null : (per_hour / (tokens * 3600)) * 1e6;
    return { ...found, point, replicas, most, per_hour, per_million };
  };
  const choose = (points, wanted) => {
    const engines = [...new Set(points.map((p) => p.engine))];
    const found = engines.map((engine) => choice(engine, points.filter((p) => p.engine === engine), wanted));
    found.forEach((mine) => {
      if (!mine.point) return;
      const rivals = found.filter((other) => other.point && other !== mine).map((other) => other.point);
      mine.rank = 1 + rivals.filter((rival) => above(rival, mine.point)).length;
      mine.loss = 1 - mine.point.value / Math.max(mine.point.value, ...rivals.map((rival) => rival.value));
      mine.undecided = rivals.some((rival) => !above(rival, mine.point) && !above(mine.point, rival));
    });
    const key = (c) => [c.rank ?? Infinity, -(c.point?.value ?? 0)];
    const byName = (a, b) => (a.engine < b.engine ? -1 : a.engine > b.engine ? 1 : 0);
    return found.sort((a, b) => {
      const [rankA, valueA] = key(a), [rankB, valueB] = key(b);
      return (rankA === rankB ? 0 : rankA - rankB) || valueA - valueB || byName(a, b);
    });
  };
  const cells = (c, words) => {
    const at = fill(words.lengths, { input: c.input_tokens, output: c.output_tokens });
    if (!c.point) return [c.engine, words.none, at, NONE, NONE, NONE, NONE, NONE, NONE];
    const { value, low, high } = c.point;
    const span = low === null || high === null ? figure(value) : `${figure(value)} (${figure(low)} \u2013 ${figure(high)})`;
    const hosts = c.most === null || c.most === c.replicas ? `${c.replicas}` : `${c.replicas} \u2013 ${c.most}`;
    const rank = c.undecided ? fill(words.undecided, { rank: c.rank }) : `${c.rank}`;
    return [c.engine, rank, at, `${c.point.concurrency}`, span, figure(100 * c.loss), hosts, figure(c.per_hour), figure(c.per_million)];
  };

  document.querySelectorAll(".eb-guide").forEach((root) => {
    const { points, words } = JSON.parse(root.dataset.guide);
    const inputs = [...root.querySelectorAll("input[data-name]")], status = root.querySelector("[role=status]");
    const heads = root.querySelectorAll("thead th");
    const update = () => {
      const wanted = Object.fromEntries(inputs.map((i) => [i.dataset.name, i.value.trim() === "" ? null : Number(i.value)]));
      inputs.forEach((i) => {
        const given = wanted[i.dataset.name], asked = ["rate_per_s", "input_tokens", "output_tokens"].includes(i.dataset.name);
        const wrong = i.validity.badInput || (given === null ? asked : !Number.isFinite(given) || given < 0 || (given === 0 && i.dataset.name !== "price"));
        i.setAttribute("aria-invalid", String(wrong));
      });
      const body = root.querySelector("tbody");
      if (inputs.some((i) => i.getAttribute("aria-invalid") === "true")) {
        body.replaceChildren();
        status.textContent = words.invalid;
        return;
      }
      body.replaceChildren(...choose(points, wanted).map((c) => {
        const row = document.createElement("tr");
        row.append(...cells(c, words).map((text, column) => {
          const cell = document.createElement("td");
          cell.className = heads[column].className;
          cell.textContent = text;
          return cell;
        }));
        return row;
      }));
      status.textContent = fill(words.asked, wanted);
    };
    root.querySelector(".eb-asked").hidden = false;
    inputs.forEach((i) => i.addEventListener("input", update));
    update();
  });
})();
