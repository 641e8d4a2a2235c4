"use strict";
// Tables: sorted, searched and paged here. Cells are made as text and shapes, never as markup, so whatever ids hold is inert.
(() => {
  const COLORS = ["#D55E00", "#E69F00", "#8a939c", "#56B4E9", "#0072B2", "#CC79A7", "#009E73"];
  const NUMBERS = ["number", "difference", "p", "share"];
  const PAGE = 12;
  const PRINTED = 60;  // rows of a table on paper, which has no next page to click
  const ROOM = 100;  // the width of a picture in a table

  function element(name, classes, text) {
    const made = document.createElement(name);
    if (classes) made.className = classes;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function shape(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return made;
  }

  function written(value, digits, signed) {
    if (value === null) return "";
    const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
    return signed && value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
  }

  // The number that a cell is sorted by; cells without one come last.
  function key(cell, column) {
    if (cell === null || cell === "") return null;
    if (column.kind === "interval") return cell[1];
    if (column.kind === "votes") {
      const total = cell.reduce((a, b) => a + b, 0);
      return total ? cell.reduce((sum, n, grade) => sum + n * grade, 0) / total : null;
    }
    if (column.kind === "advice") return ["drop", "check", "train", "pay", "keep", "wait"].indexOf(cell);
    return typeof cell === "number" ? cell : String(cell);
  }

  const words = new Intl.Collator("en", { numeric: true });

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return words.compare(String(a), String(b));
  }

  function range(rows, place, kind) {
    // The farthest ends of intervals are cut off where they are very far, never their middles: one that knows nothing
    // would leave no room for the others.
    const known = rows.flatMap((row) => row[place]).filter((value) => value !== null).sort((a, b) => a - b);
    const at = (share) => (known.length ? known[Math.round(share * (known.length - 1))] : 0);
    const cut = kind === "interval" && at(1) - at(0) > 2 * (at(0.97) - at(0.03)) ? 0.03 : 0;
    const middles = kind === "interval" ? rows.map((row) => row[place][1]).filter((value) => value !== null) : [];
    const low = Math.min(0, at(cut), ...middles), high = Math.max(0, at(1 - cut), ...middles);
    return high > low ? [low, high] : [low, low + 1];
  }

  function picture(width, label) {
    return shape("svg", { width: width, height: 16, viewBox: `0 0 ${width} 16`, role: "img", "aria-label": label });
  }

  function filled(td, cell, column, sheet, reach) {
    if (column.kind === "interval") {
      td.className = "pic";
      const [lower, middle, upper] = cell;
      td.append(element("span", "val", written(middle, column.digits, column.signed)));
      if (middle === null) return;
      const x = (value) => 4 + (ROOM - 8) * Math.min(1, Math.max(0, (value - reach[0]) / (reach[1] - reach[0])));
      const known = lower !== null && upper !== null;
      const said = known ? `${written(lower, column.digits, column.signed)} to ${written(upper, column.digits, column.signed)}` : "no interval";
      const svg = picture(ROOM, said);
      svg.append(shape("line", { x1: x(0), x2: x(0), y1: 0, y2: 16, stroke: "#8a939c", "stroke-dasharray": "2 2" }));
      if (known) svg.append(shape("line", { x1: x(lower), x2: x(upper), y1: 8, y2: 8, stroke: "#56B4E9", "stroke-width": 5 }));
      // Where an interval goes on beyond the picture, it ends in an arrow.
      if (known && lower < reach[0]) svg.append(shape("polygon", { points: "0,8 7,2 7,14", fill: "#56B4E9" }));
      if (known && upper > reach[1]) svg.append(shape("polygon", { points: `${ROOM},8 ${ROOM - 7},2 ${ROOM - 7},14`, fill: "#56B4E9" }));
      svg.append(shape("circle", { cx: x(middle), cy: 8, r: 4, fill: "#0072B2" }));
      td.append(svg);
      td.title = said;
    } else if (column.kind === "bar") {
      td.className = "pic";
      td.append(element("span", "val", written(cell, column.digits)));
      const svg = picture(ROOM - 30, "");
      svg.append(shape("rect", { x: 0, y: 3, width: cell === null ? 0 : ((ROOM - 30) * cell) / reach[1], height: 10, fill: "#0072B2" }));
      td.append(svg);
    } else if (column.kind === "votes") {
      td.className = "pic";
      const total = cell.reduce((a, b) => a + b, 0) || 1;
      const said = cell.map((n, grade) => `${n} × grade ${sheet.grades[grade]}`).filter((text, grade) => cell[grade]).join(", ");
      const svg = picture(130, said);
      let x = 0;
      cell.forEach((n, grade) => {
        if (!n) return;
        const width = (130 * n) / total;
        const color = COLORS[cell.length > COLORS.length ? Math.round((grade * 4) / (cell.length - 1)) : place(grade, cell.length)];
        svg.append(shape("rect", { x: x, y: 1, width: Math.max(width - 1, 1), height: 14, fill: color }));
        if (width > 13) {
          const text = shape("text", { x: x + width / 2, y: 12, "font-size": 10.5, "text-anchor": "middle", fill: color === "#0072B2" || color === "#D55E00" ? "#fff" : "#1f2933" });
          text.textContent = sheet.grades[grade];
          svg.append(text);
        }
        x += width;
      });
      td.append(svg);
      td.title = said;
    } else if (column.kind === "advice") {
      td.append(element("span", `pill ${cell}`, cell));
    } else if (column.kind === "share") {
      td.className = "n";
      td.textContent = cell === null ? "" : `${Math.round(100 * cell)}%`;
    } else if (column.kind === "difference") {
      td.className = "n";
      td.textContent = written(cell, column.digits, true);
    } else if (column.kind === "p") {  // no p is 0
      td.className = "n";
      td.textContent = cell !== null && cell < 0.0005 ? "< 0.001" : written(cell, column.digits);
    } else if (column.kind === "number") {
      td.className = "n";
      td.textContent = cell === null ? "" : written(cell, column.digits);
    } else {
      td.textContent = cell === null ? "" : cell;
      if (column.kind === "words") td.className = "words";
    }
  }

  // Two grades take the ends of the colors, three also the middle.
  function place(grade, size) {
    if (size === 2) return [0, 4][grade];
    return size === 3 ? [0, 2, 4][grade] : grade;
  }

  function build(box) {
    const sheet = JSON.parse(document.getElementById(`data-${box.dataset.sheet}`).textContent);
    const columns = sheet.columns;
    const reaches = columns.map((column, at) => (["bar", "interval"].includes(column.kind) ? range(sheet.rows, at, column.kind) : null));
    const texts = sheet.rows.map((row) => row.filter((cell) => typeof cell === "string").join(" ").toLowerCase());
    const state = { by: sheet.sorted_by[0], down: sheet.sorted_by[1], from: 0, asked: "", advice: "", printed: false };
    const advice = columns.findIndex((column) => column.kind === "advice");

    const tools = element("div", "tools");
    const search = element("input");
    search.type = "search";
    search.placeholder = `Search ${box.dataset.label}`;
    search.setAttribute("aria-label", `Search ${box.dataset.label}`);
    search.addEventListener("input", () => { state.asked = search.value.trim().toLowerCase(); state.from = 0; show(); });
    tools.append(search);
    if (advice >= 0) {
      const select = element("select");
      select.setAttribute("aria-label", "Show only");
      for (const name of ["", ...new Set(sheet.rows.map((row) => row[advice]))]) {
        const option = element("option", "", name || "all");
        option.value = name;
        select.append(option);
      }
      select.addEventListener("change", () => { state.advice = select.value; state.from = 0; show(); });
      tools.append(select);
    }
    const back = element("button", "", "‹ previous");
    const forth = element("button", "", "next ›");
    back.type = forth.type = "button";
    back.addEventListener("click", () => { state.from = Math.max(0, state.from - PAGE); show(); });
    forth.addEventListener("click", () => { state.from += PAGE; show(); });
    const count = element("span", "count");
    count.setAttribute("role", "status");
    tools.append(back, forth, count);

    const frame = element("div", "frame");
    const table = element("table");
    const head = element("tr");
    const heads = columns.map((column, at) => {
      const th = element("th", NUMBERS.includes(column.kind) ? "n" : "");
      th.scope = "col";
      const button = element("button", "", column.title);
      button.type = "button";
      if (column.help) button.title = column.help;
      button.addEventListener("click", () => {
        const numeric = !["text", "words", "flag", "advice"].includes(column.kind);
        state.down = state.by === at ? !state.down : numeric;
        state.by = at;
        state.from = 0;
        show();
      });
      th.append(button);
      if (column.kind !== "words") head.append(th);
      return th;
    });
    const thead = element("thead");
    thead.append(head);
    const body = element("tbody");
    table.append(thead, body);
    frame.append(table);
    frame.tabIndex = 0;

    function found() {
      const at = [];
      texts.forEach((text, row) => {
        if (state.asked && !text.includes(state.asked)) return;
        if (state.advice && sheet.rows[row][advice] !== state.advice) return;
        at.push(row);
      });
      const keys = sheet.rows.map((row) => key(row[state.by], columns[state.by]));
      return at.sort((a, b) => {
        if (keys[a] === null || keys[b] === null) return (keys[a] === null) - (keys[b] === null) || a - b;
        const order = compare(keys[a], keys[b]);
        return (state.down ? -order : order) || a - b;
      });
    }

    function show() {
      const rows = found();
      state.from = Math.min(state.from, Math.max(0, Math.floor((rows.length - 1) / PAGE) * PAGE));
      const first = state.printed ? 0 : state.from;
      const last = Math.min(rows.length, first + (state.printed ? PRINTED : PAGE));
      body.replaceChildren(...rows.slice(first, last).flatMap((row) => {
        const lines = [element("tr")];
        columns.forEach((column, at) => {
          const td = element("td");
          filled(td, sheet.rows[row][at], column, sheet, reaches[at]);
          if (at === 0) td.className = "id";
          if (column.kind === "words") {  // a sentence has a line of its own below the numbers
            const below = element("tr", "below");
            td.colSpan = columns.length - 1;
            td.replaceChildren(element("span", "", td.textContent));
            below.append(td);
            lines.push(below);
          } else lines[0].append(td);
        });
        return lines;
      }));
      heads.forEach((th, at) => {
        if (at === state.by) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        else th.removeAttribute("aria-sort");
      });
      const some = sheet.total > sheet.rows.length ? ` (of ${written(sheet.total, 0)} in all: ${sheet.file})` : "";
      count.textContent = rows.length ? `${state.printed ? last : `${first + 1}–${last}`} of ${written(rows.length, 0)}${some}` : `nothing found${some}`;
      back.disabled = first === 0;
      forth.disabled = last >= rows.length;
    }

    show();
    addEventListener("beforeprint", () => { state.printed = true; show(); });
    addEventListener("afterprint", () => { state.printed = false; show(); });
    const hold = element("div", "hold");
    hold.append(frame);
    box.replaceChildren(tools, hold);
  }

  // A box that holds more than it shows says so: a shadow on the side where there is more, and a hint above.
  function hinted(hold) {
    const box = hold.firstElementChild;
    const hint = element("p", "hint", "slide sideways for more →");
    hint.setAttribute("aria-hidden", "true");
    hold.prepend(hint);
    function look() {
      const more = box.scrollWidth - box.clientWidth;
      hold.classList.toggle("left", box.scrollLeft > 2);
      hold.classList.toggle("right", more - box.scrollLeft > 2);
      hint.classList.toggle("shown", more > 2);
    }
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box);
    for (const inner of box.children) new ResizeObserver(look).observe(inner);
    look();
  }

  // On paper nothing can be opened: what is closed is opened before, and closed again after.
  function opened(details) {
    let closed = false;
    addEventListener("beforeprint", () => { closed = closed || !details.open; details.open = true; });
    addEventListener("afterprint", () => { if (closed) details.open = false; closed = false; });
  }

  document.querySelectorAll(".sheet").forEach(build);
  document.querySelectorAll("details").forEach(opened);
  document.querySelectorAll(".hold").forEach(hinted);
  document.documentElement.classList.add("slides");
})();
