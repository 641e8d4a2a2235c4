"use strict";
// Tables that can be sorted, searched and paged. Cells are created as text and SVG, never as markup, so ids cannot run.
(() => {
  const GRADE_COLORS = ["#D55E00", "#E69F00", "#8a939c", "#56B4E9", "#0072B2", "#CC79A7", "#009E73"];
  const BLUE = "#0072B2", SKY = "#56B4E9", GRAY = "#8a939c", INK = "#1f2933";
  const ADVICE = ["drop", "check", "train", "calibrate", "pay", "keep", "wait"];
  const NUMBERS = ["number", "difference", "p", "share"];
  const LINES = ["line", "passage"];
  const TEXTS = ["text", "advice", ...LINES];
  const PAGE_ROWS = 12;
  const PRINTED_ROWS = 60;  // paper has no button for the next page
  const INTERVAL_WIDTH = 100, BAR_WIDTH = 70, VOTES_WIDTH = 130;
  const PASSAGE_LENGTH = 160;  // characters of a passage; the full text is shown on hover

  function element(name, classes, text) {
    const created = document.createElement(name);
    if (classes) created.className = classes;
    if (text !== undefined) created.textContent = text;
    return created;
  }

  function shape(name, attributes) {
    const created = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) created.setAttribute(key, attributes[key]);
    return created;
  }

  function drawing(width, label) {
    return shape("svg", { width: width, height: 16, viewBox: `0 0 ${width} 16`, role: "img", "aria-label": label });
  }

  function format(value, digits, signed) {
    if (value === null) return "";
    const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
    return signed && value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
  }

  // Value that a cell is sorted by; null is sorted last.
  function sortKey(cell, column) {
    if (cell === null || cell === "") return null;
    if (column.kind === "interval") return cell[1];
    if (column.kind === "votes") {
      const total = cell.reduce((a, b) => a + b, 0);
      return total ? cell.reduce((sum, n, grade) => sum + n * grade, 0) / total : null;
    }
    if (column.kind === "advice") return ADVICE.indexOf(cell);
    return typeof cell === "number" ? cell : String(cell);
  }

  const collator = new Intl.Collator("en", { numeric: true });

  function compare(a, b) {
    return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
  }

  // Range of the axis of a column. Very wide intervals are cut off, estimates never.
  function axisRange(rows, place, kind) {
    const known = rows.flatMap((row) => row[place]).filter((value) => value !== null).sort((a, b) => a - b);
    const quantile = (share) => (known.length ? known[Math.round(share * (known.length - 1))] : 0);
    const cut = kind === "interval" && quantile(1) - quantile(0) > 2 * (quantile(0.97) - quantile(0.03)) ? 0.03 : 0;
    const estimates = kind === "interval" ? rows.map((row) => row[place][1]).filter((value) => value !== null) : [];
    const low = Math.min(0, quantile(cut), ...estimates), high = Math.max(0, quantile(1 - cut), ...estimates);
    return high > low ? [low, high] : [low, low + 1];
  }

  function fillInterval(td, [lower, middle, upper], column, [low, high]) {
    td.append(element("span", "value", format(middle, column.digits, column.signed)));
    if (middle === null) return;
    const x = (value) => 4 + (INTERVAL_WIDTH - 8) * Math.min(1, Math.max(0, (value - low) / (high - low)));
    const known = lower !== null && upper !== null;
    const text = known ? `${format(lower, column.digits, column.signed)} to ${format(upper, column.digits, column.signed)}` : "no interval";
    const svg = drawing(INTERVAL_WIDTH, text);
    svg.append(shape("line", { x1: x(0), x2: x(0), y1: 0, y2: 16, stroke: GRAY, "stroke-dasharray": "2 2" }));
    if (known) svg.append(shape("line", { x1: x(lower), x2: x(upper), y1: 8, y2: 8, stroke: SKY, "stroke-width": 5 }));
    if (known && lower < low) svg.append(shape("polygon", { points: "0,8 7,2 7,14", fill: SKY }));  // continues
    if (known && upper > high) svg.append(shape("polygon", { points: `${INTERVAL_WIDTH},8 ${INTERVAL_WIDTH - 7},2 ${INTERVAL_WIDTH - 7},14`, fill: SKY }));
    svg.append(shape("circle", { cx: x(middle), cy: 8, r: 3, fill: BLUE }));
    td.append(svg);
    td.title = text;
  }

  function fillBar(td, cell, column, range) {
    td.append(element("span", "value", format(cell, column.digits)));
    const svg = drawing(BAR_WIDTH, "");
    svg.append(shape("rect", { x: 0, y: 3, width: cell === null ? 0 : (BAR_WIDTH * cell) / range[1], height: 10, fill: BLUE }));
    td.append(svg);
  }

  // Two grades have the first and last color, three also the middle one.
  function gradeColor(grade, size) {
    if (size > GRADE_COLORS.length) return GRADE_COLORS[Math.round((grade * 4) / (size - 1))];
    return GRADE_COLORS[size === 2 ? 4 * grade : size === 3 ? 2 * grade : grade];
  }

  function fillVotes(td, cell, grades) {
    const total = cell.reduce((a, b) => a + b, 0) || 1;
    const text = cell.map((n, grade) => `${n} × grade ${grades[grade]}`).filter((_, grade) => cell[grade]).join(", ");
    const svg = drawing(VOTES_WIDTH, text);
    let x = 0;
    cell.forEach((n, grade) => {
      if (!n) return;
      const width = (VOTES_WIDTH * n) / total, color = gradeColor(grade, cell.length);
      svg.append(shape("rect", { x: x, y: 1, width: Math.max(width - 1, 1), height: 14, fill: color }));
      if (width > 13) {
        const label = shape("text", { x: x + width / 2, y: 12, "font-size": 10.5, "text-anchor": "middle", fill: [BLUE, "#D55E00"].includes(color) ? "#fff" : INK });
        label.textContent = grades[grade];
        svg.append(label);
      }
      x += width;
    });
    td.append(svg);
    td.title = text;
  }

  function fill(td, cell, column, table, range) {
    if (NUMBERS.includes(column.kind)) {
      td.className = "n";
      if (cell === null) return;
      if (column.kind === "share") td.textContent = `${Math.round(100 * cell)}%`;
      else if (column.kind === "p" && cell < 0.0005) td.textContent = "< 0.001";  // a p-value is never 0
      else td.textContent = format(cell, column.digits, column.kind === "difference");
    } else if (column.kind === "advice") td.append(element("span", `pill ${cell}`, cell));
    else if (TEXTS.includes(column.kind)) td.textContent = cell === null ? "" : cell;
    else {
      td.className = "drawing";
      if (column.kind === "interval") fillInterval(td, cell, column, range);
      else if (column.kind === "bar") fillBar(td, cell, column, range);
      else fillVotes(td, cell, table.grades);
    }
  }

  // A line has a row of its own below the numbers; a passage is a line that is cut.
  function lineBelow(text, column, width) {
    const below = element("tr", "below"), td = element("td", "line");
    td.colSpan = width;
    const long = column.kind === "passage" && text.length > PASSAGE_LENGTH;
    const span = element("span", "", long ? `${text.slice(0, PASSAGE_LENGTH)}…` : text);
    if (long) span.title = text;
    td.append(span);
    below.append(td);
    return below;
  }

  function button(text, action) {
    const created = element("button", "", text);
    created.type = "button";
    created.addEventListener("click", action);
    return created;
  }

  function build(box) {
    const table = JSON.parse(document.getElementById(`data-${box.dataset.table}`).textContent);
    const columns = table.columns, advice = columns.findIndex((column) => column.kind === "advice");
    const ranges = columns.map((column, at) => (["bar", "interval"].includes(column.kind) ? axisRange(table.rows, at, column.kind) : null));
    const texts = table.rows.map((row) => row.filter((cell) => typeof cell === "string").join(" ").toLowerCase());
    const width = columns.filter((column) => !LINES.includes(column.kind)).length;
    const state = { by: table.sorted_by, descending: table.descending, first: 0, search: "", advice: "", printing: false };
    const update = (changes) => { Object.assign(state, { first: 0 }, changes); show(); };

    const tools = element("div", "tools"), search = element("input");
    search.type = "search";
    search.placeholder = `Search ${box.dataset.label}`;
    search.setAttribute("aria-label", search.placeholder);
    search.addEventListener("input", () => update({ search: search.value.trim().toLowerCase() }));
    tools.append(search);
    if (advice >= 0) {
      const select = element("select");
      select.setAttribute("aria-label", "Show only");
      for (const name of ["", ...new Set(table.rows.map((row) => row[advice]))]) {
        const option = element("option", "", name || "all");
        option.value = name;
        select.append(option);
      }
      select.addEventListener("change", () => update({ advice: select.value }));
      tools.append(select);
    }
    const previous = button("‹ previous", () => update({ first: Math.max(0, state.first - PAGE_ROWS) }));
    const next = button("next ›", () => update({ first: state.first + PAGE_ROWS }));
    const count = element("span", "count");
    count.setAttribute("role", "status");
    tools.append(previous, next, count);

    const head = element("tr");
    const headers = columns.map((column, at) => {
      const th = element("th", NUMBERS.includes(column.kind) ? "n" : "");
      th.scope = "col";
      th.title = column.help;
      th.append(button(column.title, () => update({ by: at, descending: state.by === at ? !state.descending : !TEXTS.includes(column.kind) })));
      if (!LINES.includes(column.kind)) head.append(th);
      return th;
    });
    const thead = element("thead"), body = element("tbody"), grid = element("table"), frame = element("div", "table-frame");
    thead.append(head);
    grid.append(thead, body);
    frame.append(grid);
    frame.tabIndex = 0;

    function matchingRows() {
      const matches = [...texts.keys()].filter((row) => texts[row].includes(state.search) && (!state.advice || table.rows[row][advice] === state.advice));
      const keys = table.rows.map((row) => sortKey(row[state.by], columns[state.by]));
      return matches.sort((a, b) => {
        if (keys[a] === null || keys[b] === null) return (keys[a] === null) - (keys[b] === null) || a - b;
        const order = compare(keys[a], keys[b]);
        return (state.descending ? -order : order) || a - b;
      });
    }

    function rowElements(row) {
      const lines = [element("tr")];
      columns.forEach((column, at) => {
        if (LINES.includes(column.kind)) {
          if (row[at]) lines.push(lineBelow(row[at], column, width));
          return;
        }
        const td = element("td");
        fill(td, row[at], column, table, ranges[at]);
        if (at === 0) td.className = "id";
        lines[0].append(td);
      });
      return lines;
    }

    function show() {
      const rows = matchingRows();
      state.first = Math.min(state.first, Math.max(0, Math.floor((rows.length - 1) / PAGE_ROWS) * PAGE_ROWS));
      const first = state.printing ? 0 : state.first;
      const last = Math.min(rows.length, first + (state.printing ? PRINTED_ROWS : PAGE_ROWS));
      body.replaceChildren(...rows.slice(first, last).flatMap((row) => rowElements(table.rows[row])));
      headers.forEach((th, at) => {
        if (at === state.by) th.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
        else th.removeAttribute("aria-sort");
      });
      const more = table.total > table.rows.length ? ` (${table.file} has all ${format(table.total, 0)})` : "";
      count.textContent = rows.length ? `${state.printing ? last : `${first + 1}–${last}`} of ${format(rows.length, 0)}${more}` : `no matches${more}`;
      previous.disabled = first === 0;
      next.disabled = last >= rows.length;
    }

    show();
    addEventListener("beforeprint", () => { state.printing = true; show(); });
    addEventListener("afterprint", () => { state.printing = false; show(); });
    const area = element("div", "scrollable");
    area.append(frame);
    box.replaceChildren(tools, area);
  }

  // A box that can be scrolled sideways has a hint above it and a shadow on the side with more content.
  function addScrollHint(area) {
    const box = area.firstElementChild, hint = element("p", "hint", "scroll sideways for more →");
    hint.setAttribute("aria-hidden", "true");
    area.prepend(hint);
    function update() {
      const more = area.closest("details:not([open])") ? 0 : box.scrollWidth - box.clientWidth;
      area.classList.toggle("left", box.scrollLeft > 2);
      area.classList.toggle("right", more - box.scrollLeft > 2);
      hint.classList.toggle("shown", more > 2);
    }
    box.addEventListener("scroll", update, { passive: true });
    const details = area.closest("details");
    if (details) details.addEventListener("toggle", update);
    for (const observed of [box, ...box.children]) new ResizeObserver(update).observe(observed);
    update();
  }

  function openForPrint(details) {
    let closed = false;
    addEventListener("beforeprint", () => { closed = closed || !details.open; details.open = true; });
    addEventListener("afterprint", () => { if (closed) details.open = false; closed = false; });
  }

  document.querySelectorAll(".table").forEach(build);
  document.querySelectorAll("details").forEach(openForPrint);
  document.querySelectorAll(".scrollable").forEach(addScrollHint);
  document.documentElement.classList.add("scripted");
})();
